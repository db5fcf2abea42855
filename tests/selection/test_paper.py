"""The paper's selection over concatenated models."""

import numpy as np
import pytest
from tests.selection.data import Arrays, two_models

from oodzoo.errors import InputError
from oodzoo.features.source import ArraySource
from oodzoo.selection.concatenation import concatenated_moments
from oodzoo.selection.select import select_features
from oodzoo.selection.selector import SpikeSlabSelector


@pytest.fixture
def data() -> Arrays:
    return two_models()


def test_selects_among_the_concatenated_features(data: Arrays) -> None:
    features, y, domains = data
    selection = select_features(ArraySource(features, y, domains), ["two", "one"], method="paper")
    X = np.concatenate([features["two"], features["one"]], axis=1)
    mask = SpikeSlabSelector().fit(X, y).get_support()
    assert np.array_equal(selection.columns.by_model["two"], np.flatnonzero(mask[:3]))
    assert np.array_equal(selection.columns.by_model["one"], np.flatnonzero(mask[3:]))
    assert 0 < len(selection.columns) < selection.n_features == 10


def test_other_domains_have_no_influence(data: Arrays) -> None:
    features, y, domains = data
    changed = {name: np.where((domains == "c")[:, None], 7 * x, x) for name, x in features.items()}
    one, two = (
        select_features(
            ArraySource(f, y, domains), ["one", "two"], ["a", "b"], method="paper"
        ).summary()
        for f in (features, changed)
    )
    assert one == two


def test_fewer_samples_than_features() -> None:
    rng = np.random.default_rng(1)
    y, domains = np.tile([0, 1, 2], 10), np.repeat(["a", "b"], 15)
    features = {name: rng.normal(size=(30, 25)) for name in ("one", "two")}
    features["two"][:, :3] += 2 * np.eye(3)[y]
    source = ArraySource(features, y, domains)
    selection = select_features(source, ["one", "two"], method="paper")
    moments = concatenated_moments(source, ["one", "two"])
    selector = SpikeSlabSelector().fit_moments(moments)
    inclusion = np.concatenate([selection.inclusion["one"], selection.inclusion["two"]], axis=1)
    np.testing.assert_allclose(inclusion, selector.inclusion_, atol=1e-6)
    assert set(range(3)) <= set(selection.columns.by_model["two"])


def test_invalid_input_with_few_samples() -> None:
    y, domains = np.tile([0, 1], 4), np.repeat(["a", "b"], 4)
    X = np.random.default_rng(0).normal(size=(8, 20))
    X[5, 3] = np.nan
    source = ArraySource({"one": X}, y, domains)
    with pytest.raises(InputError, match=r"model 'one', domain 'b'.*NaN"):
        select_features(source, ["one"], method="paper")
    with pytest.raises(InputError, match="must be distinct"):
        select_features(source, ["one", "one"])


def test_a_class_that_the_domains_lack() -> None:
    """Nothing is kept for it, whether fitted to samples or to moments."""
    rng = np.random.default_rng(2)
    y = np.concatenate([np.tile([0, 1], 20), np.tile([0, 1, 2], 10)])
    domains = np.repeat(["a", "b"], [40, 30])
    for d in (5, 60):
        X = rng.normal(size=(70, d))
        X[:, 0] += 3 * y
        selection = select_features(ArraySource({"x": X}, y, domains), ["x"], ["a"], method="paper")
        assert selection.inclusion["x"].shape == (3, d)
        assert not selection.masks["x"][2].any()
        assert selection.masks["x"][0, 0]

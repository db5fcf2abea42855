"""Kept features of models side by side."""

from typing import Any

import numpy as np
import pytest

from oodzoo.errors import InputError
from oodzoo.features.columns import Columns
from oodzoo.features.source import ArraySource
from oodzoo.selection.concatenation import concatenated_moments
from oodzoo.selection.select import select_features
from oodzoo.selection.selector import SpikeSlabSelector

Arrays = tuple[dict[str, Any], Any, Any]


@pytest.fixture
def data() -> Arrays:
    rng = np.random.default_rng(0)
    y = np.tile([0, 1, 2], 60)
    domains = np.repeat(["a", "b", "c"], 60)
    good = np.eye(3)[y] + 0.1 * rng.normal(size=(180, 3))
    features = {
        "one": np.concatenate([good, rng.normal(size=(180, 4))], axis=1),
        "two": np.concatenate([rng.normal(size=(180, 2)), good[:, :1]], axis=1),
    }
    return features, y, domains


def test_selection_is_that_of_the_concatenated_features(data: Arrays) -> None:
    features, y, domains = data
    selection = select_features(ArraySource(features, y, domains), ["two", "one"])
    X = np.concatenate([features["two"], features["one"]], axis=1)
    mask = SpikeSlabSelector().fit(X, y).get_support()
    assert np.array_equal(selection.columns.by_model["two"], np.flatnonzero(mask[:3]))
    assert np.array_equal(selection.columns.by_model["one"], np.flatnonzero(mask[3:]))
    assert 0 < len(selection.columns) < selection.n_features == 10


def test_domains_that_are_not_named_have_no_influence(data: Arrays) -> None:
    features, y, domains = data
    changed = {name: np.where((domains == "c")[:, None], 7 * x, x) for name, x in features.items()}
    one, two = (
        select_features(ArraySource(f, y, domains), ["one", "two"], ["a", "b"]).to_dict()
        for f in (features, changed)
    )
    assert one == two


def test_fewer_samples_than_features() -> None:
    rng = np.random.default_rng(1)
    y, domains = np.tile([0, 1, 2], 10), np.repeat(["a", "b"], 15)
    features = {name: rng.normal(size=(30, 25)) for name in ("one", "two")}
    features["two"][:, :3] += 2 * np.eye(3)[y]
    source = ArraySource(features, y, domains)
    selection = select_features(source, ["one", "two"])
    moments = concatenated_moments(source, ["one", "two"])
    selector = SpikeSlabSelector().fit_moments(moments)
    inclusion = np.concatenate([selection.inclusion["one"], selection.inclusion["two"]], axis=1)
    np.testing.assert_allclose(inclusion, selector.inclusion_, atol=1e-6)
    assert set(range(3)) <= set(selection.columns.by_model["two"])


def test_odd_input_with_few_samples() -> None:
    y, domains = np.tile([0, 1], 4), np.repeat(["a", "b"], 4)
    X = np.random.default_rng(0).normal(size=(8, 20))
    X[5, 3] = np.nan
    source = ArraySource({"one": X}, y, domains)
    with pytest.raises(InputError, match=r"model 'one', domain 'b'.*NaN"):
        select_features(source, ["one"])
    with pytest.raises(InputError, match="name each of them once"):
        select_features(source, ["one", "one"])


def test_a_class_that_the_domains_lack() -> None:
    """It is there, with nothing kept for it, from samples as from moments."""
    rng = np.random.default_rng(2)
    y = np.concatenate([np.tile([0, 1], 20), np.tile([0, 1, 2], 10)])
    domains = np.repeat(["a", "b"], [40, 30])
    for d in (5, 60):
        X = rng.normal(size=(70, d))
        X[:, 0] += 3 * y
        selection = select_features(ArraySource({"x": X}, y, domains), ["x"], ["a"])
        assert selection.inclusion["x"].shape == (3, d)
        assert not selection.masks["x"][2].any()
        assert selection.masks["x"][0, 0]


def test_document_counts(data: Arrays) -> None:
    selection = select_features(ArraySource(*data), ["one", "two"])
    document = selection.to_dict()
    for row in document["per_model"]:
        assert sum(row["inclusion_histogram"]) == row["n_features"]
        upper = sum(row["inclusion_histogram"][10:])
        assert upper == row["n_selected"] == len(selection.columns.by_model[row["model"]])
    for counts in document["per_class"].values():
        assert counts["n_selected"] == sum(counts["per_model"].values())
    assert document["ratio"] == document["n_selected"] / document["n_features"]


def test_samples_stand_side_by_side(data: Arrays) -> None:
    features, y, domains = data
    source = ArraySource(features, y, domains)
    columns = Columns({"two": np.array([2, 0]), "one": np.array([], dtype=int)})
    samples = columns.samples(source, ["c", "a"])
    assert columns.models == ("two",)
    expected = np.concatenate([features["two"][domains == d][:, [2, 0]] for d in "ca"])
    assert np.array_equal(samples.features, expected.astype(np.float32))
    assert np.array_equal(samples.labels, np.concatenate([y[domains == d] for d in "ca"]))
    assert np.array_equal(samples.domains, np.repeat([0, 1], 60))


def test_a_mask_of_another_length_is_refused(data: Arrays) -> None:
    source = ArraySource(*data)
    with pytest.raises(InputError, match="a mask of 9 for 10 features"):
        Columns.by_mask(source, ["one", "two"], np.ones(9, dtype=bool))

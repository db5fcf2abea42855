"""Kept features of networks side by side."""

import numpy as np
import pytest

from zood.access import ArraySource
from zood.aggregation import select_features
from zood.errors import InputError
from zood.kept import Kept
from zood.selection import SpikeSlabSelector


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = np.tile([0, 1, 2], 60)
    domains = np.repeat(["a", "b", "c"], 60)
    good = np.eye(3)[y] + 0.1 * rng.normal(size=(180, 3))
    features = {
        "one": np.concatenate([good, rng.normal(size=(180, 4))], axis=1),
        "two": np.concatenate([rng.normal(size=(180, 2)), good[:, :1]], axis=1),
    }
    return features, y, domains


def test_selection_is_that_of_the_concatenated_features(data):
    features, y, domains = data
    selection = select_features(ArraySource(features, y, domains), ["two", "one"])
    X = np.concatenate([features["two"], features["one"]], axis=1)
    mask = SpikeSlabSelector().fit(X, y).get_support()
    assert np.array_equal(selection.kept.columns["two"], np.flatnonzero(mask[:3]))
    assert np.array_equal(selection.kept.columns["one"], np.flatnonzero(mask[3:]))
    assert 0 < len(selection.kept) < selection.n_features == 10


def test_domains_that_are_not_named_have_no_influence(data):
    features, y, domains = data
    changed = {name: np.where((domains == "c")[:, None], 7 * x, x) for name, x in features.items()}
    one, two = (
        select_features(ArraySource(f, y, domains), ["one", "two"], ["a", "b"]).document()
        for f in (features, changed)
    )
    assert one == two


def test_document_counts(data):
    selection = select_features(ArraySource(*data), ["one", "two"])
    document = selection.document()
    for row in document["per_model"]:
        assert sum(row["inclusion_histogram"]) == row["n_features"]
        upper = sum(row["inclusion_histogram"][10:])
        assert upper == row["n_selected"] == len(selection.kept.columns[row["model"]])
    for counts in document["per_class"].values():
        assert counts["n_selected"] == sum(counts["per_model"].values())
    assert document["ratio"] == document["n_selected"] / document["n_features"]


def test_samples_stand_side_by_side(data):
    features, y, domains = data
    source = ArraySource(features, y, domains)
    kept = Kept({"two": np.array([2, 0]), "one": np.array([], dtype=int)})
    samples = kept.samples(source, ["c", "a"])
    assert kept.models == ("two",)
    expected = np.concatenate([features["two"][domains == d][:, [2, 0]] for d in "ca"])
    assert np.array_equal(samples.features, expected.astype(np.float32))
    assert np.array_equal(samples.labels, np.concatenate([y[domains == d] for d in "ca"]))
    assert np.array_equal(samples.domains, np.repeat([0, 1], 60))


def test_a_mask_of_another_length_is_refused(data):
    source = ArraySource(*data)
    with pytest.raises(InputError, match="a mask of 9 for 10 features"):
        Kept.by_mask(source, ["one", "two"], np.ones(9, dtype=bool))

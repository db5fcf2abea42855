"""Selection over concatenated models."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.selection.data import store

from oodzoo.errors import InputError
from oodzoo.features.source import ArraySource, StoreSource
from oodzoo.selection.concatenation import concatenated_moments
from oodzoo.selection.select import SelectionSummary, select_features
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


def test_summary_counts(data: Arrays) -> None:
    selection = select_features(ArraySource(*data), ["one", "two"], method="paper")
    summary = selection.summary()
    assert (summary.method, summary.numbers_tried) == ("paper", ())
    for row in summary.per_model:
        assert row.rank_histogram is None
        assert sum(row.histogram) == row.n_features
        upper = sum(row.histogram[10:])
        assert upper == row.n_selected == len(selection.columns.by_model[row.model])
    for counts in summary.per_class.values():
        assert counts.n_selected == sum(counts.per_model.values())
    assert summary.ratio == summary.n_selected / summary.n_features


def test_summary_of_consistent_features(data: Arrays) -> None:
    """The default method, from all models."""
    selection = select_features(ArraySource(*data))
    summary = selection.summary()
    assert (summary.method, summary.models) == ("consistent", ("one", "two"))
    kept = summary.n_selected
    assert [row.n_selected for row in summary.per_model] == [
        len(selection.columns.by_model[model]) for model in ("one", "two")
    ]
    assert kept in [each.n_selected for each in summary.numbers_tried]
    assert summary.ratio == kept / 10
    for row in summary.per_model:
        assert row.inclusion_histogram is None
        assert sum(row.histogram) == row.n_features
    # Each feature counts for one class, and the ranks are those among all ten features.
    assert sum(each.n_selected for each in summary.per_class.values()) == kept
    assert summary.per_class["0"].per_model == {"one": 1, "two": 1}
    every = np.concatenate(list(selection.contributions.values()))
    ranks = np.array([np.mean(every < value) for value in every])
    assert summary.per_model[0].histogram == tuple(
        np.histogram(ranks[:7], np.linspace(0, 1, 21))[0].tolist()
    )


def test_a_store_keeps_the_selection(tmp_path: Path) -> None:
    source = StoreSource(store(tmp_path))
    first = select_features(source)
    folder = tmp_path / "store" / "cache" / "selections"
    assert len(list(folder.iterdir())) == 1
    reordered = select_features(source, ["noise", "good", "fair"])
    assert len(list(folder.iterdir())) == 1
    assert reordered.models == ("noise", "good", "fair")
    for model, columns in first.columns.by_model.items():
        assert np.array_equal(columns, reordered.columns.by_model[model])
    select_features(source, method="paper")
    assert len(list(folder.iterdir())) == 2


def test_wrong_options(data: Arrays) -> None:
    source = ArraySource(*data)
    with pytest.raises(InputError, match="one of consistent, paper, got 'lasso'"):
        select_features(source, method="lasso")
    with pytest.raises(InputError, match=r"threshold=0.9 only applies to the method 'paper'"):
        select_features(source, threshold=0.9)
    kept = [len(select_features(source, method="paper", threshold=t).columns) for t in (0.5, 0.0)]
    assert kept[0] < kept[1]


@pytest.mark.parametrize("method", ["consistent", "paper"])
def test_summary_survives_json(data: Arrays, method: str) -> None:
    summary = select_features(ArraySource(*data), ["one", "two"], method=method).summary()
    document = json.loads(json.dumps(summary.to_dict()))
    assert SelectionSummary.from_dict(document) == summary
    with pytest.raises(InputError, match="the selection"):
        SelectionSummary.from_dict(document | {"n_selected": "many"})


def test_one_class_only() -> None:
    features, domains = {"m": np.random.default_rng(0).normal(size=(20, 3))}, ["a", "b"] * 10
    labels = ["cat" if at % 2 else ("cat", "dog")[at % 4 // 2] for at in range(20)]
    source = ArraySource(features, labels, domains)
    with pytest.raises(InputError, match=r"one class, 'cat' \(10 samples\)"):
        select_features(source, ["m"], ["b"])


@pytest.mark.parametrize("method", ["consistent", "paper"])
@pytest.mark.parametrize("size", [1e4, 1e8])
def test_a_large_offset_changes_nothing(size: float, method: str) -> None:
    """A translation of the features of a model is removed before they are squared."""
    rng = np.random.default_rng(0)
    labels, domains = np.arange(300) % 3, np.arange(300) % 2
    signal = 2 * np.eye(3)[labels] @ rng.normal(size=(3, 4)) + rng.normal(size=(300, 4))
    features = {"a": signal, "b": rng.normal(size=(300, 6))}
    moved = {"a": signal + size, "b": features["b"]}
    one, two = (
        select_features(ArraySource(each, labels, domains), ["a", "b"], method=method)
        for each in (features, moved)
    )
    for model in features:
        np.testing.assert_array_equal(one.masks[model], two.masks[model])

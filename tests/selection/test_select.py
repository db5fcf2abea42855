"""Selection over concatenated models."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.selection.data import Arrays, store, two_models

from oodzoo.errors import InputError
from oodzoo.features.source import ArraySource, StoreSource
from oodzoo.selection.select import SelectionSummary, select_features


@pytest.fixture
def data() -> Arrays:
    return two_models()


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

"""Selection over concatenated models: moments, both methods, caches."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.selection.data import Arrays, arrays, store, two_models

from oodzoo.combining.selection import SelectionSummary, select_features
from oodzoo.core.errors import InputError
from oodzoo.extraction.source import ArraySource, StoreSource
from oodzoo.linear.moments import Moments
from oodzoo.linear.selection.concatenation import concatenated_moments, concatenated_samples
from oodzoo.linear.selection.selector import SpikeSlabSelector


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


@pytest.mark.parametrize("method", ["consistent", "paper"])
def test_summary_survives_json(data: Arrays, method: str) -> None:
    summary = select_features(ArraySource(*data), ["one", "two"], method=method).summary()
    document = json.loads(json.dumps(summary.to_dict()))
    assert SelectionSummary.from_dict(document) == summary
    with pytest.raises(InputError, match="the selection"):
        SelectionSummary.from_dict(document | {"n_selected": "many"})


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


def test_selects_among_the_concatenated_features(data: Arrays) -> None:
    features, y, domains = data
    selection = select_features(ArraySource(features, y, domains), ["two", "one"], method="paper")
    X = np.concatenate([features["two"], features["one"]], axis=1)
    mask = SpikeSlabSelector().fit(X, y).get_support()
    assert np.array_equal(selection.columns.by_model["two"], np.flatnonzero(mask[:3]))
    assert np.array_equal(selection.columns.by_model["one"], np.flatnonzero(mask[3:]))
    assert 0 < len(selection.columns) < selection.n_features == 10


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


@pytest.mark.parametrize("kind", ["arrays", "store"])
@pytest.mark.parametrize("models", [["good", "fair", "noise"], ["noise", "good"], ["fair"]])
@pytest.mark.parametrize("domains", [None, ["c", "a"]])
def test_moments_are_those_of_the_concatenated_features(
    kind: str, models: list[str], domains: list[str] | None, tmp_path: Path
) -> None:
    features, y, domain_of = arrays()
    source = (
        ArraySource(features, y, domain_of) if kind == "arrays" else StoreSource(store(tmp_path))
    )
    rows = np.isin(domain_of, domains or ["a", "b", "c"])
    concatenated = np.hstack([features[model] for model in models])[rows]
    expected = Moments.of(concatenated, y[rows], 3)
    for _ in range(2):  # computed, then from the cache
        found = concatenated_moments(source, models, domains)
        for name, array in expected.to_dict().items():
            np.testing.assert_allclose(found.to_dict()[name], array, rtol=1e-10, atol=1e-10)


def test_samples_are_concatenated_in_the_order_of_models_and_domains() -> None:
    features, y, domain_of = arrays()
    X, labels = concatenated_samples(
        ArraySource(features, y, domain_of), ["fair", "good"], ["c", "a"]
    )
    rows = np.concatenate([np.flatnonzero(domain_of == domain) for domain in "ca"])
    np.testing.assert_array_equal(X, np.hstack([features["fair"], features["good"]])[rows])
    np.testing.assert_array_equal(labels, y[rows])


def test_a_pair_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = store(tmp_path)
    source = StoreSource(opened)
    first = concatenated_moments(source, ["good", "fair"])
    assert len(list((opened.path / "cache" / "cross").glob("*.npz"))) == 3, "one for each domain"

    def never(*_: object) -> None:
        raise AssertionError("the pair is cached")

    monkeypatch.setattr("oodzoo.linear.selection.concatenation._compute_cross", never)
    second = concatenated_moments(source, ["fair", "good"])
    np.testing.assert_array_equal(second.gram[:5, 5:], first.gram[7:, :7])

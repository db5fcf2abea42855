"""`select_features`: contributions, the number that is kept, the method of the paper, stores."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracles import contributions as oracle
from tests.oracles.ridge import left_out_ridge
from tests.selection.data import arrays, store, two_models

from oodzoo import InputError, SpikeSlabSelector, select_features
from oodzoo.combining.selection import Selection, SelectionSummary
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.features import ArraySource, StoreSource
from oodzoo.linear.heads.ridge import SETTINGS
from oodzoo.linear.selection import contributions

Floats = NDArray[np.float64]
METHODS = pytest.mark.parametrize("method", ["consistent", "paper"])


def problem(seed: int, n: int = 60, d: int = 12) -> tuple[Floats, Any, Any]:
    """Features, of which the first ones separate three classes, in three domains."""
    rng = np.random.default_rng(seed)
    y, domains = rng.integers(3, size=n), np.arange(n) % 3
    y[:9] = np.repeat([0, 1, 2], 3)  # each class is in each domain
    X = rng.normal(size=(n, d)) + 0.5 * rng.normal(size=(3, d))[domains]
    X[:, :3] += np.eye(3)[y]
    return X, y, domains


def of(X: Floats, y: Any, domains: Any, **options: Any) -> tuple[Floats, Selection]:
    """Contributions of all features of two models."""
    source = ArraySource({"a": X[:, :4], "b": X[:, 4:]}, y, domains)
    found = select_features(source, ["a", "b"], **options)
    return np.concatenate([found.contributions[model] for model in "ab"]), found


def assert_formula(found: tuple[Floats, Selection], expected: tuple[Floats, Any]) -> None:
    """Contributions, and the class that each feature which is kept contributes most to."""
    (total, selection), (wanted, best) = found, expected
    np.testing.assert_allclose(total, wanted, atol=1e-5 * np.abs(wanted).max())
    mask = np.hstack([selection.masks[model] for model in "ab"])
    kept = mask.any(axis=0)
    assert mask.argmax(axis=0)[kept].tolist() == best[kept].tolist()


@pytest.mark.parametrize(("n", "d"), [(60, 12), (30, 50)])
@pytest.mark.parametrize("device", [None, "cpu"])
def test_contributions_equal_their_formula(n: int, d: int, device: str | None) -> None:
    """For classes, numbers in any unit, and several labels."""
    if device is not None:
        pytest.importorskip("torch", reason="PyTorch is an extra")
    X, y, domains = problem(0, n, d)
    found = of(X, y, domains, device=device)
    assert_formula(found, oracle.contributions(X, y, domains, 3))
    if n > d:
        assert found[0][:3].min() > found[0][3:].max()
    Y = X[:, :2] + 0.3 * np.random.default_rng(1).normal(size=(n, 2))
    expected = oracle.contributions_to_columns(X, Y / Y.std(axis=0), domains)
    assert_formula(of(X, Y * [1000, 0.01] + [5, -7], domains, device=device), expected)
    labels = (X[:, :3] > 0.3).astype(float)
    expected = oracle.contributions_to_columns(X, labels, domains)
    assert_formula(of(X, labels, domains, device=device), expected)


def test_contributions_of_odd_data() -> None:
    """Classes of one domain, whose weights are never tested; constant features; one domain."""
    X, y, domains = problem(3, n=300)
    more = np.vstack([X, X[:20]])
    more[300:, 11] += 5
    total, found = of(more, np.r_[y, np.full(20, 3)], np.r_[domains, np.zeros(20, np.int64)])
    assert not found.masks["a"][3, :3].any()
    assert total[:3].min() > 3 * np.abs(total[3:]).max()
    assert set(found.summary().per_class) == {"0", "1", "2", "3"}
    X, y, domains = problem(4)
    X[:, 2] = 7
    assert of(X, y, domains)[0][2] == 0
    with pytest.warns(UserWarning, match="no feature of a, b helps"):
        assert not of(np.ones_like(X), y, domains)[0].any()
    X, y, _ = problem(5, n=90)
    contributed = contributions.contributions
    source = ArraySource({"m": X}, y, np.zeros(90, np.int64))  # divided into three parts
    total = contributed(source, ["m"], source.domains).total
    assert total[:3].min() > total[3:].max()
    source = ArraySource({"m": X}, y, np.zeros(90, np.int64), ["g"] * 90)  # a single group
    assert not contributed(source, ["m"], source.domains).total.any()


def domains_and_features(seed: int = 0) -> tuple[dict[str, Floats], Any, Any]:
    """Three models: consistent features, features with other classes in each domain, and noise."""
    rng = np.random.default_rng(seed)
    y, domains = np.tile([0, 1, 2, 3], 75), np.repeat(["a", "b", "c", "d"], 75)
    other = (y + np.searchsorted(["a", "b", "c", "d"], domains)) % 4
    means = rng.permuted(np.repeat([[-1.5], [-0.5], [0.5], [1.5]], 36, axis=1), axis=0)
    features = {
        "consistent": means[y, :12] + rng.normal(size=(300, 12)),
        "specific": means[other, 12:] + rng.normal(size=(300, 24)),
        "noise": rng.normal(size=(300, 24)),
    }
    return features, y, domains


def selected(features: dict[str, Floats], y: Any, domains: Any, *given: Any) -> Selection:
    return select_features(ArraySource(features, y, domains), *given)


def test_the_number_is_that_with_the_highest_likelihood_of_left_out_domains() -> None:
    features, y, names = domains_and_features()
    features = {model: each[:, :8] for model, each in features.items()}
    selection = selected(features, y, names)
    X = np.hstack([features[model] for model in sorted(features)])
    domains = np.searchsorted(["a", "b", "c", "d"], names)
    tried: dict[int, list[Floats]] = {}
    for share in (0.02, 0.05, 0.1, 0.2, 0.4, 1):
        whole, _ = oracle.contributions(X, y, domains, 4)
        number = max(1, min(round(share * 24), int((whole > 0).sum())))
        if number in tried:
            continue
        tried[number] = []
        for e in range(4):
            train = domains != e
            total, _ = oracle.contributions(X[train], y[train], domains[train], 4)
            nested = max(1, min(round(share * 24), int((total > 0).sum())))
            kept_columns = X[:, np.argsort(-total)[:nested]].astype(np.float32)
            logs = left_out_ridge(kept_columns, y, domains, {e}, SETTINGS, 4)
            tried[number].append(logs[:, range(75), y[~train]].mean(axis=1))
    likelihood = {number: np.mean(tables, axis=0).max() for number, tables in tried.items()}
    assert [each.n_selected for each in selection.numbers_tried] == list(likelihood)
    found = [each.log_likelihood for each in selection.numbers_tried]
    np.testing.assert_allclose(np.array(found, float), list(likelihood.values()), atol=1e-5)
    best = max(likelihood, key=lambda number: likelihood[number])
    assert len(selection.columns) == best
    order = np.argsort(-oracle.contributions(X, y, domains, 4)[0])
    starts = dict(zip(sorted(features), (0, 8, 16), strict=True))
    kept = [starts[m] + column for m, part in selection.columns.by_model.items() for column in part]
    assert sorted(kept) == sorted(order[:best])


def test_the_order_of_models_and_other_domains_do_not_matter() -> None:
    features, y, domains = domains_and_features(1)
    one = selected(features, y, domains, ["noise", "specific", "consistent"], ["a", "b", "c"])
    assert one.models == ("noise", "specific", "consistent")
    test = domains == "d"
    other = {m: np.where(test[:, None], 9 - 3 * each, each) for m, each in features.items()}
    models = ["consistent", "noise", "specific"]
    two = selected(other, np.where(test, 3 - y, y), domains, models, ["c", "a", "b"])
    for model in features:
        assert np.array_equal(one.columns.by_model[model], two.columns.by_model[model])
        assert np.array_equal(one.contributions[model], two.contributions[model])
    assert one.numbers_tried == two.numbers_tried
    counts = {model: len(columns) for model, columns in one.columns.by_model.items()}
    assert counts["consistent"] >= 8
    assert counts["specific"] + counts["noise"] <= 1


def test_all_features_that_help_are_kept_if_no_number_can_be_compared() -> None:
    """Without one of two domains, the other one is a single group and has no parts."""
    features, y, domains = domains_and_features(5)
    two = np.isin(domains, ["a", "b"])
    data = {m: f[two] for m, f in features.items()}, y[two], domains[two]
    assert 0 < len(selected(*data).columns) < 60
    selection = select_features(ArraySource(*data, data[2]))
    assert all(each.log_likelihood is None for each in selection.numbers_tried)
    helpful = sum(int((each > 0).sum()) for each in selection.contributions.values())
    assert len(selection.columns) == helpful == selection.numbers_tried[-1].n_selected
    # nothing helps: a feature that is reversed between two domains
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1], 40), np.repeat(["a", "b"], 40)
    x = np.where(domains == "a", y, 1 - y)[:, None] + 0.1 * rng.normal(size=(80, 2))
    with pytest.warns(UserWarning, match="no feature of m helps to predict held-out domains"):
        assert len(selected({"m": x}, y, domains).columns) == 1


def test_limits_of_memory_and_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many samples, a part of each class and domain decides alone."""
    features, y, domains = domains_and_features(7)
    cells = [
        np.flatnonzero((domains == domain) & (y == label))[::2]
        for domain in "abcd"
        for label in range(4)
    ]
    rows = np.sort(np.concatenate(cells))
    part = {model: each[rows] for model, each in features.items()}
    expected = selected(part, y[rows], domains[rows])
    assert len(expected.columns) > 3
    monkeypatch.setattr(contributions, "MAX_SAMPLES", 150)
    found = selected(features, y, domains)
    for model in features:
        assert np.array_equal(found.columns.by_model[model], expected.columns.by_model[model])
        assert np.array_equal(found.contributions[model], expected.contributions[model])
    source = ArraySource(features, y, domains)
    columns = Columns.all_of(source, ["noise", "specific"])
    samples = contributions.thinned_samples(columns, source, source.domains)
    both = np.hstack([part["noise"], part["specific"]]).astype(np.float32)
    assert np.array_equal(samples.features, both)
    assert np.array_equal(samples.labels, y[rows])
    monkeypatch.undo()
    monkeypatch.setattr(contributions, "MAX_VALUES", 3 * 300 + 1)
    few = selected(features, y, domains)
    assert few.numbers_tried[-1].n_selected == 3 >= len(few.columns)


@METHODS
def test_a_large_offset_and_the_unit_of_numbers_change_nothing(method: str) -> None:
    """Also where the numbers of a domain are constant."""
    rng = np.random.default_rng(0)
    labels, domains = np.arange(300) % 3, np.arange(300) % 2
    signal = 2 * np.eye(3)[labels] @ rng.normal(size=(3, 4)) + rng.normal(size=(300, 4))
    features = {"a": signal, "b": rng.normal(size=(300, 6))}
    one = select_features(ArraySource(features, labels, domains), method=method)
    for size in (1e4, 1e8):
        moved = {"a": signal + size, "b": features["b"]}
        two = select_features(ArraySource(moved, labels, domains), method=method)
        for model in features:
            np.testing.assert_array_equal(one.masks[model], two.masks[model])
    X, domains = rng.normal(size=(160, 30)), np.repeat(["a", "b", "c", "d"], 40)
    y = np.where(domains == "d", 0.1, X[:, 0] + X[:, 1] + 0.3 * rng.normal(size=160))
    chosen = []
    for scale, shift in ((1.0, 0.0), (1e-6, 0.0), (1e6, 1e9 if method == "paper" else 0)):
        source = ArraySource({"a": X}, scale * y + shift, domains, task="regression")
        chosen.append(select_features(source, ["a"], method=method).columns.by_model["a"].tolist())
        assert chosen[-1] == chosen[0]
    assert {0, 1} <= set(chosen[0])


def test_the_paper_selects_among_the_concatenated_features() -> None:
    features, y, domains = two_models()
    selection = select_features(ArraySource(features, y, domains), ["two", "one"], method="paper")
    X = np.concatenate([features["two"], features["one"]], axis=1)
    mask = SpikeSlabSelector().fit(X, y).get_support()
    assert np.array_equal(selection.columns.by_model["two"], np.flatnonzero(mask[:3]))
    assert np.array_equal(selection.columns.by_model["one"], np.flatnonzero(mask[3:]))
    assert 0 < len(selection.columns) < selection.n_features == 10
    # nothing is kept for a class that the domains lack, with moments or with samples (d > n)
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


@METHODS
def test_summaries(method: str) -> None:
    selection = select_features(ArraySource(*two_models()), method=method)
    summary = selection.summary()
    assert (summary.method, summary.models) == (method, ("one", "two"))
    assert summary.ratio == summary.n_selected / summary.n_features == summary.n_selected / 10
    for row in summary.per_model:
        assert (row.rank_histogram is None) == (method == "paper") != (not row.inclusion_histogram)
        assert sum(row.histogram) == row.n_features
        assert row.n_selected == len(selection.columns.by_model[row.model])
        assert method != "paper" or sum(row.histogram[10:]) == row.n_selected
    for counts in summary.per_class.values():
        assert counts.n_selected == sum(counts.per_model.values())
    tried = [each.n_selected for each in summary.numbers_tried]
    assert (summary.n_selected in tried) == (method == "consistent")
    if method == "consistent":  # each feature counts for one class; ranks are among all features
        assert sum(each.n_selected for each in summary.per_class.values()) == summary.n_selected
        assert summary.per_class["0"].per_model == {"one": 1, "two": 1}
        every = np.concatenate(list(selection.contributions.values()))
        ranks = np.array([np.mean(every < value) for value in every])
        histogram = np.histogram(ranks[:7], np.linspace(0, 1, 21))[0].tolist()
        assert summary.per_model[0].histogram == tuple(histogram)
    document = json.loads(json.dumps(summary.to_dict()))
    assert SelectionSummary.from_dict(document) == summary
    with pytest.raises(InputError, match="the selection"):
        SelectionSummary.from_dict(document | {"n_selected": "many"})


def test_a_store_keeps_the_selection(tmp_path: Path) -> None:
    features, y, domains = arrays()
    source = StoreSource(store(tmp_path))
    first = select_features(source)
    folder = tmp_path / "store" / "cache" / "selections"
    assert len(list(folder.iterdir())) == 1
    reordered = select_features(source, ["noise", "good", "fair"])
    assert len(list(folder.iterdir())) == 1
    assert reordered.models == ("noise", "good", "fair")
    for model, columns in first.columns.by_model.items():
        assert np.array_equal(columns, reordered.columns.by_model[model])
    X = np.hstack([features[model] for model in sorted(features)]).astype(float)
    codes = np.unique(domains, return_inverse=True)[1]
    total, _ = oracle.contributions(X, y, codes, 3)
    found = np.concatenate([first.contributions[model] for model in sorted(features)])
    np.testing.assert_allclose(found, total, atol=1e-5)
    computed = contributions.contributions(source, ["good", "noise"], source.domains)
    again = contributions.contributions(source, ["good", "noise"], source.domains)
    assert np.array_equal(computed.total, again.total)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paper = select_features(source, method="paper")
    assert len(list(folder.iterdir())) == 2
    arrays_of = ArraySource({m: X.astype(float) for m, X in features.items()}, y, domains)
    same = select_features(arrays_of, source.models, method="paper")
    for model, inclusion in same.inclusion.items():
        np.testing.assert_allclose(paper.inclusion[model], inclusion, atol=1e-5)


@pytest.mark.parametrize("score", ["unseen", "logme", "accuracy"])
def test_two_domains_are_enough_for_the_best_models(score: str) -> None:
    X, y, domains = problem(4)
    source = ArraySource({"a": X[:, :4], "b": X[:, 4:]}, y, domains % 2)
    assert select_features(source, top_k=1, score=score).models == ("a",)


def test_groups_that_change_are_not_met_by_what_was_kept() -> None:
    """Parts of a single domain, which keep groups whole, stand for domains."""
    X, y, domains = problem(5)
    groups = {
        name: [f"{row // size}" for row in range(len(y))] for name, size in (("a", 2), ("b", 6))
    }
    sources = {
        name: ArraySource({"a": X}, y, domains, groups=each) for name, each in groups.items()
    }
    keys = [
        {contributions.groups_key(source, some) for source in sources.values()}
        for some in (["0"], ["0", "1"])
    ]
    assert [len(each) for each in keys] == [2, 1]
    assert contributions.groups_key(ArraySource({"a": X}, y, domains), ["0"]) == ""

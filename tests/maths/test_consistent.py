"""Selection of the features that help in every domain."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracles import contributions as oracle
from tests.oracles.ridge import left_out_ridge

from oodzoo.combining.selection import Selection, select_features
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.source import ArraySource
from oodzoo.linear.heads.ridge import SETTINGS
from oodzoo.linear.selection import consistent, contributions

Floats = NDArray[np.float64]


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


def test_consistent_features_are_kept_and_domain_specific_ones_are_not() -> None:
    kept = {"consistent": 0, "specific": 0, "noise": 0}
    for seed in range(5):
        for model, columns in selected(*domains_and_features(seed)).columns.by_model.items():
            kept[model] += len(columns)
    assert kept["consistent"] >= 0.7 * 5 * 12
    assert kept["specific"] + kept["noise"] <= 0.05 * kept["consistent"]


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


def test_the_order_of_models_and_domains_does_not_matter() -> None:
    features, y, domains = domains_and_features(1)
    one = selected(features, y, domains, ["noise", "specific", "consistent"], ["a", "b", "c"])
    two = selected(features, y, domains, ["consistent", "noise", "specific"], ["c", "a", "b"])
    assert one.models == ("noise", "specific", "consistent")
    for model in features:
        assert np.array_equal(one.columns.by_model[model], two.columns.by_model[model])
        assert np.array_equal(one.contributions[model], two.contributions[model])
    assert one.numbers_tried == two.numbers_tried


def test_other_domains_have_no_influence() -> None:
    features, y, domains = domains_and_features(2)
    test = domains == "d"
    other = {m: np.where(test[:, None], 9 - 3 * each, each) for m, each in features.items()}
    models = list(features)
    one = selected(features, y, domains, models, ["a", "b", "c"]).summary()
    two = selected(other, np.where(test, 3 - y, y), domains, models, ["a", "b", "c"]).summary()
    assert one == two


def test_all_features_that_help_are_kept_if_no_number_can_be_compared() -> None:
    """Without one of two domains, the other one is a single group and has no parts."""
    features, y, domains = domains_and_features(5)
    two = np.isin(domains, ["a", "b"])
    source = ArraySource({m: f[two] for m, f in features.items()}, y[two], domains[two])
    assert 0 < len(select_features(source).columns) < 60
    grouped = ArraySource(
        {m: f[two] for m, f in features.items()}, y[two], domains[two], domains[two]
    )
    selection = select_features(grouped)
    assert all(each.log_likelihood is None for each in selection.numbers_tried)
    helpful = sum(int((each > 0).sum()) for each in selection.contributions.values())
    assert len(selection.columns) == helpful == selection.numbers_tried[-1].n_selected


def test_nothing_helps() -> None:
    """A feature that is reversed between two domains."""
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1], 40), np.repeat(["a", "b"], 40)
    x = np.where(domains == "a", y, 1 - y)[:, None] + 0.1 * rng.normal(size=(80, 2))
    with pytest.warns(UserWarning, match="no feature of m helps to predict left-out domains"):
        selection = selected({"m": x}, y, domains)
    assert len(selection.columns) == 1


def test_the_number_is_limited_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    features, y, domains = domains_and_features(7)
    assert len(selected(features, y, domains).columns) > 3
    monkeypatch.setattr(consistent, "MAX_VALUES", 3 * 300 + 1)
    selection = selected(features, y, domains)
    assert selection.numbers_tried[-1].n_selected == 3
    assert len(selection.columns) <= 3


def test_a_part_of_many_samples_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """The selection is that of the part alone."""
    features, y, domains = domains_and_features(7)
    rows = np.concatenate(
        [
            np.flatnonzero((domains == domain) & (y == label))[::2]
            for domain in "abcd"
            for label in range(4)
        ]
    )
    rows.sort()
    part = {model: each[rows] for model, each in features.items()}
    expected = selected(part, y[rows], domains[rows])
    monkeypatch.setattr(contributions, "MAX_SAMPLES", 150)
    found = selected(features, y, domains)
    for model in features:
        assert np.array_equal(found.columns.by_model[model], expected.columns.by_model[model])
    source = ArraySource(features, y, domains)
    columns = Columns.all_of(source, ["noise", "specific"])
    samples = consistent.thinned_samples(columns, source, source.domains)
    both = np.hstack([part["noise"], part["specific"]]).astype(np.float32)
    assert np.array_equal(samples.features, both)
    assert np.array_equal(samples.labels, y[rows])
    assert np.array_equal(np.array(source.domains)[samples.domains], domains[rows])


def test_a_class_that_one_domain_has() -> None:
    """It is predicted by the other features of the selection; nothing is kept for it alone."""
    features, y, domains = domains_and_features(9)
    y = np.where((domains == "a") & (y == 2), 4, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        selection = selected(features, y, domains)
    assert len(selection.columns.by_model["consistent"]) >= 5
    assert set(selection.summary().per_class) == {"0", "1", "2", "3", "4"}

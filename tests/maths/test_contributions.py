"""Contributions of features to left-out domains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.oracles import contributions as oracle
from tests.selection.data import arrays, store

from oodzoo.combining.selection import select_features
from oodzoo.extraction.source import ArraySource, StoreSource
from oodzoo.linear.selection import contributions as module
from oodzoo.linear.selection.contributions import Contributions, contributions

Floats = NDArray[np.float64]


def problem(seed: int, n: int = 60, d: int = 12) -> tuple[Floats, Any, Any]:
    """Features, of which the first ones separate three classes, in three domains."""
    rng = np.random.default_rng(seed)
    y, domains = rng.integers(3, size=n), np.arange(n) % 3
    y[:9] = np.repeat([0, 1, 2], 3)  # each class is in each domain
    X = rng.normal(size=(n, d)) + 0.5 * rng.normal(size=(3, d))[domains]
    X[:, :3] += np.eye(3)[y]
    return X, y, domains


def computed(X: Floats, y: Any, domains: Any, **options: Any) -> Contributions:
    source = ArraySource({"a": X[:, :4], "b": X[:, 4:]}, y, domains)
    return contributions(source, ["a", "b"], source.domains, **options)


@pytest.mark.parametrize(("n", "d"), [(60, 12), (30, 50)])
def test_formula(n: int, d: int, device: str | None) -> None:
    X, y, domains = problem(0, n, d)
    total, best = oracle.contributions(X, y, domains, 3)
    found = computed(X, y, domains, device=device)
    np.testing.assert_allclose(found.total, total, atol=1e-5 * np.abs(total).max())
    assert np.array_equal(found.best_class, best)
    if n > d:
        assert found.total[:3].min() > found.total[3:].max()


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 99), scale=st.floats(1e-3, 1e3), shift=st.floats(-1e3, 1e3))
def test_units_of_features_do_not_matter(seed: int, scale: float, shift: float) -> None:
    X, y, domains = problem(seed)
    scales = np.where(np.arange(12) % 2, scale, 1.0)
    expected = computed(X, y, domains).total
    found = computed(X * scales + shift, y, domains).total
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_a_class_in_one_domain_is_not_contributed_to() -> None:
    """Its weights are never tested: no other domain has it, and without its own they are zero."""
    X, y, domains = problem(3, n=300)
    more, extra = np.vstack([X, X[:20]]), np.full(20, 3)
    more[300:, 11] += 5
    source = ArraySource({"m": more}, np.r_[y, extra], np.r_[domains, np.zeros(20, np.int64)])
    found = contributions(source, ["m"], source.domains)
    assert not (found.best_class[:3] == 3).any()
    assert found.total[:3].min() > 3 * np.abs(found.total[3:]).max()


def test_constant_features_contribute_nothing() -> None:
    X, y, domains = problem(4)
    X[:, 2] = 7
    assert computed(X, y, domains).total[2] == 0
    assert not computed(np.ones_like(X), y, domains).total.any()


def test_a_single_domain_is_divided_into_three_parts() -> None:
    X, y, _ = problem(5, n=90)
    source = ArraySource({"m": X}, y, np.zeros(90, np.int64))
    total = contributions(source, ["m"], source.domains).total
    assert total[:3].min() > total[3:].max()
    # A single group cannot be divided.
    source = ArraySource({"m": X}, y, np.zeros(90, np.int64), ["g"] * 90)
    assert not contributions(source, ["m"], source.domains).total.any()


def test_many_samples_are_thinned_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, domains = problem(7, n=600)
    monkeypatch.setattr(module, "MAX_SAMPLES", 150)
    chosen = np.concatenate(
        [
            cell[np.arange(0, len(cell), 4)]
            for d in range(3)
            for cell in (np.flatnonzero((domains == d) & (y == c)) for c in range(3))
        ]
    )
    chosen = chosen[np.lexsort((chosen, domains[chosen]))]
    assert 150 <= len(chosen) < 160
    total, _ = oracle.contributions(X[chosen], y[chosen], domains[chosen], 3)
    found = computed(X, y, domains).total
    np.testing.assert_allclose(found, total, atol=1e-5 * np.abs(total).max())


def test_a_store_keeps_them(tmp_path: Path) -> None:
    features, y, domains = arrays()
    source = StoreSource(store(tmp_path))
    first = contributions(source, ["good", "noise"], source.domains)
    files = sorted((tmp_path / "store" / "cache" / "contributions").iterdir())
    assert len(files) == 1
    again = contributions(source, ["good", "noise"], source.domains)
    assert np.array_equal(first.total, again.total)
    X = np.hstack([features["good"], features["noise"]]).astype(float)
    codes = np.unique(domains, return_inverse=True)[1]
    total, _ = oracle.contributions(X, y, codes, 3)
    np.testing.assert_allclose(first.total, total, atol=1e-5)


@pytest.mark.parametrize(("n", "d"), [(60, 12), (30, 50)])
def test_formula_for_numbers_in_any_unit(n: int, d: int) -> None:
    X, _, domains = problem(0, n, d)
    Y = X[:, :2] + 0.3 * np.random.default_rng(1).normal(size=(n, 2))
    total, best = oracle.contributions_to_columns(X, Y / Y.std(axis=0), domains)
    found = computed(X, Y * [1000, 0.01] + [5, -7], domains)
    np.testing.assert_allclose(found.total, total, atol=1e-5 * np.abs(total).max())
    assert np.array_equal(found.best_class, best)


def test_formula_for_several_labels() -> None:
    X, _, domains = problem(0)
    Y = (X[:, :3] > 0.3).astype(float)
    total, best = oracle.contributions_to_columns(X, Y, domains)
    found = computed(X, Y, domains)
    np.testing.assert_allclose(found.total, total, atol=1e-5 * np.abs(total).max())
    assert np.array_equal(found.best_class, best)


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
@pytest.mark.parametrize("method", ["consistent", "paper"])
def test_informative_features_are_selected(kind: str, method: str) -> None:
    rng = np.random.default_rng(0)
    X, domains = rng.normal(size=(300, 30)), np.arange(300) % 3
    Y = X[:, :2] + 0.2 * rng.normal(size=(300, 2))
    Y = Y if kind == "regression" else (Y > 0).astype(float)
    source = ArraySource({"a": X[:, :15], "b": X[:, 15:]}, Y, domains, task=kind)
    selection = select_features(source, ["a", "b"], method=method)
    assert {0, 1} <= set(selection.columns.by_model["a"].tolist())
    assert selection.ratio < 0.7
    assert len(selection.classes) == 2


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_number_of_features_does_not_depend_on_the_unit(scale: float) -> None:
    """Also where the numbers of a domain are constant."""
    rng = np.random.default_rng(0)
    X, domains = rng.normal(size=(160, 30)), np.repeat(["a", "b", "c", "d"], 40)
    y = X[:, 0] + X[:, 1] + 0.3 * rng.normal(size=160)
    y = np.where(domains == "d", 0.1, y) * scale
    source = ArraySource({"a": X}, y, domains, task="regression")
    chosen = select_features(source, ["a"]).columns.by_model["a"].tolist()
    base = ArraySource({"a": X}, y / scale, domains, task="regression")
    assert chosen == select_features(base, ["a"]).columns.by_model["a"].tolist()
    assert {0, 1} <= set(chosen)


def test_the_paper_selects_for_numbers_far_from_zero() -> None:
    rng = np.random.default_rng(0)
    X, domains = rng.normal(size=(200, 10)), np.arange(200) % 4
    y = X[:, :3].sum(axis=1) + 0.1 * rng.normal(size=200)
    for offset in (0.0, 1e9):
        source = ArraySource({"a": X}, y + offset, domains)
        kept = select_features(source, ["a"], method="paper").columns.by_model["a"]
        assert kept.tolist() == [0, 1, 2]

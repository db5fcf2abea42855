"""Rank correlations and their intervals."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.oracles import correlation as oracle

from oodzoo.testbed.correlation import (
    Kind,
    correlation,
    draw_counts,
    interval,
    mean_of_draws,
    resampled,
)

KINDS: list[Kind] = ["weighted_tau", "tau"]
THEIRS = {"weighted_tau": scipy.stats.weightedtau, "tau": scipy.stats.kendalltau}
LITERAL = {"weighted_tau": oracle.weighted_tau, "tau": oracle.kendall_tau}
# few values, so that there are ties of every kind
pairs = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=15)
counted = st.lists(
    st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(0, 3)), min_size=2, max_size=12
)


def theirs(kind: Kind, x: Sequence[float], y: Sequence[float]) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a division by zero where all is tied
        return float(THEIRS[kind](x, y)[0])


@pytest.mark.parametrize("kind", KINDS)
@given(pairs=pairs)
def test_equals_scipy_and_the_definition(kind: Kind, pairs: list[tuple[int, int]]) -> None:
    x, y = zip(*pairs, strict=True)
    value, expected = correlation(kind, x, y), theirs(kind, x, y)
    if np.isnan(expected):
        assert value is None
    else:
        assert value == pytest.approx(expected, abs=1e-12)
        assert value == pytest.approx(LITERAL[kind](x, y), abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@given(counted=counted)
def test_a_resample_is_the_models_drawn(kind: Kind, counted: list[tuple[int, int, int]]) -> None:
    x, y, counts = (np.array(column) for column in zip(*counted, strict=True))
    assume(counts.sum() > 1)
    (value,) = resampled(kind, x, y, counts[None, :])
    expected = theirs(kind, np.repeat(x, counts).tolist(), np.repeat(y, counts).tolist())
    assert value == pytest.approx(expected, abs=1e-12, nan_ok=True)


@given(pairs=pairs)
def test_correlation_is_symmetric_and_changes_sign_with_the_score(
    pairs: list[tuple[int, int]],
) -> None:
    x, y = (np.array(column) for column in zip(*pairs, strict=True))
    for kind in KINDS:
        value = correlation(kind, x, y)
        assert value == pytest.approx(correlation(kind, y, x), abs=1e-12)
        assert value is None or -1 <= value <= 1
    turned = correlation("tau", -x, y)
    if turned is not None:
        assert turned == pytest.approx(-(correlation("tau", x, y) or 0.0), abs=1e-12)


def test_weighted_tau_weights_the_top() -> None:
    accuracy = [1, 2, 3, 4, 5, 6]
    wrong_at_top, wrong_at_bottom = [1, 2, 3, 4, 6, 5], [2, 1, 3, 4, 5, 6]
    top = correlation("weighted_tau", wrong_at_top, accuracy)
    bottom = correlation("weighted_tau", wrong_at_bottom, accuracy)
    assert top is not None
    assert bottom is not None
    assert top < bottom
    assert correlation("tau", wrong_at_top, accuracy) == correlation(
        "tau", wrong_at_bottom, accuracy
    )


@pytest.mark.parametrize("kind", KINDS)
def test_no_order_no_correlation(kind: Kind) -> None:
    assert correlation(kind, [], []) is None
    assert correlation(kind, [1], [2]) is None
    assert correlation(kind, [1, 1], [2, 3]) is None
    assert np.isnan(resampled(kind, [1, 2], [1, 2], np.array([[2, 0]]))).all()


def test_draws_are_seeded_and_shared_by_the_same_models() -> None:
    one = draw_counts(["a", "b", "c"], 50, seed=0)
    assert (one.sum(axis=1) == 3).all()
    assert (one == draw_counts(["a", "b", "c"], 50, seed=0)).all()
    assert (one != draw_counts(["a", "b", "c"], 50, seed=1)).any()
    assert (one != draw_counts(["a", "b", "d"], 50, seed=0)).any()


def test_interval_holds_nine_tenths_and_ignores_nan() -> None:
    draws = np.concatenate([np.arange(101.0), [np.nan]])
    assert interval(draws) == pytest.approx((5, 95))
    assert interval(np.full(3, np.nan)) is None


def test_interval_has_about_its_nominal_coverage() -> None:
    # Kendall's tau of two normals with correlation r is 2/pi arcsin(r)
    rng = np.random.default_rng(0)
    r, covered, trials = 0.7, 0, 200
    truth = 2 / np.pi * np.arcsin(r)
    for trial in range(trials):
        x, noise = rng.normal(size=(2, 35))
        y = r * x + np.sqrt(1 - r * r) * noise
        counts = draw_counts([str(i) for i in range(35)], 400, seed=trial)
        between = interval(resampled("tau", x, y, counts))
        assert between is not None
        covered += between[0] <= truth <= between[1]
    assert 0.82 <= covered / trials <= 0.97


def test_draws_are_averaged_over_the_tests_that_have_an_order() -> None:
    one, two, none = np.array([1.0, np.nan]), np.array([3.0, 4.0]), np.full(2, np.nan)
    assert mean_of_draws([one, two, none]) == pytest.approx([2.0, np.nan], nan_ok=True)
    assert np.isnan(mean_of_draws([none])).all()

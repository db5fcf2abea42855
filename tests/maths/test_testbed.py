"""Agreement of scores with accuracy: correlations, their intervals, ties, means over test beds."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.oracles import ties as ties_oracle
from tests.testbed.data import ACCURACY, NEARLY, PERFECT, REVERSED

from oodzoo.core.errors import InputError
from oodzoo.ranking.intervals import CONFIDENCE
from oodzoo.ranking.testbed.agreement import (
    Difference,
    Kind,
    correlation,
    draw_counts,
    interval,
    mean_of_draws,
    resampled,
    simultaneous_intervals,
)
from oodzoo.ranking.testbed.published import read_table
from oodzoo.testbed import Agreement, Column, TestBed, compare, judge, paper

KINDS: list[Kind] = ["weighted_tau", "tau"]
THEIRS = {"weighted_tau": scipy.stats.weightedtau, "tau": scipy.stats.kendalltau}
# few values, so that there are ties of every kind
pairs = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=15)


def theirs(kind: Kind, x: Any, y: Any) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a division by zero where all is tied
        return float(THEIRS[kind](x, y)[0])


@pytest.mark.parametrize("kind", KINDS)
@given(pairs=pairs, seed=st.integers(0, 99))
def test_correlations_equal_those_of_scipy(
    kind: Kind, pairs: list[tuple[int, int]], seed: int
) -> None:
    """Also in a resample; they are symmetric, and tau changes its sign with the score."""
    x, y = (np.array(values) for values in zip(*pairs, strict=True))
    value, expected = correlation(kind, x, y), theirs(kind, x, y)
    if np.isnan(expected):
        assert value is None
    else:
        assert value == pytest.approx(expected, abs=1e-12)
        assert -1 <= expected <= 1
        assert value == pytest.approx(correlation(kind, y, x), abs=1e-12)
        turned = correlation("tau", -x, y)
        assert kind != "tau" or turned == pytest.approx(-expected, abs=1e-12)
    counts = np.random.default_rng(seed).integers(0, 4, len(x))
    assume(counts.sum() > 1)
    (drawn,) = resampled(kind, x, y, counts[None, :])
    expected = theirs(kind, np.repeat(x, counts).tolist(), np.repeat(y, counts).tolist())
    assert drawn == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_draws_and_their_intervals() -> None:
    one = draw_counts(["a", "b", "c"], 50, seed=0)
    assert (one.sum(axis=1) == 3).all()
    assert (one == draw_counts(["a", "b", "c"], 50, seed=0)).all()
    assert (one != draw_counts(["a", "b", "c"], 50, seed=1)).any()
    assert (one != draw_counts(["a", "b", "d"], 50, seed=0)).any()
    assert interval(np.append(np.arange(101.0), np.nan)) == pytest.approx((5, 95))
    assert interval(np.full(3, np.nan)) is None
    draws = [np.array([1.0, np.nan]), np.array([3.0, 4.0]), np.full(2, np.nan)]
    assert mean_of_draws(draws) == pytest.approx([2.0, np.nan], nan_ok=True)
    assert np.isnan(mean_of_draws(draws[2:])).all()


numbers = st.integers(-40, 40).map(lambda n: n / 8)
draws_of_pairs = st.integers(1, 4).flatmap(
    lambda pairs: st.lists(
        st.lists(numbers, min_size=pairs + 1, max_size=pairs + 1), min_size=3, max_size=20
    )
)


def intervals_of(
    values: Sequence[float], columns: Sequence[Sequence[float]]
) -> list[tuple[float, float]]:
    differences = {
        ("a", str(at)): Difference(value, np.array(column))
        for at, (value, column) in enumerate(zip(values, columns, strict=True))
    }
    return list(simultaneous_intervals(differences).values())


@given(draws_of_pairs)
def test_simultaneous_intervals_equal_the_definition(draws: list[list[float]]) -> None:
    """More comparisons make no interval shorter."""
    values, *rows = draws
    columns = [list(column) for column in zip(*rows, strict=True)]
    found = intervals_of(values, columns)
    expected = ties_oracle.simultaneous_intervals(values, columns, CONFIDENCE)
    assert np.array(found) == pytest.approx(np.array(expected), abs=1e-9)
    for part in range(1, len(columns)):
        fewer = intervals_of(values[:part], columns[:part])
        for (low, high), (few_low, few_high) in zip(found, fewer, strict=False):
            assert low <= few_low + 1e-9
            assert high >= few_high - 1e-9


def test_taus_and_regrets_are_averaged_over_test_domains() -> None:
    rng, models = np.random.default_rng(0), list(ACCURACY)
    accuracy = {d: dict(zip(models, rng.uniform(20, 90, 12), strict=True)) for d in "abc"}
    values = {d: dict(zip(models, rng.normal(size=12), strict=True)) for d in "abc"}
    mean = {m: float(np.mean([accuracy[d][m] for d in "abc"])) for m in models}
    columns = {"own": Column.averaged(values), "same": NEARLY}
    reasons = {"own": {"m2": "no classifier head"}}
    bed = judge({"name": "toy"}, mean, columns, by_domain=accuracy, left_out=reasons, resamples=50)
    same = {d: {m: float(NEARLY.values[m] or 0) for m in models} for d in "abc"}
    for name, of in (("own", values), ("same", same)):
        result, taus, regrets = bed[name], [], []
        for d in "abc":
            x, y = list(of[d].values()), list(accuracy[d].values())
            taus.append(scipy.stats.weightedtau(x, y)[0])
            regrets.append(max(y) - y[int(np.argmax(x))])
        assert result.weighted_tau == pytest.approx(np.mean(taus))
        assert result.regret == pytest.approx(np.mean(regrets))
        assert [result.by_domain[d].weighted_tau for d in "abc"] == pytest.approx(taus)
        assert [result.by_domain[d].regret for d in "abc"] == pytest.approx(regrets)
        averages = [np.mean([of[d][m] for d in "abc"]) for m in models]
        averaged = scipy.stats.weightedtau(averages, list(mean.values()))[0]
        assert result.averaged.weighted_tau == pytest.approx(averaged)
        assert averaged != pytest.approx(result.weighted_tau)
    alone = judge({"name": "toy"}, ACCURACY, {"nearly": NEARLY}, resamples=20)["nearly"]
    assert alone.by_domain == {}
    assert alone.averaged == Agreement(alone.regret, alone.weighted_tau, alone.tau)
    by_domain = {d: dict(PERFECT.values) for d in "ab"}
    by_domain["a"]["m0"] = None  # without a score on one held-out domain, a model has none
    columns = {"s": Column.averaged(by_domain)}
    each = dict.fromkeys("ab", ACCURACY)
    lacking = judge({"name": "toy"}, ACCURACY, columns, by_domain=each, resamples=9)["s"]
    assert lacking.models == 11
    document = json.loads(json.dumps(bed.to_dict()))
    assert TestBed.from_dict(document) == bed
    with pytest.raises(InputError, match="the test bed"):
        TestBed.from_dict(document | {"accuracy": "high"})
    assert lacking.values_by_domain["b"]["m0"] is None


NONE, FEW = Column(dict.fromkeys(ACCURACY)), Column({"m1": 1.0, "m2": 2.0})


def test_a_test_bed_is_a_mapping_of_scores_best_first() -> None:
    scores = {"reversed": REVERSED, "none": NONE, "nearly": NEARLY, "few": FEW, "perfect": PERFECT}
    bed = judge({"name": "<toy>" * 99}, ACCURACY, scores, resamples=500)
    assert list(bed) == bed.order == ["few", "perfect", "nearly", "reversed", "none"]
    assert bed.best == "perfect"  # a score of few models is not the best
    assert {name: bed[name] for name in bed} == bed.scores
    assert (len(bed), "nearly" in bed, "logme" in bed) == (5, True, False)
    with pytest.raises(KeyError, match="the test bed has no score 'near'; did you mean nearly"):
        bed["near"]
    none = bed["none"]
    assert (none.models, none.weighted_tau, none.interval, none.regret) == (0, None, None, None)
    pairs = [("perfect", "nearly"), ("nearly", "perfect"), ("perfect", "reversed"), ("none", "few")]
    assert [bed.tied(*pair) for pair in pairs] == [True, True, False, False]
    assert bed["perfect"].behind_best is None
    assert bed["reversed"].behind_best == pytest.approx((2, 2))  # in every resample
    low, high = bed["nearly"].behind_best or (0, 0)
    assert low < 0 < high
    assert [row[0] for row in bed.table()[1]] == list(bed)
    assert [line.split()[0] for line in str(bed).splitlines()] == ["score", *bed]
    assert bed._repr_html_().count("<tr>") == 1 + len(bed)
    assert "<toy>" not in bed._repr_html_()
    assert "best perfect (weighted tau 1.00)" in repr(bed)
    for names in (("a", "b"), ("b", "a")):  # of equal scores the best is the first by name
        equal = judge({"name": "toy"}, ACCURACY, dict.fromkeys(names, PERFECT), resamples=20)
        assert equal.best == "a"
    flat = judge({"name": "toy"}, dict.fromkeys(ACCURACY, 50.0), {"p": PERFECT}, resamples=50)
    assert str(flat).splitlines()[1].split() == ["p", "–", "–", "–", "0.0", "12"]


def test_means_over_test_beds() -> None:
    easy = judge({"name": "easy"}, ACCURACY, {"a": PERFECT, "b": PERFECT}, resamples=100)
    hard = judge(
        {"name": "hard"}, ACCURACY, {"a": REVERSED, "c": PERFECT, "none": NONE}, resamples=80
    )
    together = compare({"<easy>": easy, "hard": hard})
    assert next(iter(together.means)) == "a"  # first the score that both have
    a, tau = together.means["a"], hard["a"].weighted_tau
    assert a.weighted_tau == a.averaged_weighted_tau == pytest.approx((1 + (tau or 0)) / 2)
    assert (a.regret, a.worst_regret, a.worst_weighted_tau) == (5.5, 11.0, tau)
    assert (a.beds, together.means["b"].beds) == (2, 1)
    none = together.means["none"]
    assert (none.weighted_tau, none.worst_regret) == (None, None)
    assert together.tied("b", "a")
    assert together.indistinguishable == (("a", "b"),)  # only the easy one has both
    assert repr(together).startswith("Comparison(2 data sets, 4 scores: a, ")
    assert [line.split()[0] for line in str(together).splitlines()] == ["score", *together.means]
    assert together._repr_html_().count("<tr>") == 5
    assert "<easy>" not in together._repr_html_()
    # the same models share their resamples
    assert compare({"one": easy}).means["b"].interval == together.means["b"].interval
    columns = {"a": PERFECT, "b": NEARLY, "c": REVERSED}
    beds = {n: judge({"name": n}, ACCURACY, columns, resamples=300) for n in ("one", "two")}
    means = compare(beds).means
    assert means["a"].behind_best is None
    for score in ("b", "c"):
        low, high = means[score].behind_best or (0, 0)
        difference = (means["a"].weighted_tau or 0) - (means[score].weighted_tau or 0)
        assert low - 1e-9 <= difference <= high + 1e-9
    with pytest.raises(InputError, match="no test beds to compare"):
        compare({})


@pytest.mark.parametrize(
    ("with_head", "table", "cells"),
    [(False, "weighted_tau_feature_based", 7 * 4), (True, "weighted_tau_classifier_based", 7 * 3)],
)
def test_every_published_cell(with_head: bool, table: str, cells: int) -> None:
    beds = paper(with_head=with_head, resamples=100, seed=3)
    rows = [(row.pop("dataset"), row) for row in read_table(table)]
    for dataset, row in rows:
        for score, value in row.items():
            assert f"{beds[dataset][score].weighted_tau:.2f}" == value, (dataset, score)
            cells -= 1
    assert cells == 0
    for bed in beds.values():
        accuracy = list(bed.accuracy.values())
        for result in bed.scores.values():
            values = list(result.values.values())
            assert result.tau == pytest.approx(scipy.stats.kendalltau(values, accuracy)[0])
            weighted = scipy.stats.weightedtau(values, accuracy)[0]
            assert result.weighted_tau == pytest.approx(weighted, abs=1e-12)
    if not with_head:
        assert paper(resamples=100, seed=3) == beds
        other = paper(resamples=100, seed=4)["PACS"]["zood"].interval
        assert beds["PACS"]["zood"].interval != other
        for score, means in compare(beds).means.items():
            printed = sum(float(row[score]) for _, row in rows) / 7
            assert means.weighted_tau == pytest.approx(printed, abs=0.005)
            assert means.beds == 7

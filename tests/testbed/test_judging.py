"""Scores judged by accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from tests.testbed.data import ACCURACY, NEARLY, PERFECT, REVERSED, column

from oodzoo.testbed import Agreement, Column, judge


def test_similar_scores_are_tied_and_opposites_are_not() -> None:
    scores = {"perfect": PERFECT, "nearly": NEARLY, "reversed": REVERSED}
    bed = judge({"name": "toy"}, ACCURACY, scores, resamples=500)
    assert bed.tied("perfect", "nearly")
    assert bed.tied("nearly", "perfect")
    assert not bed.tied("perfect", "reversed")
    assert bed.indistinguishable == (("nearly", "perfect"),)
    assert bed.scores["perfect"].behind_best is None
    low, high = bed.scores["reversed"].behind_best or (0, 0)
    assert low == pytest.approx(2) == high  # in every resample
    low, high = bed.scores["nearly"].behind_best or (0, 0)
    assert low < 0 < high


@given(st.permutations(range(12)))
def test_a_score_is_judged_by_its_order_alone(order: list[int]) -> None:
    plain, bent = column([float(x) for x in order]), column([np.exp(x) - 5 for x in order])
    bed = judge({"name": "toy"}, ACCURACY, {"plain": plain, "bent": bent}, resamples=20)
    one, two = bed.scores["plain"], bed.scores["bent"]
    assert one.weighted_tau == two.weighted_tau
    assert (one.interval, one.regret) == (two.interval, two.regret)
    assert bed.tied("plain", "bent")


def test_a_score_that_no_model_has() -> None:
    none = Column(dict.fromkeys(ACCURACY))
    bed = judge({"name": "toy"}, ACCURACY, {"none": none, "perfect": PERFECT}, resamples=20)
    result = bed.scores["none"]
    assert (result.models, result.weighted_tau, result.interval, result.regret) == (
        *(0, None, None, None),
    )
    assert bed.best == "perfect"
    assert not bed.tied("none", "perfect")


def test_taus_and_regrets_are_averaged_over_test_domains() -> None:
    rng = np.random.default_rng(0)
    models = list(ACCURACY)
    accuracy = {d: dict(zip(models, rng.uniform(20, 90, 12), strict=True)) for d in "abc"}
    values = {d: dict(zip(models, rng.normal(size=12), strict=True)) for d in "abc"}
    mean = {m: float(np.mean([accuracy[d][m] for d in "abc"])) for m in models}
    columns = {"own": Column.averaged(values), "same": NEARLY}
    bed = judge({"name": "toy"}, mean, columns, by_domain=accuracy, resamples=50)

    def expected(values: dict[str, dict[str, float]], d: str) -> tuple[float, float]:
        x, y = (list(each[d].values()) for each in (values, accuracy))
        return scipy.stats.weightedtau(x, y)[0], max(y) - y[int(np.argmax(x))]

    same = {d: {m: float(NEARLY.values[m] or 0) for m in models} for d in "abc"}
    for name, of in (("own", values), ("same", same)):
        result = bed.scores[name]
        taus, regrets = zip(*(expected(of, d) for d in "abc"), strict=True)
        assert result.weighted_tau == pytest.approx(np.mean(taus))
        assert result.regret == pytest.approx(np.mean(regrets))
        assert [result.by_domain[d].weighted_tau for d in "abc"] == pytest.approx(taus)
        assert [result.by_domain[d].regret for d in "abc"] == pytest.approx(regrets)
        averages = [np.mean([of[d][m] for d in "abc"]) for m in models]
        paper = scipy.stats.weightedtau(averages, list(mean.values()))[0]
        assert result.averaged.weighted_tau == pytest.approx(paper)
        assert result.averaged.weighted_tau != pytest.approx(result.weighted_tau)


def test_without_test_domains_the_averages_are_judged() -> None:
    bed = judge({"name": "toy"}, ACCURACY, {"nearly": NEARLY}, resamples=20)
    result = bed.scores["nearly"]
    assert result.by_domain == {}
    assert result.averaged == Agreement(result.regret, result.weighted_tau, result.tau)


def test_a_model_without_a_score_on_one_test_domain_has_none() -> None:
    by_domain = {d: dict(PERFECT.values) for d in "ab"}
    by_domain["a"]["m0"] = None
    column = Column.averaged(by_domain)
    bed = judge(
        {"name": "toy"},
        ACCURACY,
        {"s": column},
        by_domain=dict.fromkeys("ab", ACCURACY),
        resamples=9,
    )
    assert bed.scores["s"].models == 11
    assert bed.scores["s"].values_by_domain["b"]["m0"] is None

"""Judging scores, and several test beds together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo import testbed
from oodzoo.errors import InputError
from oodzoo.testbed import Column, compare, judge
from oodzoo.testbed.correlation import draw, resampled

ACCURACY = {f"m{i}": 50.0 + i for i in range(12)}


def column(order: list[float]) -> Column:
    return Column(dict(zip(ACCURACY, order, strict=True)))


PERFECT = column([float(i) for i in range(12)])
REVERSED = column([-float(i) for i in range(12)])
NEARLY = column([0.0, 2.0, 1.0, *map(float, range(3, 12))])


def test_regret_is_what_the_first_choice_costs() -> None:
    tied = column([1.0] * 10 + [2.0] * 2)
    alone = Column({"m3": 9.0, "m4": 1.0})
    scores = {"perfect": PERFECT, "reversed": REVERSED, "tied": tied, "alone": alone}
    bed = judge({"name": "toy"}, ACCURACY, scores, resamples=50)
    regrets = {name: judged.regret for name, judged in bed.scores.items()}
    assert regrets == {"perfect": 0.0, "reversed": 11.0, "tied": 0.5, "alone": 8.0}
    assert bed.best == "perfect"


def test_scores_that_agree_cannot_be_told_apart_and_opposites_can() -> None:
    scores = {"perfect": PERFECT, "nearly": NEARLY, "reversed": REVERSED}
    bed = judge({"name": "toy"}, ACCURACY, scores, resamples=500)
    assert bed.tied("perfect", "nearly")
    assert bed.tied("nearly", "perfect")
    assert not bed.tied("perfect", "reversed")
    assert bed.indistinguishable == (("nearly", "perfect"),)


@given(st.permutations(range(12)))
def test_a_score_is_judged_by_its_order_alone(order: list[int]) -> None:
    plain, bent = column([float(x) for x in order]), column([np.exp(x) - 5 for x in order])
    bed = judge({"name": "toy"}, ACCURACY, {"plain": plain, "bent": bent}, resamples=20)
    one, two = bed.scores["plain"], bed.scores["bent"]
    assert one.weighted_tau == two.weighted_tau
    assert (one.interval, one.regret) == (two.interval, two.regret)
    assert bed.tied("plain", "bent")


def test_a_score_that_no_model_has_is_no_error() -> None:
    none = Column(dict.fromkeys(ACCURACY))
    bed = judge({"name": "toy"}, ACCURACY, {"none": none, "perfect": PERFECT}, resamples=20)
    judged = bed.scores["none"]
    assert (judged.models, judged.weighted_tau, judged.interval, judged.regret) == (
        *(0, None, None, None),
    )
    assert bed.best == "perfect"
    assert compare({"toy": bed}).means["none"].weighted_tau is None


def test_a_comparison_takes_means_over_the_data_sets_that_have_a_score() -> None:
    easy = judge({"name": "easy"}, ACCURACY, {"a": PERFECT, "b": PERFECT}, resamples=100)
    hard = judge({"name": "hard"}, ACCURACY, {"a": REVERSED, "c": PERFECT}, resamples=100)
    together = compare({"easy": easy, "hard": hard})
    assert list(together.means) == ["a", "b", "c"]  # what all have comes first
    assert together.means["a"].weighted_tau == pytest.approx(
        (1 + (hard.scores["a"].weighted_tau or 0)) / 2
    )
    assert together.means["a"].regret == 5.5
    assert (together.means["a"].beds, together.means["b"].beds) == (2, 1)
    assert together.indistinguishable == (("a", "b"),)  # on the easy one, which alone has both
    with pytest.raises(InputError, match="no results"):
        compare({})


def test_scores_are_compared_on_the_models_that_have_both() -> None:
    some = Column({m: v for m, v in PERFECT.values.items() if m not in ("m10", "m11")})
    bed = judge({"name": "toy"}, ACCURACY, {"a": NEARLY, "some": some}, resamples=100)
    ten = {m: v for m, v in ACCURACY.items() if m not in ("m10", "m11")}
    assert bed.resampled("a") != pytest.approx(bed.resampled("a", "some"), nan_ok=True)
    nearly = resampled(
        "weighted_tau",
        [float(NEARLY.values[m] or 0) for m in ten],
        list(ten.values()),
        draw(tuple(ACCURACY), 100, 0)[:, :10],
    )
    assert bed.resampled("a", "some") == pytest.approx(nearly)


def test_results_with_other_numbers_of_resamples_are_compared() -> None:
    beds = {
        str(n): judge({"name": str(n)}, ACCURACY, {"a": NEARLY, "b": REVERSED}, resamples=n)
        for n in (50, 80)
    }
    together = compare(beds)
    assert together.means["a"].interval is not None
    assert together.indistinguishable == ()


def test_the_same_models_are_resampled_together() -> None:
    one = judge({"name": "one"}, ACCURACY, {"a": NEARLY}, resamples=100)
    two = judge({"name": "two"}, ACCURACY, {"a": NEARLY}, resamples=100)
    alone, both = compare({"one": one}), compare({"one": one, "two": two})
    assert alone.means["a"].interval == both.means["a"].interval
    assert testbed.TestBed is type(one)

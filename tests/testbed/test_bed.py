"""Scores judged by accuracy."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.testbed.data import ACCURACY, NEARLY, PERFECT, REVERSED, column

from oodzoo.errors import InputError
from oodzoo.testbed import Column, TestBed, judge
from oodzoo.testbed.correlation import draw_counts, resampled


def test_regret_is_what_the_first_choice_costs() -> None:
    tied = column([1.0] * 10 + [2.0] * 2)
    alone = Column({"m3": 9.0, "m4": 1.0})
    scores = {"perfect": PERFECT, "reversed": REVERSED, "tied": tied, "alone": alone}
    bed = judge({"name": "toy"}, ACCURACY, scores, resamples=50)
    regrets = {name: result.regret for name, result in bed.scores.items()}
    assert regrets == {"perfect": 0.0, "reversed": 11.0, "tied": 0.5, "alone": 8.0}
    assert bed.best == "perfect"


def test_similar_scores_are_tied_and_opposites_are_not() -> None:
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


def test_a_score_that_no_model_has() -> None:
    none = Column(dict.fromkeys(ACCURACY))
    bed = judge({"name": "toy"}, ACCURACY, {"none": none, "perfect": PERFECT}, resamples=20)
    result = bed.scores["none"]
    assert (result.models, result.weighted_tau, result.interval, result.regret) == (
        *(0, None, None, None),
    )
    assert bed.best == "perfect"


def test_scores_are_compared_on_the_models_that_have_both() -> None:
    some = Column({m: v for m, v in PERFECT.values.items() if m not in ("m10", "m11")})
    bed = judge({"name": "toy"}, ACCURACY, {"a": NEARLY, "some": some}, resamples=100)
    ten = {m: v for m, v in ACCURACY.items() if m not in ("m10", "m11")}
    assert bed.resampled("a") != pytest.approx(bed.resampled("a", "some"), nan_ok=True)
    nearly = resampled(
        "weighted_tau",
        [float(NEARLY.values[m] or 0) for m in ten],
        list(ten.values()),
        draw_counts(tuple(ACCURACY), 100, 0)[:, :10],
    )
    assert bed.resampled("a", "some") == pytest.approx(nearly)


def test_a_test_bed_survives_json() -> None:
    some = Column({"m1": 1.0, "m2": None, "m5": 3.0}, "Some", 2.5)
    bed = judge(
        {"name": "toy", "domains": ["a"]},
        ACCURACY,
        {"some": some, "nearly": NEARLY, "reversed": REVERSED},
        left_out={"some": {"m2": "no classifier head"}},
        resamples=50,
        seed=3,
    )
    document = json.loads(json.dumps(bed.to_dict()))
    again = TestBed.from_dict(document)
    assert again == bed
    assert again.to_dict() == bed.to_dict()
    with pytest.raises(InputError, match="the test bed"):
        TestBed.from_dict(document | {"accuracy": "high"})


def test_of_equal_scores_the_best_is_the_first_by_name() -> None:
    for names in (("a", "b"), ("b", "a")):
        bed = judge({"name": "toy"}, ACCURACY, dict.fromkeys(names, PERFECT))
        assert bed.best == "a"

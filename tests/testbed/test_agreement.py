"""Agreement of scores with accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from tests.testbed.data import ACCURACY, NEARLY, PERFECT, REVERSED, column

from oodzoo.testbed.agreement import (
    Agreement,
    Resampled,
    UnseenDomain,
    agreement,
    mean_agreement,
    mean_of,
)
from oodzoo.testbed.correlation import draw_counts, resampled


def test_regret_is_what_the_first_choice_costs() -> None:
    tied = column([1.0] * 10 + [2.0] * 2)
    alone = {"m3": 9.0, "m4": 1.0}
    values = {"perfect": PERFECT.values, "reversed": REVERSED.values, "tied": tied.values}
    regrets = {name: agreement(ACCURACY, v).regret for name, v in values.items()}
    assert regrets == {"perfect": 0.0, "reversed": 11.0, "tied": 0.5}
    assert agreement(ACCURACY, alone).regret == 8.0


def test_taus_are_those_of_scipy() -> None:
    values = NEARLY.values
    found = agreement(ACCURACY, values)
    x, y = list(values.values()), list(ACCURACY.values())
    assert found.weighted_tau == pytest.approx(scipy.stats.weightedtau(x, y)[0])
    assert found.tau == pytest.approx(scipy.stats.kendalltau(x, y)[0])


def test_undefined_values_are_left_out_of_means() -> None:
    assert agreement(ACCURACY, dict.fromkeys(ACCURACY)) == Agreement(None, None, None)
    each = [Agreement(1.0, 0.5, None), Agreement(3.0, None, None)]
    assert mean_agreement(each) == Agreement(2.0, 0.5, None)
    assert mean_of([]) is None


def test_a_resample_is_of_models_and_serves_all_test_domains() -> None:
    turned = {model: -value for model, value in ACCURACY.items()}
    values = {"a": NEARLY.values}
    tests = [UnseenDomain(ACCURACY, values), UnseenDomain(turned, values)]
    found = Resampled(tests, 100, 0).draws("tau", "a", tuple(ACCURACY))
    finite = found[np.isfinite(found)]
    assert len(finite) > 90
    assert finite == pytest.approx(
        np.zeros(len(finite)), abs=1e-12
    )  # tau of one is minus the other


def test_scores_are_compared_on_the_models_that_have_both() -> None:
    ten = {m: v for m, v in ACCURACY.items() if m not in ("m10", "m11")}
    some = {m: v for m, v in PERFECT.values.items() if m in ten}
    draws = Resampled([UnseenDomain(ACCURACY, {"a": NEARLY.values, "some": some})], 100, 0)
    assert draws.models_with("a", "some") == tuple(ten)
    nearly = [float(NEARLY.values[m] or 0) for m in ten]
    counts = draw_counts(tuple(ACCURACY), 100, 0)[:, :10]
    expected = resampled("weighted_tau", nearly, list(ten.values()), counts)
    assert draws.draws("weighted_tau", "a", tuple(ten)) == pytest.approx(expected, nan_ok=True)
    difference = draws.difference("some", "a")
    assert difference is not None
    of_ten = scipy.stats.weightedtau(nearly, list(ten.values()))[0]
    assert difference.value == pytest.approx(1 - of_ten)


def test_a_score_without_an_order_is_not_compared() -> None:
    same = dict.fromkeys(ACCURACY, 1.0)
    draws = Resampled([UnseenDomain(ACCURACY, {"a": NEARLY.values, "same": same})], 20, 0)
    assert draws.difference("a", "same") is None

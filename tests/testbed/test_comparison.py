"""Scores compared over several test beds."""

from __future__ import annotations

import pytest
from tests.testbed.data import ACCURACY, NEARLY, PERFECT, REVERSED

from oodzoo.errors import InputError
from oodzoo.testbed import Column, compare, judge


def test_means_are_over_the_data_sets_that_have_the_score() -> None:
    easy = judge({"name": "easy"}, ACCURACY, {"a": PERFECT, "b": PERFECT}, resamples=100)
    hard = judge({"name": "hard"}, ACCURACY, {"a": REVERSED, "c": PERFECT}, resamples=100)
    together = compare({"easy": easy, "hard": hard})
    assert list(together.means) == ["a", "b", "c"]  # first the score that both have
    assert together.means["a"].weighted_tau == pytest.approx(
        (1 + (hard.scores["a"].weighted_tau or 0)) / 2
    )
    assert (together.means["a"].regret, together.means["a"].worst_regret) == (5.5, 11.0)
    assert together.means["a"].worst_weighted_tau == hard.scores["a"].weighted_tau
    assert together.means["a"].averaged_weighted_tau == together.means["a"].weighted_tau
    assert (together.means["a"].beds, together.means["b"].beds) == (2, 1)
    assert together.tied("b", "a")
    assert not together.tied("a", "c")
    assert together.indistinguishable == (("a", "b"),)  # only the easy one has both
    with pytest.raises(InputError, match="no test beds to compare"):
        compare({})


def test_test_beds_may_have_different_numbers_of_resamples() -> None:
    beds = {
        str(n): judge({"name": str(n)}, ACCURACY, {"a": NEARLY, "b": REVERSED}, resamples=n)
        for n in (50, 80)
    }
    together = compare(beds)
    assert together.means["a"].interval is not None
    assert together.indistinguishable == ()


def test_the_same_models_share_their_resamples() -> None:
    one = judge({"name": "one"}, ACCURACY, {"a": NEARLY}, resamples=100)
    two = judge({"name": "two"}, ACCURACY, {"a": NEARLY}, resamples=100)
    alone, both = compare({"one": one}), compare({"one": one, "two": two})
    assert alone.means["a"].interval == both.means["a"].interval


def test_a_score_that_no_model_has() -> None:
    none = Column(dict.fromkeys(ACCURACY))
    bed = judge({"name": "toy"}, ACCURACY, {"none": none, "perfect": PERFECT}, resamples=20)
    together = compare({"toy": bed})
    assert together.means["none"].weighted_tau is None
    assert together.means["none"].worst_regret is None
    assert not together.tied("none", "perfect")


def test_how_far_scores_are_behind_the_best() -> None:
    columns = {"a": PERFECT, "b": NEARLY, "c": REVERSED}
    beds = {n: judge({"name": n}, ACCURACY, columns, resamples=300) for n in ("one", "two")}
    means = compare(beds).means
    assert means["a"].behind_best is None
    for score in ("b", "c"):
        low, high = means[score].behind_best or (0, 0)
        difference = (means["a"].weighted_tau or 0) - (means[score].weighted_tau or 0)
        assert low - 1e-9 <= difference <= high + 1e-9


def test_a_comparison_is_shown_as_a_table() -> None:
    bed = judge({"name": "toy"}, ACCURACY, {"n": NEARLY, "p": PERFECT}, resamples=50)
    found = compare({"<one>": bed, "two": bed})
    assert repr(found) == "Comparison(2 data sets, 2 scores: p, n)"
    assert [line.split()[0] for line in str(found).splitlines()] == ["score", "p", "n"]
    assert found._repr_html_().count("<tr>") == 3
    assert "<one>" not in found._repr_html_()

"""Ties between scores, corrected for the number of scores."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import ties as oracle

from oodzoo.ranking.intervals import CONFIDENCE
from oodzoo.testbed.agreement import Resampled, UnseenDomain
from oodzoo.testbed.correlation import Difference, behind, simultaneous_intervals, tied_pairs

numbers = st.integers(-40, 40).map(lambda n: n / 8)
draws = st.integers(1, 4).flatmap(
    lambda pairs: st.lists(
        st.lists(numbers, min_size=pairs, max_size=pairs), min_size=2, max_size=20
    )
)


def found(values: list[float], columns: list[list[float]]) -> list[tuple[float, float]]:
    differences = {
        ("a", str(at)): Difference(value, np.array(column))
        for at, (value, column) in enumerate(zip(values, columns, strict=True))
    }
    return list(simultaneous_intervals(differences).values())


@given(draws=draws, data=st.data())
def test_equal_the_definition(draws: list[list[float]], data: st.DataObject) -> None:
    columns = [list(column) for column in zip(*draws, strict=True)]
    values = [data.draw(numbers) for _ in columns]
    expected = oracle.simultaneous_intervals(values, columns, CONFIDENCE)
    assert np.array(found(values, columns)) == pytest.approx(np.array(expected), abs=1e-9)


@given(draws=draws, data=st.data())
def test_more_comparisons_make_no_interval_shorter(
    draws: list[list[float]], data: st.DataObject
) -> None:
    columns = [list(column) for column in zip(*draws, strict=True)]
    values = [data.draw(numbers) for _ in columns]
    for part in range(1, len(columns)):
        fewer = found(values[:part], columns[:part])
        for (low, high), (few_low, few_high) in zip(found(values, columns), fewer, strict=False):
            assert low <= few_low + 1e-9
            assert high >= few_high - 1e-9


def test_resamples_without_an_order_are_ignored() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(2, 5000))
    whole = simultaneous_intervals({("a", "b"): Difference(0, one), ("a", "c"): Difference(0, two)})
    two[::5] = np.nan
    part = simultaneous_intervals({("a", "b"): Difference(0, one), ("a", "c"): Difference(0, two)})
    assert np.array(list(part.values())) == pytest.approx(np.array(list(whole.values())), abs=0.1)
    assert simultaneous_intervals({}) == {}


def test_equal_scores_are_tied_and_the_distance_to_the_best_has_a_sign() -> None:
    differences = {
        ("a", "b"): Difference(0.0, np.zeros(10)),
        ("a", "c"): Difference(-3.0, np.linspace(-3.1, -2.9, 10)),
        ("b", "c"): Difference(-3.0, np.linspace(-3.1, -2.9, 10)),
    }
    intervals = simultaneous_intervals(differences)
    assert tied_pairs(intervals) == (("a", "b"),)
    distances = behind("c", ["a", "b", "c"], intervals)
    assert set(distances) == {"a", "b"}
    assert 2.5 < distances["a"][0] < 3 < distances["a"][1] < 3.5
    assert behind("a", ["c"], intervals)["c"][1] < 0


def test_equal_scores_are_seldom_called_worse_than_the_best() -> None:
    # All scores are the quality of the models with noise of the same size, so none is better.
    rng = np.random.default_rng(0)
    trials, n_models, domains = 100, 20, ("a", "b")
    scores = [f"s{number}" for number in range(7)]
    wrong = uncorrected = 0
    for trial in range(trials):
        quality = rng.normal(size=n_models)
        own = {s: quality + 0.5 * rng.normal(size=n_models) for s in scores}
        tests = [
            UnseenDomain(
                by_model(quality + 0.5 * rng.normal(size=n_models)),
                {
                    s: by_model(values + 0.2 * rng.normal(size=n_models))
                    for s, values in own.items()
                },
            )
            for _ in domains
        ]
        draws = Resampled(tests, 200, trial)
        models = draws.models_with()
        taus = {s: draws.correlation(s, models) or 0.0 for s in scores}
        best = max(taus, key=lambda s: taus[s])
        differences = {
            pair: difference
            for pair in itertools.combinations(scores, 2)
            if (difference := draws.difference(*pair)) is not None
        }
        with_best = [pair for pair in differences if best in pair]
        ties = tied_pairs(simultaneous_intervals(differences))
        wrong += any(pair not in ties for pair in with_best)
        alone = [simultaneous_intervals({pair: differences[pair]}) for pair in with_best]
        uncorrected += not all(map(tied_pairs, alone))
    assert wrong / trials <= 0.1
    assert uncorrected / trials > 0.2  # so the correction is needed


def by_model(values: np.ndarray) -> dict[str, float]:
    return {f"m{number}": float(value) for number, value in enumerate(values)}

"""Agreement of scores with accuracy, on each test domain and on average.

On each test domain, the models are ordered by a score and by their accuracy there, which gives a
rank correlation and a regret. Both are averaged over test domains. Bootstrap resamples are of
models; the test domains are fixed, and one resample of models serves all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oodzoo.ranking.testbed.correlation import (
    Difference,
    Kind,
    correlation,
    draw_counts,
    mean_of_draws,
    resampled,
)

Values = Mapping[str, float | None]
"""Value of a score for each model; None if the model has none."""


@dataclass(frozen=True)
class Agreement:
    """How well a score orders the models by accuracy.

    Attributes
    ----------
    regret : float or None
        Percentage points of accuracy between the best model of all and the top model under the
        score (the mean of several that are tied); None if no model has the score.
    weighted_tau, tau : float or None
        None if all models have the same score or the same accuracy.
    """

    regret: float | None = None
    weighted_tau: float | None = None
    tau: float | None = None


@dataclass(frozen=True)
class UnseenDomain:
    """Accuracy of the models on one test domain, and the scores that were computed for it.

    A model that lacks a score lacks it on every test domain.
    """

    accuracy: Mapping[str, float]
    values: Mapping[str, Values]


def agreement(accuracy: Mapping[str, float], values: Values) -> Agreement:
    """Compute the agreement of one score with accuracy, on the models that have the score."""
    models = tuple(model for model in accuracy if values.get(model) is not None)
    return Agreement(
        _regret(accuracy, values),
        _correlation("weighted_tau", accuracy, values, models),
        _correlation("tau", accuracy, values, models),
    )


def mean_agreement(each: Sequence[Agreement]) -> Agreement:
    """Average over test domains; those where a value is undefined are left out of its mean."""
    return Agreement(
        mean_of([one.regret for one in each]),
        mean_of([one.weighted_tau for one in each]),
        mean_of([one.tau for one in each]),
    )


def mean_of(values: Sequence[float | None]) -> float | None:
    """Average the values that are not None; None if there are none."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


class Resampled:
    """Rank correlations of scores in bootstrap resamples of the models."""

    def __init__(self, tests: Sequence[UnseenDomain], resamples: int, seed: int) -> None:
        self._tests = tests
        self._models = tuple(tests[0].accuracy)
        self._counts = draw_counts(self._models, resamples, seed)
        self._known: dict[tuple[Kind, str, tuple[str, ...]], NDArray[np.float64]] = {}

    def models_with(self, *scores: str) -> tuple[str, ...]:
        """Return the models that have all of some scores."""
        some = self._tests[0].values
        return tuple(m for m in self._models if all(some[s].get(m) is not None for s in scores))

    def correlation(self, score: str, models: Sequence[str]) -> float | None:
        """Compute the weighted tau of a score on some models, averaged over test domains."""
        return mean_of(
            [
                _correlation("weighted_tau", test.accuracy, test.values[score], models)
                for test in self._tests
            ]
        )

    def draws(self, kind: Kind, score: str, models: Sequence[str]) -> NDArray[np.float64]:
        """Compute the mean correlation of a score on some models, in each resample."""
        key = (kind, score, tuple(models))
        if key not in self._known:
            counts = self._counts[:, [self._models.index(model) for model in models]]
            self._known[key] = mean_of_draws(
                [
                    resampled(kind, *_arrays(test.accuracy, test.values[score], models), counts)
                    for test in self._tests
                ]
            )
        return self._known[key]

    def difference(self, one: str, two: str) -> Difference | None:
        """Compare two scores on the models that have both; None if either has no order there."""
        models = self.models_with(one, two)
        first, second = self.correlation(one, models), self.correlation(two, models)
        if first is None or second is None:
            return None
        draws = self.draws("weighted_tau", one, models) - self.draws("weighted_tau", two, models)
        return Difference(first - second, draws) if np.isfinite(draws).any() else None


def _correlation(
    kind: Kind, accuracy: Mapping[str, float], values: Values, models: Sequence[str]
) -> float | None:
    return correlation(kind, *_arrays(accuracy, values, models))


def _arrays(
    accuracy: Mapping[str, float], values: Values, models: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Score and accuracy of some models."""
    score = np.array([values[model] for model in models], np.float64)
    return score, np.array([accuracy[model] for model in models], np.float64)


def _regret(accuracy: Mapping[str, float], values: Values) -> float | None:
    known = {model: value for model, value in values.items() if value is not None}
    if not known:
        return None
    first = max(known.values())
    chosen = [accuracy[model] for model, value in known.items() if value == first]
    return float(max(accuracy.values()) - np.mean(chosen))

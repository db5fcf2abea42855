"""Compare scores by their rank correlation with the accuracy of models."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from oodzoo._io import structured
from oodzoo.testbed.correlation import Kind, correlation, differ, draw_counts, interval, resampled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = 1
RESAMPLES = 10_000
SEED = 0

Values = Mapping[str, float | None]
Interval = tuple[float, float] | None


@dataclass(frozen=True)
class Column:
    """Values of a score.

    Attributes
    ----------
    values : mapping
        Value for each model; None if the model has none.
    title : str
        Full name of the score.
    seconds : float, optional
        Total computing time for all models.
    """

    values: Values
    title: str = ""
    seconds: float | None = None


@dataclass(frozen=True)
class ScoreResult:
    """Rank correlation of a score with accuracy, on the models that have the score.

    Attributes
    ----------
    values, title, seconds
        As in :class:`Column`.
    models : int
        Number of models that have the score.
    weighted_tau, tau : float or None
        None if all models have the same score or the same accuracy.
    interval, tau_interval : (float, float) or None
        90 % bootstrap intervals of the two, from resampling models.
    common : float or None
        Weighted tau on the models that have every score.
    regret : float or None
        Percentage points of accuracy between the best model of all and the top model under this
        score (the mean of several that are tied).
    """

    values: Values
    title: str
    seconds: float | None
    models: int
    weighted_tau: float | None
    tau: float | None
    interval: Interval
    tau_interval: Interval
    common: float | None
    regret: float | None


@dataclass(frozen=True)
class TestBed:
    """Accuracy of models, and scores compared with it.

    Attributes
    ----------
    data : dict
        Provenance of the data: its `name`, and optionally more.
    accuracy : dict
        Accuracy of each model, in percent.
    scores : dict
        A :class:`ScoreResult` for each score.
    indistinguishable : tuple of (str, str)
        Pairs of scores that are statistically tied: the 90 % interval of the difference of their
        weighted taus, over resamples of the models that have both, contains zero.
    left_out : dict
        For each score, the models that lack it and the reason.
    resamples, seed : int
        Number and seed of the bootstrap resamples.
    """

    __test__: ClassVar[bool] = False  # not a pytest class

    data: dict[str, Any]
    accuracy: dict[str, float]
    scores: dict[str, ScoreResult]
    indistinguishable: tuple[tuple[str, str], ...]
    left_out: dict[str, dict[str, str]] = field(default_factory=dict)
    resamples: int = RESAMPLES
    seed: int = SEED

    @property
    def name(self) -> str:
        """Name of the data set."""
        return str(self.data["name"])

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self.accuracy)

    @property
    def best(self) -> str:
        """The score with the highest weighted tau; of equal ones the first by name."""
        taus = {name: result.weighted_tau for name, result in self.scores.items()}
        known = {name: -np.inf if tau is None else tau for name, tau in taus.items()}
        return min(known, key=lambda name: (-known[name], name))

    def tied(self, one: str, two: str) -> bool:
        """Whether two scores are statistically tied."""
        return (one, two) in self.indistinguishable or (two, one) in self.indistinguishable

    def resampled(self, score: str, *others: str) -> NDArray[np.float64]:
        """Return the weighted tau of a score in each bootstrap resample of the models.

        Restricted to models that also have the scores `others`, so that they can be compared.
        """
        return self._bootstrap.draws("weighted_tau", score, *others)

    @functools.cached_property
    def _bootstrap(self) -> _Bootstrap:
        values = {name: result.values for name, result in self.scores.items()}
        return _Bootstrap(self.accuracy, values, self.resamples, self.seed)

    def to_dict(self) -> dict[str, Any]:
        """Convert the test bed to a JSON document."""
        return {
            "schema": SCHEMA,
            "data": self.data,
            "models": list(self.models),
            "accuracy": self.accuracy,
            "scores": {name: dataclasses.asdict(result) for name, result in self.scores.items()},
            "indistinguishable": [list(pair) for pair in self.indistinguishable],
            "left_out": self.left_out,
            "resamples": self.resamples,
            "seed": self.seed,
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> TestBed:
        """Restore a test bed from :meth:`to_dict`, without recomputing anything."""
        return structured(document, cls, "the test bed")

    def plot(self) -> Figure:
        """Plot each score against accuracy, one panel per score, with matplotlib."""
        from oodzoo.report.figures import plot_scores

        return plot_scores([self])


def judge(
    data: dict[str, Any],
    accuracy: Mapping[str, float],
    columns: Mapping[str, Column],
    *,
    left_out: Mapping[str, Mapping[str, str]] | None = None,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> TestBed:
    """Compare scores with the accuracy of the models.

    Parameters
    ----------
    data : dict
        Provenance of the data; needs a `name`, which is shown in tables.
    accuracy : mapping
        Accuracy of each model, in percent.
    columns : mapping
        Scores by name.
    left_out : mapping, optional
        For each score, the models that lack it and the reason.
    resamples, seed : int
        Number and seed of the bootstrap resamples.

    Examples
    --------
    >>> accuracy = {"a": 50.0, "b": 60.0, "c": 70.0, "d": 80.0}
    >>> wide = Column({"a": 2.0, "b": 1.0, "c": 3.0, "d": None})
    >>> bed = judge({"name": "toy"}, accuracy, {"wide": wide})
    >>> bed.scores["wide"].models, round(bed.scores["wide"].tau, 3), bed.scores["wide"].regret
    (3, 0.333, 10.0)
    """
    accuracy = dict(accuracy)
    values = {name: {m: c.values.get(m) for m in accuracy} for name, c in columns.items()}
    bootstrap = _Bootstrap(accuracy, values, resamples, seed)
    common = models_with(accuracy, *values.values())
    scores = {}
    for name, column in columns.items():
        own = models_with(accuracy, values[name])
        scores[name] = ScoreResult(
            values=values[name],
            title=column.title or name,
            seconds=column.seconds,
            models=len(own),
            weighted_tau=_correlation("weighted_tau", values[name], accuracy, own),
            tau=_correlation("tau", values[name], accuracy, own),
            interval=interval(bootstrap.draws("weighted_tau", name)),
            tau_interval=interval(bootstrap.draws("tau", name)),
            common=_correlation("weighted_tau", values[name], accuracy, common),
            regret=_regret(accuracy, values[name]),
        )
    pairs = tuple(
        (one, two)
        for one, two in itertools.combinations(sorted(scores), 2)
        if not bootstrap.differ(one, two)
    )
    reasons = {name: dict(why) for name, why in (left_out or {}).items()}
    return TestBed(dict(data), accuracy, scores, pairs, reasons, resamples, seed)


class _Bootstrap:
    """Bootstrap resamples of the models of a test bed."""

    def __init__(
        self,
        accuracy: Mapping[str, float],
        values: Mapping[str, Values],
        resamples: int,
        seed: int,
    ) -> None:
        self._accuracy = accuracy
        self._values = values
        self._counts = draw_counts(tuple(accuracy), resamples, seed)
        self._cache: dict[tuple[Kind, str, tuple[str, ...]], NDArray[np.float64]] = {}

    def draws(self, kind: Kind, score: str, *others: str) -> NDArray[np.float64]:
        """Correlation of a score in each resample, on the models that have it and the others."""
        models = models_with(self._accuracy, *(self._values[name] for name in (score, *others)))
        key = (kind, score, models)
        if key not in self._cache:
            at = [position for position, m in enumerate(self._accuracy) if m in models]
            x = np.array([self._values[score][m] for m in models], np.float64)
            y = np.array([self._accuracy[m] for m in models], np.float64)
            self._cache[key] = resampled(kind, x, y, self._counts[:, at])
        return self._cache[key]

    def differ(self, one: str, two: str) -> bool:
        return differ(self.draws("weighted_tau", one, two), self.draws("weighted_tau", two, one))


def models_with(accuracy: Mapping[str, float], *columns: Values) -> tuple[str, ...]:
    """Return the models that have all of some scores."""
    return tuple(m for m in accuracy if all(values.get(m) is not None for values in columns))


def _correlation(
    kind: Kind, values: Values, accuracy: Mapping[str, float], models: Sequence[str]
) -> float | None:
    x = np.array([values[m] for m in models], np.float64)
    return correlation(kind, x, [accuracy[m] for m in models])


def _regret(accuracy: Mapping[str, float], values: Values) -> float | None:
    known = {m: v for m, v in values.items() if v is not None}
    if not known:
        return None
    first = max(known.values())
    chosen = [accuracy[m] for m, value in known.items() if value == first]
    return float(max(accuracy.values()) - np.mean(chosen))

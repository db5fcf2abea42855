"""Scores of models judged by the accuracy that the models reach in the end."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oodzoo._io import structured
from oodzoo.testbed.correlation import Kind, apart, correlation, draw, interval, resampled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = 1
RESAMPLES = 10_000
SEED = 0

Values = Mapping[str, float | None]
Interval = tuple[float, float] | None


@dataclass(frozen=True)
class Column:
    """A score of each model, as it was computed.

    Attributes
    ----------
    values : mapping
        None for a model that has no such score.
    title : str
        The name in full.
    seconds : float, optional
        How long it took for all models together.
    """

    values: Values
    title: str = ""
    seconds: float | None = None


@dataclass(frozen=True)
class Judged:
    """How well a score orders the models that have it.

    Attributes
    ----------
    values, title, seconds
        As in :class:`Column`.
    models : int
        How many models have the score.
    weighted_tau, tau : float or None
        None where the score, or the accuracy, is the same for all of them.
    interval, tau_interval : (float, float) or None
        90 % intervals of the two, by resampling models.
    common : float or None
        The weighted tau on the models that have every score.
    regret : float
        Percentage points between the most accurate model of all and the score's first choice
        (their mean, if several come first).
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
    """The accuracy of models, and scores judged by it.

    Attributes
    ----------
    data : dict
        What it was made from: its `name`, and whatever else is known.
    accuracy : dict
        Percent, for each model.
    scores : dict
        A :class:`Judged` for each score.
    indistinguishable : tuple of (str, str)
        Scores whose weighted taus cannot be told apart: the 90 % interval of their difference, over
        resamples of the models that have both, holds zero.
    left_out : dict
        For a score, why some models do not have it.
    resamples, seed : int
        Of the intervals.
    """

    data: dict[str, Any]
    accuracy: dict[str, float]
    scores: dict[str, Judged]
    indistinguishable: tuple[tuple[str, str], ...]
    left_out: dict[str, dict[str, str]] = field(default_factory=dict)
    resamples: int = RESAMPLES
    seed: int = SEED

    @property
    def name(self) -> str:
        return str(self.data["name"])

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self.accuracy)

    @property
    def best(self) -> str:
        """The score with the highest weighted tau."""
        return max(self.scores, key=lambda name: _or_lowest(self.scores[name].weighted_tau))

    def tied(self, one: str, two: str) -> bool:
        """Whether two scores cannot be told apart."""
        return (one, two) in self.indistinguishable or (two, one) in self.indistinguishable

    def resampled(self, score: str, *beside: str) -> NDArray[np.float64]:
        """The weighted tau of a score in each resample of the models.

        Only models that have the scores `beside` it count, too, so that those can be compared.
        """
        return self._resampling.of("weighted_tau", score, *beside)

    @functools.cached_property
    def _resampling(self) -> _Resampling:
        values = {name: judged.values for name, judged in self.scores.items()}
        return _Resampling(self.accuracy, values, self.resamples, self.seed)

    def to_dict(self) -> dict[str, Any]:
        """The test bed as a JSON document."""
        return {
            "schema": SCHEMA,
            "data": self.data,
            "models": list(self.models),
            "accuracy": self.accuracy,
            "scores": {name: dataclasses.asdict(judged) for name, judged in self.scores.items()},
            "indistinguishable": [list(pair) for pair in self.indistinguishable],
            "left_out": self.left_out,
            "resamples": self.resamples,
            "seed": self.seed,
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> TestBed:
        """The test bed that :meth:`to_dict` was called on; nothing is computed again."""
        return structured(document, cls, "the test bed")

    def plot(self) -> Figure:
        """Each score against accuracy, one panel for each, as a matplotlib figure."""
        from oodzoo.report.plots import plot_scores

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
    """Compare scores of models with their accuracy.

    Parameters
    ----------
    data : dict
        Its `name` is what tables show.
    accuracy : mapping
        Percent, for each model.
    columns : mapping
        Scores by name.
    left_out : mapping, optional
        For a score, why models do not have it.
    resamples, seed : int
        For the intervals.

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
    resampling = _Resampling(accuracy, values, resamples, seed)
    common = having(accuracy, *values.values())
    scores = {}
    for name, column in columns.items():
        own = having(accuracy, values[name])
        scores[name] = Judged(
            values=values[name],
            title=column.title or name,
            seconds=column.seconds,
            models=len(own),
            weighted_tau=_correlation("weighted_tau", values[name], accuracy, own),
            tau=_correlation("tau", values[name], accuracy, own),
            interval=interval(resampling.of("weighted_tau", name)),
            tau_interval=interval(resampling.of("tau", name)),
            common=_correlation("weighted_tau", values[name], accuracy, common),
            regret=_regret(accuracy, values[name]),
        )
    pairs = tuple(
        (one, two)
        for one, two in itertools.combinations(sorted(scores), 2)
        if not resampling.apart(one, two)
    )
    reasons = {name: dict(why) for name, why in (left_out or {}).items()}
    return TestBed(dict(data), accuracy, scores, pairs, reasons, resamples, seed)


class _Resampling:
    """Resamples of the models of a test bed."""

    def __init__(
        self,
        accuracy: Mapping[str, float],
        values: Mapping[str, Values],
        resamples: int,
        seed: int,
    ) -> None:
        self._accuracy = accuracy
        self._values = values
        self._counts = draw(tuple(accuracy), resamples, seed)
        self._known: dict[tuple[Kind, str, tuple[str, ...]], NDArray[np.float64]] = {}

    def of(self, kind: Kind, score: str, *beside: str) -> NDArray[np.float64]:
        """The correlation of a score, on the models that have it, and those beside it."""
        models = having(self._accuracy, *(self._values[name] for name in (score, *beside)))
        key = (kind, score, models)
        if key not in self._known:
            at = [place for place, m in enumerate(self._accuracy) if m in models]
            x = np.array([self._values[score][m] for m in models], np.float64)
            y = np.array([self._accuracy[m] for m in models], np.float64)
            self._known[key] = resampled(kind, x, y, self._counts[:, at])
        return self._known[key]

    def apart(self, one: str, two: str) -> bool:
        return apart(self.of("weighted_tau", one, two), self.of("weighted_tau", two, one))


def having(accuracy: Mapping[str, float], *columns: Values) -> tuple[str, ...]:
    """The models that have all of some scores."""
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


def _or_lowest(value: float | None) -> float:
    return -np.inf if value is None else value

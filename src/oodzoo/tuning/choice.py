"""Which weights to take: of the candidates that training runs lead to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from oodzoo.tasks import Task

MIXINGS = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Candidate:
    """Weights that a training run leads to.

    Attributes
    ----------
    weights : {"start", "last", "average"}
        Those of the linear head on the frozen network; after the last step; or SWAD's average
        along the path.
    mixing : float
        Share of these weights; the rest are those before the training (WiSE-FT).
    """

    weights: Literal["start", "last", "average"]
    mixing: float


CANDIDATES = (
    Candidate("start", 0.0),
    *(Candidate(weights, mixing) for weights in ("average", "last") for mixing in MIXINGS),
)
"""All candidates of a run; the first is the linear head on the frozen network."""


@dataclass(frozen=True)
class Choice:
    """What was chosen.

    Attributes
    ----------
    learning_rate : float
    candidate : Candidate
    metrics : dict of str to dict
        For each candidate of the chosen learning rate (such as "average 0.5"), the main metric in
        percent in each domain that it was chosen on. After training that has diverged, candidates
        whose outputs are not numbers are left out.
    """

    learning_rate: float
    candidate: Candidate
    metrics: dict[str, dict[str, float]]

    def to_dict(self) -> dict[str, Any]:
        """The choice, for JSON."""
        return {
            "learning_rate": self.learning_rate,
            **asdict(self.candidate),
            "metrics": self.metrics,
        }


def choose(
    outputs: Mapping[float, Mapping[str, NDArray[Any]]],
    labels: Mapping[str, NDArray[Any]],
    task: Task,
) -> Choice:
    """Choose a learning rate and a candidate; all domains weigh alike.

    Parameters
    ----------
    outputs : dict
        For each learning rate and domain, the outputs (candidates, n, C) of the head, see
        :class:`oodzoo.tasks.Task`.
    labels : dict
        For each domain, (n,) or (n, C).
    task : Task
    """
    quality = {rate: _quality(task, found, labels) for rate, found in outputs.items()}
    rate = max(quality, key=lambda each: float(quality[each].max()))
    metrics = {
        str_of(candidate): {
            domain: 100 * task.score(outputs[rate][domain][at], here)
            for domain, here in labels.items()
        }
        for at, candidate in enumerate(CANDIDATES)
        if quality[rate][at] > -np.inf
    }
    return Choice(rate, CANDIDATES[int(np.argmax(quality[rate]))], metrics)


def _quality(
    task: Task, outputs: Mapping[str, NDArray[Any]], labels: Mapping[str, NDArray[Any]]
) -> NDArray[np.float64]:
    """Mean quality of each candidate; -inf after training that has diverged."""
    numbers = (lambda array: ~np.isnan(array)) if task.one_class else np.isfinite
    usable = np.all([numbers(outputs[domain]).all(axis=(1, 2)) for domain in labels], axis=0)
    found = np.full(len(usable), -np.inf)
    if usable.any():
        here = [outputs[domain][usable] for domain in labels]
        found[usable] = task.quality(here, list(labels.values())).mean(axis=0)
    return found


def str_of(candidate: Candidate) -> str:
    """Name a candidate.

    Examples
    --------
    >>> [str_of(candidate) for candidate in CANDIDATES[:3]]
    ['linear head', 'average 0.25', 'average 0.5']
    """
    if candidate.mixing == 0:
        return "linear head"
    return f"{candidate.weights} {candidate.mixing:g}"

"""The result of a ranking: models in order of their score."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oodzoo._io import structured
from oodzoo._packages import optional_package
from oodzoo.task import Kind, Task, require_kind

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class FoldRow:
    """Scores and metrics of a model on one held-out domain.

    `accuracy` and `balanced_accuracy` are in percent. For other tasks than classification they are
    the main and the second metric: explained variance, in percent, and absolute error, in the units
    of the labels; or average precision and exact match, in percent.

    `score` is the contribution of the domain to the score of the ranking, which is the mean of
    these; None for a score that is not computed per domain.
    """

    domain: str
    score: float | None
    transfer: float | None
    """Skill of the other domains, one at a time, in predicting this one, in percent; None if the
    domain has a single class."""
    discriminability: float
    stability: float
    accuracy: float
    balanced_accuracy: float
    skipped: tuple[str, ...] = ()
    """Classes found in no other domain; they are excluded from discriminability."""


@dataclass(frozen=True)
class Row:
    """One model of a ranking.

    Attributes
    ----------
    rank : int
    model : str
    score : float
        Higher is better.
    evidence, transfer : float
        The two terms of the default score (see :mod:`oodzoo.ranking.unseen`): LogME of all domains
        together, and the mean skill of one domain in predicting another, in percent.
    discriminability, stability : float
        The two terms of the ZooD score, averaged over held-out domains.
    agreement : float or None
        With images of the target: the share of them, in percent, on which a linear model on these
        features agrees with the vote of the other models (see :mod:`oodzoo.ranking.agreement`).
    expected_accuracy : float
        Accuracy in percent to expect on an unseen domain: that of a ridge regression on these
        features, averaged over held-out domains. For other tasks than classification, the main
        metric: explained variance or average precision. A model that was chosen for its results
        promises too much: for the first model, and a score that is computed per domain, the choice
        is repeated for each held-out domain without the predictions for it.
    accuracy_interval : (float, float)
        90 % interval of this on a single new domain.
    rank_interval : (int, int) or None
        90 % interval of the rank (see :mod:`oodzoo.ranking.intervals`); None for scores that are
        not averages over held-out domains.
    tied : tuple of str
        Models that are statistically tied with this one.
    pareto_optimal : bool
        No other model is at least as accurate and cheaper. The cost is milliseconds per image or
        the number of parameters, whichever is known for more models.
    folds : tuple of FoldRow
    feature_dim, parameters, milliseconds, licence
        Cost and licence of the model, where known.
    """

    rank: int
    model: str
    score: float
    evidence: float
    transfer: float
    discriminability: float
    stability: float
    expected_accuracy: float
    accuracy_interval: tuple[float, float]
    rank_interval: tuple[int, int] | None
    tied: tuple[str, ...]
    pareto_optimal: bool
    folds: tuple[FoldRow, ...]
    feature_dim: int
    parameters: int | None
    milliseconds: float | None
    licence: str | None = None
    agreement: float | None = None


@dataclass(frozen=True)
class Ranking:
    """Models, best first.

    Attributes
    ----------
    score : str
        Name of the score that orders them.
    rows : tuple of Row
    left_out : dict
        Models that are not ranked, each with the reason: a constraint that they do not meet, or
        that the score cannot be computed.
    task : {"classification", "regression", "multilabel"}
    domains_proposed : str or None
        What the domains were proposed by (:mod:`oodzoo.domains`); None if they were given.
    """

    score: str
    rows: tuple[Row, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    task: Kind = "classification"
    domains_proposed: str | None = None

    @property
    def metric(self) -> str:
        """What `expected_accuracy` is: "accuracy", "explained_variance", "average_precision"."""
        return Task(self.task).metric

    @property
    def best(self) -> str:
        """Name of the first model."""
        return self.rows[0].model

    @property
    def pareto_front(self) -> tuple[Row, ...]:
        """The Pareto-optimal models, the least accurate and cheapest first."""
        rows = [row for row in self.rows if row.pareto_optimal]
        return tuple(sorted(rows, key=lambda row: (row.expected_accuracy, -row.rank)))

    @property
    def metrics(self) -> dict[str, float]:
        """Score and expected accuracy of each model, by name, as a listener gets them."""
        scores = {f"{row.model}/score": row.score for row in self.rows}
        name = f"expected_{self.metric}"
        return scores | {f"{r.model}/{name}": r.expected_accuracy for r in self.rows}

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        width = max(len(row.model) for row in self.rows)
        name = "" if self.task == "classification" else f" {self.metric.replace('_', ' ')}"
        lines = [
            f"{row.rank:>3}  {row.model:<{width}}  {row.score:8.4f}  {row.expected_accuracy:5.1f} %"
            for row in self.rows
        ]
        return "\n".join(line + name for line in lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the ranking as a JSON document; metrics have the names of the task."""
        names = self._names
        rows = []
        for row in self.rows:
            document = _renamed(dataclasses.asdict(row), names)
            document["folds"] = tuple(_renamed(fold, names) for fold in document["folds"])
            rows.append(document)
        proposed = self.domains_proposed
        return {
            "score": self.score,
            "task": self.task,
            "ranking": rows,
            "left_out": self.left_out,
            **({} if proposed is None else {"domains_proposed": proposed}),
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Ranking:
        """Restore the ranking from the document of :meth:`to_dict`."""
        task = require_kind(document.get("task", "classification"))
        proposed = document.get("domains_proposed")
        ranking = cls(document["score"], (), dict(document["left_out"]), task, proposed)
        names = {new: old for old, new in ranking._names.items()}
        documents = [_renamed(row, names) for row in document["ranking"]]
        for row in documents:
            row["folds"] = [_renamed(fold, names) for fold in row["folds"]]
        rows = structured(documents, tuple[Row, ...], "the ranking")
        return dataclasses.replace(ranking, rows=rows)

    @property
    def _names(self) -> dict[str, str]:
        """Names of the fields of rows in documents."""
        task = Task(self.task)
        return {
            "expected_accuracy": f"expected_{task.metric}",
            "accuracy_interval": f"{task.metric}_interval",
            "accuracy": task.metric,
            "balanced_accuracy": task.second_metric,
        }

    def to_frame(self) -> pandas.DataFrame:
        """Return a table with one row per model and an accuracy column per held-out domain."""
        pandas = optional_package("pandas", extra="pandas", purpose="a data frame")
        columns = [name for name in Row.__dataclass_fields__ if name not in ("folds", "tied")]
        names = self._names
        lines = [
            {names.get(name, name): getattr(row, name) for name in columns}
            | {f"{self.metric} {fold.domain}": fold.accuracy for fold in row.folds}
            for row in self.rows
        ]
        return pandas.DataFrame(lines)

    def plot(self) -> Figure:
        """Plot both terms and the expected accuracy of each model with matplotlib."""
        from oodzoo.report.figures import plot_ranking

        return plot_ranking(self)


def _renamed(document: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in document.items()}

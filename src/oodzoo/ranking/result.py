"""The result of a ranking: models in order of their score."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oodzoo._io import structured
from oodzoo._packages import optional_package

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class FoldRow:
    """Scores and accuracy (in percent) of a model on one held-out domain.

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
        features, averaged over held-out domains. A model that was chosen for its results promises
        too much: for the first model, and a score that is computed per domain, the choice is
        repeated for each held-out domain without the predictions for it.
    accuracy_interval : (float, float)
        90 % interval of the accuracy on a single new domain.
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
    """

    score: str
    rows: tuple[Row, ...]
    left_out: dict[str, str] = field(default_factory=dict)

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
        return scores | {f"{r.model}/expected_accuracy": r.expected_accuracy for r in self.rows}

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        width = max(len(row.model) for row in self.rows)
        lines = [
            f"{row.rank:>3}  {row.model:<{width}}  {row.score:8.4f}  {row.expected_accuracy:5.1f} %"
            for row in self.rows
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the ranking as a JSON document."""
        rows = [dataclasses.asdict(row) for row in self.rows]
        return {"score": self.score, "ranking": rows, "left_out": self.left_out}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Ranking:
        """Restore the ranking from the document of :meth:`to_dict`."""
        rows = structured(document["ranking"], tuple[Row, ...], "the ranking")
        return cls(document["score"], rows, dict(document["left_out"]))

    def to_frame(self) -> pandas.DataFrame:
        """Return a table with one row per model and an accuracy column per held-out domain."""
        pandas = optional_package("pandas", extra="pandas", purpose="a data frame")
        columns = [name for name in Row.__dataclass_fields__ if name not in ("folds", "tied")]
        lines = [
            {name: getattr(row, name) for name in columns}
            | {f"accuracy {fold.domain}": fold.accuracy for fold in row.folds}
            for row in self.rows
        ]
        return pandas.DataFrame(lines)

    def plot(self) -> Figure:
        """Plot both terms and the expected accuracy of each model with matplotlib."""
        from oodzoo.report.figures import plot_ranking

        return plot_ranking(self)

"""A ranking as it is handed out: models in order, for people and for machines."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oodzoo.errors import MissingPackageError

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class FoldRow:
    """What one left-out domain says of a model.

    `score` is that of the ranking, or the ZooD score if the ranking's is none of single domains.
    """

    domain: str
    score: float
    discriminability: float
    stability: float
    accuracy: float
    balanced_accuracy: float
    skipped: tuple[str, ...] = ()
    """Classes that no other domain has: they have no part in discriminability."""


@dataclass(frozen=True)
class Row:
    """One model of a ranking.

    Attributes
    ----------
    rank : int
    model : str
    score : float
        Higher is better.
    discriminability, stability : float
        The two terms of the ZooD score, means over left-out domains.
    expected_accuracy : float
        Percent of images of an unseen domain that a Bayesian linear model on these features gets
        right: the mean over left-out domains.
    accuracy_interval : (float, float)
        90 % interval of that mean; a single new domain varies more, as `folds` show.
    rank_interval : (int, int) or None
        Between which ranks the model may lie (see :mod:`oodzoo.ranking.intervals`); None for scores
        that are not means over left-out domains.
    tied : tuple of str
        Models that cannot be told apart from this one.
    on_front : bool
        No other model is at least as accurate and cheaper (by milliseconds per image where they
        are known, else by parameters).
    folds : tuple of FoldRow
    feature_dim, parameters, milliseconds
        What it costs, where known.
    """

    rank: int
    model: str
    score: float
    discriminability: float
    stability: float
    expected_accuracy: float
    accuracy_interval: tuple[float, float]
    rank_interval: tuple[int, int] | None
    tied: tuple[str, ...]
    on_front: bool
    folds: tuple[FoldRow, ...]
    feature_dim: int
    parameters: int | None
    milliseconds: float | None


@dataclass(frozen=True)
class Ranking:
    """Models, the best first.

    Attributes
    ----------
    score : str
        By which score they are ranked.
    rows : tuple of Row
    left_out : dict
        Models that the score cannot be computed for, and why.
    """

    score: str
    rows: tuple[Row, ...]
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> str:
        """The name of the first model."""
        return self.rows[0].model

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
        """The ranking for machines."""
        rows = []
        for row in self.rows:
            fields = dataclasses.asdict(row)
            fields["folds"] = {fold.pop("domain"): fold for fold in fields["folds"]}
            rows.append(fields)
        return {"score": self.score, "ranking": rows, "left_out": self.left_out}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Ranking:
        """The ranking that a document was made of."""
        return cls(
            document["score"],
            tuple(_row(fields) for fields in document["ranking"]),
            dict(document["left_out"]),
        )

    def to_frame(self) -> pandas.DataFrame:
        """A table with one line for each model, and a column for each left-out domain."""
        try:
            import pandas
        except ImportError as error:
            raise MissingPackageError("pandas", "pandas", "a data frame") from error
        columns = [name for name in Row.__dataclass_fields__ if name not in ("folds", "tied")]
        lines = [
            {name: getattr(row, name) for name in columns}
            | {f"accuracy {fold.domain}": fold.accuracy for fold in row.folds}
            for row in self.rows
        ]
        return pandas.DataFrame(lines)

    def plot(self) -> Figure:
        """The two terms and the expected accuracy of each model, as a matplotlib figure."""
        from oodzoo.report.plots import plot_ranking

        return plot_ranking(self)


def _row(fields: dict[str, Any]) -> Row:
    folds = tuple(
        FoldRow(domain=domain, **{**fold, "skipped": tuple(fold["skipped"])})
        for domain, fold in fields["folds"].items()
    )
    between = fields["rank_interval"]
    low, high = fields["accuracy_interval"]
    return Row(
        **{
            **fields,
            "folds": folds,
            "tied": tuple(fields["tied"]),
            "accuracy_interval": (low, high),
            "rank_interval": None if between is None else (between[0], between[1]),
        }
    )

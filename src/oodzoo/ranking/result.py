"""The result of a ranking: models in order of their score."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

from oodzoo._io import structured
from oodzoo._packages import optional_package
from oodzoo._text import count, short_name, unknown
from oodzoo.ranking.display import ranking_as_html, ranking_as_text
from oodzoo.ranking.result_rows import FoldRow, Row
from oodzoo.task import Kind, Task, require_kind

if TYPE_CHECKING:
    import pandas

    from oodzoo.report.figures import Plot

__all__ = ["FoldRow", "Ranking", "Row"]


@dataclass(frozen=True)
class Ranking:
    """Models, best first.

    It is a sequence of rows: `for row in ranking`, `len(ranking)`, `ranking[0]` and `ranking[-1]`.
    `ranking["resnet50"]` is the row of a model, and `"resnet50" in ranking` says whether it is
    ranked. A slice, such as `ranking[:5]`, is a Ranking of these rows, whose ranks stay.

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

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __contains__(self, model: object) -> bool:
        """Whether a model, given by its name or its row, is ranked."""
        return any(model in (row.model, row) for row in self.rows)

    @overload
    def __getitem__(self, key: int | str) -> Row: ...
    @overload
    def __getitem__(self, key: slice) -> Ranking: ...
    def __getitem__(self, key: int | str | slice) -> Row | Ranking:
        """Return a row by position or model, or a Ranking of some rows."""
        if isinstance(key, slice):
            return dataclasses.replace(self, rows=self.rows[key])
        if isinstance(key, str):
            return self._row(key)
        try:
            return self.rows[key]
        except IndexError:
            ranked = count(len(self), "model")
            raise IndexError(f"no position {key} in a ranking of {ranked}") from None

    def _row(self, model: str) -> Row:
        for row in self.rows:
            if row.model == model:
                return row
        if model in self.left_out:
            raise KeyError(f"model {model!r} is not ranked: {self.left_out[model]}")
        raise KeyError(unknown("the ranking", "model", model, [row.model for row in self.rows]))

    def __repr__(self) -> str:
        first = [
            f"{row.rank} {short_name(row.model)} {row.expected_accuracy:.1f} %"
            for row in self.rows[:3]
        ]
        more = ["…"] if len(self) > 3 else []
        listed = f": {', '.join([*first, *more])}" if first else ""
        return f"Ranking({count(len(self), 'model')} by {short_name(self.score)}{listed})"

    def _repr_html_(self) -> str:
        return ranking_as_html(self.rows, self.score, self.task, self.left_out)

    def __str__(self) -> str:
        return ranking_as_text(self.rows, self.score, self.task)

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

    def plot(self) -> Plot:
        """Plot the terms and the expected accuracy of the first models, at most 30."""
        from oodzoo.report.figures import plot_ranking

        return plot_ranking(self)


def _renamed(document: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in document.items()}

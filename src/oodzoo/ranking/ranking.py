"""The result of a ranking: models in order of their score."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from oodzoo.core.io import structured
from oodzoo.core.packages import optional_package
from oodzoo.core.tables import Table
from oodzoo.core.text import (
    count,
    number,
    plain,
    short_name,
    significant,
    some_of,
    span,
    unknown,
)
from oodzoo.tasks import Kind, require_kind, task_of

if TYPE_CHECKING:
    import pandas

    from oodzoo.report.figures import Plot


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

    def __repr__(self) -> str:
        score = "" if self.score is None else f"score {self.score:.4g}, "
        return f"FoldRow({short_name(self.domain)!r}: {score}{self.accuracy:.1f} %)"


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
        features agrees with the vote of the other models (see :mod:`oodzoo.ranking.terms`).
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

    def __repr__(self) -> str:
        expected = f"expected {self.expected_accuracy:.1f} %"
        return f"Row({self.rank} {short_name(self.model)!r}: score {self.score:.4g}, {expected})"

    def _repr_html_(self) -> str:
        shown = [[fold.domain, f"{fold.accuracy:.1f}"] for fold in self.folds]
        return Table.of(["held-out domain", "%"], shown, caption=repr(self)).html()


_TERMS = {
    "unseen": {"evidence": 2, "transfer": 0},
    "zood": {"discriminability": 3, "stability": 3},
}
"""Terms of scores, and with how many decimals they are shown."""


def ranking_as_text(rows: Sequence[Row], score: str, task: Kind) -> str:
    """Return a heading and one line per row: rank, model, score, what to expect."""
    columns = ["rank  model", score, task_of(task).measure.heading.lower(), "90 %"]
    lines = [
        [
            f"{row.rank:>4}  {row.model}",
            plain(number(row.score, 3)),
            plain(number(row.expected_accuracy, 1)),
            plain(span(*row.accuracy_interval)),
        ]
        for row in rows
    ]
    return Table.of(columns, lines).text()


def ranking_as_html(
    rows: Sequence[Row], score: str, task: Kind, left_out: Mapping[str, str]
) -> str:
    """Return the rows as a table; columns of which nothing is known are left out."""
    metric = task_of(task).measure
    terms = _TERMS.get(score, {}).items()
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("rank", lambda row: str(row.rank)),
        ("rank, 90 %", _ranks),
        ("model", lambda row: row.model),
        *([] if score == metric.name else [(score, lambda row: number(row.score, 3))]),
        *((term, partial(_term, term, digits)) for term, digits in terms),
        ("agreement, %", lambda row: _known(row.agreement, 1)),
        (f"{metric.name}, %", lambda row: number(row.expected_accuracy, 1)),
        (f"{metric.name}, 90 %", lambda row: span(*row.accuracy_interval)),
        ("features", lambda row: number(row.feature_dim)),
        ("parameters", lambda row: _known(row.parameters)),
        (
            "ms / image",
            lambda row: "" if row.milliseconds is None else significant(row.milliseconds),
        ),
        ("Pareto", lambda row: "✓" if row.pareto_optimal else ""),
    ]
    table = [(name, [cell(row) for row in rows]) for name, cell in columns]
    shown = [(name, cells) for name, cells in table if any(cells) or not rows]
    notes = [
        f"{metric.title}: expected on an unseen domain, with the 90 % interval for one domain.",
        "For the first model, its choice is repeated without each domain.",
    ]
    if left_out:
        notes.append(f"Not ranked: {count(len(left_out), 'model')} ({some_of(list(left_out))}).")
    return Table.of(
        [name for name, _ in shown],
        list(zip(*(cells for _, cells in shown), strict=True)),
        caption=f"{count(len(rows), 'model')} by {score}",
        notes=notes,
        left=("model",),
    ).html()


def _ranks(row: Row) -> str:
    if row.rank_interval is None:
        return ""
    low, high = row.rank_interval
    return str(low) if low == high else span(low, high)


def _term(term: str, digits: int, row: Row) -> str:
    return number(getattr(row, term), digits)


def _known(value: float | None, digits: int = 0) -> str:
    return "" if value is None else number(value, digits)


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
        What the domains were proposed by (:mod:`oodzoo.ranking.proposing`); None if given.
    """

    score: str
    rows: tuple[Row, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    task: Kind = "classification"
    domains_proposed: str | None = None

    @property
    def metric(self) -> str:
        """What `expected_accuracy` is: "accuracy", "explained_variance", "average_precision"."""
        return task_of(self.task).metric

    @property
    def best(self) -> str:
        """Name of the first model."""
        return self.rows[0].model

    @property
    def models(self) -> list[str]:
        """Names of the models, the best first."""
        return [row.model for row in self.rows]

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
        task = task_of(self.task)
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

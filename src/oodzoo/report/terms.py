"""The terms of a score: which quantities of each model the page and the figures show."""

from __future__ import annotations

from dataclasses import dataclass

from oodzoo.ranking.result import Ranking
from oodzoo.report.numbers import number
from oodzoo.task import Kind, Task
from oodzoo.task.words import WORDS


@dataclass(frozen=True)
class Term:
    """A quantity of each model; higher is better.

    Attributes
    ----------
    name : str
        Attribute of :class:`~oodzoo.ranking.result.Row`, of its folds, or of both.
    title : str
    digits : int
        Decimals.
    unit : str
    by_domain : str
        Title of its values on each domain; empty if it has none.
    key : str
        Its name in files; `name` if empty.
    """

    name: str
    title: str
    digits: int
    unit: str = ""
    by_domain: str = ""
    key: str = ""

    @property
    def ident(self) -> str:
        """Name of the table and figure of its values on each domain."""
        return f"{(self.key or self.name).replace('_', '-')}-by-domain"

    @property
    def heading(self) -> str:
        return self.title + self.unit

    def show(self, value: float | None) -> str:
        """A value as text."""
        return number(value, self.digits) + ("" if value is None else self.unit)


TERMS = {
    term.name: term
    for term in (
        Term("evidence", "Evidence", 3),
        Term("transfer", "Transfer", 1, " %", by_domain="Transfer into each domain"),
        Term("agreement", "Agreement", 1, " %"),
        Term(
            "discriminability",
            "Discriminability",
            3,
            by_domain="Discriminability on each held-out domain",
        ),
        Term("stability", "Stability", 2, by_domain="Stability on each held-out domain"),
    )
}

_ZOOD = ("discriminability", "stability")

_SHOWN_OTHERWISE = ("unseen", "zood", "logme", *TERMS)
"""Scores without a column of their own: they are made of terms, or equal to one."""


def metric_term(task: Kind) -> Term:
    """The main metric of a task on each held-out domain, which folds have as `accuracy`."""
    metric = WORDS[task].metric
    title = f"{metric.title} by model and held-out domain"
    return Term("accuracy", metric.title, 1, metric.unit, title, Task(task).metric)


def terms_of(ranking: Ranking) -> list[Term]:
    """The quantities to show for each model, next to its expected accuracy.

    These are the terms of the ZooD score if the models are ordered by it or one of them, and
    otherwise those of the default score, after the score itself if it is another one.
    """
    names: tuple[str, ...] = ("evidence", "transfer")
    if has_target(ranking):
        names = (*names, "agreement")
    if ranking.score in ("zood", *_ZOOD):
        names = _ZOOD
    shown = (*_SHOWN_OTHERWISE, ranking.metric)
    own = [] if ranking.score in shown else [Term("score", ranking.score, 3)]
    return own + [TERMS[name] for name in names]


def domain_terms(ranking: Ranking) -> list[Term]:
    """The quantities to show for each model and domain, without those that are not known."""
    terms = [TERMS["transfer"], metric_term(ranking.task)]
    if ranking.score in ("zood", *_ZOOD):
        terms = [TERMS[name] for name in _ZOOD]
    folds = [fold for row in ranking.rows for fold in row.folds]
    return [t for t in terms if any(getattr(fold, t.name) is not None for fold in folds)]


def has_target(ranking: Ranking) -> bool:
    """Whether the models are ranked for images of a target."""
    return ranking.rows[0].agreement is not None

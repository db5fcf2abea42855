"""The section "Which score to trust": each score against the accuracy of linear heads."""

from __future__ import annotations

from collections.abc import Sequence

from oodzoo.core.numbers import number, significant, span
from oodzoo.core.text import count, listed
from oodzoo.ranking.testbed.bed import ScoreResult, TestBed
from oodzoo.report.blocks import Column, Figure, Section, Table
from oodzoo.report.chart import Drawing, covering, percent


def scores_section(bed: TestBed) -> Section:
    """How well each score orders the models."""
    order = bed.order
    figures = [
        scores_figure(bed),
        Figure(title="Every score of every model", table=_value_table(bed, order)),
    ]
    if bed.accuracy_by_domain:
        figures.append(Figure(title="On each test domain", table=_domain_table(bed, order)))
    return Section("scores", "Which score to trust", _lead(bed), tuple(figures), short="Scores")


def scores_figure(bed: TestBed) -> Figure:
    """Each score against the accuracy of linear heads, and how well it orders the models."""
    order = bed.order
    return Figure(
        title="Score against accuracy",
        text=f"{_summary(bed, order)} Each point is a model: its score on the horizontal axis, its "
        "accuracy in percent on the vertical one, both averaged over test domains. τ is the "
        "weighted rank correlation on each test domain, averaged, with its 90 % interval. Regret "
        "is the accuracy lost by using the top model under the score, averaged likewise. Ties are "
        "corrected for the number of scores.",
        panels=scatters(bed, order),
        dense=True,
        table=_tau_table(bed, order),
        folded=False,
    )


def scatters(bed: TestBed, names: Sequence[str]) -> list[Drawing]:
    """A panel for each of these scores."""
    return [_scatter(bed, name) for name in names]


def _lead(bed: TestBed) -> str:
    lead = (
        "A good score orders models by the accuracy they reach. Each domain is the test domain "
        "once: a linear head is trained on the other domains, and its accuracy on the test domain "
        "is compared with the scores. "
    )
    if bed.data.get("protocol") == "all":
        return lead + (
            "The scores are computed on all domains, so they have seen the test domain; the "
            "protocol that excludes it needs at least three domains."
        )
    return lead + "The scores, too, are computed on the other domains only."


def _summary(bed: TestBed, order: list[str]) -> str:
    best = bed.best
    tied = _tied(bed, best, order)
    if tied and len(tied) == len(order) - 1:
        all_tied = all(len(_tied(bed, name, order)) == len(tied) for name in order)
        return (
            f"All scores are statistically tied{'' if all_tied else ' with the best one'} here. "
            f"{_titled(bed, best)} has the highest weighted tau: {_tau(bed.scores[best])}."
        )
    summary = (
        f"{_titled(bed, best)} orders these {count(len(bed.models), 'model')} best: weighted tau "
        f"{_tau(bed.scores[best])}."
    )
    titles = [_titled(bed, name) for name in tied]
    return summary + (f" It is statistically tied with {listed(titles)}." if tied else "")


def _titled(bed: TestBed, score: str) -> str:
    """The title of a score, with its identifier if that is another word."""
    title = bed.scores[score].title
    return title if title.casefold() == score else f"{title} ({score})"


def _tied(bed: TestBed, score: str, order: list[str]) -> list[str]:
    return [name for name in order if bed.tied(score, name)]


def _tau(result: ScoreResult) -> str:
    interval = f" ({span(*result.interval, digits=2)})" if result.interval else ""
    return f"{number(result.weighted_tau, 2)}{interval}"


def _scatter(bed: TestBed, name: str) -> Drawing:
    width, left, right, top, base = 186, 28, 182, 46, 158
    result = bed.scores[name]
    description = f"Weighted tau {_tau(result)}."
    if result.regret is not None:
        lost = f"{number(result.regret, 1)} points less accurate than the best"
        description += f" Its top model is {lost if result.regret else 'the most accurate one'}."
    drawing = Drawing(width, 186, f"{result.title} vs. accuracy", description)
    drawing.name(0, 14, name, width)
    subtitle = "τ is undefined" if result.weighted_tau is None else f"τ {_tau(result)}"
    drawing.text(0, 31, subtitle, "tick")
    up = percent(bed.accuracy.values(), base, top)
    for value, label in up.ticks(4):
        drawing.line(left, up(value), right, up(value), "grid")
        drawing.text(left - 6, up(value) + 4, label, "tick", end="end")
    points = {model: value for model, value in result.values.items() if value is not None}
    across = covering(points.values(), left + 6, right - 6)
    for model, value in points.items():
        accuracy = bed.accuracy[model]
        tip = f"{model}\n{name} {significant(value)}\naccuracy {number(accuracy, 1)} %"
        drawing.circle(across(value), up(accuracy), 3.5, "point", data_tip=tip)
    if points:
        drawing.text(left, base + 18, significant(min(points.values())), "tick")
        drawing.text(right, base + 18, significant(max(points.values())), "tick", end="end")
    return drawing


def _tau_table(bed: TestBed, order: list[str]) -> Table:
    columns = [
        Column("Score", "score", text=True),
        Column("Regret, points", "regret", 1),
        Column("Weighted tau", "weighted_tau", 2),
        Column("90 % interval", "interval", 2, interval=True),
        Column("Tau", "tau", 2),
        Column("Models", "models", 0),
        Column("Description", "title", text=True),
    ]
    rows = [[name, *(getattr(bed.scores[name], c.key) for c in columns[1:])] for name in order]
    return Table("scores", "How well each score orders the models", columns, rows)


def _domain_table(bed: TestBed, order: list[str]) -> Table:
    columns = [
        Column("Score", "score", text=True),
        Column("Test domain", "domain", text=True),
        Column("Regret, points", "regret", 1),
        Column("Weighted tau", "weighted_tau", 2),
        Column("Tau", "tau", 2),
    ]
    rows = [
        [name, domain, there.regret, there.weighted_tau, there.tau]
        for name in order
        for domain, there in bed.scores[name].by_domain.items()
    ]
    return Table("score-domains", "How well each score orders the models by domain", columns, rows)


def _value_table(bed: TestBed, order: list[str]) -> Table:
    # a score may be named accuracy, too
    columns = [Column("Model", "model", text=True), Column("Head %", "head_accuracy", 1)]
    columns += [Column(name, name) for name in order]
    rows = [
        [model, accuracy, *(bed.scores[name].values.get(model) for name in order)]
        for model, accuracy in bed.accuracy.items()
    ]
    return Table("score-values", "Every score of every model", columns, rows)

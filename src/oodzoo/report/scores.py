"""The section "Which score to trust": each score against the accuracy of linear probes."""

from __future__ import annotations

from markupsafe import Markup

from oodzoo._text import count
from oodzoo.report.blocks import Column, Figure, Section, Table
from oodzoo.report.chart import covering, percent
from oodzoo.report.numbers import listed, number, significant, span
from oodzoo.report.svg import Drawing
from oodzoo.testbed.bed import ScoreResult, TestBed


def by_weighted_tau(bed: TestBed) -> list[str]:
    """The scores of a test bed, the highest weighted tau first; scores without one come last."""
    taus = {name: result.weighted_tau for name, result in bed.scores.items()}
    return sorted(taus, key=lambda name: (taus[name] is None, -(taus[name] or 0)))


def scores_section(bed: TestBed) -> Section:
    """How well each score orders the models."""
    order = by_weighted_tau(bed)
    summary = _summary(bed, order)
    figures = (
        Figure(
            title="Score against accuracy",
            text=f"{summary} Each point is a model: its score on the horizontal axis, its accuracy "
            "in percent on the vertical one. τ is the weighted rank correlation, with its 90 % "
            "interval.",
            panels=[_scatter(bed, name) for name in order],
            dense=True,
            table=_tau_table(bed, order),
            folded=False,
        ),
        Figure(title="Every score of every model", table=_value_table(bed, order)),
    )
    lead = (
        "A good score orders models by the accuracy they reach. Each score, computed on all "
        "domains, is compared with the leave-one-domain-out accuracy of linear probes. The scores "
        "thus see the domains that the probes are tested on; to exclude them, use "
        "“oodzoo testbed STORE --protocol unseen”."
    )
    return Section("scores", "Which score to trust", lead, figures, short="Scores")


def _summary(bed: TestBed, order: list[str]) -> str:
    # a score that only some of the models have is compared on an easier or a harder order
    most = max(result.models for result in bed.scores.values())
    best = next(name for name in order if bed.scores[name].models == most)
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


def _scatter(bed: TestBed, name: str) -> Markup:
    width, left, right, top, base = 186, 28, 182, 46, 158
    result = bed.scores[name]
    description = f"Weighted tau {_tau(result)}."
    if result.regret is not None:
        lost = f"{number(result.regret, 1)} points less accurate than the best"
        description += f" Its top model is {lost if result.regret else 'the most accurate one'}."
    drawing = Drawing(width, 186, f"{result.title} vs. probe accuracy", description)
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
    return drawing.render()


def _tau_table(bed: TestBed, order: list[str]) -> Table:
    columns = [
        Column("Score", "score", text=True),
        Column("Weighted tau", "weighted_tau", 2),
        Column("90 % interval", "interval", 2, interval=True),
        Column("Tau", "tau", 2),
        Column("Regret, points", "regret", 1),
        Column("Models", "models", 0),
        Column("Seconds", "seconds", 2),
        Column("Description", "title", text=True),
    ]
    rows = [[name, *(getattr(bed.scores[name], c.key) for c in columns[1:])] for name in order]
    return Table("scores", "How well each score orders the models", columns, rows)


def _value_table(bed: TestBed, order: list[str]) -> Table:
    # a score may be named accuracy, too
    columns = [Column("Model", "model", text=True), Column("Probe %", "probe_accuracy", 1)]
    columns += [Column(name, name) for name in order]
    rows = [
        [model, accuracy, *(bed.scores[name].values.get(model) for name in order)]
        for model, accuracy in bed.accuracy.items()
    ]
    return Table("score-values", "Every score of every model", columns, rows)

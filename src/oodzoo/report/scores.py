"""The sections "Which score to trust" and "Selected features"."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from oodzoo.combining.selection import ModelSelection, SelectionSummary
from oodzoo.core.tables import Column, Table
from oodzoo.core.text import count, listed, number, significant, span
from oodzoo.ranking.testbed.bed import ScoreResult, TestBed
from oodzoo.report.chart import Bar, Drawing, axis_beside, bar_chart, covering, percent
from oodzoo.report.page import Figure, Section
from oodzoo.tasks import task_of


def scores_section(bed: TestBed) -> Section:
    """How well each score orders the models."""
    order = bed.order
    figures = [
        scores_figure(bed),
        Figure(title="Every score of every model", table=_value_table(bed, order)),
    ]
    if bed.accuracy_by_domain:
        figures.append(Figure(title="On each held-out domain", table=_domain_table(bed, order)))
    return Section("scores", "Which score to trust", _lead(bed), tuple(figures), short="Scores")


def scores_figure(bed: TestBed) -> Figure:
    """Each score against the accuracy of linear heads, and how well it orders the models."""
    order = bed.order
    return Figure(
        title="Score against accuracy",
        text=f"{_summary(bed, order)} Each point is a model: its score on the horizontal axis, its "
        "accuracy in percent on the vertical one, both averaged over held-out domains. τ is the "
        "weighted rank correlation on each held-out domain, averaged, with its 90 % interval. "
        "Regret is the accuracy lost by using the top model under the score, averaged likewise. "
        "Ties are corrected for the number of scores.",
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
        "A good score orders models by the accuracy they reach. Each domain is held out "
        "once: a linear head is trained on the other domains, and its accuracy on the held-out "
        "domain is compared with the scores. "
    )
    if bed.data.get("protocol") == "all":
        return lead + (
            "The scores are computed on all domains, so they have seen the held-out domain; the "
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
    axis_beside(drawing, up, left, right, 4)
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
        Column("Held-out domain", "domain", text=True),
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


PANELS = 6
"""Largest number of models with a histogram of their own: those with the most features kept."""


def selection_section(selection: SelectionSummary) -> Section:
    """Features kept of each model, why these, and for which classes."""
    words = task_of(selection.task)
    lead = (
        f"Of the {number(selection.n_features)} concatenated features, "
        f"{number(selection.n_selected)} ({number(100 * selection.ratio, 1)} %) are kept: those "
    )
    if selection.method == "paper":
        lead += (
            f"that are informative about at least one {words.output_noun}. A feature has an "
            f"inclusion probability for each {words.output_noun}; the highest one is shown."
        )
    else:
        lead += (
            "that contribute most to the prediction of held-out domains. How many are kept is also "
            "chosen on held-out domains."
        )
    if not selection.converged:
        lead += " The selection did not converge."
    blocks = [_kept(selection)]
    if selection.numbers_tried:
        blocks.append(_numbers(selection))
    blocks += [_histograms(selection), _classes(selection)]
    return Section("features", "Selected features", lead, blocks, short="Features")


def _kept(selection: SelectionSummary) -> Figure:
    models = selection.per_model
    summary = "; ".join(
        f"{number(each.n_selected)} of {count(each.n_features, 'feature')} of {each.model} are kept"
        for each in models
    )
    columns = [
        Column("Model", "model", text=True),
        Column("Features", "n_features", 0),
        Column("Kept", "n_selected", 0),
        Column("Kept %", "kept_percent", 1, of=lambda m: 100 * m.n_selected / m.n_features),
    ]
    bars = []
    for each in models:
        label = f"{number(each.n_selected)} of {number(each.n_features)}"
        tip = f"{each.model}\n{label} features kept"
        bars.append(Bar(each.model, each.n_selected, label, tip, whole=each.n_features))
    title = "Features kept per model"
    return Figure(
        title=title,
        chart=bar_chart(title, f"{summary}.", bars, "selection", left=250),
        table=Table.over("features-kept", title, columns, models),
    )


def _numbers(selection: SelectionSummary) -> Figure:
    """The numbers of features that were compared."""
    quality = task_of(selection.task).quality_measure
    columns = [
        Column("Features kept", "n_selected", 0),
        Column(
            quality.heading,
            re.sub("[- ]", "_", quality.name),
            quality.digits,
            of=lambda each: each.log_likelihood,
        ),
    ]
    tried = selection.numbers_tried
    return Figure(
        title="Number of features",
        text=f"Mean {quality.name} of held-out domains, by the number of features kept. Features "
        f"and heads are chosen without the held-out domain. {quality.means}".rstrip(),
        table=Table.over("number-of-features", "Numbers of features compared", columns, tried),
        folded=False,
    )


class _Words(NamedTuple):
    """Words of the histograms of a method."""

    title: str
    text: str
    axis: str
    ident: str


_PAPER = _Words(
    "Inclusion probabilities",
    "Features by inclusion probability.",
    "inclusion probability",
    "inclusion-probabilities",
)
_CONSISTENT = _Words(
    "Rank of the features",
    "Features by the share of all features that contribute less.",
    "share of features that contribute less",
    "feature-ranks",
)


def _histograms(selection: SelectionSummary) -> Figure:
    words = _PAPER if selection.method == "paper" else _CONSISTENT
    columns = [
        Column("Model", "model", text=True),
        Column("From", "low", 2),
        Column("To", "high", 2),
        Column("Features", "features", 0),
    ]
    rows = [
        [each.model, at / len(each.histogram), (at + 1) / len(each.histogram), features]
        for each in selection.per_model
        for at, features in enumerate(each.histogram)
    ]
    shown = sorted(selection.per_model, key=lambda each: -each.n_selected)[:PANELS]
    text = f"{words.text} Square-root scale, so that small counts stay visible."
    if len(shown) < len(selection.per_model):
        text += f" Shown are the {PANELS} models with the most features kept."
    return Figure(
        title=words.title,
        text=text,
        panels=[_histogram(each, words) for each in selection.per_model if each in shown],
        table=Table(words.ident, words.text.rstrip("."), columns, rows),
    )


def _histogram(selection: ModelSelection, words: _Words) -> Drawing:
    width, base, left = 280, 132, 8
    model, counts = selection.model, selection.histogram
    description = (
        f"{number(counts[-1])} of {count(sum(counts), 'feature')} are in the last of {len(counts)} "
        f"bins, {number(counts[0])} in the first."
    )
    drawing = Drawing(width, 168, f"{words.title}: {model}", description)
    drawing.name(0, 14, model, width)
    room = width - 2 * left
    step = room / len(counts)
    for at, features in enumerate(counts):
        low, high = number(at / len(counts), 2), number((at + 1) / len(counts), 2)
        tip = f"{model}\n{count(features, 'feature')} between {low} and {high}"
        height = 96 * math.sqrt(features / max(*counts, 1))
        drawing.rect(left + step * at + 0.5, base - height, step - 1, height, "bar selection")
        drawing.rect(left + step * at, base - 100, step, 100, "touch-area", data_tip=tip)
    drawing.line(left, base, left + room, base, "zero")
    for share, label, end in ((0, "0", "start"), (0.5, "0.5", "middle"), (1, "1", "end")):
        drawing.text(left + room * share, base + 16, label, "tick", end=end)
    drawing.text(left + room / 2, base + 33, words.axis, "tick", end="middle")
    return drawing


def _classes(selection: SelectionSummary) -> Figure:
    words = task_of(selection.task)
    text = f"A feature may be kept for several {words.output_nouns}."
    if selection.method != "paper":
        text = f"Each feature counts for the {words.output_noun} that it contributes most to."
    models = [each.model for each in selection.per_model if each.n_selected]
    columns = [
        Column(words.output_noun.capitalize(), words.output_noun, text=True),
        Column("Kept", "n_selected", 0),
    ]
    columns += [Column(model, model, 0) for model in models]
    rows = [
        [label, each.n_selected, *(each.per_model[model] for model in models)]
        for label, each in selection.per_class.items()
    ]
    title = f"Features kept per {words.output_noun}"
    return Figure(
        title=title,
        text=text,
        table=Table(f"features-by-{words.output_noun}", title, columns, rows),
        folded=len(rows) > 12 or len(models) > PANELS,
    )

"""The section "Results by domain": accuracy and terms of the score on each domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from oodzoo.combining.statements import choice_is_repeated, proposed_line
from oodzoo.core.tables import Column, Table
from oodzoo.core.text import count, is_number, number
from oodzoo.ranking.result import Ranking
from oodzoo.report.blocks import Figure, Key, Section
from oodzoo.report.chart import (
    MOST_ROWS,
    Chart,
    Drawing,
    Scale,
    Size,
    axis_above,
    edge_note,
    in_both_sizes,
    mark,
    percent,
    shortened,
    text_width,
)
from oodzoo.report.ranking import TERMS, Term, domain_terms, metric_term
from oodzoo.tasks.kinds import WORDS


@dataclass(frozen=True)
class DomainAccuracy:
    """Accuracy in percent, or the main metric of another task, of each model on a domain.

    Models are in the order of the ranking.
    """

    domain: str
    models: dict[str, float]

    @property
    def mean(self) -> float:
        return fmean(self.models.values())


@dataclass(frozen=True)
class TermByDomain:
    """A term: one row of values per model, one column per domain; None where it is not known."""

    term: Term
    models: tuple[str, ...]
    domains: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]


def domain_accuracies(ranking: Ranking) -> list[DomainAccuracy]:
    """Accuracy on each held-out domain, the hardest domain first."""
    domains = [
        DomainAccuracy(fold.domain, {row.model: row.folds[at].accuracy for row in ranking.rows})
        for at, fold in enumerate(ranking.rows[0].folds)
    ]
    return sorted(domains, key=lambda each: each.mean)


def term_by_domain(ranking: Ranking, term: str) -> TermByDomain:
    """The values of a term for each model and domain; "accuracy" is the main metric of the task."""
    return TermByDomain(
        metric_term(ranking.task) if term == "accuracy" else TERMS[term],
        tuple(row.model for row in ranking.rows),
        tuple(fold.domain for fold in ranking.rows[0].folds),
        tuple(tuple(getattr(fold, term) for fold in row.folds) for row in ranking.rows),
    )


def domains_section(ranking: Ranking) -> Section:
    """The accuracy, or another metric, on each held-out domain, and heat maps of terms."""
    lead = (
        "Each domain on its own. A model that is good on average can fail on one domain, and a "
        "domain can be hard for all models."
    )
    if ranking.domains_proposed is not None:
        lead += f" {proposed_line(ranking.domains_proposed)}"
    terms = [term_by_domain(ranking, term.name) for term in domain_terms(ranking)]
    blocks = [_accuracy_figure(ranking), *map(_term_figure, terms)]
    return Section("domains", "Results by domain", lead, blocks, short="Domains")


# --- accuracy ------------------------------------------------------------------------------------


def _whose_mean(number_of_models: int) -> str:
    """Whose mean it is: what is recommended can have another hardest domain."""
    one = number_of_models == 1
    return "the one model" if one else f"the {number_of_models} models on average"


def _accuracy_figure(ranking: Ranking) -> Figure:
    domains, first = domain_accuracies(ranking), ranking.best
    metric = WORDS[ranking.task].metric
    overall = fmean(each.mean for each in domains)
    hardest, easiest = domains[0], domains[-1]
    summary = (
        f"For {_whose_mean(len(ranking))}, {hardest.domain} is the hardest held-out domain, with a "
        f"mean {metric.name} of {number(hardest.mean, 1)} %; "
        f"{easiest.domain} is the easiest, with {number(easiest.mean, 1)} %. "
        f"The mean over domains is {number(overall, 1)} %."
    )
    columns = [
        Column("Held-out domain", "domain", text=True),
        Column(f"Mean {metric.name} %", f"mean_{ranking.metric}", 1),
        Column("Deficit, points", "deficit", 1),
        Column("Lowest %", "lowest", 1),
        Column("Highest %", "highest", 1),
        Column("Best model", "best_model", text=True),
        Column("Top-ranked model %", "first_model", 1),
    ]
    rows = []
    for each in domains:
        best = max(each.models, key=each.models.__getitem__)
        lowest, highest = min(each.models.values()), each.models[best]
        deficit = overall - each.mean
        rows.append([each.domain, each.mean, deficit, lowest, highest, best, each.models[first]])
    note = " Deficit: percentage points below that mean."
    if choice_is_repeated(ranking):
        note += (
            f" {first} was chosen with the results on all of these domains; its expected "
            f"{metric.name}, for which the choice is repeated, may differ from the mean of its "
            "results here."
        )
    values = [value for each in domains for value in each.models.values()]
    note += edge_note(values, metric.lowest)
    title = f"{metric.title} on each held-out domain"
    return Figure(
        title=title,
        text=summary + note,
        chart=_accuracy_chart(domains, first, title, summary, metric.lowest),
        legend=[
            Key("stroke", "line", "one model"),
            Key("neutral", "diamond", "mean over all models"),
            Key("expected", "circle", f"{first}, the top-ranked model"),
        ],
        table=Table("held-out-domains", title, columns, rows),
    )


def _accuracy_chart(
    domains: Sequence[DomainAccuracy], first: str, title: str, description: str, lowest: float
) -> Chart:
    """A row for each domain: a stroke per model, the mean, and the top-ranked model."""
    values = [value for each in domains for value in each.models.values()]
    overall = fmean(each.mean for each in domains)

    def draw(size: Size) -> Drawing:
        height, top = (52, 44) if size.narrow else (36, 44)
        left, right = (16, size.width - 76) if size.narrow else (200, size.width - 90)
        bottom = top + height * len(domains)
        drawing = Drawing(size.width, bottom + 8, title, description)
        scale = percent(values, left, right, lowest=lowest)
        starts = [top + height * at for at in range(len(domains))] if size.narrow else []
        pieces = [(start + 21, start + height - 3) for start in starts]
        axis_above(drawing, scale, top - 6, bottom, most=6, unit=" %", pieces=pieces)
        drawing.text(size.width - 4, top - 12, "deficit", "head", end="end")
        for at, each in enumerate(domains):
            y = top + height * at
            with drawing.group("row"):
                drawing.rect(0, y, size.width, height, "band")
                middle = y + (34 if size.narrow else height / 2)
                room = 230 if size.narrow else left - 20
                drawing.name(0, y + 16 if size.narrow else middle + 4, each.domain, room)
                _draw_strip(drawing, scale, middle, each, first)
                deficit = number(overall - each.mean, 1)
                drawing.text(size.width - 4, middle + 4, deficit, "value", end="end")
        return drawing

    return in_both_sizes(draw)


def _draw_strip(
    drawing: Drawing, scale: Scale, y: float, accuracy: DomainAccuracy, first: str
) -> None:
    def tip(name: str, value: float) -> str:
        return f"{name}\n{accuracy.domain}: {number(value, 1)} %"

    for model, value in accuracy.models.items():
        drawing.rect(scale(value) - 1, y - 8, 2, 16, "stroke", data_tip=tip(model, value))
    mean, best = accuracy.mean, accuracy.models[first]
    label = f"mean over {count(len(accuracy.models), 'model')}"
    mark(drawing, "diamond", scale(mean), y, "dot neutral", tip(label, mean))
    mark(drawing, "circle", scale(best), y, "dot expected", tip(f"{first}, top-ranked", best))


# --- heat maps of the terms ----------------------------------------------------------------------

ROW = 22
NAME = 18
"""Height of a name above its cells on narrow screens."""


NOTES = {
    "transfer": "How well the other domains, each on its own, predict the labels of a domain, on "
    "average: the share of their variance. ",
    "accuracy": "{} in percent of a linear model trained on the other domains. ",
}
"""What a term means for a single domain, where the page does not say it before."""


def _term_figure(data: TermByDomain) -> Figure:
    term, digits = data.term, min(data.term.digits, 2)
    cells = [
        (value, model, domain)
        for model, line in zip(data.models, data.values, strict=True)
        for domain, value in zip(data.domains, line, strict=True)
        if is_number(value)
    ]
    (low, low_model, low_domain), (high, high_model, high_domain) = min(cells), max(cells)
    summary = NOTES.get(term.name, "").format(term.title) + (
        f"From {number(low, digits)}{term.unit} ({low_model} on {low_domain}) "
        f"to {number(high, digits)}{term.unit} ({high_model} on {high_domain})."
    )
    more = len(data.models) > MOST_ROWS
    note = f" The chart shows the first {MOST_ROWS} models; the table lists all." if more else ""
    columns = [Column("Model", "model", text=True)]
    columns += [Column(domain, domain, term.digits) for domain in data.domains]
    rows = [[model, *line] for model, line in zip(data.models, data.values, strict=True)]
    return Figure(
        title=term.by_domain,
        text=summary + note,
        chart=_heat_map(data, summary),
        table=Table(term.ident, term.by_domain, columns, rows),
    )


def _heat_map(data: TermByDomain, description: str) -> Chart:
    """Cells from pale (low) to saturated (high).

    The colour scale ends at the 5th and 95th percentile, so that an outlier does not leave all
    other cells in one shade; that of shares does not start below zero. Rows are numbered, as
    shortened names may look alike.
    """
    models, domains, values = data.models[:MOST_ROWS], data.domains, data.values[:MOST_ROWS]
    known = sorted(value for line in values for value in line if is_number(value)) or [0.0]
    beyond = len(known) // 20
    low, high = known[beyond], known[-1 - beyond]
    if data.term.unit:  # shares below zero are all useless
        low, high = max(low, 0.0), max(high, 0.0)
    digits = min(data.term.digits, 2)

    def draw(size: Size) -> Drawing:
        left, above = (0, NAME) if size.narrow else (286, 0)
        height = ROW + above
        width = min((size.width - left) / len(domains), 150)
        upright = width < 44 or (
            size.narrow and max(text_width(name, 11) for name in domains) > width - 6
        )
        longest = max(text_width(shortened(name, 100, 11), 11) for name in domains)
        top = longest + 14 if upright else 30
        bottom = top + height * len(models)
        drawing = Drawing(size.width, bottom + 34, data.term.by_domain, description)
        for at, name in enumerate(domains):
            _draw_domain(drawing, left + width * at, top, width, name, upright)
        for line, model in enumerate(models):
            y = top + height * line + above
            baseline = y + 15 - (ROW - 2 if size.narrow else 0)
            drawing.text(20, baseline, str(line + 1), "rank", end="end")
            drawing.name(28, baseline, model, (left or size.width) - 38)
            for at, value in enumerate(values[line]):
                x, shown = left + width * at, number(value, digits)
                if is_number(value):
                    share = min(max((value - low) / (high - low), 0), 1) if high > low else 0.5
                    tip = f"{model}\n{domains[at]}: {shown}{data.term.unit}"
                    _draw_cell(drawing, x + 0.5, y + 0.5, width - 1, ROW - 1, share, data_tip=tip)
                if width >= 40:
                    drawing.text(x + width / 2, y + 15, shown, "cell", end="middle")
        ends = (
            f"{'≤ ' if known[0] < low or beyond else ''}{number(low, digits)}",
            f"{'≥ ' if beyond else ''}{number(high, digits)}",
        )
        _draw_key(drawing, left, bottom + 12, *ends)
        return drawing

    return in_both_sizes(draw)


def _draw_cell(
    drawing: Drawing, x: float, y: float, width: float, height: float, share: float, **more: object
) -> None:
    opacity = f"{0.04 + 0.96 * share:.2f}"
    drawing.rect(x, y, width, height, "heat", fill_opacity=opacity, **more)


def _draw_domain(
    drawing: Drawing, x: float, top: float, width: float, name: str, upright: bool
) -> None:
    if upright:
        place = f"translate({x + width / 2 + 4:.1f} {top - 6:.1f}) rotate(-90)"
        style = f"font-size:{min(11, 0.8 * width):.1f}px"
        drawing.name(0, 0, name, 100, "tick", size=11, transform=place, style=style)
    else:
        drawing.name(x + width / 2, top - 8, name, width - 6, "tick", size=11, end="middle")


def _draw_key(drawing: Drawing, x: float, y: float, low: str, high: str) -> None:
    start = x + text_width(low, 11) + 8
    for at in range(12):
        _draw_cell(drawing, start + 9 * at, y, 9.5, 10, at / 11)
    drawing.text(x, y + 9, low, "tick")
    drawing.text(start + 116, y + 9, high, "tick")

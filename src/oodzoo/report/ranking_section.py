"""The sections "Ranking", "Layers" and "Results by domain": scores, expected accuracy and rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

from oodzoo.combining.statements import (
    PARETO,
    choice_is_repeated,
    has_target,
    interval_text,
    interval_words,
    proposed_line,
    where,
)
from oodzoo.core.tables import Column, Table
from oodzoo.core.text import count, is_number, listed, number, span
from oodzoo.ranking.ranking import Ranking, Row
from oodzoo.report.chart import (
    FIRST_ONES,
    MOST_ROWS,
    Chart,
    Drawing,
    Scale,
    Size,
    axis_above,
    covering,
    edge_note,
    in_both_sizes,
    mark,
    percent,
    row_chart,
    shortened,
    text_width,
    whisker,
)
from oodzoo.report.page import Figure, Key, Section, millions
from oodzoo.tasks import task_of
from oodzoo.tasks.task import Measure

# --- the terms of a score -------------------------------------------------------------------------


@dataclass(frozen=True)
class Term:
    """A quantity of each model; higher is better.

    Attributes
    ----------
    name : str
        Attribute of :class:`~oodzoo.ranking.ranking.Row`, of its folds, or of both.
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

    def show(self, value: float | None) -> str:
        """A value as text."""
        return number(value, self.digits) + ("" if value is None else self.unit)


_EACH = "on each held-out domain"
TERMS = {
    term.name: term
    for term in (
        Term("evidence", "Evidence", 3),
        Term("transfer", "Transfer", 1, " %", by_domain="Transfer into each domain"),
        Term("agreement", "Agreement", 1, " %"),
        Term("discriminability", "Discriminability", 3, by_domain=f"Discriminability {_EACH}"),
        Term("stability", "Stability", 2, by_domain=f"Stability {_EACH}"),
    )
}

_ZOOD = ("discriminability", "stability")

_SHOWN_OTHERWISE = ("unseen", "zood", "logme", *TERMS)
"""Scores without a column of their own: they are made of terms, or equal to one."""


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
    metric, key = task_of(ranking.task).measure, task_of(ranking.task).metric
    title = f"{metric.title} by model and held-out domain"
    # folds have the main metric of any task as `accuracy`
    terms = [TERMS["transfer"], Term("accuracy", metric.title, 1, metric.unit, title, key)]
    if ranking.score in ("zood", *_ZOOD):
        terms = [TERMS[name] for name in _ZOOD]
    folds = [fold for row in ranking.rows for fold in row.folds]
    return [t for t in terms if any(getattr(fold, t.name) is not None for fold in folds)]


# --- the section "Ranking" ------------------------------------------------------------------------

MOST_NAMED = 10
"""Largest number of tied models that are named; the table has all."""


def ranking_section(ranking: Ranking) -> Section:
    """The order of the models and the uncertainty of their ranks."""
    lead = " ".join(filter(None, [_terms_explained(ranking), task_of(ranking.task).measure.means]))
    reasons = dict.fromkeys(ranking.left_out.values())
    groups = [
        f"{listed([model for model, why in ranking.left_out.items() if why == reason])} ({reason})"
        for reason in reasons
    ]
    if groups:
        lead += f" Not ranked: {'; '.join(groups)}."
    return Section("ranking", "Ranking", lead, (ranking_figure(ranking),))


def ranking_figure(ranking: Ranking) -> Figure:
    """The terms of the score, the expected accuracy and the rank of each model."""
    first, metric = ranking.rows[0], task_of(ranking.task).measure
    terms = [term for term in terms_of(ranking) if term.name != "score"]
    values = [f"{term.title.lower()} {term.show(getattr(first, term.name))}" for term in terms]
    summary = (
        f"{first.model} ranks first of {len(ranking)} with a score of {number(first.score, 3)}: "
        f"{', '.join(values)}, expected {metric.name} {number(first.expected_accuracy, 1)} % "
        f"({interval_text(ranking, first)})."
    )
    if first.tied:
        names = listed(first.tied, MOST_NAMED)
        summary += f" Statistically tied with it, in this order: {names}."
    columns = [
        Column("Rank", "rank", 0),
        Column("Model", "model", text=True),
        Column("Rank 90 %", "rank", 0, interval=True, of=lambda row: row.rank_interval),
        Column(f"Score ({ranking.score})", "score", 3),
        *(Column(_HYPHENATED.get(t.name, t.title + t.unit), t.name, t.digits) for t in terms),
        Column(metric.heading, f"expected_{ranking.metric}", 1, of=lambda r: r.expected_accuracy),
        Column("90 %", ranking.metric, 0, interval=True, of=lambda row: row.accuracy_interval),
        Column("Features", "feature_dim", 0),
        Column("Params, M", "parameters_million", 2, of=lambda row: millions(row.parameters)),
        Column("ms / image", "milliseconds"),
        Column("Pareto-optimal", "pareto_optimal"),
        Column("Tied with", "tied", text=True, shown=False),
        Column("Licence", "licence", text=True, shown=False),
    ]
    by_default = ranking.score in ("unseen", "zood")
    return Figure(
        title="Score breakdown" if by_default else f"Models by {ranking.score}",
        text=summary + _notes(ranking),
        chart=in_both_sizes(lambda size: _draw(ranking, summary, size)),
        legend=_legend(ranking),
        table=Table.over("ranking", "Ranking of the models", columns, ranking.rows, head=1),
        folded=False,
    )


_HYPHENATED = {"discriminability": "Discrimin\N{SOFT HYPHEN}ability"}


def _terms_explained(ranking: Ranking) -> str:
    if ranking.score in ("zood", *_ZOOD):
        return (
            "Each domain is held out in turn, and a Bayesian linear model is fitted to the "
            "features of the others. Discriminability measures how well it predicts the labels of "
            "the held-out domain; stability, how little the features shift there. Higher is better "
            "for both."
        )
    lead = (
        "Evidence (LogME) measures how well the labels can be learned from the features of all "
        "domains together. Transfer measures how well each domain alone predicts the labels of "
        "every other one: the share of their variance, in percent. Higher is better for both."
    )
    if has_target(ranking):
        return lead + (
            " Agreement is the share of the unlabelled images of the target on which the "
            "prediction from the features of a model equals the vote of the other models, where "
            "better models count more. It makes up two thirds of the score, evidence and transfer "
            "the rest. The target is assumed to have the classes of the labelled domains."
        )
    if ranking.score == "unseen":
        lead += (
            " The score combines both. It compares these models: their mean score is 0. The less "
            "the pairs of domains agree on the order of the models, the less transfer counts."
        )
    return lead


def _notes(ranking: Ranking) -> str:
    metric = task_of(ranking.task).measure
    text = f" The {metric.name} is that of each model alone."
    if any(row.milliseconds is not None for row in ranking.rows):
        text += " Milliseconds are those of a forward pass on one CPU thread, or on the GPU."
    if choice_is_repeated(ranking):
        text += (
            f" Since {ranking.best} was chosen for its results, they tend to be optimistic. Its "
            f"expected {metric.name} is therefore estimated with the choice repeated: on each "
            "held-out domain, it is that of the model that ranks first if predictions for this "
            "domain do not count."
        )
    if has_target(ranking):
        text += (
            " Accuracies on held-out domains are corrected by the difference between the agreement "
            "on the target and that on the domain."
        )
    if any(row.rank_interval for row in ranking.rows):
        text += " The line under “Rank” is the 90 % interval of the rank."
    if ranking.score not in ("unseen", "zood"):
        text += f" Models are ordered by the score {ranking.score}, not by the default score."
    lows = [min(row.accuracy_interval) for row in ranking.rows[:MOST_ROWS]]
    text += edge_note(lows, _lowest(ranking))
    return text + (f" {FIRST_ONES}" if len(ranking) > MOST_ROWS else "")


def _legend(ranking: Ranking) -> list[Key]:
    words = task_of(ranking.task)
    text = f"expected {words.measure.name} {where(ranking)}, with the {interval_words(ranking)}"
    keys = [Key("expected", "circle", text)]
    if ranking.score == "zood":
        text = f"score: discriminability + stability / (3 × number of {words.output_nouns})"
        keys.insert(0, Key("score", "line", text))
    if any(row.pareto_optimal for row in ranking.rows):
        keys.append(Key("expected front", "circle", f"ring: {PARETO}"))
    return keys


PLACES = {
    (3, False): ((414, 596), (626, 724), (760, 946)),
    (3, True): ((4, 108), (126, 190), (216, 326)),
    (4, False): ((414, 516), (548, 650), (682, 784), (816, 946)),
    (4, True): ((4, 66), (88, 150), (172, 234), (258, 330)),
}
"""Start and end of each panel, by their number and whether the chart is narrow."""


def _draw(ranking: Ranking, description: str, size: Size) -> Drawing:
    rows, n_models, metric = ranking.rows[:MOST_ROWS], len(ranking), task_of(ranking.task).measure
    terms, is_zood = terms_of(ranking), ranking.score == "zood"
    height, top = (44.0, 62.0) if size.narrow else (24.0, 66.0)
    bottom = top + height * len(rows)
    drawing = Drawing(size.width, bottom + 6, "Ranking of the models", description)
    *places, last = PLACES[len(terms) + 1, size.narrow]
    values = [[getattr(row, term.name) for row in rows] for term in terms]
    if is_zood:  # it has the scale of discriminability
        values[0] += [row.score for row in rows]
    scales = [covering(each, *ends, zero=True) for each, ends in zip(values, places, strict=True)]
    accuracy = Scale(_lowest(ranking), 100, *last)
    if not size.narrow:
        drawing.text(34, 24, "Model", "head")
    if not size.narrow and any(row.rank_interval for row in rows):
        drawing.text(292, 24, "Rank", "head")
        drawing.text(292, 44, f"1–{n_models}", "tick")
    _draw_heads(drawing, terms, metric, [*scales, accuracy], size)
    for scale in (*scales, accuracy):
        ticks = max(3, round((scale.end - scale.start) / 31))
        pieces = size.pieces(top, height, len(rows))
        axis_above(drawing, scale, top - 6, bottom, most=ticks, pieces=pieces)
    for at, row in enumerate(rows):
        y = top + height * at
        with drawing.row(y, height):
            middle = y + (30 if size.narrow else height / 2)
            _draw_label(drawing, row, y, n_models, size)
            for term, scale in zip(terms, scales, strict=True):
                value = getattr(row, term.name)
                if value is not None:
                    start, end = sorted((scale(0), scale(value)))
                    title = term.title if term.name == "score" else term.title.lower()
                    tip, width = f"{row.model}\n{title} {term.show(value)}", max(end - start, 1)
                    kind = f"bar {term.name}"
                    drawing.rect(start, middle - 5, width, 10, kind, data_tip=tip)
            if is_zood:
                tip = f"{row.model}\nscore {number(row.score, 3)}"
                drawing.rect(scales[0](row.score) - 1, middle - 7, 2, 14, "score", data_tip=tip)
            tip = (
                f"{row.model}\nexpected {metric.name} {number(row.expected_accuracy, 1)} %"
                f"\n{interval_text(ranking, row, digits=1)}"
            )
            low, high = map(accuracy, row.accuracy_interval)
            whisker(drawing, middle, low, high, "expected", tip)
            kind = "dot expected front" if row.pareto_optimal else "dot expected"
            drawing.circle(accuracy(row.expected_accuracy), middle, 4, kind, data_tip=tip)
    return drawing


def _lowest(ranking: Ranking) -> float:
    """Where the scale of the metric starts: 0, or a multiple of ten below a negative value."""
    values = [0.0, *(row.expected_accuracy for row in ranking.rows[:MOST_ROWS])]
    return percent(values, 0, 1, lowest=task_of(ranking.task).measure.lowest).low


def _draw_heads(
    drawing: Drawing, terms: Sequence[Term], metric: Measure, scales: Sequence[Scale], size: Size
) -> None:
    crowded = size.narrow and len(terms) > 2
    heads = [term.title if crowded else term.title + term.unit for term in terms]
    starts = [scale.start - (4 if size.narrow else 0) for scale in scales]
    ends = [*(start - 2 for start in starts[1:]), size.width]
    names = [f"Expected {metric.name} %", metric.heading, f"{metric.short} %"]
    room = ends[-1] - starts[-1]
    heads.append(next((name for name in names if text_width(name, 12) <= room), names[-1]))
    for head, start, end in zip(heads, starts, ends, strict=True):
        drawing.name(start, 22 if size.narrow else 24, head, end - start, "head")


def _draw_label(drawing: Drawing, row: Row, y: float, n_models: int, size: Size) -> None:
    if size.narrow:
        drawing.text(0, y + 16, str(row.rank), "rank")
        drawing.name(24, y + 16, row.model, 250)
        if row.rank_interval:
            drawing.text(size.width - 4, y + 16, span(*row.rank_interval), "tick", end="end")
        return
    drawing.text(22, y + 16, str(row.rank), "rank", end="end")
    drawing.name(34, y + 16, row.model, 246)
    if row.rank_interval:
        low, high = row.rank_interval
        scale = Scale(1, max(n_models, 2), 296, 382)
        tip = f"{row.model}\nrank {row.rank}, 90 % interval {low}–{high}"
        drawing.line(scale(1), y + 12, scale(n_models), y + 12, "grid")
        whisker(drawing, y + 12, scale(low), scale(high), "neutral", tip)
        drawing.circle(scale(row.rank), y + 12, 3, "neutral-dot", data_tip=tip)


# --- the section "Layers" -------------------------------------------------------------------------


def networks(ranking: Ranking) -> dict[str, list[Row]]:
    """Group the models that are layers of one network, named `<network>@<layer>`, best first.

    The network itself, if it was ranked, is the one without a layer.
    """
    groups: dict[str, list[Row]] = {}
    for row in ranking.rows:
        groups.setdefault(row.model.partition("@")[0], []).append(row)
    return {name: rows for name, rows in groups.items() if len(rows) > 1}


def layers_section(ranking: Ranking) -> Section:
    """The best layer of each network, and how it compares with the network's own features."""
    groups = networks(ranking)
    columns = [
        Column("Network", "network", text=True),
        Column("Layers", "layers", 0),
        Column("Best layer", "best_layer", text=True),
        Column("Rank", "rank", 0),
        Column(f"Score ({ranking.score})", "score", 3),
        Column("Accuracy %", "expected_accuracy", 1),
        Column("ms / image", "milliseconds"),
        Column("Rank of its own features", "own_rank", 0),
        Column("Accuracy % of these", "own_expected_accuracy", 1),
        Column("ms / image of these", "own_milliseconds"),
        Column("All layers, best first", "all_layers", text=True, shown=False),
    ]
    names = ("rank", "score", "expected_accuracy", "milliseconds")
    table = []
    for network, rows in groups.items():
        layers = [row.model.partition("@")[2] or "own features" for row in rows]
        own = next((row for row in rows if row.model == network), None)
        best = [getattr(rows[0], name) for name in names]
        others = [getattr(own, name, None) for name in names if name != "score"]
        table.append([network, len(rows), layers[0], *best, *others, ", ".join(layers)])
    better = sum("@" in rows[0].model for rows in groups.values())
    lead = (
        f"Several layers were ranked of {count(len(groups), 'network')}; in {better:,}, an inner "
        "layer ranks above all others. “Own features” are those that a model is used with by "
        "default, near its end. The time is that of a forward pass up to the layer."
    )
    title = "Best layer per network"
    figure = Figure(title, Table("layers", title, columns, table), folded=False)
    return Section("layers", "Layers", lead, (figure,))


# --- the section "Results by domain" --------------------------------------------------------------


def domains_section(ranking: Ranking) -> Section:
    """The accuracy, or another metric, on each held-out domain, and heat maps of terms."""
    lead = (
        "Each domain on its own. A model that is good on average can fail on one domain, and a "
        "domain can be hard for all models."
    )
    if ranking.domains_proposed is not None:
        lead += f" {proposed_line(ranking.domains_proposed)}"
    terms = [_term_figure(ranking, term) for term in domain_terms(ranking)]
    blocks = [_accuracy_figure(ranking), *terms]
    return Section("domains", "Results by domain", lead, blocks, short="Domains")


def _accuracy_figure(ranking: Ranking) -> Figure:
    """The models on each held-out domain, the hardest domain first."""
    models, first, metric = len(ranking), ranking.best, task_of(ranking.task).measure
    found = {
        fold.domain: {row.model: row.folds[at].accuracy for row in ranking.rows}
        for at, fold in enumerate(ranking.rows[0].folds)
    }
    means = {domain: fmean(each.values()) for domain, each in found.items()}
    order = sorted(found, key=means.__getitem__)
    overall = fmean(means.values())
    # what is recommended can have another hardest domain
    whose = "the one model" if models == 1 else f"the {models} models on average"
    summary = (
        f"For {whose}, {order[0]} is the hardest held-out domain, with a mean {metric.name} of "
        f"{number(means[order[0]], 1)} %; {order[-1]} is the easiest, with "
        f"{number(means[order[-1]], 1)} %. The mean over domains is {number(overall, 1)} %."
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
    for domain in order:
        each, mean = found[domain], means[domain]
        best = max(each, key=each.__getitem__)
        rows.append(
            [domain, mean, overall - mean, min(each.values()), each[best], best, each[first]]
        )
    note = " Deficit: percentage points below that mean."
    if choice_is_repeated(ranking):
        note += (
            f" {first} was chosen with the results on all of these domains; its expected "
            f"{metric.name}, for which the choice is repeated, may differ from the mean of its "
            "results here."
        )
    values = [value for each in found.values() for value in each.values()]
    title = f"{metric.title} on each held-out domain"

    def draw_row(drawing: Drawing, scale: Scale, at: int, middle: float) -> None:
        """A stroke for each model, the mean, and the top-ranked model."""
        domain = order[at]
        for model, value in found[domain].items():
            tip = f"{model}\n{domain}: {number(value, 1)} %"
            drawing.rect(scale(value) - 1, middle - 8, 2, 16, "stroke", data_tip=tip)
        mean, best = means[domain], found[domain][first]
        tip = f"mean over {count(models, 'model')}\n{domain}: {number(mean, 1)} %"
        mark(drawing, "diamond", scale(mean), middle, "dot neutral", tip)
        tip = f"{first}, top-ranked\n{domain}: {number(best, 1)} %"
        mark(drawing, "circle", scale(best), middle, "dot expected", tip)
        deficit = number(overall - mean, 1)
        drawing.text(drawing.width - 4, middle + 4, deficit, "value", end="end")

    scale = partial(percent, values, lowest=metric.lowest)
    chart = row_chart(title, summary, order, scale, draw_row, left=200, room=96, head="deficit")
    return Figure(
        title=title,
        text=summary + note + edge_note(values, metric.lowest),
        chart=chart,
        legend=[
            Key("stroke", "line", "one model"),
            Key("neutral", "diamond", "mean over all models"),
            Key("expected", "circle", f"{first}, the top-ranked model"),
        ],
        table=Table("held-out-domains", title, columns, rows),
    )


ROW = 22
NAME = 18
"""Height of a name above its cells on narrow screens."""

NOTES = {
    "transfer": "How well the other domains, each on its own, predict the labels of a domain, on "
    "average: the share of their variance. ",
    "accuracy": "{} in percent of a linear model trained on the other domains. ",
}
"""What a term means for a single domain, where the page does not say it before."""


def _term_figure(ranking: Ranking, term: Term) -> Figure:
    """A heat map of a term; values are None where it is not known."""
    digits = min(term.digits, 2)
    domains = [fold.domain for fold in ranking.rows[0].folds]
    rows = [[row.model, *(getattr(fold, term.name) for fold in row.folds)] for row in ranking.rows]
    cells = [
        (value, model, domain)
        for model, *line in rows
        for domain, value in zip(domains, line, strict=True)
        if is_number(value)
    ]
    (low, low_model, low_domain), (high, high_model, high_domain) = min(cells), max(cells)
    summary = NOTES.get(term.name, "").format(term.title) + (
        f"From {number(low, digits)}{term.unit} ({low_model} on {low_domain}) "
        f"to {number(high, digits)}{term.unit} ({high_model} on {high_domain})."
    )
    columns = [Column("Model", "model", text=True)]
    columns += [Column(domain, domain, term.digits) for domain in domains]
    ident = f"{(term.key or term.name).replace('_', '-')}-by-domain"
    return Figure(
        title=term.by_domain,
        text=summary + (f" {FIRST_ONES}" if len(rows) > MOST_ROWS else ""),
        chart=_heat_map(term, domains, rows[:MOST_ROWS], summary),
        table=Table(ident, term.by_domain, columns, rows),
    )


def _heat_map(
    term: Term, domains: Sequence[str], rows: Sequence[Sequence[Any]], description: str
) -> Chart:
    """Cells from pale (low) to saturated (high).

    The colour scale ends at the 5th and 95th percentile, so that an outlier does not leave all
    other cells in one shade; that of shares does not start below zero. Rows are numbered, as
    shortened names may look alike.
    """
    known = sorted(value for _, *line in rows for value in line if is_number(value)) or [0.0]
    beyond = len(known) // 20
    low, high = known[beyond], known[-1 - beyond]
    if term.unit:  # shares below zero are all useless
        low, high = max(low, 0.0), max(high, 0.0)
    digits = min(term.digits, 2)

    def draw(size: Size) -> Drawing:
        left, above = (0, NAME) if size.narrow else (286, 0)
        height = ROW + above
        width = min((size.width - left) / len(domains), 150)
        upright = width < 44 or (
            size.narrow and max(text_width(name, 11) for name in domains) > width - 6
        )
        longest = max(text_width(shortened(name, 100, 11), 11) for name in domains)
        top = longest + 14 if upright else 30
        bottom = top + height * len(rows)
        drawing = Drawing(size.width, bottom + 34, term.by_domain, description)
        for at, name in enumerate(domains):
            x = left + width * (at + 0.5)
            if upright:
                drawing.upright(x, top - 6, name, 100, 0.8 * width)
            else:
                drawing.name(x, top - 8, name, width - 6, "tick", size=11, end="middle")
        for line, (model, *values) in enumerate(rows):
            y = top + height * line + above
            baseline = y + 15 - (ROW - 2 if size.narrow else 0)
            drawing.text(20, baseline, str(line + 1), "rank", end="end")
            drawing.name(28, baseline, model, (left or size.width) - 38)
            for at, value in enumerate(values):
                x, shown = left + width * at, number(value, digits)
                if is_number(value):
                    share = min(max((value - low) / (high - low), 0), 1) if high > low else 0.5
                    tip = f"{model}\n{domains[at]}: {shown}{term.unit}"
                    _draw_cell(drawing, x + 0.5, y + 0.5, width - 1, ROW - 1, share, data_tip=tip)
                if width >= 40:
                    drawing.text(x + width / 2, y + 15, shown, "cell", end="middle")
        least = f"{'≤ ' if known[0] < low or beyond else ''}{number(low, digits)}"
        most = f"{'≥ ' if beyond else ''}{number(high, digits)}"
        start = left + text_width(least, 11) + 8
        for at in range(12):
            _draw_cell(drawing, start + 9 * at, bottom + 12, 9.5, 10, at / 11)
        drawing.text(left, bottom + 21, least, "tick")
        drawing.text(start + 116, bottom + 21, most, "tick")
        return drawing

    return in_both_sizes(draw)


def _draw_cell(
    drawing: Drawing, x: float, y: float, width: float, height: float, share: float, **more: object
) -> None:
    opacity = f"{0.04 + 0.96 * share:.2f}"
    drawing.rect(x, y, width, height, "heat", fill_opacity=opacity, **more)

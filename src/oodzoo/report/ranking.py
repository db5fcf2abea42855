"""The sections "Ranking" and "Layers": terms of the score, expected accuracy and rank."""

from __future__ import annotations

from dataclasses import dataclass

from oodzoo.combining.statements import (
    PARETO,
    choice_is_repeated,
    has_target,
    interval_text,
    interval_words,
    where,
)
from oodzoo.core.tables import Column, Table
from oodzoo.core.text import count, listed, number, span
from oodzoo.ranking.result import Ranking, Row
from oodzoo.report.blocks import Figure, Key, Section
from oodzoo.report.chart import (
    MOST_ROWS,
    Drawing,
    Scale,
    Size,
    axis_above,
    covering,
    edge_note,
    in_both_sizes,
    percent,
    text_width,
    whisker,
)
from oodzoo.tasks import Kind, Task
from oodzoo.tasks.kinds import WORDS, Measure

# --- the terms of a score -------------------------------------------------------------------------


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


# --- the section ----------------------------------------------------------------------------------

MOST_NAMES = 10
"""Largest number of tied models that are named; the table has all."""


def ranking_section(ranking: Ranking) -> Section:
    """The order of the models and the uncertainty of their ranks."""
    lead = _lead(ranking) + _left_out(ranking)
    return Section("ranking", "Ranking", lead, (ranking_figure(ranking),))


def ranking_figure(ranking: Ranking) -> Figure:
    """The terms of the score, the expected accuracy and the rank of each model."""
    summary = _summary(ranking)
    return Figure(
        title=_title(ranking),
        text=summary + _notes(ranking),
        chart=in_both_sizes(lambda size: _draw(ranking, summary, size)),
        legend=_legend(ranking),
        table=_table(ranking),
        folded=False,
    )


def _title(ranking: Ranking) -> str:
    if ranking.score in ("unseen", "zood"):
        return "Score breakdown"
    return f"Models by {ranking.score}"


def _summary(ranking: Ranking) -> str:
    first = ranking.rows[0]
    terms = [term for term in terms_of(ranking) if term.name != "score"]
    values = ", ".join(f"{term.title.lower()} {term.show(_value(first, term))}" for term in terms)
    return (
        f"{first.model} ranks first of {len(ranking)} with a score of {number(first.score, 3)}: "
        f"{values}, expected {_metric(ranking).name} {number(first.expected_accuracy, 1)} % "
        f"({interval_text(ranking, first)}).{_ties(first)}"
    )


def _ties(first: Row) -> str:
    """The models that are tied with the first, in the order of the ranking."""
    if not first.tied:
        return ""
    return f" Statistically tied with it, in this order: {listed(first.tied, MOST_NAMES)}."


def _metric(ranking: Ranking) -> Measure:
    return WORDS[ranking.task].metric


def _lead(ranking: Ranking) -> str:
    terms, means = _terms_explained(ranking), _metric(ranking).means
    return f"{terms} {means}" if means else terms


def _terms_explained(ranking: Ranking) -> str:
    if ranking.score in ("zood", "discriminability", "stability"):
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


def _left_out(ranking: Ranking) -> str:
    reasons = dict.fromkeys(ranking.left_out.values())
    groups = [
        f"{listed([model for model, why in ranking.left_out.items() if why == reason])} ({reason})"
        for reason in reasons
    ]
    return f" Not ranked: {'; '.join(groups)}." if groups else ""


def _notes(ranking: Ranking) -> str:
    metric = _metric(ranking)
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
    rows = ranking.rows[:MOST_ROWS]
    text += edge_note([min(row.accuracy_interval) for row in rows], _lowest(ranking))
    if len(ranking) > MOST_ROWS:
        text += f" The chart shows the first {MOST_ROWS} models; the table lists all."
    return text


def _legend(ranking: Ranking) -> list[Key]:
    text = f"expected {_metric(ranking).name} {where(ranking)}, with the {interval_words(ranking)}"
    keys = [Key("expected", "circle", text)]
    if ranking.score == "zood":
        outputs = WORDS[ranking.task].outputs
        text = f"score: discriminability + stability / (3 × number of {outputs})"
        keys.insert(0, Key("score", "line", text))
    if any(row.pareto_optimal for row in ranking.rows):
        keys.append(Key("expected front", "circle", f"ring: {PARETO}"))
    return keys


def _table(ranking: Ranking) -> Table:
    terms = [term for term in terms_of(ranking) if term.name != "score"]
    columns = [
        Column("Rank", "rank", 0),
        Column("Model", "model", text=True),
        Column("Rank 90 %", "rank", 0, interval=True),
        Column(f"Score ({ranking.score})", "score", 3),
        *(Column(_HYPHENATED.get(t.name, t.heading), t.name, t.digits) for t in terms),
        Column(_metric(ranking).heading, f"expected_{ranking.metric}", 1),
        Column("90 %", ranking.metric, 0, interval=True),
        Column("Features", "feature_dim", 0),
        Column("Params, M", "parameters_million", 2),
        Column("ms / image", "milliseconds"),
        Column("Pareto-optimal", "pareto_optimal"),
        Column("Tied with", "tied", text=True, shown=False),
        Column("Licence", "licence", text=True, shown=False),
    ]
    rows = [
        [
            row.rank,
            row.model,
            row.rank_interval,
            row.score,
            *(_value(row, term) for term in terms),
            row.expected_accuracy,
            row.accuracy_interval,
            row.feature_dim,
            None if row.parameters is None else row.parameters / 1e6,
            row.milliseconds,
            row.pareto_optimal,
            row.tied,
            row.licence,
        ]
        for row in ranking.rows
    ]
    return Table("ranking", "Ranking of the models", columns, rows, head=1)


_HYPHENATED = {"discriminability": "Discrimin\N{SOFT HYPHEN}ability"}


def _value(row: Row, term: Term) -> float | None:
    value: float | None = getattr(row, term.name)
    return value


# --- the chart -----------------------------------------------------------------------------------

PLACES = {
    (3, False): ((414, 596), (626, 724), (760, 946)),
    (3, True): ((4, 108), (126, 190), (216, 326)),
    (4, False): ((414, 516), (548, 650), (682, 784), (816, 946)),
    (4, True): ((4, 66), (88, 150), (172, 234), (258, 330)),
}
"""Start and end of each panel, by their number and whether the chart is narrow."""


def _draw(ranking: Ranking, description: str, size: Size) -> Drawing:
    rows, n_models = ranking.rows[:MOST_ROWS], len(ranking)
    height, top = (44.0, 62.0) if size.narrow else (24.0, 66.0)
    bottom = top + height * len(rows)
    drawing = Drawing(size.width, bottom + 6, "Ranking of the models", description)
    terms = terms_of(ranking)
    *scales, accuracy = _scales(ranking, terms, size)
    if not size.narrow:
        drawing.text(34, 24, "Model", "head")
    if not size.narrow and any(row.rank_interval for row in rows):
        drawing.text(292, 24, "Rank", "head")
        drawing.text(292, 44, f"1–{n_models}", "tick")
    metric = _metric(ranking)
    _draw_heads(drawing, terms, metric, [*scales, accuracy], size)
    # the grid leaves room for the names
    tops = [top + height * at for at in range(len(rows))] if size.narrow else []
    pieces = [(start + 21, start + height - 3) for start in tops]
    for scale in (*scales, accuracy):
        ticks = max(3, round((scale.end - scale.start) / 31))
        axis_above(drawing, scale, top - 6, bottom, most=ticks, pieces=pieces)
    for at, row in enumerate(rows):
        with drawing.group("row"):
            y = top + height * at
            drawing.rect(0, y, size.width, height, "band")
            middle = y + (30 if size.narrow else height / 2)
            _draw_label(drawing, row, y, n_models, size)
            for term, scale in zip(terms, scales, strict=True):
                _draw_bar(drawing, scale, row, term, middle)
            if ranking.score == "zood":
                x = scales[0](row.score)
                tip = f"{row.model}\nscore {number(row.score, 3)}"
                drawing.rect(x - 1, middle - 7, 2, 14, "score", data_tip=tip)
            tip = (
                f"{row.model}\nexpected {metric.name} {number(row.expected_accuracy, 1)} %"
                f"\n{interval_text(ranking, row, digits=1)}"
            )
            _draw_accuracy(drawing, accuracy, row, middle, tip)
    return drawing


def _scales(ranking: Ranking, terms: list[Term], size: Size) -> list[Scale]:
    """The scale of each term, and of the expected accuracy."""
    rows = ranking.rows[:MOST_ROWS]
    *places, last = PLACES[len(terms) + 1, size.narrow]
    values = [[getattr(row, term.name) for row in rows] for term in terms]
    if ranking.score == "zood":  # it has the scale of discriminability
        values[0] += [row.score for row in rows]
    scales = [covering(each, *ends, zero=True) for each, ends in zip(values, places, strict=True)]
    return [*scales, Scale(_lowest(ranking), 100, *last)]


def _lowest(ranking: Ranking) -> float:
    """Where the scale of the metric starts: 0, or a multiple of ten below a negative value."""
    values = [0.0, *(row.expected_accuracy for row in ranking.rows[:MOST_ROWS])]
    return percent(values, 0, 1, lowest=_metric(ranking).lowest).low


def _draw_heads(
    drawing: Drawing, terms: list[Term], metric: Measure, scales: list[Scale], size: Size
) -> None:
    crowded = size.narrow and len(terms) > 2
    heads = [term.title if crowded else term.heading for term in terms]
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


def _draw_bar(drawing: Drawing, scale: Scale, row: Row, term: Term, y: float) -> None:
    value = _value(row, term)
    if value is None:
        return
    start, end = sorted((scale(0), scale(value)))
    tip = f"{row.model}\n{term.title if term.name == 'score' else term.title.lower()} "
    drawing.rect(
        start, y - 5, max(end - start, 1), 10, f"bar {term.name}", data_tip=tip + term.show(value)
    )


def _draw_accuracy(drawing: Drawing, scale: Scale, row: Row, y: float, tip: str) -> None:
    low, high = row.accuracy_interval
    whisker(drawing, y, scale(low), scale(high), "expected", tip)
    kind = "dot expected front" if row.pareto_optimal else "dot expected"
    drawing.circle(scale(row.expected_accuracy), y, 4, kind, data_tip=tip)


# --- layers of one network ------------------------------------------------------------------------


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
    table = Table(
        "layers",
        "Best layer per network",
        columns,
        [_layer_cells(name, rows) for name, rows in groups.items()],
    )
    better = sum("@" in rows[0].model for rows in groups.values())
    lead = (
        f"Several layers were ranked of {count(len(groups), 'network')}; in {better:,}, an inner "
        "layer ranks above all others. “Own features” are those that a model is used with by "
        "default, near its end. The time is that of a forward pass up to the layer."
    )
    figure = Figure("Best layer per network", table=table, folded=False)
    return Section("layers", "Layers", lead, (figure,))


def _layer_cells(name: str, rows: list[Row]) -> list[object]:
    best = rows[0]
    own = next((row for row in rows if row.model == name), None)
    return [
        name,
        len(rows),
        _layer(best),
        best.rank,
        best.score,
        best.expected_accuracy,
        best.milliseconds,
        None if own is None else own.rank,
        None if own is None else own.expected_accuracy,
        None if own is None else own.milliseconds,
        ", ".join(map(_layer, rows)),
    ]


def _layer(row: Row) -> str:
    return row.model.partition("@")[2] or "own features"

"""The section "Ranking": the terms of the score, expected accuracy and rank of each model."""

from __future__ import annotations

from collections.abc import Sequence

from oodzoo.ranking.result import Ranking, Row
from oodzoo.report.blocks import Column, Figure, Key, Section, Table
from oodzoo.report.chart import (
    MOST_ROWS,
    Scale,
    Size,
    axis_above,
    covering,
    in_both_sizes,
    whisker,
)
from oodzoo.report.numbers import number, span
from oodzoo.report.svg import Drawing


def ranking_section(ranking: Ranking) -> Section:
    """The order of the models and the uncertainty of their ranks."""
    first = ranking.rows[0]
    summary = (
        f"{first.model} ranks first of {len(ranking)} with a score of {number(first.score, 3)}: "
        f"discriminability {number(first.discriminability, 3)}, "
        f"stability {number(first.stability, 2)}, "
        f"expected accuracy {number(first.expected_accuracy, 1)} % "
        f"(90 % interval {span(*first.accuracy_interval)} %)."
    )
    figure = Figure(
        title="Score breakdown",
        text=summary + _notes(ranking),
        chart=in_both_sizes(lambda size: _draw(ranking, summary, size)),
        legend=_legend(ranking),
        table=_table(ranking),
        folded=False,
    )
    lead = (
        "Each domain is held out in turn, and a Bayesian linear model is fitted to the features "
        "of the others. Discriminability measures how well it predicts the labels of the held-out "
        "domain; stability, how little the features shift there. Higher is better for both."
    )
    if ranking.left_out:
        reasons = "; ".join(f"{model}: {reason}" for model, reason in ranking.left_out.items())
        lead += f" Not ranked, because this score is not available: {reasons}."
    return Section("ranking", "Ranking", lead, (figure,))


def _notes(ranking: Ranking) -> str:
    text = ""
    if any(row.rank_interval for row in ranking.rows):
        text += " The line under “Rank” is the 90 % interval of the rank."
    if ranking.score != "zood":
        text += f" Models are ordered by the score {ranking.score}, next to the two terms of ZooD."
    if len(ranking) > MOST_ROWS:
        text += f" The chart shows the first {MOST_ROWS} models; the table lists all."
    return text


def _legend(ranking: Ranking) -> list[Key]:
    keys = [Key("accuracy", "circle", "expected accuracy on an unseen domain, 90 % interval")]
    if ranking.score == "zood":
        text = "score: discriminability + stability / (3 × number of classes)"
        keys.insert(0, Key("score", "line", text))
    if any(row.pareto_optimal for row in ranking.rows):
        text = "ring: Pareto-optimal, no other model is at least as accurate and cheaper"
        keys.append(Key("accuracy front", "circle", text))
    return keys


def _table(ranking: Ranking) -> Table:
    columns = [
        Column("Rank", "rank", 0),
        Column("Model", "model", text=True),
        Column("Rank 90 %", "rank", 0, interval=True),
        Column(f"Score ({ranking.score})", "score", 3),
        Column("Discrimin\N{SOFT HYPHEN}ability", "discriminability", 3),
        Column("Stability", "stability", 2),
        Column("Accuracy %", "expected_accuracy", 1),
        Column("90 %", "accuracy", 0, interval=True),
        Column("Features", "feature_dim", 0),
        Column("Params, M", "parameters_million", 2),
        Column("ms / image", "milliseconds", 1),
        Column("Pareto-optimal", "pareto_optimal"),
        Column("Tied with", "tied", text=True, shown=False),
    ]
    rows = [
        [
            row.rank,
            row.model,
            row.rank_interval,
            row.score,
            row.discriminability,
            row.stability,
            row.expected_accuracy,
            row.accuracy_interval,
            row.feature_dim,
            None if row.parameters is None else row.parameters / 1e6,
            row.milliseconds,
            row.pareto_optimal,
            row.tied,
        ]
        for row in ranking.rows
    ]
    return Table("ranking", "Ranking of the models", columns, rows, head=1)


# --- the chart -----------------------------------------------------------------------------------


def _draw(ranking: Ranking, description: str, size: Size) -> Drawing:
    rows, n_models = ranking.rows[:MOST_ROWS], len(ranking)
    height, top = (44.0, 62.0) if size.narrow else (24.0, 66.0)
    bottom = top + height * len(rows)
    drawing = Drawing(size.width, bottom + 6, "Ranking of the models", description)
    scales = discriminability, stability, accuracy = _scales(ranking, rows, size)
    titles = ("Discriminability", "Stability", "Expected accuracy %")
    starts, most = [scale.start for scale in scales], (5, 3, 6)
    if size.narrow:
        titles = ("Discriminability", "Stability", "Accuracy %")
        starts, most = [0, 124, 212], (4, 2, 3)
    else:
        drawing.text(34, 24, "Model", "head")
        drawing.text(292, 24, "Rank", "head")
        drawing.text(292, 44, f"1–{n_models}", "tick")
    for title, x in zip(titles, starts, strict=True):
        drawing.text(x, 22 if size.narrow else 24, title, "head")
    # the grid leaves room for the names
    tops = [top + height * at for at in range(len(rows))] if size.narrow else []
    pieces = [(start + 21, start + height - 3) for start in tops]
    for scale, ticks in zip(scales, most, strict=True):
        axis_above(drawing, scale, top - 6, bottom, most=ticks, pieces=pieces)
    for at, row in enumerate(rows):
        with drawing.group("row"):
            y = top + height * at
            drawing.rect(0, y, size.width, height, "band")
            middle = y + (30 if size.narrow else height / 2)
            _draw_label(drawing, row, y, n_models, size)
            _draw_bar(drawing, discriminability, row, "discriminability", 3, middle)
            _draw_bar(drawing, stability, row, "stability", 2, middle)
            if ranking.score == "zood":
                x = discriminability(row.score)
                tip = f"{row.model}\nscore {number(row.score, 3)}"
                drawing.rect(x - 1, middle - 7, 2, 14, "score", data_tip=tip)
            _draw_accuracy(drawing, accuracy, row, middle)
    return drawing


def _scales(ranking: Ranking, rows: Sequence[Row], size: Size) -> tuple[Scale, Scale, Scale]:
    terms = [row.discriminability for row in rows]
    if ranking.score == "zood":
        terms += [row.score for row in rows]
    left, middle, right = (
        ((4, 108), (126, 190), (216, 326)) if size.narrow else ((414, 596), (626, 724), (760, 946))
    )
    return (
        covering(terms, *left, zero=True),
        covering([row.stability for row in rows], *middle, zero=True),
        Scale(0, 100, *right),
    )


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


def _draw_bar(drawing: Drawing, scale: Scale, row: Row, term: str, digits: int, y: float) -> None:
    value = getattr(row, term)
    start, end = sorted((scale(0), scale(value)))
    tip = f"{row.model}\n{term} {number(value, digits)}"
    drawing.rect(start, y - 5, max(end - start, 1), 10, f"bar {term}", data_tip=tip)


def _draw_accuracy(drawing: Drawing, scale: Scale, row: Row, y: float) -> None:
    low, high = row.accuracy_interval
    tip = (
        f"{row.model}\nexpected accuracy {number(row.expected_accuracy, 1)} %"
        f"\n90 % interval {span(low, high, digits=1)} %"
    )
    whisker(drawing, y, scale(low), scale(high), "accuracy", tip)
    kind = "dot accuracy front" if row.pareto_optimal else "dot accuracy"
    drawing.circle(scale(row.expected_accuracy), y, 4, kind, data_tip=tip)

"""The ranking: its two terms as bars, the expected accuracy and the place with intervals."""

from __future__ import annotations

from typing import Any

from oodzoo.report.charts.frame import MOST_ROWS, Chart, Size, axis_above, both, whisker
from oodzoo.report.numbers import number, span
from oodzoo.report.scale import Scale, covering
from oodzoo.report.svg import Drawing


def ranking_chart(rows: list[dict[str, Any]], score: str, finding: str) -> Chart:
    """A row for each model; at most the first thirty."""
    return both(lambda size: _draw(rows[:MOST_ROWS], len(rows), score, finding, size))


def _draw(
    rows: list[dict[str, Any]], n_models: int, score: str, finding: str, size: Size
) -> Drawing:
    height, top = (44.0, 62.0) if size.narrow else (24.0, 66.0)
    bottom = top + height * len(rows)
    drawing = Drawing(size.width, bottom + 6, "Ranking of the models", finding)
    discriminability, stability, accuracy = _panels(rows, score, size)
    if size.narrow:
        heads = (("Discriminability", 0), ("Stability", 124), ("Accuracy %", 212))
        for title, x in heads:
            drawing.text(x, 22, title, "head")
    else:
        drawing.text(34, 24, "Model", "head")
        drawing.text(discriminability.start, 24, "Discriminability", "head")
        drawing.text(stability.start, 24, "Stability", "head")
        drawing.text(accuracy.start, 24, "Expected accuracy %", "head")
        drawing.text(292, 24, "Place", "head")
        drawing.text(292, 44, f"1–{n_models}", "tick")
    # the lines stop for the names
    starts = [top + height * at for at in range(len(rows))] if size.narrow else []
    pieces = [(start + 21, start + height - 3) for start in starts]
    for scale, most in (
        (discriminability, 4 if size.narrow else 5),
        (stability, 2 if size.narrow else 3),
        (accuracy, 3 if size.narrow else 6),
    ):
        axis_above(drawing, scale, top - 6, bottom, most=most, pieces=pieces)
    for at, row in enumerate(rows):
        with drawing.group("row"):
            y = top + height * at
            drawing.rect(0, y, size.width, height, "band")
            middle = y + (30 if size.narrow else height / 2)
            _label(drawing, row, y, n_models, size)
            _bar(drawing, discriminability, row, "discriminability", 3, middle)
            _bar(drawing, stability, row, "stability", 2, middle)
            if score == "zood":
                at_score = discriminability(row["score"])
                tip = f"{row['model']}\nscore {number(row['score'], 3)}"
                drawing.rect(at_score - 1, middle - 7, 2, 14, "score", data_tip=tip)
            _accuracy(drawing, accuracy, row, middle)
    return drawing


def _panels(rows: list[dict[str, Any]], score: str, size: Size) -> tuple[Scale, Scale, Scale]:
    terms = [row["discriminability"] for row in rows]
    if score == "zood":
        terms += [row["score"] for row in rows]
    ends = [*(row["expected_accuracy"] for row in rows)]
    for row in rows:
        ends += row.get("accuracy_interval") or []
    left, middle, right = (
        ((4, 108), (126, 190), (216, 326)) if size.narrow else ((414, 596), (626, 724), (760, 946))
    )
    held = covering([*ends, 100], *right, zero=True)
    return (
        covering(terms, *left, zero=True),
        covering([row["stability"] for row in rows], *middle, zero=True),
        Scale(0, min(held.high, 100), *right),
    )


def _label(drawing: Drawing, row: dict[str, Any], y: float, n_models: int, size: Size) -> None:
    interval = row.get("rank_interval")
    if size.narrow:
        drawing.text(0, y + 16, str(row["rank"]), "rank")
        drawing.name(24, y + 16, row["model"], 250)
        if interval:
            drawing.text(size.width - 4, y + 16, span(*interval), "tick", end="end")
        return
    drawing.text(22, y + 16, str(row["rank"]), "rank", end="end")
    drawing.name(34, y + 16, row["model"], 246)
    if interval:
        place = Scale(1, max(n_models, 2), 296, 382)
        tip = f"{row['model']}\nplace {row['rank']}, between {interval[0]} and {interval[1]}"
        drawing.line(place(1), y + 12, place(n_models), y + 12, "grid")
        whisker(drawing, y + 12, place(interval[0]), place(interval[1]), "neutral", tip)
        drawing.circle(place(row["rank"]), y + 12, 3, "neutral-dot", data_tip=tip)


def _bar(
    drawing: Drawing, scale: Scale, row: dict[str, Any], term: str, digits: int, y: float
) -> None:
    start, end = sorted((scale(0), scale(row[term])))
    tip = f"{row['model']}\n{term} {number(row[term], digits)}"
    drawing.rect(start, y - 5, max(end - start, 1), 10, f"bar {term}", data_tip=tip)


def _accuracy(drawing: Drawing, scale: Scale, row: dict[str, Any], y: float) -> None:
    tip = f"{row['model']}\nexpected accuracy {number(row['expected_accuracy'], 1)} %"
    if row.get("accuracy_interval"):
        low, high = row["accuracy_interval"]
        tip += f"\n90 % interval {span(low, high, digits=1)} %"
        whisker(drawing, y, scale(low), scale(high), "accuracy", tip)
    kind = "dot accuracy front" if row.get("pareto_optimal") else "dot accuracy"
    drawing.circle(scale(row["expected_accuracy"]), y, 4, kind, data_tip=tip)

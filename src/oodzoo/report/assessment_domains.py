"""What a test measured on each domain, beside what was promised."""

from __future__ import annotations

from typing import Any

from oodzoo._text import count
from oodzoo.assessment.result import Part, Promise, TestResult, shown
from oodzoo.report.blocks import Column, Figure, Key, Table
from oodzoo.report.chart import (
    MOST_ROWS,
    Chart,
    Scale,
    Size,
    axis_above,
    edge_note,
    in_both_sizes,
    mark,
    percent,
    whisker,
)
from oodzoo.report.numbers import number, span
from oodzoo.report.svg import Drawing
from oodzoo.task.words import WORDS


def domains_figure(result: TestResult) -> Figure:
    """The main metric on each domain with its interval, the worst domain first."""
    words = WORDS[result.task]
    order = sorted(result.domains.items(), key=lambda item: result.value_of(item[1]))
    columns = [
        Column("Domain", "domain", text=True),
        Column(f"{result.noun.capitalize()}s", "images", 0),
        Column(words.metric.heading, result.metric, 1),
        Column("90 % interval", "interval", 1, interval=True),
        Column(words.second.heading, "second", words.second.digits),
    ]
    verdicts = {} if result.promise is None else result.promise.verdicts
    if verdicts:
        columns.append(Column("Compared with the promise", "promise", text=True))
    rows: list[list[Any]] = []
    for name, part in [*order, *([("all", result.overall)] if len(order) > 1 else [])]:
        row = [name, part.diagnosis.images, result.value_of(part), part.interval]
        row.append(result.second_of(part))
        rows.append([*row, verdicts.get(name)] if verdicts else row)
    legend = [Key("expected", "circle", f"{words.metric.name}, with its 90 % interval")]
    if result.promise is not None and result.promise.new:
        legend.append(Key("neutral", "square", "90 % interval promised for one new domain"))
    title = f"{words.metric.title} on each domain"
    text = _summary(result, order)
    values = [result.value_of(part) for _, part in order]
    return Figure(
        title=title,
        text=text + edge_note(values, words.metric.lowest),
        chart=_chart(result, order[:MOST_ROWS], title, text),
        legend=legend,
        table=Table("domains", f"{title}, the worst first", columns, rows),
    )


def _summary(result: TestResult, order: list[tuple[str, Part]]) -> str:
    metric = WORDS[result.task].metric
    (worst, low), (best, high) = order[0], order[-1]
    if len(order) == 1:
        return (
            f"{worst} has {shown(metric, result.value_of(low))}, with a 90 % interval of "
            f"{low.interval_text()} % for other {result.noun}s of this domain."
        )
    more = f" The chart shows the worst {MOST_ROWS}." if len(order) > MOST_ROWS else ""
    return (
        f"The hardest of {count(len(order), 'domain')} is {worst}, with "
        f"{shown(metric, result.value_of(low))}; the easiest is {best}, with "
        f"{shown(metric, result.value_of(high))}. Intervals are for other {result.noun}s of the "
        f"same domain.{more}"
    )


def _chart(result: TestResult, rows: list[tuple[str, Part]], title: str, description: str) -> Chart:
    promise = result.promise
    lowest = WORDS[result.task].metric.lowest
    ends = [end for _, part in rows for end in part.interval or (result.value_of(part),)]
    ends += promise.interval or () if promise is not None else ()

    def draw(size: Size) -> Drawing:
        height, top = (42, 30) if size.narrow else (28, 34)
        left, right = (4, size.width - 50) if size.narrow else (230, size.width - 70)
        bottom = top + height * len(rows)
        drawing = Drawing(size.width, bottom + 4, title, description)
        scale = percent(ends, left, right, lowest=lowest)
        starts = [top + height * at for at in range(len(rows))]
        pieces = [(start + 19, start + height - 2) for start in starts] if size.narrow else []
        axis_above(drawing, scale, top - 8, bottom, most=6, unit=" %", pieces=pieces)
        for start, (name, part) in zip(starts, rows, strict=True):
            _row(drawing, result, name, part, promise, scale, start, height, size)
        return drawing

    return in_both_sizes(draw)


def _row(
    drawing: Drawing,
    result: TestResult,
    name: str,
    part: Part,
    promise: Promise | None,
    scale: Scale,
    y: float,
    height: float,
    size: Size,
) -> None:
    value = result.value_of(part)
    middle = y + (29 if size.narrow else height / 2)
    with drawing.group("row"):
        drawing.rect(0, y, size.width, height, "band")
        room = size.width - 10 if size.narrow else scale.start - 16
        drawing.name(0, y + 14 if size.narrow else middle + 4, name, room)
        if promise is not None and promise.interval is not None and name in promise.new:
            low, high = promise.interval
            tip = f"promised for one new domain\n{span(low, high)} %"
            whisker(drawing, middle, scale(low), scale(high), "neutral wide-line", tip)
        tip = (
            f"{name}\n{number(value, 1)} % of {count(part.diagnosis.images, result.noun)}, 90 % "
            f"interval {part.interval_text()} %"
        )
        if part.interval is not None:
            low, high = part.interval
            whisker(drawing, middle, scale(low), scale(high), "expected", tip)
        mark(drawing, "circle", scale(value), middle, "dot expected", tip)
        drawing.text(size.width, middle + 4, number(value, 1), "value", end="end")

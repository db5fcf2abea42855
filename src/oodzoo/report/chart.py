"""Charts: an SVG image, text that fits, scales, axes and marks."""

from __future__ import annotations

import itertools
import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from markupsafe import Markup, escape

from oodzoo.core.text import is_number, number

# --- the width of text ----------------------------------------------------------------------------


def text_width(text: str, size: float) -> float:
    """Estimate the width of a text in pixels; an upper bound for common fonts."""
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)
    return (0.62 * (len(text) - wide) + 1.05 * wide) * size


def shortened(text: str, room: float, size: float = 12) -> str:
    """Cut a name in its middle to fit a width: the ends usually distinguish names.

    Examples
    --------
    >>> shortened("mobilenet_v2_torchvision_imagenet", 120)
    'mobilen…magenet'
    >>> shortened("resnet50", 120)
    'resnet50'
    """
    text = " ".join(text.split())
    if text_width(text, size) <= room or len(text) < 3:
        return text
    for keep in range(len(text) - 1, 1, -1):
        start, end = text[: keep - keep // 2], text[-(keep // 2) :]
        if text_width(start + end, size) + size <= room:
            break
    return f"{start}…{end}"


# --- an SVG image ---------------------------------------------------------------------------------


class Drawing:
    """An SVG image; coordinates are pixels from the upper left.

    Title and description are for screen readers: what the image is and what it shows.
    """

    def __init__(self, width: float, height: float, title: str, description: str) -> None:
        self.width = width
        self.height = height
        self.label = f"{title}. {description}"
        self._parts: list[Markup] = []

    def _add(self, tag: str, /, **attributes: object) -> None:
        self._parts.append(_element(tag, "", attributes))

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str, **more: object
    ) -> None:
        self._add("rect", x=x, y=y, width=max(width, 0), height=height, class_=kind, **more)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str, **more: object) -> None:
        self._add("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind, **more)

    def circle(self, x: float, y: float, radius: float, kind: str, **more: object) -> None:
        self._add("circle", cx=x, cy=y, r=radius, class_=kind, **more)

    def path(self, data: str, kind: str, **more: object) -> None:
        self._add("path", d=data, class_=kind, **more)

    def text(
        self, x: float, y: float, text: str, kind: str = "", *, end: str = "start", **more: object
    ) -> None:
        anchor = None if end == "start" else end
        place = {"x": x, "y": y, "class": kind or None, "text_anchor": anchor}
        self._parts.append(_element("text", text, place | more))

    def name(
        self,
        x: float,
        y: float,
        name: str,
        room: float,
        kind: str = "name",
        *,
        size: float = 12,
        end: str = "start",
        **more: object,
    ) -> None:
        """A name, shortened to fit; the tooltip then shows all of it."""
        short = shortened(name, room, size)
        tip = None if short == name else name
        self.text(x, y, short, kind, end=end, data_tip=tip, **more)

    @contextmanager
    def group(self, kind: str) -> Iterator[None]:
        """Group everything that is drawn inside the `with` block."""
        outer, self._parts = self._parts, []
        try:
            yield
        finally:
            inner, self._parts = self._parts, outer
            self._parts.append(_element("g", Markup("").join(inner), {"class": kind}))

    @contextmanager
    def row(self, y: float, height: float) -> Iterator[None]:
        """Group what is drawn of a row of the chart; it is marked under the pointer."""
        with self.group("row"):
            self.rect(0, y, self.width, height, "band")
            yield

    def upright(self, x: float, y: float, name: str, room: float, size: float) -> None:
        """The name of a column, from its middle upwards."""
        place, style = (
            f"translate({x + 4:.1f} {y:.1f}) rotate(-90)",
            f"font-size:{min(11, size):.1f}px",
        )
        self.name(0, 0, name, room, "tick", size=11, transform=place, style=style)

    def curve(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        self.path("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), f"curve {kind}")

    def place(self, other: Drawing, x: float, y: float) -> None:
        """Draw another image, with its upper left at this point."""
        place: dict[str, object] = {"transform": f"translate({_rounded(x)} {_rounded(y)})"}
        self._parts.append(_element("g", Markup("").join(other._parts), place))

    def render(self, **attributes: object) -> Markup:
        """The image as an element `svg`, with further attributes."""
        content = Markup("").join([_element("title", self.label, {}), *self._parts])
        given: dict[str, object] = {
            "viewBox": f"0 0 {_rounded(self.width)} {_rounded(self.height)}",
            "role": "img",
            "aria_label": self.label,
        }
        return _element("svg", content, given | attributes)

    def __html__(self) -> Markup:
        """The image on the page; it may shrink, and grow by 15 %."""
        return self.render(style=f"max-width:{1.15 * self.width:.0f}px")


def _element(tag: str, content: str | Markup, attributes: dict[str, object]) -> Markup:
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_rounded(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if not content:
        return Markup(f"<{tag}{written}/>")
    return Markup(f"<{tag}{written}>{escape(content)}</{tag}>")


def _rounded(value: object) -> object:
    """Numbers with a tenth of a pixel, which keeps pages small."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value


# --- scales, axes, marks --------------------------------------------------------------------------

MOST_ROWS = 30
"""Charts with a row per model show at most this many; their tables list all."""

FIRST_ONES = f"The chart shows the first {MOST_ROWS} models; the table lists all."


@dataclass(frozen=True)
class Scale:
    """A linear map from [low, high] to pixels [start, end]; values outside are clipped."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def ticks(self, most: int = 5) -> list[tuple[float, str]]:
        """Round values and their labels."""
        step = _step(self.high - self.low, most)
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [(at * step, number(at * step, digits)) for at in range(first, last + 1)]


def covering(
    values: Iterable[float], start: float, end: float, *, zero: bool = False, margin: float = 0.0
) -> Scale:
    """A scale that covers all values, and zero where lengths are compared, as with bars."""
    known = [float(value) for value in values if is_number(value)]
    if zero or not known:
        known.append(0.0)
    low, high = min(known), max(known)
    if low == high:
        low, high = (low - 0.5, high + 0.5) if low or not zero else (0.0, 1.0)
    room = margin * (high - low)
    return Scale(low - room, high + room, start, end)


def percent(values: Iterable[float], start: float, end: float, *, lowest: float = 0) -> Scale:
    """A scale for percentages, from one multiple of ten to another, not below the lowest."""
    known = [float(value) for value in values if is_number(value)]
    low = max(math.floor(min(known, default=0) / 10) * 10, lowest)
    high = math.ceil(max(known, default=100) / 10) * 10
    return Scale(low, min(max(high, low + 10), 100) if low < 100 else 110, start, end)


def edge_note(values: Iterable[float], low: float) -> str:
    """Say that a chart shows values below its scale at the edge; empty if there are none."""
    if all(value >= low for value in values if is_number(value)):
        return ""
    return f" Values below {number(low)} % are at the edge of the chart."


def _step(width: float, most: int) -> float:
    rough = width / max(most - 1, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    return next(unit * power for unit in (1, 2, 5, 10) if unit * power >= rough * (1 - 1e-9))


@dataclass(frozen=True)
class Size:
    """The width that a chart is drawn for; text has the same size in both."""

    width: float
    narrow: bool

    def pieces(
        self, top: float, height: float, rows: int, above: float = 21, below: float = 3
    ) -> list[tuple[float, float]]:
        """Where grid lines are drawn: between the names, which narrow charts have in the rows."""
        starts = [top + height * at for at in range(rows if self.narrow else 0)]
        return [(start + above, start + height - below) for start in starts]


WIDE = Size(960, narrow=False)
NARROW = Size(340, narrow=True)


@dataclass(frozen=True)
class Chart:
    """A chart, drawn for a wide screen and for a phone."""

    wide: Drawing
    narrow: Drawing


def in_both_sizes(draw: Callable[[Size], Drawing]) -> Chart:
    """Draw a chart in both sizes."""
    return Chart(wide=draw(WIDE), narrow=draw(NARROW))


def row_chart(
    title: str,
    description: str,
    names: Sequence[str],
    scale: Callable[[float, float], Scale],
    draw_row: Callable[[Drawing, Scale, int, float], None],
    *,
    left: float = 230,
    room: float = 70,
    head: str = "",
) -> Chart:
    """A chart of percentages with a row for each name.

    Parameters
    ----------
    title, description : str
    names : sequence of str
    scale : callable
        The scale from a start to an end.
    draw_row : callable
        Draws a row: in a drawing, with a scale, its index, and its middle.
    left, room : float
        Pixels for the names, and for the values, on a wide screen.
    head : str
        Title of the values.
    """

    def draw(size: Size) -> Drawing:
        height, top = (42, 30) if size.narrow else (28, 34)
        bottom = top + height * len(names)
        drawing = Drawing(size.width, bottom + 4, title, description)
        start, end = (4.0, room - 20) if size.narrow else (left, room)
        across = scale(start, size.width - end)
        pieces = size.pieces(top, height, len(names), 19, 2)
        axis_above(drawing, across, top - 8, bottom, most=6, unit=" %", pieces=pieces)
        if head:
            drawing.text(size.width - 4, top - 14, head, "head", end="end")
        for at, name in enumerate(names):
            y = top + height * at
            middle = y + (29 if size.narrow else height / 2)
            with drawing.row(y, height):
                width = size.width - 10 if size.narrow else start - 16
                drawing.name(0, y + 14 if size.narrow else middle + 4, name, width)
                draw_row(drawing, across, at, middle)
        return drawing

    return in_both_sizes(draw)


@dataclass(frozen=True)
class Bar:
    """A bar of a chart, with its name before and its label behind it; `whole` is a paler bar."""

    name: str
    value: float
    label: str
    tip: str
    whole: float | None = None


def bar_chart(
    title: str, description: str, bars: Sequence[Bar], kind: str, left: float = 230
) -> Chart:
    """A named bar in each row; `left` is the room for the names on a wide screen."""

    def draw(size: Size) -> Drawing:
        height, top = (42, 21) if size.narrow else (28, 8)
        start, room = (0.0, 112) if size.narrow else (left, 140)
        drawing = Drawing(size.width, height * len(bars) + 6, title, description)
        ends = [bar.value if bar.whole is None else bar.whole for bar in bars]
        scale = covering(ends, start, size.width - room, zero=True)
        for at, (bar, end) in enumerate(zip(bars, ends, strict=True)):
            y = height * at
            width = size.width - 8 if size.narrow else left - 14
            drawing.name(0, y + (14 if size.narrow else 18), bar.name, width)
            shades = [("whole", end)] if bar.whole is not None else []
            for shade, length in (*shades, (f"bar {kind}", bar.value)):
                width = scale(length) - start
                drawing.rect(start, y + top, width, 12, shade, data_tip=bar.tip)
            drawing.text(scale(end) + 8, y + top + 10, bar.label, "value")
        return drawing

    return in_both_sizes(draw)


@dataclass(frozen=True)
class Line:
    """Points (x, y, tip) that are joined by a line, with marks of a kind and shape."""

    kind: str
    shape: str
    points: Sequence[tuple[float, float, str]]


def line_chart(
    title: str,
    description: str,
    lines: Sequence[Line],
    ticks: Mapping[float, str],
    name: str,
    strokes: Sequence[tuple[float, float, str]] = (),
) -> Chart:
    """Lines of percentages, and strokes (x, y, tip); `name` is what `ticks` count."""

    def draw(size: Size) -> Drawing:
        width, places = size.width if size.narrow else 620, list(ticks)
        left, right = 46, width - 20
        drawing = Drawing(width, 280, title, description)
        room = 0.05 * (places[-1] - places[0]) or 0.5
        across = Scale(places[0] - room, places[-1] + room, left, right)
        points = [*strokes, *(point for line in lines for point in line.points)]
        up = covering((y for _, y, _ in points), 226, 22, margin=0.1)
        drawing.text(0, 12, "%", "head")
        axis_beside(drawing, up, left, right)
        for x in places[:: max(1, len(places) // (6 if size.narrow else 12))]:
            drawing.text(across(x), 248, ticks[x], "tick", end="middle")
        drawing.text((left + right) / 2, 270, name, "head", end="middle")
        for x, y, tip in strokes:
            drawing.rect(across(x) - 6, up(y) - 1, 12, 2, "stroke", data_tip=tip)
        for line in lines:
            drawing.curve([(across(x), up(y)) for x, y, _ in line.points], line.kind)
            for x, y, tip in line.points:
                mark(drawing, line.shape, across(x), up(y), f"dot {line.kind}", tip)
        return drawing

    return in_both_sizes(draw)


def axis_beside(drawing: Drawing, scale: Scale, left: float, right: float, most: int = 6) -> None:
    """Horizontal grid lines with labels at their left."""
    for value, label in scale.ticks(most):
        drawing.line(left, scale(value), right, scale(value), "grid")
        drawing.text(left - 8, scale(value) + 4, label, "tick", end="end")


def axis_above(
    drawing: Drawing,
    scale: Scale,
    top: float,
    bottom: float,
    *,
    most: int = 5,
    unit: str = "",
    pieces: Sequence[tuple[float, float]] = (),
) -> None:
    """Vertical grid lines with labels above them, as many as fit; the line at zero is darker.

    Where names stand between the rows, the lines are drawn in pieces (top, bottom) around them.
    """
    while most > 2 and _crowded(scale, most, unit):
        most -= 1
    for value, label in scale.ticks(most):
        x = scale(value)
        for start, end in pieces or [(top, bottom)]:
            drawing.line(x, start, x, end, "zero" if value == 0 else "grid")
        half = text_width(f"{label}{unit}", 11) / 2
        inside = min(max(x, half), drawing.width - half)
        drawing.text(inside, top - 6, f"{label}{unit}", "tick", end="middle")


def _crowded(scale: Scale, most: int, unit: str) -> bool:
    ticks = [
        (scale(value), text_width(f"{label}{unit}", 11) / 2) for value, label in scale.ticks(most)
    ]
    return any(
        x + half + other_half + 4 > other
        for (x, half), (other, other_half) in itertools.pairwise(ticks)
    )


_STAR = [
    (radius * math.sin(math.pi * at / 5), -radius * math.cos(math.pi * at / 5))
    for at, radius in enumerate((7.5, 3.2) * 5)
]
"""Corners of a star of five points."""


def mark(drawing: Drawing, shape: str, x: float, y: float, kind: str, tip: str) -> None:
    """A point: circle, triangle, wedge, square, diamond, star or vertical line."""
    if shape == "circle":
        drawing.circle(x, y, 5, kind, data_tip=tip)
        return
    data = {
        "square": f"M{x - 4.5:.1f} {y - 4.5:.1f}h9v9h-9z",
        "diamond": f"M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z",
        "triangle": f"M{x:.1f} {y - 6:.1f}l6 11h-12z",
        "wedge": f"M{x:.1f} {y + 6:.1f}l6 -11h-12z",
        "star": "M" + "L".join(f"{x + dx:.1f} {y + dy:.1f}" for dx, dy in _STAR) + "z",
        "line": f"M{x - 1:.1f} {y - 6:.1f}h2v12h-2z",
    }[shape]
    drawing.path(data, kind, data_tip=tip)


def whisker(drawing: Drawing, y: float, low: float, high: float, kind: str, tip: str) -> None:
    """An interval, with a wide transparent line that is easy to point at."""
    drawing.line(low, y, high, y, f"whisker {kind}")
    drawing.line(low, y, high, y, "touch", data_tip=tip)

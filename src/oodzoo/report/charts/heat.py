"""A heat map of one figure for each model and left-out domain."""

from __future__ import annotations

from collections.abc import Sequence

from oodzoo.report.charts.frame import MOST_ROWS, Chart, Size, both
from oodzoo.report.numbers import ems, is_number, number, shortened
from oodzoo.report.svg import Drawing

ROW = 22
NAME = 18
"""Room for a name above its cells, where there is none beside them."""


def heat_map(
    title: str,
    finding: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
    digits: int,
) -> Chart:
    """Cells from pale (small) to strong (large); at most thirty rows.

    One model far from all others would leave them one shade, so the shades end at the 5 % of
    smallest and of largest values. Rows are numbered, as names of models that are cut to fit may
    look alike.
    """
    rows, values = rows[:MOST_ROWS], values[:MOST_ROWS]
    known = sorted(value for line in values for value in line if is_number(value))
    beyond = len(known) // 20
    low, high = (known[beyond], known[-1 - beyond]) if known else (0.0, 1.0)
    ends = (
        f"{'≤ ' * (beyond > 0)}{number(low, digits)}",
        f"{'≥ ' * (beyond > 0)}{number(high, digits)}",
    )

    def draw(size: Size) -> Drawing:
        left, above = (0, NAME) if size.narrow else (286, 0)
        height = ROW + above
        width = min((size.width - left) / max(len(columns), 1), 150)
        upright = width < 44 or (
            size.narrow and max((ems(name) * 11 for name in columns), default=0) > width - 6
        )
        longest = max((ems(shortened(name, 100, 11)) * 11 for name in columns), default=0)
        top = longest + 14 if upright else 30
        drawing = Drawing(size.width, top + height * len(rows) + 34, title, finding)
        for at, name in enumerate(columns):
            _column(drawing, left + width * at, top, width, name, upright)
        for line, model in enumerate(rows):
            y = top + height * line + above
            at_name = y + 15 - (ROW - 2 if size.narrow else 0)
            drawing.text(20, at_name, str(line + 1), "rank", end="end")
            drawing.name(28, at_name, model, (left or size.width) - 38)
            for at, value in enumerate(values[line]):
                x = left + width * at
                tip = f"{model}\n{columns[at]}: {number(value, digits)}"
                share = 0.0
                if is_number(value):
                    share = min(max((value - low) / (high - low), 0), 1) if high > low else 0.5
                drawing.rect(
                    x + 0.5, y + 0.5, width - 1, ROW - 1, "heat",
                    fill_opacity=f"{0.04 + 0.96 * share:.2f}", data_tip=tip,
                )  # fmt: skip
                if width >= 40:
                    shown = number(value, digits)
                    drawing.text(x + width / 2, y + 15, shown, "cell", end="middle")
        _key(drawing, left, top + height * len(rows) + 12, *ends)
        return drawing

    return both(draw)


def _column(drawing: Drawing, x: float, top: float, width: float, name: str, upright: bool) -> None:
    if upright:
        at = f"translate({x + width / 2 + 4:.1f} {top - 6:.1f}) rotate(-90)"
        short = shortened(name, 100, 11)
        drawing.text(
            0, 0, short, "tick", transform=at, data_tip=name if short != name else None,
            style=f"font-size:{min(11, 0.8 * width):.1f}px",
        )  # fmt: skip
    else:
        short = shortened(name, width - 6, 11)
        tip = name if short != name else None
        drawing.text(x + width / 2, top - 8, short, "tick", end="middle", data_tip=tip)


def _key(drawing: Drawing, x: float, y: float, low: str, high: str) -> None:
    start = x + ems(low) * 11 + 8
    for at in range(12):
        drawing.rect(
            start + 9 * at, y, 9.5, 10, "heat", fill_opacity=f"{0.04 + 0.96 * at / 11:.2f}"
        )
    drawing.text(x, y + 9, low, "tick")
    drawing.text(start + 116, y + 9, high, "tick")

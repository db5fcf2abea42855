"""Tables that fit into a terminal: columns are left out or moved, names and numbers stay whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oodzoo.core.text import printable

_INDENT = "  "


class Part(NamedTuple):
    """A table, or the part of one, whose first `left` columns are text."""

    columns: list[str]
    rows: list[list[str]]
    left: int


class Fitted(NamedTuple):
    """What is printed of a table.

    Attributes
    ----------
    parts : list of Part
        Tables one below the other; empty if no table fits.
    lines : list of str
        Instead, two or more lines for each row.
    dropped : list of str
        Columns that are left out.
    """

    parts: list[Part]
    lines: list[str]
    dropped: list[str]


def fit_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    left: int,
    width: int,
    least: Sequence[str] = (),
) -> Fitted:
    """Fit a table into a width.

    The columns `least` are left out, the first one first, until the others fit. If they never do,
    the other columns come back in several tables, each with the first `left` ones; if these take
    all the width, each row becomes lines.

    Examples
    --------
    >>> rows = [["net", 93.1, 512]]
    >>> fitted = fit_table(["model", "acc.", "d"], rows, left=1, width=10, least=["d"])
    >>> fitted.parts[0].columns, fitted.dropped
    (['model', 'acc.'], ['d'])
    """
    names = [printable(column) for column in columns]
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    dropped: list[str] = []
    n_text = left
    for name in (None, *least):
        if name is not None and name in names:
            at = names.index(name)
            n_text -= at < n_text
            dropped.append(names.pop(at))
            cells = [row[:at] + row[at + 1 :] for row in cells]
        if needed_width(names, cells, n_text) <= width:
            return Fitted([Part(names, cells, n_text)], [], dropped)
    names = [printable(column) for column in columns]
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    parts = _split(names, cells, left, width, whole=True) or _split(names, cells, left, width)
    return Fitted(parts, [] if parts else _folded(names, cells, left, width), [])


def needed_width(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> int:
    """Width of a table in which text is broken between words, and nothing else."""
    return sum(narrowest(columns, rows, left)) + len(columns) - 1


def narrowest(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[int]:
    """The smallest width of each column; text may be broken between words."""
    from rich.cells import cell_len

    def width(cell: str, is_text: bool) -> int:
        return (
            max((cell_len(word) for word in cell.split()), default=0) if is_text else cell_len(cell)
        )

    return [
        max(width(cell, at < left) for cell in (name, *(row[at] for row in rows)))
        for at, name in enumerate(columns)
    ]


def column_widths(part: Part, width: int) -> list[int]:
    """The width of each column: text that is too wide is broken between words."""
    from rich.cells import cell_len

    least = narrowest(*part)
    widths = [
        max(cell_len(cell) for cell in (name, *(row[at] for row in part.rows)))
        for at, name in enumerate(part.columns)
    ]
    while sum(widths) + len(widths) - 1 > width:
        slack = [each - low for each, low in zip(widths, least, strict=True)]
        if not any(slack):
            break
        widths[slack.index(max(slack))] -= 1
    return widths


def _split(
    columns: list[str], rows: list[list[str]], left: int, width: int, *, whole: bool = False
) -> list[Part]:
    """Several tables, each with the first columns; none if another column does not fit there.

    With `whole`, text is not broken, not even between words.
    """
    parts: list[Part] = []
    rest = list(range(left, len(columns)))
    while rest:
        chosen = list(range(left))
        while rest and _fits(columns, rows, 0 if whole else left, [*chosen, rest[0]], width):
            chosen.append(rest.pop(0))
        if len(chosen) == left:
            return []
        parts.append(
            Part([columns[at] for at in chosen], [[r[a] for a in chosen] for r in rows], left)
        )
    return parts


def _fits(
    columns: list[str], rows: list[list[str]], left: int, chosen: list[int], width: int
) -> bool:
    some = [[row[at] for at in chosen] for row in rows]
    return needed_width([columns[at] for at in chosen], some, left) <= width


def _folded(columns: list[str], rows: list[list[str]], left: int, width: int) -> list[str]:
    """For each row a line of its text, then its numbers with their names, as many as fit."""
    lines = []
    for row in rows:
        lines.append("  ".join(filter(None, row[:left])))
        line = ""
        for name, cell in zip(columns[left:], row[left:], strict=True):
            pair = f"{name} {cell}".strip()
            if line and len(_INDENT + line) + 2 + len(pair) > width:
                lines.append(_INDENT + line)
                line = ""
            line = f"{line}  {pair}" if line else pair
        if line:
            lines.append(_INDENT + line)
    return lines

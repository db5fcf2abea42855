"""Tables as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from html import escape

from oodzoo.core.text import count, printable

MOST_ROWS = 30
MOST_COLUMNS = 20


def html_text(text: str) -> str:
    """Escape a text for HTML; control characters, which would be invisible, are spelt out.

    Examples
    --------
    >>> html_text("<b>&")
    '&lt;b&gt;&amp;'
    """
    return escape(printable(text))


def html_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    caption: str = "",
    notes: Iterable[str] = (),
    left: Collection[str] = (),
    most_rows: int = MOST_ROWS,
    most_columns: int = MOST_COLUMNS,
) -> str:
    """Return a table as HTML that notebooks show like a data frame of pandas.

    It sets no colours, so that it follows the theme of the notebook, light or dark.

    Parameters
    ----------
    columns : sequence of str
        The heading of each column.
    rows : sequence of sequence of str
        The cells of each row, as text; the first one is the heading of the row.
    caption : str
        Shown above the table.
    notes : iterable of str
        Paragraphs below the table.
    left : collection of str
        Columns of text, aligned left; the first one always is.
    most_rows, most_columns : int
        Further ones are counted, not shown.

    Examples
    --------
    >>> print(html_table(["model", "%"], [["a", "90.1"], ["b", "75.0"], ["c", "9.9"]], most_rows=2))
    <table border="1" class="dataframe">
    <thead>
    <tr><th style="text-align: left">model</th><th style="text-align: right">%</th></tr>
    </thead>
    <tbody>
    <tr><th style="text-align: left">a</th><td style="text-align: right">90.1</td></tr>
    <tr><th style="text-align: left">b</th><td style="text-align: right">75.0</td></tr>
    <tr><td colspan="2" style="text-align: left">… 1 more row</td></tr>
    </tbody>
    </table>
    """
    width = min(len(columns), most_columns)
    hidden = len(columns) - width
    sides = ["left" if not at or columns[at] in left else "right" for at in range(width)]
    more = [f"… {count(hidden, 'more column')}"] if hidden else []
    head = [_cell("th", name, side) for name, side in zip(columns, sides, strict=False)]
    head += [_cell("th", text, "left") for text in more]
    body = [_row(row[:width], sides, "…" if hidden else "") for row in rows[:most_rows]]
    if len(rows) > most_rows:
        text = f"… {count(len(rows) - most_rows, 'more row')}"
        span = f'colspan="{len(head)}" '
        body.append(f'<tr><td {span}style="text-align: left">{text}</td></tr>')
    title = [f'<caption style="text-align: left">{html_text(caption)}</caption>'] if caption else []
    return "\n".join(
        [
            '<table border="1" class="dataframe">',
            *title,
            "<thead>",
            f"<tr>{''.join(head)}</tr>",
            "</thead>",
            "<tbody>",
            *body,
            "</tbody>",
            "</table>",
            *(f"<p>{html_text(note)}</p>" for note in notes),
        ]
    )


def _row(cells: Sequence[str], sides: Sequence[str], more: str) -> str:
    shown = [
        _cell("td" if at else "th", cell, side)
        for at, (cell, side) in enumerate(zip(cells, sides, strict=True))
    ]
    return f"<tr>{''.join(shown)}{_cell('td', more, 'left') if more else ''}</tr>"


def _cell(tag: str, text: str, side: str) -> str:
    return f'<{tag} style="text-align: {side}">{html_text(text)}</{tag}>'

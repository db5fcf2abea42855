"""An evaluation as a table, as text or in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from oodzoo._html import html_table
from oodzoo._numbers import number
from oodzoo._text import plain, text_table
from oodzoo.evaluation.rows import Row
from oodzoo.task import Kind
from oodzoo.task.words import WORDS

MOST_DOMAINS = 8
"""With more test domains, a line of text would be too long, and has the average only."""


def rows_as_text(rows: Mapping[str, Row], task: Kind, notes: Iterable[str]) -> str:
    """Return a line per row with its main metric, and the notes below."""
    domains, table = _cells(rows)
    columns = [WORDS[task].metric.heading.lower(), "average"]
    if len(domains) <= MOST_DOMAINS:
        columns += domains
    lines = [[name, *map(plain, cells)][: len(columns)] for name, *cells in table]
    shown = text_table(columns, lines)
    return "\n".join([shown, *notes])


def rows_as_html(rows: Mapping[str, Row], task: Kind, notes: Iterable[str]) -> str:
    """Return a table with the main metric of each row, on average and on each test domain."""
    domains, table = _cells(rows)
    return html_table(
        ["", "average", *domains],
        table,
        caption=f"{WORDS[task].metric.heading} on each held-out domain",
        notes=notes,
    )


def _cells(rows: Mapping[str, Row]) -> tuple[list[str], list[list[str]]]:
    domains = list(next(iter(rows.values())).cells)
    table = []
    for name, row in rows.items():
        by_domain = row.measure(row.metric)
        values = [row.average, *(by_domain[domain] for domain in domains)]
        table.append([name, *(number(value, 1) for value in values)])
    return domains, table

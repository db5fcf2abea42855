"""An evaluation as a table in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from oodzoo._html import html_table
from oodzoo._numbers import number
from oodzoo.evaluation.rows import Row
from oodzoo.task import Kind
from oodzoo.task.words import WORDS


def rows_as_html(rows: Mapping[str, Row], task: Kind, notes: Iterable[str]) -> str:
    """Return a table with the main metric of each row, on average and on each test domain."""
    metric = WORDS[task].metric
    domains = list(next(iter(rows.values())).cells)
    table = []
    for name, row in rows.items():
        by_domain = row.measure(row.metric)
        values = [row.average, *(by_domain[domain] for domain in domains)]
        table.append([name, *(number(value, 1) for value in values)])
    return html_table(
        ["", "average", *domains],
        table,
        caption=f"{metric.heading} on each held-out domain",
        notes=notes,
    )

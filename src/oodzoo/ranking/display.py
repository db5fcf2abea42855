"""A ranking as a table, as text or in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from oodzoo._html import html_table
from oodzoo._numbers import number, significant, span
from oodzoo._text import count, plain, some_of, text_table
from oodzoo.ranking.result_rows import Row
from oodzoo.task import Kind
from oodzoo.task.words import WORDS

_TERMS = {
    "unseen": {"evidence": 2, "transfer": 0},
    "zood": {"discriminability": 3, "stability": 3},
}
"""Terms of scores, and with how many decimals they are shown."""


def ranking_as_text(rows: Sequence[Row], score: str, task: Kind) -> str:
    """Return a heading and one line per row: rank, model, score, what to expect."""
    columns = ["rank  model", score, WORDS[task].metric.heading.lower(), "90 %"]
    lines = [
        [
            f"{row.rank:>4}  {row.model}",
            plain(number(row.score, 3)),
            plain(number(row.expected_accuracy, 1)),
            plain(span(*row.accuracy_interval)),
        ]
        for row in rows
    ]
    return text_table(columns, lines)


def ranking_as_html(
    rows: Sequence[Row], score: str, task: Kind, left_out: Mapping[str, str]
) -> str:
    """Return the rows as a table; columns of which nothing is known are left out."""
    metric = WORDS[task].metric
    terms = _TERMS.get(score, {}).items()
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("rank", lambda row: str(row.rank)),
        ("rank, 90 %", _ranks),
        ("model", lambda row: row.model),
        *([] if score == metric.name else [(score, lambda row: number(row.score, 3))]),
        *((term, partial(_term, term, digits)) for term, digits in terms),
        ("agreement, %", lambda row: _known(row.agreement, 1)),
        (f"{metric.name}, %", lambda row: number(row.expected_accuracy, 1)),
        (f"{metric.name}, 90 %", lambda row: span(*row.accuracy_interval)),
        ("features", lambda row: number(row.feature_dim)),
        ("parameters", lambda row: _known(row.parameters)),
        (
            "ms / image",
            lambda row: "" if row.milliseconds is None else significant(row.milliseconds),
        ),
        ("Pareto", lambda row: "✓" if row.pareto_optimal else ""),
    ]
    table = [(name, [cell(row) for row in rows]) for name, cell in columns]
    shown = [(name, cells) for name, cells in table if any(cells) or not rows]
    notes = [
        f"{metric.title}: expected on an unseen domain, with the 90 % interval for one domain.",
        "For the first model, its choice is repeated without each domain.",
    ]
    if left_out:
        notes.append(f"Not ranked: {count(len(left_out), 'model')} ({some_of(list(left_out))}).")
    return html_table(
        [name for name, _ in shown],
        list(zip(*(cells for _, cells in shown), strict=True)),
        caption=f"{count(len(rows), 'model')} by {score}",
        notes=notes,
        left=("model",),
    )


def _ranks(row: Row) -> str:
    if row.rank_interval is None:
        return ""
    low, high = row.rank_interval
    return str(low) if low == high else span(low, high)


def _term(term: str, digits: int, row: Row) -> str:
    return number(getattr(row, term), digits)


def _known(value: float | None, digits: int = 0) -> str:
    return "" if value is None else number(value, digits)

"""An evaluation as a table, as text or in a notebook."""

from __future__ import annotations

import re

from tests.evaluation.test_rows import row

from oodzoo.combining.evaluation.result import rows_as_html, rows_as_text


def cells(html: str) -> list[list[str]]:
    return [
        re.findall(r"<t[hd] [^>]*>(.*?)</t", line) for line in html.splitlines() if "<tr>" in line
    ]


def test_each_row_has_its_average_and_its_domains() -> None:
    html = rows_as_html(
        {"pool": row(80.0, 90.0), "best_by_<b>": row(50.0, 51.0)}, "classification", []
    )
    assert cells(html) == [
        ["", "average", "d0", "d1"],
        ["pool", "85.0", "80.0", "90.0"],
        ["best_by_&lt;b&gt;", "50.5", "50.0", "51.0"],
    ]
    assert "Accuracy %" in html


def test_notes_are_paragraphs() -> None:
    html = rows_as_html({"pool": row(80.0, 90.0)}, "regression", ["a < b"])
    assert html.endswith("<p>a &lt; b</p>")
    assert "Explained variance" in html


def test_text_has_a_column_for_each_of_a_few_domains() -> None:
    text = rows_as_text({"pool": row(80.0, 90.0)}, "classification", ["A note."])
    assert text.splitlines() == [
        "accuracy %  average    d0    d1",
        "pool           85.0  80.0  90.0",
        "A note.",
    ]


def test_text_with_many_domains_has_averages_only() -> None:
    text = rows_as_text({"pool": row(*range(80, 92))}, "regression", [])
    assert text.splitlines() == ["explained variance %  average", "pool                     85.5"]

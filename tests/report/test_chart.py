"""Drawings, scales and marks; text that fits; tables and their CSV files."""

from __future__ import annotations

import re
from typing import Any

import pytest

from oodzoo.core.tables import LONG, Column, Table
from oodzoo.report.chart import (
    Drawing,
    Scale,
    axis_above,
    shortened,
    text_width,
)
from oodzoo.report.page import Facts, Headline, Section, render


@pytest.mark.parametrize("text", ["x" * 100, "网络" * 20, "a"])
@pytest.mark.parametrize("room", [5, 40])
def test_shortened_names_fit(text: str, room: float) -> None:
    short = shortened(text, room)
    assert len(short) <= max(len(text), 3)
    if room >= 40:
        assert text_width(short.replace("…", ""), 12) + 12 * ("…" in short) <= room


def test_an_axis_has_only_as_many_labels_as_fit_inside_the_drawing() -> None:
    wide, narrow, both = (Drawing(width, 50, "", "") for width in (400, 400, 100))
    axis_above(wide, Scale(0, 100, 0, 400), 20, 50, most=11)
    axis_above(narrow, Scale(0, 100, 0, 60), 20, 50, most=11)
    assert wide.render().count("<text") == 11
    assert narrow.render().count("<text") < 4
    axis_above(both, Scale(-100, 100, 2, 98), 20, 50, unit=" %")
    places = [float(x) for x in re.findall(r'<text x="([0-9.]+)"', both.render())]
    assert places[0] > 15
    assert places[-1] < 85


# --- tables --------------------------------------------------------------------------------------


def test_csv_has_all_columns_and_digits_and_no_formulas() -> None:
    columns = [
        Column("Name", "name", text=True),
        Column("Value", "=1+1", 1),
        Column("Interval", "interval", 0, interval=True),
        Column("Tied", "tied", text=True, shown=False),
    ]
    rows: list[list[Any]] = [
        ['a, "b"', 0.1 + 0.2, (1.5, 2.5), ("c", "d")],
        ["@sum", -0.5, None, ("-a", "b")],
        ["-1", float("-inf"), None, ()],
        ["e", None, None, ()],
    ]
    table = Table("t", "T", columns, rows)
    assert table.csv().split("\r\n") == [
        "name,'=1+1,interval_low,interval_high,tied",
        '"a, ""b""",0.30000000000000004,1.5,2.5,c;d',
        "'@sum,-0.5,,,'-a;b",
        "-1,-inf,,,",
        "e,,,,",
        "",
    ]
    assert [column.key for _, column in table.shown] == ["name", "=1+1", "interval"]
    assert not Table("t", "", columns[:1], [["x"]] * LONG).long
    assert Table("t", "", columns[:1], [["x"]] * (LONG + 1)).long


def test_options_and_ranges_are_not_broken() -> None:
    section = Section("s", "S", "", [Facts([("a_b", "<c>")])])
    text = render(Headline("Try (--max-ms 3) and --tune, not a--b; 1–2 % of 7 %."), [section])
    together = re.findall('<span class="together">(.*?)</span>', text)
    assert together == ["(--max-ms", "--tune", "1–2\N{NO-BREAK SPACE}%"]
    assert "a_<wbr>b" in text
    assert "&lt;c&gt;" in text
    assert "Made with oodzoo. This page" in text

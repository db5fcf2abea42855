"""Tables and their CSV files."""

from __future__ import annotations

from typing import Any

import pytest

from oodzoo.report.blocks import LONG, Column, Table


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        (Column("", "x", 1), 2.345, "2.3"),
        (Column("", "x"), 0.012345, "0.0123"),
        (Column("", "x", 1), None, "–"),
        (Column("", "x"), True, "yes"),
        (Column("", "x", text=True), ("a", "b"), "a, b"),
        (Column("", "x", 0, interval=True), (1, 3), "1–3"),
    ],
)
def test_cells_as_text(column: Column, value: Any, text: str) -> None:
    assert column.show(value) == text


@pytest.mark.parametrize(
    ("column", "value", "order"),
    [
        (Column("", "x", 1), 2.345, 2.345),
        (Column("", "x", 0, interval=True), (1, 3), 1.0),
        (Column("", "x", text=True), "a", None),
        (Column("", "x", 1), None, None),
        (Column("", "x"), True, None),
    ],
)
def test_cells_are_sorted_by_their_number(column: Column, value: Any, order: float | None) -> None:
    assert column.order(value) == order


def test_csv_has_all_columns_and_digits() -> None:
    columns = [
        Column("Name", "name", text=True),
        Column("Value", "value", 1),
        Column("Interval", "interval", 0, interval=True),
        Column("Tied", "tied", text=True, shown=False),
    ]
    rows: list[list[Any]] = [
        ['a, "b"', 0.1 + 0.2, (1.5, 2.5), ("c", "d")],
        ["e", None, None, ()],
    ]
    table = Table("t", "T", columns, rows)
    assert table.csv().split("\r\n") == [
        "name,value,interval_low,interval_high,tied",
        '"a, ""b""",0.30000000000000004,1.5,2.5,c;d',
        "e,,,,",
        "",
    ]
    assert [column.key for _, column in table.shown] == ["name", "value", "interval"]


def test_csv_has_no_formulas() -> None:
    columns = [Column("Name", "name", text=True), Column("D", "=1+1", 1), Column("T", "t")]
    rows: list[list[Any]] = [["@sum", -0.5, ("-a", "b")], ["-1", float("-inf"), ()]]
    assert Table("t", "T", columns, rows).csv().split("\r\n") == [
        "name,'=1+1,t",
        "'@sum,-0.5,'-a;b",
        "-1,-inf,",
        "",
    ]


def test_long_tables() -> None:
    column = [Column("", "x", 0)]
    assert not Table("t", "", column, [[1]] * LONG).long
    assert Table("t", "", column, [[1]] * (LONG + 1)).long

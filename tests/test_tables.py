"""Tables as HTML, for notebooks."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from oodzoo.core.tables import Table, html_text

ODD = '<img src=x onerror="alert(1)">&amp;'


def parsed(text: str) -> ElementTree.Element:
    """Every element is closed."""
    return ElementTree.fromstring(f"<div>{text}</div>")


def cells(text: str) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in parsed(text).iter("tr")]


@given(st.lists(st.lists(st.text(min_size=1), min_size=3, max_size=3), max_size=6))
def test_cells_are_what_was_given_whatever_they_contain(rows: list[list[str]]) -> None:
    columns = ["a", ODD, "c"]
    text = Table.of(columns, rows, caption=ODD, notes=[ODD], left=[ODD]).html()
    found = cells(text)
    assert [len(row) for row in found] == [3] * (len(rows) + 1)
    assert found[0] == columns
    tags = {each.tag for each in parsed(text).iter()}
    assert tags <= {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
    plain = [row for row in rows if all(cell.isprintable() for cell in row)]
    assert all(row in found for row in plain)


def test_a_table_counts_what_it_does_not_show() -> None:
    rows = [[str(at), "x"] for at in range(40)]
    found = cells(Table.of(["n", "x"], rows).html(most_rows=3))
    assert [row[0] for row in found[1:]] == ["0", "1", "2", "… 37 more rows"]
    assert cells(Table.of(["n", "x"], rows).html(most_rows=40))[-1] == ["39", "x"]
    columns = [f"c{at}" for at in range(25)]
    wide = Table.of(columns, [[str(at) for at in range(25)]])
    head, row = cells(wide.html(most_columns=2))
    assert head == ["c0", "c1", "… 23 more columns"]
    assert row == ["0", "1", "…"]


def test_the_table_sets_no_colours_and_spells_out_invisible_characters() -> None:
    assert html_text("a\u202eb\n<") == "a\\u202eb\\n&lt;"
    text = Table.of(["a", "b"], [["1", "2"]], caption="c", notes=["n"]).html()
    assert "color" not in text
    assert 'class="dataframe"' in text

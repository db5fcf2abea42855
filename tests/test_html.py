"""Tables as HTML."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from oodzoo.core.html import html_table, html_text

ODD = '<img src=x onerror="alert(1)">&amp;'


class Reader(HTMLParser):
    """Reads the cells of a table, and counts the elements."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert not reader.open  # every element is closed
    return reader


@given(st.lists(st.lists(st.text(min_size=1), min_size=3, max_size=3), max_size=6))
def test_cells_are_what_was_given_whatever_they_contain(rows: list[list[str]]) -> None:
    columns = ["a", ODD, "c"]
    found = read(html_table(columns, rows, caption=ODD, notes=[ODD], left=[ODD]))
    assert [len(row) for row in found.rows] == [3] * (len(rows) + 1)
    assert found.rows[0] == columns
    assert found.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
    plain = [row for row in rows if all(cell.isprintable() for cell in row)]
    assert all(row in found.rows for row in plain)


def test_a_table_counts_what_it_does_not_show() -> None:
    rows = [[str(at), "x"] for at in range(40)]
    found = read(html_table(["n", "x"], rows, most_rows=3)).rows
    assert [row[0] for row in found[1:]] == ["0", "1", "2", "… 37 more rows"]
    assert read(html_table(["n", "x"], rows, most_rows=40)).rows[-1] == ["39", "x"]
    columns = [f"c{at}" for at in range(25)]
    head, row = read(html_table(columns, [[str(at) for at in range(25)]], most_columns=2)).rows
    assert head == ["c0", "c1", "… 23 more columns"]
    assert row == ["0", "1", "…"]


def test_the_table_sets_no_colours_and_spells_out_invisible_characters() -> None:
    assert html_text("a\u202eb\n<") == "a\\u202eb\\n&lt;"
    text = html_table(["a", "b"], [["1", "2"]], caption="c", notes=["n"])
    assert "color" not in text
    assert 'class="dataframe"' in text

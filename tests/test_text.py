"""Text and numbers for messages, terminals, CSV files and files that are shared."""

from __future__ import annotations

import csv
import io
import math
import re
import unicodedata
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oodzoo.core.tables import Table
from oodzoo.core.text import (
    count,
    csv_cell,
    did_you_mean,
    duration,
    is_number,
    number,
    one_line,
    printable,
    short_name,
    significant,
    some_of,
    span,
    unknown,
    without_folders,
)

URL = "see https://example.org/a/b and timm/resnet50"
HF = "1/2 of 'hf/facebook/dinov2' (n/a)"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (count(0, "model"), "0 models"),
        (count(1, "model"), "1 model"),
        (count(3, "class", "classes"), "3 classes"),
        ([duration(s) for s in (59.9, 60, 3600)], ["59.9 s", "1 min 0 s", "1 h 0 min"]),
        (one_line(ValueError("two\n  lines\tof text")), "two lines of text"),
        (one_line(KeyboardInterrupt()), "KeyboardInterrupt"),
        (one_line(ValueError("x" * 201)), "x" * 199 + "…"),
        (one_line(ValueError("abcdef"), limit=4), "abc…"),
        (did_you_mean("logm", ["logme", "lda"]), "did you mean logme?"),
        (did_you_mean("layer1", ["layer12", "pool"]), "did you mean layer12?"),
        (did_you_mean("xyz", ["logme", "lda"]), ""),
        (printable("a\x1b[31mb"), r"a\x1b[31mb"),
        (printable("x\u202ey\u2066"), r"x\u202ey\u2066"),
        (printable("one\ntwo\r\t\x9b"), r"one\ntwo\r\t\x9b"),
        (printable("straße 猫 'C:\\new'"), "straße 猫 'C:\\new'"),
        (without_folders("'/home/ada b/zoo/net.onnx' is gone"), "'net.onnx' is gone"),
        (without_folders("no file at /home/ada/net.onnx: stop"), "no file at net.onnx: stop"),
        (without_folders(r"cannot read C:\Users\ada\net.onnx"), "cannot read net.onnx"),
        (without_folders(URL), URL),
        (without_folders(HF), HF),
        (some_of([]), ""),
        (some_of(["x" * 100], 1), short_name("x" * 100)),
        (some_of(["a", "b"], 1), "a, … 1 more"),
        (unknown("it", "row", "pol", ["pool"]), "it has no row 'pol'; did you mean pool?"),
        (unknown("it", "row", ("a",), ["pool"]), "it has no row ('a',); it has pool"),
        (Table.of(["domain", "n"], [["a", "12,000"], ["long name", ""]]).text(),
         "domain          n\na          12,000\nlong name"),
        (number(1234567, 0), "1,234,567"),
        (number(-0.04, 1), "0.0"),
        (number(-1.5, 1), "\N{MINUS SIGN}1.5"),
        ([number(value, 2) for value in (None, math.nan, math.inf)], ["–"] * 3),
        ([is_number(1), is_number(True)], [True, False]),
        ([span(1, 3), span(-1, 3), span(1, None)], ["1–3", "\N{MINUS SIGN}1 to 3", "–"]),
        ([significant(value) for value in (0, 1e-7, 2_974_377, -0.5)],
         ["0", "1e\N{MINUS SIGN}07", "2,974,377", "\N{MINUS SIGN}0.500"]),
    ],
)  # fmt: skip
def test_text(found: Any, expected: Any) -> None:
    assert found == expected


@given(st.text())
def test_printable_text_has_no_control_characters(text: str) -> None:
    shown = printable(text)
    assert not any(unicodedata.category(c) == "Cc" for c in shown)
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u2028\u2029]", shown)
    if not any(unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") for c in text):
        assert shown == text


def reads_as_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


STARTS = ("=", "+", "-", "@", "\t", "\r")
texts = st.tuples(st.sampled_from(["", "'", "''", *STARTS]), st.text()).map("".join)


@given(texts | st.integers().map(str) | st.floats().map(repr))
@example("'-1")
def test_cells_of_csv_files(text: str) -> None:
    file = io.StringIO(newline="")
    csv.writer(file).writerow([csv_cell(text), "end"])
    cell, _ = next(csv.reader(io.StringIO(file.getvalue(), newline="")))
    assert reads_as_number(cell) or not cell.startswith(STARTS)
    # as documented, removing one apostrophe restores the text
    assert re.sub(r"^'(?='*[=+\-@\t\r])", "", cell) == text


def test_only_formulas_get_an_apostrophe() -> None:
    for same in ("-1", "+3.5", "-1e5", "-inf", "cat", "", "'tis", "a=b", -1, -2.5, None, True):
        assert csv_cell(same) is same
    for text in ("=1", "+a", "-1+1", "@x", "\t1", "\r1", "'=x", "-"):
        assert csv_cell(text) == f"'{text}"


@given(st.text(), st.integers(3, 60))
def test_short_names_are_short_and_printable(name: str, most: int) -> None:
    short = short_name(name, most)
    assert len(short) <= most
    assert short == printable(short)
    if len(printable(name)) <= most:
        assert short == printable(name)

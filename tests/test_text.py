"""Text for messages, terminals, CSV files and files that are shared."""

from __future__ import annotations

import csv
import io
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oodzoo.core.text import (
    count,
    csv_cell,
    did_you_mean,
    duration,
    one_line,
    printable,
    short_name,
    some_of,
    text_table,
    unknown,
    without_folders,
)


@pytest.mark.parametrize(
    ("n", "expected"), [(0, "0 models"), (1, "1 model"), (2, "2 models"), (12345, "12,345 models")]
)
def test_count(n: int, expected: str) -> None:
    assert count(n, "model") == expected


def test_durations() -> None:
    assert [duration(s) for s in (59.9, 60, 3600)] == ["59.9 s", "1 min 0 s", "1 h 0 min"]


def test_an_irregular_plural() -> None:
    assert (count(1, "class", "classes"), count(3, "class", "classes")) == ("1 class", "3 classes")


def test_one_line() -> None:
    assert one_line(ValueError("two\n  lines\tof text")) == "two lines of text"
    assert one_line(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert one_line(ValueError("x" * 200)) == "x" * 200
    assert one_line(ValueError("x" * 201)) == "x" * 199 + "…"
    assert one_line(ValueError("abcdef"), limit=4) == "abc…"


def test_did_you_mean() -> None:
    assert did_you_mean("logm", ["logme", "lda"]) == "did you mean logme?"
    assert did_you_mean("resnet", ["resnet50", "resnet18"]) in (
        "did you mean resnet50 or resnet18?",
        "did you mean resnet18 or resnet50?",
    )
    assert did_you_mean("xyz", ["logme", "lda"]) == ""
    assert did_you_mean("logme", []) == ""


@given(st.text())
def test_printable_text_has_no_control_characters(text: str) -> None:
    shown = printable(text)
    assert not any(unicodedata.category(c) == "Cc" for c in shown)
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u2028\u2029]", shown)
    if not any(unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") for c in text):
        assert shown == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("x\u202ey\u2066", r"x\u202ey\u2066"),
        ("one\ntwo\r\t\x9b", r"one\ntwo\r\t\x9b"),
        ("straße 猫 'C:\\new'", "straße 猫 'C:\\new'"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


def is_number(cell: str) -> bool:
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
    assert is_number(cell) or not cell.startswith(STARTS)
    # as documented, removing one apostrophe restores the text
    assert re.sub(r"^'(?='*[=+\-@\t\r])", "", cell) == text


@pytest.mark.parametrize("text", ["-1", "+3.5", "-1e5", "-inf", "cat", "", "'tis", "a=b"])
def test_numbers_and_other_texts_stay(text: str) -> None:
    assert csv_cell(text) == text


@pytest.mark.parametrize("text", ["=1", "+a", "-1+1", "@x", "\t1", "\r1", "'=x", "-"])
def test_formulas_get_an_apostrophe(text: str) -> None:
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", [-1, -2.5, None, True])
def test_values_that_are_not_text_stay(value: object) -> None:
    assert csv_cell(value) is value


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("'/home/ada b/zoo/net.onnx' is gone", "'net.onnx' is gone"),
        ("no file at /home/ada/net.onnx: stop", "no file at net.onnx: stop"),
        (r"cannot read C:\Users\ada\net.onnx", "cannot read net.onnx"),
        ("see https://example.org/a/b and timm/resnet50", None),
        ("1/2 of 'hf/facebook/dinov2' (n/a)", None),
    ],
)
def test_without_folders(text: str, short: str | None) -> None:
    assert without_folders(text) == (text if short is None else short)


@given(st.text(), st.integers(3, 60))
def test_short_names_are_short_and_printable(name: str, most: int) -> None:
    short = short_name(name, most)
    assert len(short) <= most
    assert short == printable(short)
    if len(printable(name)) <= most:
        assert short == printable(name)


def test_lists_of_names_are_short() -> None:
    assert some_of([]) == ""
    assert some_of(["x" * 100], 1) == short_name("x" * 100)
    assert some_of(["a", "b"], 1) == "a, … 1 more"


def test_unknown_names_are_quoted_with_what_there_is() -> None:
    assert (
        unknown("it", "row", "pol", ["pool", "single"]) == "it has no row 'pol'; did you mean pool?"
    )
    assert unknown("it", "row", ("a",), ["pool"]) == "it has no row ('a',); it has pool"


def test_a_table_of_text_is_aligned() -> None:
    assert text_table(["domain", "n"], [["a", "12,000"], ["long name", ""]]) == (
        "domain          n\na          12,000\nlong name"
    )
    assert text_table(["domain", "n"], []) == "domain  n"

"""Columns by role, and labels as text: what is accepted, and what is refused in one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oodzoo.data.sources.columns import (
    as_groups,
    as_names,
    find_columns,
    parse_columns,
    split_columns,
    used_columns,
)
from oodzoo.errors import InputError


def test_columns_as_text() -> None:
    assert parse_columns("path=file, label = y,group=patient id") == {
        "path": "file",
        "label": "y",
        "group": "patient id",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("label", "columns must be ROLE=NAME,…, got 'label' in 'label'"),
        ("", "got ''"),
        ("label=", "got 'label='"),
        ("=y", "got '=y'"),
        ("label=y,,domain=d", "got ''"),
        ("class=y", "unknown role 'class' in 'class=y'; expected one of path, image, text"),
        ("label=y,label=z", "columns name 'label' twice"),
    ],
)
def test_columns_that_are_not_understood(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_columns(text)
    assert words in str(caught.value)


NEEDED = ("path", "label", "domain")


def test_columns_by_their_own_names_and_by_others() -> None:
    available = ["path", "label", "domain", "group", "more"]
    own = {role: role for role in (*NEEDED, "group")}
    assert find_columns(available, None, NEEDED, "t.csv") == own
    found = find_columns(["y", "path", "domain"], {"label": "y"}, NEEDED, "t.csv")
    assert found == {"path": "path", "label": "y", "domain": "domain"}


@pytest.mark.parametrize(
    ("available", "columns", "words"),
    [
        (
            ["path", "lable", "domain"],
            None,
            "'domain'; did you mean lable? Name it with --columns label=NAME (in Python columns={",
        ),
        (["path", "label", "b"], None, "'b'; which one is it? Name it with --columns domain=NAME"),
        (
            ["file", "b"],
            {"path": "fil"},
            "no columns 'fil', 'label', 'domain', it has 'file', 'b'; name them with --columns",
        ),
        (["path", "label", "domain"], {"label": "lab"}, "did you mean label?"),
        (["path", "label", "domain"], {"group": "g"}, "has no column 'g' for the group"),
        (["path", "label", "domain", "label"], None, "has the column 'label' twice"),
        (["path", "label", "domain"], {"image": "i"}, "has no use for a column 'image'"),
        (["path", "label", "domain"], {"class": "i"}, "unknown role 'class' for 't.csv'"),
    ],
)
def test_a_missing_column_is_named_with_near_ones(
    available: list[str], columns: dict[str, str] | None, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        find_columns(available, columns, NEEDED, "t.csv")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_many_columns_are_not_all_listed() -> None:
    with pytest.raises(InputError) as caught:
        find_columns([f"c{i}" for i in range(500)], None, NEEDED, "t.csv")
    assert "'c19', …" in str(caught.value)
    assert "c20" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (["cat", " dog "], ["cat", "dog"]),
        ([1, 2], ["1", "2"]),
        (np.array([3, 1], np.int16), ["3", "1"]),
        (np.array(["a", "b"]), ["a", "b"]),
        ([1.0, 2.0], ["1", "2"]),  # as pandas has integers of a column with gaps
        ([True, False], ["True", "False"]),
    ],
)
def test_values_as_text(values: Any, names: list[str]) -> None:
    assert as_names(values, "label", "t.csv") == names


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["cat", 3], "labels of mixed kinds: 'cat' (string) in row 0 and 3 (integer) in row 1"),
        ([True, 1], "mixed kinds"),
        (["cat", None], "'t.csv', row 1: the label is missing"),
        (["cat", "  "], "row 1: the label is missing"),
        ([1.0, float("nan")], "row 1: the label is missing"),
        ([0.5], "row 0: the label is 0.5; give a string or an integer"),
        ([["a"]], "row 0: the label is ['a']"),
        ([np.eye(2)], "row 0: the label is array([[1., 0.], [0., 1.]]); give"),
        ([np.arange(1000)], "row 0: the label is array([ 0, 1, 2,"),
    ],
)
def test_labels_that_are_refused(values: list[Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        as_names(values, "label", "t.csv")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_groups_may_be_missing() -> None:
    assert as_groups(["p1", None, "", float("nan"), "p2"], "t.csv") == [
        "p1",
        None,
        None,
        None,
        "p2",
    ]
    assert as_groups([1, None, 2], "t.csv") == ["1", None, "2"]
    with pytest.raises(InputError, match=r"'a' .string. in row 0 and 3 .integer. in row 2"):
        as_groups(["a", None, 3], "t.csv")


def test_a_column_whose_name_has_a_plus_comes_before_several() -> None:
    assert split_columns("a+b", ["a", "b"]) == ["a", "b"]
    assert split_columns("a + b", ["a", "b"]) == ["a", "b"]
    assert split_columns("a+b", ["a", "b", "a+b"]) == ["a+b"]
    assert split_columns("y", ["a"]) == ["y"]


def test_labels_in_several_columns() -> None:
    available = ["path", "domain", "age", "height", "x+y"]
    needed = ("path", "domain", "label")
    found = find_columns(available, {"label": "age + height"}, needed, "t")
    assert used_columns(found, available) == ["path", "domain", "age", "height"]
    assert find_columns(available, {"label": "x+y"}, needed, "t")["label"] == "x+y"
    for label, message in {
        "age+hight": "no column 'hight' for the label.* did you mean height",
        "age+age": "name the column 'age' twice",
    }.items():
        with pytest.raises(InputError, match=message):
            find_columns(available, {"label": label}, needed, "t")
    with pytest.raises(InputError, match="no column 'age\\+height'"):
        find_columns(available, {"domain": "age+height", "label": "age"}, needed, "t")

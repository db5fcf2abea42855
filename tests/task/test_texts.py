"""Labels in text: the kind of task, numbers, and separated labels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.errors import InputError
from oodzoo.task.texts import kind_of_texts, read_numbers, split_labels

label = st.text(st.characters(exclude_characters="|;,["), max_size=6).map(str.strip).filter(bool)


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["cat", "dog"], "classification"),
        (["0", "1"], "classification"),
        (["0.51", "1.72"], "regression"),
        (["1e3", "-2.5"], "regression"),
        (["0.5", "cat"], "classification"),
        (["0.5", "nan"], "classification"),
        (["a|b", "c"], "classification"),  # no part occurs twice
        (["a,b", "b"], "classification"),  # a comma is not asked about
        ([], "classification"),
        (['["even", "large"]', "", "[]"], "multilabel"),
        (['["even|large"]', '["large"]'], "multilabel"),  # not asked about
        (['["even"]', "[1]"], "classification"),
        (['["even"]', "odd"], "classification"),
        (['"even"', '"odd"'], "classification"),
        (["", ""], "classification"),
    ],
)
def test_the_kind(texts: list[str], kind: str) -> None:
    assert kind_of_texts(texts, "y") == kind


@pytest.mark.parametrize(
    ("texts", "shown"),
    [(["a|b", "b"], "'a|b'"), (["b ; c", "a;b"], "'a;b'"), (["x", "b|c", "c"], "'b|c'")],
)
def test_parts_that_others_have_too_are_asked_about(texts: list[str], shown: str) -> None:
    with pytest.raises(InputError) as caught:
        kind_of_texts(texts, "y")
    assert f"y such as {shown} could be classes or several labels" in str(caught.value)
    assert "--task" in str(caught.value)


def test_numbers() -> None:
    assert read_numbers(["1.5", " 2 ", "-1e3"], "y").tolist() == [1.5, 2.0, -1000.0]
    for text, message in {
        "": "y has no value in row 1",
        "tall": "y has 'tall', which is not a number, in row 1",
        "nan": r"y has no finite value in row 1 \('nan'\)",
    }.items():
        with pytest.raises(InputError, match=message):
            read_numbers(["1.5", text], "y")


@given(st.lists(st.lists(label, max_size=4), max_size=8), st.sampled_from("|;,"))
def test_separated_labels(rows: list[list[str]], separator: str) -> None:
    texts = [f" {separator} ".join(row) for row in rows]
    assert split_labels(texts, separator) == rows
    if any(len(row) > 1 for row in rows):
        assert split_labels(texts) == rows


def test_the_first_separator_that_occurs() -> None:
    assert split_labels(["a|b;c", "d,e"]) == [["a", "b;c"], ["d,e"]]
    assert split_labels(["a;b,c"]) == [["a", "b,c"]]
    assert split_labels(["a,b", "|"]) == [["a,b"], []]


def test_json_lists() -> None:
    texts = ['["a, b", "c|d"]', " ", "[]", '["c|d"]']
    assert split_labels(texts) == [["a, b", "c|d"], [], [], ["c|d"]]
    assert split_labels(['["a"]', "b"]) == [['["a"]'], ["b"]]

"""Kinds of task: names, and labels of each kind as text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.errors import InputError
from oodzoo.task import CLASSIFICATION, KINDS, Task, require_kind

finite = st.floats(allow_nan=False, allow_infinity=False)
names = st.lists(st.text(max_size=8), min_size=1, max_size=6, unique=True)


def test_metrics_of_each_kind() -> None:
    found = {kind: (Task(kind).metric, Task(kind).second_metric) for kind in KINDS}
    assert found == {
        "classification": ("accuracy", "balanced_accuracy"),
        "regression": ("explained_variance", "absolute_error"),
        "multilabel": ("average_precision", "exact_match"),
    }
    assert [Task(kind).is_classification for kind in KINDS] == [True, False, False]
    assert Task() == CLASSIFICATION


def test_as_text() -> None:
    assert str(CLASSIFICATION) == "classification"
    assert str(Task("regression", ("age", "height"))) == "regression ('age', 'height')"


@given(st.lists(st.lists(finite, min_size=3, max_size=3), max_size=10))
def test_numbers_are_exact(rows: list[list[float]]) -> None:
    task = Task("regression", ("a", "b", "c"))
    found = task.decode([task.encode(row) for row in rows])
    assert found.shape == (len(rows), 3)
    assert found.tolist() == rows  # -0.0 == 0.0
    assert [[np.signbit(v) for v in row] for row in found] == [
        [np.signbit(v) for v in row] for row in rows
    ]


@given(names, st.data())
def test_labels_are_a_subset_of_the_names(outputs: list[str], data: st.DataObject) -> None:
    task = Task("multilabel", tuple(outputs))
    rows = data.draw(st.lists(st.lists(st.sampled_from(outputs), unique=True), max_size=8))
    texts = [task.encode(row) for row in rows]
    found = task.decode(texts)
    assert found.shape == (len(rows), len(outputs))
    for row, values, text in zip(rows, found, texts, strict=True):
        assert {name for name, v in zip(outputs, values, strict=True) if v == 1} == set(row)
        assert task.encode(reversed(row)) == text  # whatever the order


@pytest.mark.parametrize(
    ("task", "text"),
    [
        (Task("regression", ("a",)), ""),
        (Task("regression", ("a",)), "1.0 2.0"),
        (Task("regression", ("a", "b")), "1.0"),
        (Task("regression", ("a",)), "tall"),
        (Task("regression", ("a",)), "nan"),
        (Task("regression", ("a",)), "inf"),
        (Task("multilabel", ("a",)), ""),
        (Task("multilabel", ("a",)), "a"),
        (Task("multilabel", ("a",)), '"a"'),
        (Task("multilabel", ("a",)), '["b"]'),
        (Task("multilabel", ("a",)), "[1]"),
        (Task("multilabel", ("a",)), '{"a": 1}'),
    ],
)
def test_other_text_is_rejected(task: Task, text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the caller says which
        task.decode([text])


def test_unknown_kinds_are_rejected() -> None:
    assert [require_kind(kind) for kind in KINDS] == list(KINDS)
    with pytest.raises(InputError, match="unknown task 'regresion'; did you mean regression"):
        require_kind("regresion")
    with pytest.raises(InputError, match="expected one of classification, regression, multilabel"):
        require_kind("x")

"""Labels given in Python: their kind, their values, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.errors import InputError
from oodzoo.task import CLASSIFICATION, Task, as_labels
from oodzoo.task.arrays import require_variation


@pytest.mark.parametrize(
    ("y", "classes", "values"),
    [
        (["b", "a", "b"], ("a", "b"), [1, 0, 1]),
        ([3, 1, 3], (1, 3), [1, 0, 1]),
        (np.array([3.0, 1.0]), (1, 3), [1, 0]),
        ([True, False], (False, True), [1, 0]),
        (np.array(["b", "a"], object), ("a", "b"), [1, 0]),
        ([["b"], ["a"]], None, None),  # lists of labels, not classes
        (np.array([["b"], ["a"]]), ("a", "b"), [1, 0]),
        (["0.5", "1.5"], ("0.5", "1.5"), [0, 1]),
    ],
)
def test_classes(y: Any, classes: Any, values: Any) -> None:
    found = as_labels(y)
    if classes is None:
        assert found.task.kind == "multilabel"
        return
    assert found.task == CLASSIFICATION
    assert found.classes == classes
    assert found.values.dtype == np.int64
    assert found.values.tolist() == values


@pytest.mark.parametrize(
    ("y", "names", "values"),
    [
        ([0.5, 1.25], ("y",), [[0.5], [1.25]]),
        (np.array([[0.5], [1.25]]), ("y",), [[0.5], [1.25]]),
        ([[0.5, 2], [1.25, 3]], ("y0", "y1"), [[0.5, 2.0], [1.25, 3.0]]),
    ],
)
def test_numbers(y: Any, names: tuple[str, ...], values: Any) -> None:
    found = as_labels(y)
    assert found.task == Task("regression", names)
    assert found.classes == names
    assert found.values.tolist() == values


def test_names_of_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": [61.5, 44.25], "height": [1.8, 1.7]})
    assert as_labels(frame).task == Task("regression", ("age", "height"))
    assert as_labels(frame["age"]).task == Task("regression", ("age",))
    binary = pandas.DataFrame({"dog": [1, 1], "cat": [0, 1]})
    assert as_labels(binary).task == Task("multilabel", ("dog", "cat"))


@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=5), min_size=1, max_size=12))
def test_lists_and_zeros_and_ones_say_the_same(rows: list[list[str]]) -> None:
    if not any(rows):
        with pytest.raises(InputError):
            as_labels(rows, "multilabel")
        return
    found = as_labels(rows)
    assert found.task == Task("multilabel", tuple(sorted({x for row in rows for x in row})))
    expected = [[float(name in row) for name in found.classes] for row in rows]
    assert found.values.tolist() == expected
    if len(found.classes) > 1:
        again = as_labels(np.array(expected), "multilabel")
        assert again.values.tolist() == expected


def test_the_task_can_be_given() -> None:
    assert as_labels([1, 2, 3], "regression").values.tolist() == [[1.0], [2.0], [3.0]]
    assert as_labels(np.eye(2), "classification").classes == (0, 1)
    assert as_labels(np.eye(2), "multilabel").task.kind == "multilabel"
    assert as_labels(["a|b", "b"], "multilabel").classes == ("a", "b")
    assert as_labels(["1.5", "2"], "regression").values.tolist() == [[1.5], [2.0]]


@pytest.mark.parametrize(
    ("y", "task", "message"),
    [
        (np.eye(3), None, "exactly one 1 in each of 3 rows.* --task"),
        (["a|b", "b"], None, "could be classes or several labels.* --task"),
        (list(range(30)), None, "30 different integers in 30 samples.* --task"),
        (["a", 1], None, "mixes strings and numbers: 'a' in row 0, 1 in row 1"),
        ([0.5, None], None, r"no value in row 1 \(got None\)"),
        ([0.5, float("nan")], None, r"no value in row 1 \(got nan\)"),
        (np.array([[0.5, 1], [np.inf, 1]]), None, r"an infinite value in row 1 \(got inf\)"),
        ([["a"], ["b", 1]], None, "the label 1 in row 1; expected strings"),
        ([["a"]], "regression", "a list of labels for each sample, which is not regression"),
        ([1, 2], "multilabel", "one number per sample, got 1; for several labels"),
        (np.array([[2, 0], [0, 1]]), "multilabel", "zeros and ones for the task multilabel, got 2"),
        (np.ones((2, 2)), "classification", "exactly one 1 in each row .* row 0 has 2"),
        (["0.5", "tall"], "regression", "'tall', which is not a number"),
        (np.zeros((2, 2, 2)), None, r"got shape \(2, 2, 2\)"),
        (np.array([["a", "b"]]), None, "2 columns of text"),
        ([[1, 2], [3]], None, "is not an array of labels"),
        (np.array([1 + 1j]), None, "strings or numbers"),
        ([1, 2], "x", "unknown task 'x'"),
    ],
)
def test_bad_labels_are_one_line(y: Any, task: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        as_labels(y, task)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("y", "task", "message"),
    [
        (["a", "a"], None, r"all labels are of one class, 'a' \(2 samples\)"),
        ([0.5, 0.5], "regression", "y is constant: 0.5 in all 2 samples"),
        ([[0.5, 1], [0.5, 2]], None, r"y \('y0'\) is constant: 0.5 in all 2 samples"),
        ([["a"], ["a"]], None, "y has the same labels in all 2 samples"),
    ],
)
def test_labels_that_do_not_vary(y: Any, task: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        require_variation(as_labels(y, task))


def test_one_constant_label_of_several_is_allowed() -> None:
    require_variation(as_labels([["a"], ["a", "b"]]))
    require_variation(as_labels([]))


def test_large_integers_as_objects_stay_apart() -> None:
    assert as_labels(np.array([2**60, 2**60 + 1], dtype=object)).classes == (2**60, 2**60 + 1)


def test_missing_values_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": pandas.array([1, None, 3], dtype="Int64"), "b": [0.5, 1.5, 2]})
    with pytest.raises(InputError, match="y has no value in row 1"):
        as_labels(frame)


@pytest.mark.parametrize("size", [1e160, 1e-160])
def test_numbers_that_are_too_large_or_small(size: float) -> None:
    with pytest.raises(InputError, match="rescale it, the largest must be between"):
        as_labels(np.array([0.5, 1.25, 2.75]) * size)


def test_columns_with_one_name() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([[0.5, 1.5], [2.5, 3.5]], columns=["a", "a"])
    with pytest.raises(InputError, match="two columns of the labels are named 'a'"):
        as_labels(frame)


def test_an_empty_label() -> None:
    with pytest.raises(InputError, match="has the label '' in row 1; expected strings"):
        as_labels([["cat"], ["", "dog"]])

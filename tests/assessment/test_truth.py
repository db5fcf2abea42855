"""Labels of test data in the order of a predictor."""

from __future__ import annotations

import numpy as np
import pytest

from oodzoo.assessment.samples import truth_of
from oodzoo.errors import InputError
from oodzoo.task import Task

CLASSES = Task()


def test_classes_that_are_not_known_follow() -> None:
    found = truth_of(CLASSES, ["cat", "dog", "fox"], CLASSES, ["dog", "emu", "dog", "ant"], "x")
    assert found.names == ("cat", "dog", "fox", "ant", "emu")
    assert found.values.tolist() == [1, 4, 1, 3]
    assert found.unknown == {"ant": 1, "emu": 1}
    assert found.absent == ("cat", "fox")


def test_numbers_are_found_by_name() -> None:
    given = Task("regression", ("height", "age", "size"))
    texts = [given.encode([1.8, 40, 3]), given.encode([1.6, 30, 2])]
    found = truth_of(Task("regression", ("age", "height")), ["age", "height"], given, texts, "x")
    np.testing.assert_array_equal(found.values, [[40, 1.8], [30, 1.6]])
    one = Task("regression", ("years",))
    alone = truth_of(Task("regression", ("age",)), ["age"], one, [one.encode([4])], "x")
    assert alone.values.tolist() == [[4]]


def test_labels_are_found_by_name_and_others_left_out() -> None:
    given = Task("multilabel", ("ant", "cat", "dog"))
    texts = [given.encode(["cat", "ant"]), given.encode([])]
    found = truth_of(Task("multilabel", ("cat", "fox")), ["cat", "fox"], given, texts, "x")
    np.testing.assert_array_equal(found.values, [[1, 0], [0, 0]])
    assert (found.unknown, found.absent) == ({"ant": 1}, ("fox",))


@pytest.mark.parametrize(
    ("task", "known", "given", "texts", "words"),
    [
        (CLASSES, ["cat"], CLASSES, ["Cat", "Dog"], "got 'Cat', 'Dog', it has 'cat'; did you mean"),
        (CLASSES, ["0"], CLASSES, ["zebra"], "rename the classes"),
        (CLASSES, ["cat"], Task("regression", ("y",)), ["1"], "the predictor is for 'classifica"),
        (
            Task("regression", ("a", "b")),
            ["a", "b"],
            Task("regression", ("a", "c")),
            ["1 2"],
            "has no number 'b', .* it has 'a', 'c': name the columns with --columns label=a\\+b",
        ),
        (
            Task("multilabel", ("a",)),
            ["a"],
            Task("multilabel", ("b",)),
            ['["b"]'],
            "none of the labels of 'x'",
        ),
        (Task("multilabel", ("a",)), ["a"], Task("multilabel", ("a",)), ["[]"], "no sample of 'x'"),
    ],
)
def test_labels_that_cannot_be_compared_are_refused(
    task: Task, known: list[str], given: Task, texts: list[str], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        truth_of(task, known, given, texts, "x")

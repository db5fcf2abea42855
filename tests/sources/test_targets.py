"""Labels of any kind: the task, the label of each sample as text, and what is refused."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from oodzoo.core.errors import InputError
from oodzoo.data.sources.targets import join_targets, read_targets
from oodzoo.tasks import CLASSIFICATION, Kind, Task, task_of

AGES = [61.5, 44.25, 30.0]


def numbers(*names: str) -> Task:
    return task_of("regression", names)


def several(*names: str) -> Task:
    return task_of("multilabel", names)


def refusal(given: Any, task: Kind | None = None, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        read_targets(given, "t.csv", task, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "task", "texts"),
    [
        # classes
        (["cat", "dog", " cat "], CLASSIFICATION, ["cat", "dog", "cat"]),
        ([True, False], CLASSIFICATION, ["True", "False"]),
        (["0.5", "cat", "dog", "bird"], CLASSIFICATION, ["0.5", "cat", "dog", "bird"]),
        # numbers
        ({"age": AGES}, numbers("age"), ["61.5", "44.25", "30.0"]),
        ([Decimal("0.1"), Decimal("0.25")], numbers("label"), ["0.1", "0.25"]),
        (np.array([0.75, 0.25], np.float32), numbers("label"), ["0.75", "0.25"]),
        ({"b": [1, 2], "a": [0.5, 1]}, numbers("b", "a"), ["1.0 0.5", "2.0 1.0"]),
        ([[1.5, 2.0], [0.5, 1.0]], numbers("label0", "label1"), ["1.5 2.0", "0.5 1.0"]),
        # several labels
        ([["dog", "cat"], [], ["cat"]], several("cat", "dog"), ['["cat", "dog"]', "[]", '["cat"]']),
        (['["b","a"]', "", "[]", '["a"]'], several("a", "b"),
         ['["a", "b"]', "[]", "[]", '["a"]']),
        ({"a": ["1", "0"], "b": ["true", "False"]}, several("a", "b"), ['["a", "b"]', "[]"]),
        ([np.array(["x"]), np.array(["x", "y"])], several("x", "y"), ['["x"]', '["x", "y"]']),
    ],
)  # fmt: skip
def test_the_kind_is_that_of_the_values(given: Any, task: Task, texts: list[str]) -> None:
    found = read_targets(given, "t.csv")
    assert found.task == task
    assert found.texts == texts


@pytest.mark.parametrize(
    ("given", "kind", "task", "texts"),
    [
        ([0.5, 1.0], "classification", CLASSIFICATION, ["0.5", "1.0"]),
        (["cat|dog", "dog", "", None], "multilabel", several("cat", "dog"),
         ['["cat", "dog"]', '["dog"]', "[]", "[]"]),
        (['["a", "b,c"]', "", "[]"], "multilabel", several("a", "b,c"),
         ['["a", "b,c"]', "[]", "[]"]),
        ({"b": [1, 0], "a": [0, 1]}, "multilabel", several("a", "b"), ['["b"]', '["a"]']),
    ],
)  # fmt: skip
def test_the_task_can_be_given(given: Any, kind: Kind, task: Task, texts: list[str]) -> None:
    found = read_targets(given, "t.csv", kind)
    assert found.task == task
    assert found.texts == texts


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["cat|dog", "dog"], "labels of 't.csv' such as 'cat|dog' .*--task"),
        ([*map(str, range(30)), "?"], r"row 30: the label '\?' is not a number"),
        ({"a": [0, 1] * 6, "b": [1, 1] * 5 + [2, 1]},
         "row 10: the column 'b' has 2, the other values of .* --task regression"),
    ],
)  # fmt: skip
def test_what_could_be_two_kinds_is_asked_about(given: Any, message: str) -> None:
    assert re.search(message, refusal(given))


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ([0.5, None, 1.25], None, "'t.csv', row 1: the label is missing"),
        ({"a": [1, "x"], "b": [0.5, 1]}, None, "row 1: the label 'a' is 'x', which is not a num"),
        ([3, 4], "multilabel", "row 0: the label is 3, which is not several labels"),
        (["['cat']", "[]"], "multilabel", "row 0: the label \"['cat']\" is not a JSON list"),
        ([["cat"], "dog"], None, "row 1: the label is 'dog'; give a list to each"),
        ([["cat"], ["dog", 3]], None, "row 0: the label has 'cat' in its list, and there"),
        ([["cat"], ["dog"]], "regression", "is a list of labels, which is not regression"),
        ([[0.5], [0.5, 1]], None, "lists of 1 to 2 numbers"),
        ([[], []], None, "no sample of 't.csv' has a label (2 samples)"),
        ({"a": [1, 0, 1], "b": [1, 0, 3]}, "multilabel",
         "row 2: the column 'b' has 3; the task multilabel needs zeros and ones"),
        ({"a": [1, 1], "b": [0, 1]}, "classification", "row 1: the columns 'a', 'b' have 2 ones"),
    ],
)  # fmt: skip
def test_bad_labels_are_refused_with_their_row(given: Any, kind: Kind | None, message: str) -> None:
    found = refusal(given, kind)
    assert message in found
    assert "\n" not in found


def test_tasks_of_several_sources_are_joined() -> None:
    assert join_targets([numbers("a"), numbers("a")], "dict") == numbers("a")
    assert join_targets([several("b"), several("a", "b")], "dict") == several("a", "b")
    with pytest.raises(InputError, match=r"several kinds: classification and regression; .*--task"):
        join_targets([CLASSIFICATION, numbers("a")], "dict")
    with pytest.raises(InputError, match="different numbers: 'a' and 'b'"):
        join_targets([numbers("a"), numbers("b")], "dict")

"""Tasks: kinds, labels as text and in Python, strata, words.

Labels come from every source of data and from arrays; each form is a row of a table here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.core.errors import InputError
from oodzoo.tasks import CLASSIFICATION, KINDS, Kind, Labels, Task, as_labels, require_kind, task_of
from oodzoo.tasks.arrays import kind_of_numbers, kind_of_texts
from oodzoo.tasks.multilabel import split_labels
from oodzoo.tasks.regression import RANGES, read_numbers
from oodzoo.tasks.task import MEASURES

NUMBER, PAIR, LABEL = (
    task_of("regression", ("a",)),
    task_of("regression", ("a", "b")),
    task_of("multilabel", ("a",)),
)


def test_kinds_metrics_and_words() -> None:
    found = {kind: (task_of(kind).metric, task_of(kind).second_metric) for kind in KINDS}
    assert found == {
        "classification": ("accuracy", "balanced_accuracy"),
        "regression": ("explained_variance", "absolute_error"),
        "multilabel": ("average_precision", "exact_match"),
    }
    assert [task_of(kind).one_class for kind in KINDS] == [True, False, False]
    assert [require_kind(kind) for kind in KINDS] == list(KINDS)
    for kind, (metric, second) in found.items():
        words = task_of(kind)
        assert (words.measure, words.second_measure) == (MEASURES[metric], MEASURES[second])
        assert (words.measure.name, words.measure.unit) == (metric.replace("_", " "), " %")
        for measure in (words.measure, words.second_measure) if kind != "classification" else ():
            assert measure.means.startswith(measure.title)
            assert measure.means in words.explained
        fields = {"balanced_accuracy" if f == "balanced" else f for f in words.measures._fields}
        assert fields <= set(MEASURES)
    assert task_of("classification").explained == ""
    assert MEASURES["absolute_error"].heading == "Absolute error"
    assert MEASURES["explained_variance"].heading == "Explained variance %"
    assert [str(CLASSIFICATION), str(PAIR)] == ["classification", "regression ('a', 'b')"]


finite = st.floats(allow_nan=False, allow_infinity=False)
names = st.lists(st.text(max_size=8), min_size=1, max_size=6, unique=True)


@given(st.lists(st.lists(finite, min_size=2, max_size=2), max_size=10), names, st.data())
def test_texts_keep_numbers_and_labels(
    numbers: list[list[float]], outputs: list[str], data: st.DataObject
) -> None:
    found = PAIR.decode([PAIR.encode(row) for row in numbers])
    assert [[repr(v) for v in row] for row in found.tolist()] == [
        [repr(v) for v in row] for row in numbers
    ]
    task = task_of("multilabel", tuple(outputs))
    rows = data.draw(st.lists(st.lists(st.sampled_from(outputs), unique=True), max_size=8))
    texts = [task.encode(row) for row in rows]
    assert texts == [task.encode(reversed(row)) for row in rows]
    expected = [[float(name in row) for name in outputs] for row in rows]
    assert task.decode(texts).tolist() == expected


@pytest.mark.parametrize(
    ("task", "texts"),
    [
        (NUMBER, ["", "1.0 2.0", "tall", "nan", "inf"]),
        (PAIR, ["1.0"]),
        (LABEL, ["", "a", '"a"', '["b"]', "[1]", '{"a": 1}']),
    ],
)
def test_other_text_is_rejected(task: Task, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(ValueError):  # noqa: PT011 - the caller says which
            task.decode([text])


def literal(values: list[float]) -> str:
    """The rule of the documentation, word for word."""
    different = sorted(set(values))
    many = len(different) > 20
    few = len(values) / len(different) < 10
    if all(float(value).is_integer() for value in different):
        return "either" if many and few else "classification"
    return "either" if not many and not few else "regression"


@pytest.mark.parametrize("step", [1.0, 0.5])
def test_kinds_of_numbers(step: float) -> None:
    for n_values in (1, 2, 20, 21, 40):
        for n in (n_values, 10 * n_values - 1, 10 * n_values):
            values = [step * (at % n_values) for at in range(n)]
            if literal(values) == "either":
                with pytest.raises(InputError, match="could be classes or numbers to predict; "):
                    kind_of_numbers(np.array(values), "y")
            else:
                assert kind_of_numbers(np.array(values), "y") == literal(values)


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
        (["", ""], "classification"),
        (["a|b", "b"], "y such as 'a|b' could be classes or several labels"),
        (["b ; c", "a;b"], "y such as 'a;b' could be classes or several labels"),
    ],
)
def test_kinds_of_texts(texts: list[str], kind: str) -> None:
    try:
        found: str = kind_of_texts(texts, "y")
    except InputError as error:
        found = str(error)[: len(kind)]
    assert found == kind


label = st.text(st.characters(exclude_characters="|;,["), max_size=6).map(str.strip).filter(bool)


@given(st.lists(st.lists(label, max_size=4), max_size=8), st.sampled_from("|;,"))
def test_separated_labels(rows: list[list[str]], separator: str) -> None:
    texts = [f" {separator} ".join(row) for row in rows]
    assert split_labels(texts, separator) == rows
    if any(len(row) > 1 for row in rows):
        assert split_labels(texts) == rows


@pytest.mark.parametrize(
    ("texts", "rows"),
    [
        (["a|b;c", "d,e"], [["a", "b;c"], ["d,e"]]),  # the first separator that occurs
        (["a;b,c"], [["a", "b,c"]]),
        (["a,b", "|"], [["a,b"], []]),
        (['["a, b", "c|d"]', " ", "[]", '["c|d"]'], [["a, b", "c|d"], [], [], ["c|d"]]),
        (['["a"]', "b"], [['["a"]'], ["b"]]),
    ],
)
def test_labels_are_split(texts: list[str], rows: list[list[str]]) -> None:
    assert split_labels(texts) == rows
    assert read_numbers(["1.5", " 2 ", "-1e3"], "y").tolist() == [1.5, 2.0, -1000.0]


SEVERAL = task_of("multilabel", ("a", "b"))


@pytest.mark.parametrize(
    ("y", "given", "task", "values"),
    [
        (["b", "a", "b"], None, ("a", "b"), [1, 0, 1]),
        ([3, 1, 3], None, (1, 3), [1, 0, 1]),
        (np.array([3.0, 1.0]), None, (1, 3), [1, 0]),
        ([True, False], None, (False, True), [1, 0]),
        (np.array(["b", "a"], object), None, ("a", "b"), [1, 0]),
        (np.array([["b"], ["a"]]), None, ("a", "b"), [1, 0]),
        (["0.5", "1.5"], None, ("0.5", "1.5"), [0, 1]),
        (np.eye(2), "classification", (0, 1), [0, 1]),
        (np.array([2**60, 2**60 + 1], object), None, (2**60, 2**60 + 1), [0, 1]),
        ([0.5, 1.25], None, task_of("regression", ("y",)), [[0.5], [1.25]]),
        (np.array([[0.5], [1.25]]), None, task_of("regression", ("y",)), [[0.5], [1.25]]),
        ([[0.5, 2], [1.5, 3]], None, task_of("regression", ("y0", "y1")), [[0.5, 2.0], [1.5, 3.0]]),
        ([1, 2, 3], "regression", task_of("regression", ("y",)), [[1.0], [2.0], [3.0]]),
        (["1.5", "2"], "regression", task_of("regression", ("y",)), [[1.5], [2.0]]),
        ([["b"], ["a"]], None, SEVERAL, [[0.0, 1.0], [1.0, 0.0]]),  # lists of labels, not classes
        ([["b", "a"], []], None, SEVERAL, [[1.0, 1.0], [0.0, 0.0]]),
        (["a|b", "b"], "multilabel", SEVERAL, [[1.0, 1.0], [0.0, 1.0]]),
        (np.eye(2), "multilabel", task_of("multilabel", ("0", "1")), [[1.0, 0.0], [0.0, 1.0]]),
    ],
)
def test_labels_of_arrays(y: Any, given: str | None, task: Any, values: Any) -> None:
    found = as_labels(y, given)
    expected = task if isinstance(task, Task) else CLASSIFICATION
    classes = task.outputs if isinstance(task, Task) else task
    assert (found.task, found.classes, found.values.tolist()) == (expected, classes, values)


def test_data_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": [61.5, 44.25], "height": [1.8, 1.7]})
    assert as_labels(frame).task == task_of("regression", ("age", "height"))
    assert as_labels(frame["age"]).task == task_of("regression", ("age",))
    binary = pandas.DataFrame({"dog": [1, 1], "cat": [0, 1]})
    assert as_labels(binary).task == task_of("multilabel", ("dog", "cat"))
    missing = pandas.DataFrame({"a": pandas.array([1, None, 3], dtype="Int64"), "b": [0.5, 1, 2]})
    twice = pandas.DataFrame([[0.5, 1.5], [2.5, 3.5]], columns=["a", "a"])
    for bad, words in ((missing, "no value in row 1"), (twice, "two columns .* are named 'a'")):
        with pytest.raises(InputError, match=words):
            as_labels(bad)


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
        ([["cat"], ["", "dog"]], None, "has the label '' in row 1; expected strings"),
        ([[], []], "multilabel", r"got shape \(2, 0\)"),
        ([["a"]], "regression", "a list of labels for each sample, which is not regression"),
        ([1, 2], "multilabel", "one number per sample, got 1; for several labels"),
        (np.array([[2, 0], [0, 1]]), "multilabel", "zeros and ones for the task multilabel, got 2"),
        (np.ones((2, 2)), "classification", "exactly one 1 in each row .* row 0 has 2"),
        (["0.5", "tall"], "regression", "'tall', which is not a number, in row 1"),
        (["0.5", ""], "regression", "no value in row 1"),
        (["0.5", "nan"], "regression", r"no finite value in row 1 \('nan'\)"),
        (np.zeros((2, 2, 2)), None, r"got shape \(2, 2, 2\)"),
        (np.array([["a", "b"]]), None, "2 columns of text"),
        ([[1, 2], [3]], None, "is not an array of labels"),
        (np.array([1 + 1j]), None, "strings or numbers"),
        (np.array([0.5, 1.25, 2.75]) * 1e160, None, "rescale it, the largest must be between"),
        (np.array([0.5, 1.25, 2.75]) * 1e-160, None, "rescale it, the largest must be between"),
        ([1, 2], "x", "unknown task 'x'; expected one of classification, regression, multilabel"),
        ([1, 2], "regresion", "unknown task 'regresion'; did you mean regression"),
        (["a", "a"], None, r"all labels are of one class, 'a' \(2 samples\)"),
        ([0.5, 0.5], "regression", "y is constant: 0.5 in all 2 samples"),
        ([[0.5, 1], [0.5, 2]], None, r"y \('y0'\) is constant: 0.5 in all 2 samples"),
        ([["a"], ["a"]], None, "y has the same labels in all 2 samples"),
    ],
)
def test_bad_labels_are_one_line(y: Any, task: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        require_variation(as_labels(y, task))
    assert "\n" not in str(caught.value)
    for varying in ([["a"], ["a", "b"]], []):  # one constant label of several is allowed
        require_variation(as_labels(varying))


def require_variation(labels: Labels) -> None:
    labels.task.require_variation(labels)


@given(seed=st.integers(0, 1000), n=st.integers(1, 60), kind=st.sampled_from(list(KINDS)))
def test_strata(seed: int, n: int, kind: Kind) -> None:
    """Classes; ranges of numbers, of equal sizes; the rarest label of a sample."""
    rng = np.random.default_rng(seed)
    labels: Any
    if kind == "classification":
        labels = rng.integers(0, 3, n)
        assert task_of(kind).strata(labels).tolist() == labels.tolist()
    elif kind == "regression":
        labels = rng.normal(size=(n, 2))
        found = task_of(kind).strata(labels)
        assert np.ptp(np.bincount(found, minlength=min(n, RANGES))[np.unique(found)]) <= 1
        assert (np.diff(found[np.argsort(labels[:, 0])]) >= 0).all()
    else:
        labels = (rng.random((n, 4)) < [0.1, 0.3, 0.6, 0.9]).astype(float)
        sizes = labels.sum(axis=0)
        for row, stratum in zip(labels, task_of(kind).strata(labels), strict=True):
            own = [c for c in range(4) if row[c]]
            assert stratum == (min(own, key=lambda c: (sizes[c], c)) if own else 4)

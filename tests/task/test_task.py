"""Tasks: kinds, labels as text and in Python, strata, words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.combining.evaluation.rows import MEASURES as MEASURED
from oodzoo.core.errors import InputError
from oodzoo.tasks import CLASSIFICATION, KINDS, Kind, Task, as_labels, require_kind
from oodzoo.tasks.arrays import require_variation
from oodzoo.tasks.strata import RANGES, strata
from oodzoo.tasks.texts import (
    FEW_PER_VALUE,
    MANY_VALUES,
    kind_of_numbers,
    kind_of_texts,
    read_numbers,
    split_labels,
)
from oodzoo.tasks.words import MEASURES, WORDS

# --- kinds -------------------------------------------------------------------------------------


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


# --- numbers -----------------------------------------------------------------------------------


def literal(values: list[float]) -> str:
    """The rule of the documentation, word for word."""
    different = sorted(set(values))
    many = len(different) > 20
    few = len(values) / len(different) < 10
    if all(float(value).is_integer() for value in different):
        return "either" if many and few else "classification"
    return "either" if not many and not few else "regression"


@given(
    st.integers(1, 40),
    st.integers(1, 15),
    st.sampled_from([1.0, 0.5, -3.0, 0.25]),
)
def test_the_rule(n_values: int, per_value: int, step: float) -> None:
    values = [step * at for at in range(n_values)] * per_value
    expected = literal(values)
    if expected == "either":
        with pytest.raises(InputError, match=r"could be classes or numbers to predict; .*--task"):
            kind_of_numbers(np.array(values), "y")
    else:
        assert kind_of_numbers(np.array(values), "y") == expected


def test_the_limits() -> None:
    assert (MANY_VALUES, FEW_PER_VALUE) == (20, 10)
    twenty_one = np.arange(21.0)
    assert kind_of_numbers(np.repeat(twenty_one, 10), "y") == "classification"
    assert kind_of_numbers(np.arange(20.0), "y") == "classification"
    with pytest.raises(InputError, match=r"^y has 21 different integers in 209 samples \(0, 1, 2"):
        kind_of_numbers(np.repeat(twenty_one, 10)[:-1], "y")
    halves = twenty_one / 2
    assert kind_of_numbers(np.repeat(halves, 10), "y") == "regression"
    assert kind_of_numbers(np.repeat(halves[:20], 10)[:-1], "y") == "regression"
    with pytest.raises(InputError, match="20 different numbers in 200 samples"):
        kind_of_numbers(np.repeat(halves[:20], 10), "y")


# --- texts -------------------------------------------------------------------------------------


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


# --- arrays ------------------------------------------------------------------------------------


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
def test_numbers_of_arrays(y: Any, names: tuple[str, ...], values: Any) -> None:
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


# --- strata ------------------------------------------------------------------------------------


def test_classes_are_their_own_strata() -> None:
    assert strata("classification", np.array([2, 0, 2])).tolist() == [2, 0, 2]


@given(seed=st.integers(0, 1000), n=st.integers(1, 60))
def test_ranges_of_numbers_have_equal_sizes_and_do_not_overlap(seed: int, n: int) -> None:
    labels = np.random.default_rng(seed).normal(size=(n, 2))
    found = strata("regression", labels)
    assert np.ptp(np.bincount(found, minlength=min(n, RANGES))[np.unique(found)]) <= 1
    order = np.argsort(labels[:, 0])
    assert (np.diff(found[order]) >= 0).all()


@given(seed=st.integers(0, 1000))
def test_the_rarest_label_of_a_sample(seed: int) -> None:
    labels = (np.random.default_rng(seed).random((30, 4)) < [0.1, 0.3, 0.6, 0.9]).astype(float)
    sizes = labels.sum(axis=0)
    for row, found in zip(labels, strata("multilabel", labels), strict=True):
        own = [c for c in range(4) if row[c]]
        assert found == (min(own, key=lambda c: (sizes[c], c)) if own else 4)


# --- words -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_metrics_are_those_of_the_task(kind: Kind) -> None:
    words, task = WORDS[kind], Task(kind)
    assert words.metric is MEASURES[task.metric]
    assert words.second is MEASURES[task.second_metric]
    assert words.metric.name == task.metric.replace("_", " ")
    assert words.metric.unit == " %"  # all code that shows it relies on this


@pytest.mark.parametrize("kind", KINDS)
def test_every_measure_of_an_evaluation_has_words(kind: Kind) -> None:
    names = {"balanced": "balanced_accuracy"}
    for field in MEASURED[kind]._fields:
        assert names.get(field, field) in MEASURES


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_other_metrics_than_accuracy_are_explained(kind: Kind) -> None:
    words = WORDS[kind]
    for measure in (words.metric, words.second):
        assert measure.means.startswith(measure.title)
        assert measure.means in words.explained
    assert WORDS["classification"].explained == ""


def test_as_text() -> None:
    assert str(CLASSIFICATION) == "classification"
    assert str(Task("regression", ("age", "height"))) == "regression ('age', 'height')"


def test_one_constant_label_of_several_is_allowed() -> None:
    require_variation(as_labels([["a"], ["a", "b"]]))
    require_variation(as_labels([]))


def test_an_error_has_no_percent() -> None:
    assert MEASURES["absolute_error"].heading == "Absolute error"
    assert MEASURES["explained_variance"].heading == "Explained variance %"

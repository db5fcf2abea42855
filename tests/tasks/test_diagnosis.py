"""Diagnoses of classes, numbers and labels, and metrics, against scikit-learn and loops."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    confusion_matrix,
    mean_absolute_error,
    precision_score,
    r2_score,
    recall_score,
)

from oodzoo.core.errors import InputError
from oodzoo.tasks import CLASSIFICATION, Kind, task_of
from oodzoo.tasks.classification import (
    Bin,
    ClassDiagnosis,
    ClassFigures,
    Mistake,
    Reliability,
    add_up,
    merged,
    reliability,
)
from oodzoo.tasks.multilabel import LabelDiagnosis, LabelFigures, Multilabel
from oodzoo.tasks.regression import NumberDiagnosis, Regression

SEEDS = st.integers(0, 2**32 - 1)
NAMES = ("ant", "bee", "cat", "dog")
N = 40


def paths(n: int = N) -> list[str]:
    return [f"{row}.jpg" for row in range(n)]


def classes(seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, N)
    y[:4] = range(4)
    return rng.dirichlet(np.ones(4), N), y


def labels(seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = (rng.random((N, 3)) < [0.2, 0.5, 0.8]).astype(float)
    y[0] = 1
    return np.clip(0.3 * y + 0.9 * rng.random((N, 3)) - 0.1, 0, 1), y


def numbers(seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(N, 2)) * [10, 0.2] + [40, 1.7]
    return y + rng.normal(size=(N, 2)) * [5, 0.1], y


def of_classes(seed: int, part: slice = slice(None)) -> ClassDiagnosis:
    probabilities, y = classes(seed)
    return CLASSIFICATION.diagnose(
        probabilities[part], y[part], NAMES, paths=paths()[part], domains="d"
    )


def of_labels(seed: int) -> LabelDiagnosis:
    return Multilabel().diagnose(*labels(seed), NAMES[:3], paths=paths(), domains="d")


def of_numbers(seed: int) -> NumberDiagnosis:
    return Regression().diagnose(*numbers(seed), ("age", "height"), paths=paths(), domains="photo")


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_figures_of_classes_are_those_of_scikit_learn(seed: int) -> None:
    probabilities, y = classes(seed)
    guessed, found = probabilities.argmax(axis=1), of_classes(seed)
    assert np.array_equal(found.confusion, confusion_matrix(y, guessed, labels=range(4)))
    assert found.images == found.reliability.images == N
    assert found.accuracy == pytest.approx(100 * accuracy_score(y, guessed))
    assert found.balanced_accuracy == pytest.approx(100 * balanced_accuracy_score(y, guessed))
    recall = recall_score(y, guessed, labels=range(4), average=None)
    precision = precision_score(y, guessed, labels=range(4), average=None, zero_division=np.nan)
    for c, each in enumerate(found.per_class.values()):
        assert each.images == (y == c).sum()
        assert each.recall == pytest.approx(100 * recall[c])
        known = np.nan if each.precision is None else each.precision
        assert known == pytest.approx(100 * precision[c], nan_ok=True)


def test_mistakes_by_confidence_and_confusions_by_frequency() -> None:
    probabilities, y = classes(3)
    found = of_classes(3)
    wrong = sorted(
        (-row.max(), f"{i}.jpg", NAMES[y[i]], NAMES[row.argmax()])
        for i, row in enumerate(probabilities)
        if row.argmax() != y[i]
    )
    listed = [(each.path, each.label, each.predicted) for each in found.mistakes]
    assert listed == [each[1:] for each in wrong[:12]]
    assert found.mistakes[0].confidence == pytest.approx(-100 * wrong[0][0])
    assert {each.domain for each in found.mistakes} == {"d"}
    counts = [images for *_, images in found.confusions]
    assert sum(counts) == len(wrong)
    assert counts == sorted(counts, reverse=True)
    row, column = (NAMES.index(name) for name in found.confusions[0][:2])
    assert found.confusion[row][column] == counts[0]
    assert row != column
    one, other = (Mistake("1.png", domain, "a", "b", 90.0) for domain in ("day", "night"))
    assert one.key != other.key


def test_classes_without_images_or_predictions_have_no_figures() -> None:
    probabilities = np.array([[0.6, 0.4, 0.0], [0.7, 0.3, 0.0]])
    names = ["a", "b", "new"]
    found = CLASSIFICATION.diagnose(
        probabilities, np.array([0, 2]), names, paths=["x"] * 2, domains="d"
    )
    assert found.per_class == {
        "a": ClassFigures(1, 100.0, 50.0),
        "b": ClassFigures(0, None, None),
        "new": ClassFigures(1, 0.0, None),
    }
    assert found.balanced_accuracy == 50


@given(seed=SEEDS, cut=st.integers(1, N - 1))
def test_domains_add_up_to_the_whole(seed: int, cut: int) -> None:
    """Classes of some domains only are added."""
    whole = of_classes(seed)
    found = add_up([of_classes(seed, slice(cut)), of_classes(seed, slice(cut, None))])
    assert found.confusion == whole.confusion
    assert found.mistakes == whole.mistakes
    assert found.reliability.error == pytest.approx(whole.reliability.error)
    for mine, expected in zip(found.reliability.bins, whole.reliability.bins, strict=True):
        assert vars(mine) == pytest.approx(vars(expected))
    p = np.array([[0.9, 0.1]])
    one = CLASSIFICATION.diagnose(p, np.array([0]), ["a", "b"], paths=["x"], domains="d")
    two = CLASSIFICATION.diagnose(p, np.array([1]), ["c", "a"], paths=["y"], domains="e")
    other = add_up([one, two])
    assert other.classes == ("a", "b", "c")
    assert other.confusion == ((1, 0, 1), (0, 0, 0), (0, 0, 0))


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_figures_of_labels_are_those_of_scikit_learn(seed: int) -> None:
    probabilities, y = labels(seed)
    guessed, found = (probabilities > 0.5).astype(float), of_labels(seed)
    average = average_precision_score(y, probabilities, average=None)
    assert found.average_precision == pytest.approx(100 * np.mean(average))
    assert found.exact_match == pytest.approx(100 * accuracy_score(y, guessed))
    precision = precision_score(y, guessed, average=None, zero_division=np.nan)
    recall = recall_score(y, guessed, average=None)
    for at, each in enumerate(found.per_label.values()):
        assert each.images == y[:, at].sum()
        assert each.average_precision == pytest.approx(100 * average[at])
        assert each.recall == pytest.approx(100 * recall[at])
        known = np.nan if each.precision is None else each.precision
        assert known == pytest.approx(100 * precision[at], nan_ok=True)


def test_the_most_confident_mistake_of_each_image_is_listed() -> None:
    probabilities, y = labels(3)
    wrong = []
    for row in range(N):
        each = [
            (p if p > 0.5 else 1 - p, name, bool(has))
            for p, has, name in zip(probabilities[row], y[row], NAMES, strict=False)
            if (p > 0.5) != bool(has)
        ]
        wrong += [(*max(each), f"{row}.jpg")] if each else []
    wrong.sort(reverse=True)
    found = of_labels(3).mistakes
    assert [(each.label, each.has, each.path) for each in found] == [w[1:] for w in wrong[:12]]
    assert [each.confidence for each in found] == pytest.approx([100 * w[0] for w in wrong[:12]])
    p, truth = np.array([[0.9, 0.8], [0.2, 0.1]]), np.array([[1.0, 0.0], [0.0, 0.0]])
    few = Multilabel().diagnose(p, truth, ["cat", "dog"], paths=["a", "b"], domains=["d", "e"])
    assert few.per_label["dog"] == LabelFigures(0, None, None, 0.0)  # of no image
    assert (few.average_precision, few.exact_match) == (100, 50)
    assert [(each.path, each.domain) for each in few.mistakes] == [("a", "d")]


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_figures_of_numbers_are_those_of_scikit_learn(seed: int) -> None:
    predicted, y = numbers(seed)
    found = of_numbers(seed)
    assert found.explained_variance == pytest.approx(100 * r2_score(y, predicted))
    assert found.absolute_error == pytest.approx(mean_absolute_error(y, predicted))
    for at, mine in enumerate(found.per_output.values()):
        assert mine.explained_variance == pytest.approx(100 * r2_score(y[:, at], predicted[:, at]))
        assert mine.absolute_error == pytest.approx(mean_absolute_error(y[:, at], predicted[:, at]))
        assert mine.bias == pytest.approx(np.mean(predicted[:, at]) - np.mean(y[:, at]))
        expected = sorted(range(N), key=lambda row: -abs(predicted[row, at] - y[row, at]))[:12]
        assert [each.path for each in mine.largest] == [f"{row}.jpg" for row in expected]
        first = predicted[expected[0], at] - y[expected[0], at]
        assert mine.largest[0].error == pytest.approx(first)
    assert (mine.largest[0].domain, mine.largest[0].output) == ("photo", "height")
    above, ranges = -np.inf, found.per_output["age"].ranges
    assert sum(each.images for each in ranges) == N
    assert len(ranges) == 5
    for part in ranges:  # of ascending true values
        assert part.low > above
        above = part.high
        rows = [row for row, value in enumerate(y[:, 0]) if part.low <= value <= part.high]
        assert part.images == len(rows) == N / 5
        errors = [predicted[row, 0] - y[row, 0] for row in rows]
        assert part.bias == pytest.approx(np.mean(errors))
        assert part.absolute_error == pytest.approx(np.mean(np.abs(errors)))


def test_equal_values_are_in_one_range_and_exact_predictions_no_errors() -> None:
    y = np.array([[1.0]] * 9 + [[2.0]])
    found = Regression().diagnose(y + 1, y, ["y"], paths=[""] * 10, domains="d").per_output["y"]
    assert [(each.low, each.high, each.images) for each in found.ranges] == [(1, 1, 9), (2, 2, 1)]
    exact = Regression().diagnose(y, y, ["y"], paths=[""] * 10, domains=["d"] * 10)
    assert exact.explained_variance == 100
    assert exact.per_output["y"].largest == ()


def sure(seed: int, n: int = 60) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    confidence = rng.random(n)
    return confidence, rng.random(n) < confidence**2


def test_bins_are_those_of_scikit_learn() -> None:
    confidence, correct = sure(1, 500)
    found = reliability(confidence, correct, 10)
    right, mean = calibration_curve(correct, confidence, n_bins=10)
    assert [each.accuracy for each in found.bins] == pytest.approx(100 * right)
    assert [each.confidence for each in found.bins] == pytest.approx(100 * mean)
    certain = reliability(np.array([0.0, 1.0]), np.array([False, True]), 4)
    assert certain == Reliability((Bin(0, 25, 1, 0, 0), Bin(75, 100, 1, 100, 100)), 0.0)


@pytest.mark.parametrize("made", [of_classes, of_labels, of_numbers])
def test_a_diagnosis_is_restored_from_json(made: Any) -> None:
    found = made(5)
    document = json.loads(json.dumps(found.to_dict()))
    assert document["images"] == N
    assert type(found).from_dict(document) == found
    if made is of_classes:
        assert document["accuracy"] == found.accuracy
        assert document["per_class"]["ant"]["images"] == found.per_class["ant"].images
        with pytest.raises(InputError, match="damaged"):
            ClassDiagnosis.from_dict(document | {"confusion": [[1]]})


def test_arrays_that_do_not_fit_are_refused() -> None:
    p, y = classes(0)
    confidence, correct = sure(0)
    about: dict[str, Any] = {"paths": paths(), "domains": "d"}
    parts = [reliability(confidence, correct, n) for n in (10, 7)]
    for call, words in (
        (lambda: CLASSIFICATION.diagnose(p, y, "abc", **about), "3 classes"),
        (lambda: CLASSIFICATION.diagnose(p, y - 1, NAMES, **about), "from 0 to 3, got -1"),
        (lambda: add_up([]), "no diagnosis"),
        (lambda: Multilabel().diagnose(*labels(0), ["cat"], **about), r"\(40, 3\)"),
        (lambda: Regression().diagnose(*numbers(0), ["age"], **about), r"\(40, 2\)"),
        (lambda: merged(parts), "overlap"),
        (lambda: reliability(confidence[:0], correct[:0]), "0 confidences"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def case_of(seed: int, kind: str, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    if kind == "regression":
        labels = rng.normal(size=(n, 3)) * [1, 10, 100] + [0, 5, -50]
        return labels + rng.normal(size=(n, 3)) * [0.3, 20, 10], labels
    labels = (rng.random((n, 3)) < [0.2, 0.5, 0.9]).astype(float)
    labels[0], labels[1] = 1, 0
    return (0.5 * labels + rng.random((n, 3))).round(1), labels


def test_a_label_that_no_sample_has_does_not_count() -> None:
    labels = np.array([[1.0, 0], [0, 0], [1, 0]])
    scores = np.array([[0.9, 0.9], [0.1, 0.2], [0.8, 0.1]])
    assert Multilabel().score(scores, labels) == 1
    assert Multilabel().score(scores[:, 1:], labels[:, 1:]) == 0


def test_constant_labels_are_explained_only_if_they_are_predicted_exactly() -> None:
    labels = np.full((5, 1), 3.0)
    assert Regression().score(labels, labels) == 1
    assert Regression().score(labels + 1, labels) == 0


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_contributions_vary_as_the_metric_does(kind: Kind) -> None:
    """The variance of the mean of the contributions is close to that of a bootstrap."""
    predicted, labels = case_of(3, kind, n=400)
    rng = np.random.default_rng(0)
    draws = [rng.integers(0, 400, 400) for _ in range(400)]
    spread = np.std([task_of(kind).score(predicted[d], labels[d]) for d in draws])
    values = task_of(kind).contributions(predicted, labels)
    assert values.std() / 20 == pytest.approx(spread, rel=0.15)


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_contributions_to_the_average_precision_are_its_derivatives(seed: int) -> None:
    """A little more weight on a sample changes the metric by its contribution."""
    predicted, labels = case_of(seed, "multilabel", n=12)
    found = Multilabel().contributions(predicted[:, :1], labels[:, :1])
    has = labels[:, 0] > 0.5
    for sample in range(12):
        weights = np.full(12, 1.0)
        weights[sample] += 1e-6
        weighted = average_precision_score(has, predicted[:, 0], sample_weight=weights)
        change = (weighted - found.mean()) / 1e-6 * 12
        assert found[sample] - found.mean() == pytest.approx(change, abs=1e-3)

"""Diagnosis of predicted classes against scikit-learn."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    confusion_matrix,
    precision_score,
    recall_score,
)

from oodzoo.diagnostics.classes import ClassDiagnosis, ClassFigures, add_up, diagnose_classes
from oodzoo.errors import InputError

SEEDS = st.integers(0, 2**32 - 1)
CLASSES = ("ant", "bee", "cat", "dog")


def predictions(seed: int, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(4), n), rng.integers(0, 4, n)


def diagnosed(seed: int, rows: slice = slice(None), domain: str = "photo") -> ClassDiagnosis:
    probabilities, y = predictions(seed)
    paths = [f"{i}.jpg" for i in range(len(y))][rows]
    return diagnose_classes(probabilities[rows], y[rows], CLASSES, paths=paths, domains=domain)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_figures_equal_those_of_scikit_learn(seed: int) -> None:
    probabilities, y = predictions(seed, 80)
    y[:4] = range(4)
    guessed = probabilities.argmax(axis=1)
    found = diagnose_classes(probabilities, y, CLASSES, paths=[""] * 80, domains=["d"] * 80)
    assert np.array_equal(found.confusion, confusion_matrix(y, guessed, labels=range(4)))
    assert found.images == found.reliability.images == 80
    assert found.accuracy == pytest.approx(100 * accuracy_score(y, guessed))
    assert found.balanced_accuracy == pytest.approx(100 * balanced_accuracy_score(y, guessed))
    recall = recall_score(y, guessed, labels=range(4), average=None)
    precision = precision_score(y, guessed, labels=range(4), average=None, zero_division=np.nan)
    for c, each in enumerate(found.per_class.values()):
        assert each.images == (y == c).sum()
        assert each.recall == pytest.approx(100 * recall[c])
        known = np.nan if each.precision is None else each.precision
        assert known == pytest.approx(100 * precision[c], nan_ok=True)


def test_mistakes_are_listed_by_confidence() -> None:
    probabilities, y = predictions(3)
    found = diagnosed(3).mistakes
    wrong = [
        (-row.max(), f"{i}.jpg", CLASSES[y[i]], CLASSES[row.argmax()])
        for i, row in enumerate(probabilities)
        if row.argmax() != y[i]
    ]
    assert [(each.path, each.label, each.predicted) for each in found] == [
        each[1:] for each in sorted(wrong)[:12]
    ]
    assert found[0].confidence == pytest.approx(-100 * min(wrong)[0])
    assert {each.domain for each in found} == {"photo"}


def test_confusions_are_listed_by_frequency() -> None:
    found = diagnosed(4)
    total = sum(images for *_, images in found.confusions)
    assert total == found.images - round(found.images * found.accuracy / 100)
    counts = [images for *_, images in found.confusions]
    assert counts == sorted(counts, reverse=True)
    first = found.confusions[0]
    row, column = (CLASSES.index(name) for name in first[:2])
    assert found.confusion[row][column] == first[2]
    assert row != column


def test_classes_without_images_or_predictions_have_no_figures() -> None:
    probabilities = np.array([[0.6, 0.4, 0.0], [0.7, 0.3, 0.0]])
    found = diagnose_classes(
        probabilities, np.array([0, 2]), ["a", "b", "new"], paths=["x", "y"], domains="d"
    )
    assert found.per_class == {
        "a": ClassFigures(1, 100.0, 50.0),
        "b": ClassFigures(0, None, None),
        "new": ClassFigures(1, 0.0, None),
    }
    assert found.balanced_accuracy == 50


@given(seed=SEEDS, cut=st.integers(1, 39))
def test_domains_add_up_to_the_whole(seed: int, cut: int) -> None:
    whole = diagnosed(seed)
    found = add_up([diagnosed(seed, slice(cut)), diagnosed(seed, slice(cut, None))])
    assert found.confusion == whole.confusion
    assert found.mistakes == whole.mistakes
    assert found.reliability.error == pytest.approx(whole.reliability.error)


def test_other_classes_are_added() -> None:
    probabilities = np.array([[0.9, 0.1]])
    one = diagnose_classes(probabilities, np.array([0]), ["a", "b"], paths=["x"], domains="d")
    two = diagnose_classes(probabilities, np.array([1]), ["c", "a"], paths=["y"], domains="e")
    found = add_up([one, two])
    assert found.classes == ("a", "b", "c")
    assert found.confusion == ((1, 0, 1), (0, 0, 0), (0, 0, 0))


def test_a_diagnosis_is_restored_from_json() -> None:
    found = diagnosed(5)
    document = json.loads(json.dumps(found.to_dict()))
    assert document["accuracy"] == found.accuracy
    assert document["per_class"]["ant"]["images"] == found.per_class["ant"].images
    assert ClassDiagnosis.from_dict(document) == found
    with pytest.raises(InputError, match="damaged"):
        ClassDiagnosis.from_dict(document | {"confusion": [[1]]})


def test_arrays_that_do_not_fit_are_refused() -> None:
    probabilities, y = predictions(0)
    with pytest.raises(ValueError, match="3 classes"):
        diagnose_classes(probabilities, y, "abc", paths=[""] * 40, domains="d")
    with pytest.raises(ValueError, match="from 0 to 3, got -1"):
        diagnose_classes(probabilities, y - 1, CLASSES, paths=[""] * 40, domains="d")
    with pytest.raises(ValueError, match="no diagnosis"):
        add_up([])

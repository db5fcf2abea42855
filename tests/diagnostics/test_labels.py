"""Diagnosis of several labels against scikit-learn."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, average_precision_score, precision_score, recall_score

from oodzoo.diagnostics.labels import LabelDiagnosis, LabelFigures, diagnose_labels

SEEDS = st.integers(0, 2**32 - 1)
LABELS = ("cat", "dog", "fox")


def labels(seed: int, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = (rng.random((n, 3)) < [0.2, 0.5, 0.8]).astype(float)
    y[0] = 1
    return np.clip(0.3 * y + 0.9 * rng.random((n, 3)) - 0.1, 0, 1), y


def diagnosed(seed: int) -> LabelDiagnosis:
    probabilities, y = labels(seed)
    paths = [f"{row}.jpg" for row in range(len(y))]
    return diagnose_labels(probabilities, y, LABELS, paths=paths, domains="photo")


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_figures_equal_those_of_scikit_learn(seed: int) -> None:
    probabilities, y = labels(seed)
    guessed = (probabilities > 0.5).astype(float)
    found = diagnosed(seed)
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
    for row in range(len(y)):
        each = [
            (p if p > 0.5 else 1 - p, name, bool(has))
            for p, has, name in zip(probabilities[row], y[row], LABELS, strict=True)
            if (p > 0.5) != bool(has)
        ]
        if each:
            wrong.append((*max(each), f"{row}.jpg"))
    wrong.sort(reverse=True)
    found = diagnosed(3).mistakes
    assert [(each.label, each.has, each.path) for each in found] == [w[1:] for w in wrong[:12]]
    assert [each.confidence for each in found] == pytest.approx([100 * w[0] for w in wrong[:12]])


def test_a_label_of_no_image_has_no_figures() -> None:
    found = diagnose_labels(
        np.array([[0.9, 0.8], [0.2, 0.1]]),
        np.array([[1.0, 0.0], [0.0, 0.0]]),
        ["cat", "dog"],
        paths=["a", "b"],
        domains=["d", "e"],
    )
    assert found.per_label["dog"] == LabelFigures(0, None, None, 0.0)
    assert (found.average_precision, found.exact_match) == (100, 50)
    assert [(each.path, each.domain) for each in found.mistakes] == [("a", "d")]


def test_a_diagnosis_is_restored_from_json() -> None:
    found = diagnosed(2)
    assert LabelDiagnosis.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_arrays_that_do_not_fit_are_refused() -> None:
    probabilities, y = labels(0)
    with pytest.raises(ValueError, match=r"\(40, 3\)"):
        diagnose_labels(probabilities, y, ["cat"], paths=[""] * 40, domains="d")

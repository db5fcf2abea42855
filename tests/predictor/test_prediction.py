"""Predictions for single samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oodzoo
from oodzoo.errors import InputError
from oodzoo.predictor.prediction import Prediction, Unreadable, missing, outcome_array
from oodzoo.task import Kind


def test_each_sample_has_a_prediction_or_a_reason() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.tile(["no", "yes"], 30)
    X[:, 0] += 3 * (y == "yes")
    predictor = oodzoo.fit({"m": X}, y, np.repeat(["a", "b", "c"], 20), choose="single")
    far = np.vstack([X[:2], [[-50.0, 900.0, 900.0]]])
    first, second, last = predictor.stream({"m": far})
    for at, found in enumerate((first, second, last)):
        assert isinstance(found, Prediction)
        assert found.position == at
        assert found.out_of_domain == (found.distance > 1)
        assert found.probabilities is not None
        assert found.probabilities.sum() == pytest.approx(1)
        assert found.label == predictor.classes_[found.probabilities.argmax()]
    assert Unreadable(3, "a.jpg", "truncated").reason == "truncated"


def test_abstention_and_sets() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(90, 3)), np.tile(["no", "yes"], 45)
    X[:, 0] += 2 * (y == "yes")
    predictor = oodzoo.fit({"m": X}, y, np.repeat(["a", "b", "c"], 30), choose="single")
    found = list(predictor.stream({"m": X}, min_confidence=0.8, coverage=0.95))
    labels = predictor.predict({"m": X}).tolist()
    for label, each in zip(labels, found, strict=True):
        assert isinstance(each, Prediction)
        assert each.confidence is not None
        assert each.abstained == (each.confidence < 0.8)
        assert each.label == (None if each.abstained else label)
        assert each.set is not None
        assert each.set[0] == label
    assert 0 < sum(each.abstained for each in found if isinstance(each, Prediction)) < 90
    with pytest.raises(InputError, match="from 0 to 1, got 80"):
        list(predictor.stream({"m": X}, min_confidence=80))


def test_repr_is_short_however_many_classes_there_are() -> None:
    many = np.full(5000, 0.0001)
    many[7] = 0.625
    found = Prediction(3, "photos/a.jpg", "cat", many, 0.5, False)
    assert repr(found) == "Prediction('photos/a.jpg': 'cat', 62 %)"
    unlike = Prediction(3, None, ("label",) * 99, None, 1.5, True)
    assert repr(unlike).startswith("Prediction(3: ('label', ")
    assert repr(unlike).endswith(", unlike the training samples)")
    assert len(repr(unlike)) < 200


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("classification", ["a", None]),
        ("regression", [[1.0, 2.0], [np.nan] * 2]),
        ("multilabel", [[1.0, 0.0], [np.nan] * 2]),
    ],
)
def test_what_stands_for_a_prediction_that_is_missing(kind: Kind, rows: list[Any]) -> None:
    given = {"classification": "a", "regression": (1.0, 2.0), "multilabel": ("a",)}[kind]
    classes = np.array(["a", "b"])
    none = missing(Unreadable(1, "a.jpg", "empty"), kind, classes)
    found = outcome_array(kind, [given, none.label], classes)
    np.testing.assert_array_equal(found, np.array(rows, found.dtype))
    assert np.isnan(none.distance)

"""Accuracy of the predictions of at least some confidence."""

from __future__ import annotations

import numpy as np
import pytest

from oodzoo.errors import InputError
from oodzoo.predictor.left_out import at_confidence, confidence_curve, require_confidence


def test_the_curve_counts_what_is_kept_and_right() -> None:
    rng = np.random.default_rng(0)
    p = {name: rng.dirichlet(np.ones(3), n) for name, n in (("a", 40), ("b", 25))}
    y = {name: rng.integers(0, 3, len(each)) for name, each in p.items()}
    for point in confidence_curve(p, y):
        kept, right = [], []
        for name, rows in p.items():
            pairs = list(zip(rows.tolist(), y[name].tolist(), strict=True))
            confident = [(row, label) for row, label in pairs if max(row) >= point.confidence]
            kept.append(len(confident) / len(pairs))
            if confident:
                right.append(np.mean([row.index(max(row)) == label for row, label in confident]))
        assert point.kept == pytest.approx(100 * np.mean(kept))
        assert point.accuracy == (pytest.approx(100 * np.mean(right)) if right else None)
        assert point.worst == (pytest.approx(100 * min(right)) if right else None)


def test_nothing_is_confident_enough() -> None:
    (point,) = confidence_curve({"a": np.full((3, 2), 0.5)}, {"a": np.zeros(3, int)}, [0.9])
    assert (point.kept, point.accuracy, point.worst) == (0.0, None, None)


def test_the_nearest_recorded_confidence_below() -> None:
    curve = confidence_curve({"a": np.array([[0.8, 0.2]])}, {"a": np.array([0])})
    found = [at_confidence(curve, each).confidence for each in (0, 0.35, 0.93, 0.999, 1)]
    assert found == [0, 0.35, 0.9, 0.99, 0.99]


@pytest.mark.parametrize("wrong", [-0.1, 1.5, float("nan"), 90])
def test_a_confidence_is_a_probability(wrong: float) -> None:
    with pytest.raises(InputError, match="from 0 to 1"):
        require_confidence(wrong)

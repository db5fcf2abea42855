from __future__ import annotations

import numpy as np
import pytest

from oodzoo.scores.inputs import as_classes, generator, stratified_folds, stratified_order


def test_every_prefix_of_the_order_is_stratified() -> None:
    y, _ = as_classes(np.repeat(["a", "b", "c"], [600, 300, 100]), "y")
    order = stratified_order(y, generator(0))
    assert sorted(order) == list(range(1000))
    for size in (50, 200, 500):
        assert np.bincount(y[order[:size]]) == pytest.approx(
            size * np.array([0.6, 0.3, 0.1]), abs=2
        )


def test_folds_are_stratified() -> None:
    y, _ = as_classes(np.repeat([0, 1, 2], [103, 51, 9]), "y")
    folds = stratified_folds(y, 5, generator(0))
    for c, size in enumerate((103, 51, 9)):
        assert np.bincount(folds[y == c], minlength=5) == pytest.approx(size / 5, abs=1)

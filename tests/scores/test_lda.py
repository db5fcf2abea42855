from __future__ import annotations

import numpy as np
import pytest
from tests.oracles import scores as oracle
from tests.scores.data import every_shape, problem

from oodzoo import InputError, scores
from oodzoo.scores import lda


@every_shape
def test_agrees_with_the_oracle(n: int, d: int, n_classes: int) -> None:
    X, y, domains = problem(n, d, n_classes, separation=0.7)
    assert scores.lda(X, y, domains) == pytest.approx(oracle.lda(X, y, domains), rel=1e-12)


def test_is_cross_validated_without_domains(rng: np.random.Generator) -> None:
    """On noise with more features than samples only what is held out tells the truth."""
    X, y = rng.normal(size=(100, 200)), np.arange(100) % 2
    assert 0.25 < scores.lda(X, y) < 0.75
    assert scores.lda(X, y, random_state=1) != scores.lda(X, y, random_state=2)


def test_a_class_of_a_single_domain_cannot_be_predicted() -> None:
    X = np.array([[1.0, 0.1], [0.1, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.1]])
    y, domains = ["a", "b", "a", "b", "c"], [0, 0, 1, 1, 1]
    expected = (1 + 2 / 3) / 2
    assert scores.lda(X, y, domains) == pytest.approx(expected)


def test_folds_keep_groups_whole() -> None:
    """Copies of samples in other folds would be recognised; whole groups of copies are not."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 39)), np.tile([0, 1], 20)
    copies, labels = np.repeat(X, 5, axis=0), np.repeat(y, 5)
    groups = np.repeat(np.arange(40), 5).tolist()
    assert lda(copies, labels) > 0.9
    assert lda(copies, labels, groups=groups) < 0.8
    assert lda(X, y, groups=[None] * 40) == lda(X, y)
    with pytest.raises(InputError, match="all samples are of one group"):
        lda(X, y, groups=["a"] * 40)

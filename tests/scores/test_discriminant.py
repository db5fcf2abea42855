from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from oodzoo.backend import backend
from oodzoo.scores.statistics import log_joint, log_softmax, shrink

NUMPY = backend()


def test_shrunk_covariance_keeps_the_trace(rng: np.random.Generator) -> None:
    S = np.cov(rng.normal(size=(3, 20)))
    shrunk = shrink(NUMPY, S, 0.3, spread=1.0)
    assert np.trace(shrunk) == pytest.approx(np.trace(S))
    np.testing.assert_allclose(shrunk, 0.7 * S + 0.3 * np.trace(S) / 3 * np.eye(3))


@pytest.mark.parametrize(("spread", "expected"), [(2.0, 2e-12), (0.0, 1.0)])
def test_classes_that_are_single_points(spread: float, expected: float) -> None:
    np.testing.assert_allclose(shrink(NUMPY, np.zeros((2, 2)), 0.1, spread), expected * np.eye(2))


def test_log_joint_is_the_density_up_to_a_constant_per_sample(rng: np.random.Generator) -> None:
    X, means, priors = rng.normal(size=(5, 2)), rng.normal(size=(3, 2)), np.array([0.2, 0.3, 0.5])
    S = np.array([[2.0, 0.4], [0.4, 1.0]])
    density = np.column_stack([multivariate_normal(m, S).logpdf(X) for m in means]) + np.log(priors)
    found = log_joint(NUMPY, X, means, S, np.log(priors))
    difference = density - found
    np.testing.assert_allclose(difference - difference[:, :1], 0, atol=1e-12)


def test_log_softmax_does_not_overflow() -> None:
    found = log_softmax(NUMPY, np.array([[1000.0, 1000.0], [0.0, -2000.0]]))
    np.testing.assert_allclose(found, [[-np.log(2), -np.log(2)], [0, -2000]])

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.oracles import bayes

from oodzoo.core.backend import backend
from oodzoo.core.errors import InputError
from oodzoo.linear.evidence import (
    Spectrum,
    decompose,
    maximise_evidence,
)


def spectrum_of(Phi: Any, Y: Any, device: str | None = None) -> Spectrum:
    float64 = backend(device).float64
    squares = (Y**2).sum(0)
    return decompose(float64(Phi.T @ Phi), float64(Phi.T @ Y), float64(squares), len(Phi))[0]


def labelled(n: int, d: int, n_classes: int = 3, rank: int | None = None, seed: int = 0) -> Any:
    """Features with a mean, unequal scales and a given rank, and labels that depend on them."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(0.5, 1, size=(n, rank or d)) * rng.uniform(0.2, 2, size=rank or d)
    Phi = latent if rank is None else latent @ rng.normal(size=(rank, d))
    labels = (latent[:, :n_classes] + 0.5 * rng.normal(size=(n, n_classes))).argmax(1)
    return Phi, bayes.one_hot(labels, n_classes)


@pytest.mark.parametrize(("n", "d", "rank"), [(80, 10, None), (200, 30, 5), (60, 50, None)])
def test_precisions_are_those_of_the_plain_iteration(n: int, d: int, rank: int | None) -> None:
    Phi, Y = labelled(n, d, rank=rank)
    fitted = maximise_evidence(spectrum_of(Phi, Y))
    assert bool(fitted.converged.all())
    assert fitted.iterations < 20
    for c in range(3):
        expected = bayes.fixed_point(Phi, Y[:, c])
        np.testing.assert_allclose((fitted.alpha[c], fitted.beta[c]), expected, rtol=1e-8)


def test_a_class_without_samples_is_refused() -> None:
    with pytest.raises(InputError, match="without samples"):
        maximise_evidence(spectrum_of(np.ones((3, 2)), np.zeros((3, 1))))

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import bayes

from oodzoo.core.backend import backend, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.linear.evidence import (
    NOISE_FLOOR,
    RESIDUAL_FREEDOM,
    RIDGE_RANGE,
    Precisions,
    Spectrum,
    decompose,
    decompose_offset,
    decompose_samples,
    log_evidence,
    maximise_evidence,
)


def spectrum_of(Phi: Any, Y: Any, device: str | None = None) -> Spectrum:
    float64 = backend(device).float64
    squares = (Y**2).sum(0)
    return decompose(float64(Phi.T @ Phi), float64(Phi.T @ Y), float64(squares), len(Phi))[0]


def precisions(alpha: Any, beta: Any) -> Precisions:
    alpha, beta = np.asarray(alpha, float), np.asarray(beta, float)
    return Precisions(alpha, beta, np.ones(alpha.shape, bool), 0)


def labelled(n: int, d: int, n_classes: int = 3, rank: int | None = None, seed: int = 0) -> Any:
    """Features with a mean, unequal scales and a given rank, and labels that depend on them."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(0.5, 1, size=(n, rank or d)) * rng.uniform(0.2, 2, size=rank or d)
    Phi = latent if rank is None else latent @ rng.normal(size=(rank, d))
    labels = (latent[:, :n_classes] + 0.5 * rng.normal(size=(n, n_classes))).argmax(1)
    return Phi, bayes.one_hot(labels, n_classes)


SHAPES = [(80, 10, None), (60, 200, None), (40, 40, None), (80, 30, 5)]


@pytest.mark.parametrize(("n", "d", "rank"), SHAPES)
def test_equals_the_density_of_the_labels(n: int, d: int, rank: int | None) -> None:
    Phi, Y = labelled(n, d, rank=rank)
    alpha, beta = np.array([0.3, 5.0, 40.0]), np.array([1.0, 0.2, 30.0])
    found = log_evidence(spectrum_of(Phi, Y), precisions(alpha, beta))
    for literal in (bayes.evidence, bayes.printed_evidence):
        expected = [literal(Phi, Y[:, c], alpha[c], beta[c]) for c in range(3)]
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize(("n", "d", "rank"), SHAPES)
def test_samples_and_moments_have_one_spectrum(
    n: int, d: int, rank: int | None, device: str | None
) -> None:
    Phi, Y = labelled(n, d, rank=rank)
    reference = spectrum_of(Phi, Y)
    float64 = backend(device).float64
    spectrum, vectors = decompose_samples(float64(Phi), float64(Y), n)
    shared = min(n, d)
    found = to_numpy(spectrum.eigenvalues)
    np.testing.assert_allclose(found[-shared:], reference.eigenvalues[-shared:], rtol=1e-8)
    np.testing.assert_allclose(to_numpy(spectrum.residuals), reference.residuals, atol=1e-8)
    rebuilt = to_numpy(vectors) * found @ to_numpy(vectors).T
    np.testing.assert_allclose(rebuilt, Phi @ Phi.T, atol=1e-8)
    at = precisions([0.3, 2.0, 1.0], [2.0, 0.5, 9.0])
    there = Precisions(float64(at.alpha), float64(at.beta), at.converged, 0)
    evidence = to_numpy(log_evidence(spectrum, there))
    np.testing.assert_allclose(evidence, log_evidence(reference, at), rtol=1e-9)


@pytest.mark.parametrize(("n", "d", "rank"), [(80, 10, None), (200, 30, 5), (60, 50, None)])
def test_precisions_are_those_of_the_plain_iteration(n: int, d: int, rank: int | None) -> None:
    Phi, Y = labelled(n, d, rank=rank)
    fitted = maximise_evidence(spectrum_of(Phi, Y))
    assert bool(fitted.converged.all())
    assert fitted.iterations < 20
    for c in range(3):
        expected = bayes.fixed_point(Phi, Y[:, c])
        np.testing.assert_allclose((fitted.alpha[c], fitted.beta[c]), expected, rtol=1e-8)


@given(seed=st.integers(0, 10_000), n=st.integers(3, 60), d=st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_no_other_precisions_have_greater_evidence(seed: int, n: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    Phi = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-3, 3)
    Y = bayes.one_hot(np.arange(n) % 2, 2)
    spectrum = spectrum_of(Phi, Y)
    fitted = maximise_evidence(spectrum)
    best = log_evidence(spectrum, fitted)
    q = spectrum.squares * NOISE_FLOOR
    for c in np.flatnonzero(~fitted.converged):
        at_bound = bayes.degrees_left(Phi, fitted.ridge[c])
        assert at_bound == pytest.approx(1, abs=1e-6) or n == 1
    for factor in 10.0 ** np.linspace(-8, 8, 33):
        ridge = np.clip(
            fitted.ridge * factor, *(share * spectrum.eigenvalues[-1] for share in RIDGE_RANGE)
        )
        other = spectrum.squares - np.sum(
            spectrum.projections**2 / (spectrum.eigenvalues + ridge[:, None]), axis=1
        )
        # Only what the floor and the bound allow competes.
        left = np.array([bayes.degrees_left(Phi, each) for each in ridge])
        allowed = (other > q) & (left >= RESIDUAL_FREEDOM)
        beta = n / np.maximum(other, q)
        value = log_evidence(spectrum, precisions(ridge * beta, beta))
        assert np.all((value <= best + 1e-6 * n) | ~allowed)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_do_not_depend_on_the_scale_of_the_features(scale: float) -> None:
    Phi, Y = labelled(80, 10)
    one, other = spectrum_of(Phi, Y), spectrum_of(scale * Phi, Y)
    fitted, scaled = maximise_evidence(one), maximise_evidence(other)
    np.testing.assert_allclose(scaled.alpha, scale**2 * fitted.alpha, rtol=1e-8)
    np.testing.assert_allclose(scaled.beta, fitted.beta, rtol=1e-8)
    np.testing.assert_allclose(log_evidence(other, scaled), log_evidence(one, fitted), rtol=1e-9)


# --- where the evidence has no maximum, the documented bound ------------------------------------


def test_labels_fitted_perfectly_stop_at_the_noise_floor() -> None:
    Y = bayes.one_hot(np.arange(60) % 3, 3)
    fitted = maximise_evidence(spectrum_of(Y, Y))
    assert bool(fitted.converged.all())
    np.testing.assert_allclose(1 / fitted.beta, NOISE_FLOOR / 3, rtol=1e-6)
    expected = [bayes.evidence(Y, Y[:, c], fitted.alpha[c], fitted.beta[c]) for c in range(3)]
    np.testing.assert_allclose(log_evidence(spectrum_of(Y, Y), fitted), expected, rtol=1e-8)


def test_noise_that_the_data_do_not_determine_stops_at_its_bound(device: str | None) -> None:
    """Without a bound, the evidence is flat and predictions are arbitrarily certain."""
    rng = np.random.default_rng(0)
    y = np.arange(24) % 3
    Phi, Y = rng.normal(size=(3, 400))[y] + rng.normal(size=(24, 400)), bayes.one_hot(y, 3)
    spectrum = spectrum_of(Phi, Y, device)
    fitted = maximise_evidence(spectrum)
    assert not bool(backend(device).xp.any(fitted.converged))
    found = to_numpy(log_evidence(spectrum, fitted))
    ridge, beta = to_numpy(fitted.ridge), to_numpy(fitted.beta)
    for c in range(3):
        assert bayes.degrees_left(Phi, ridge[c]) == pytest.approx(RESIDUAL_FREEDOM, rel=1e-8)
        # Nothing is lost that 24 samples could tell.
        least = ridge[c] * 1e-4
        m = np.linalg.solve(Phi @ Phi.T + least * np.eye(24), Y[:, c])
        certain = 24 / (least * Y[:, c] @ m)
        assert certain > 1000 * beta[c]
        gain = bayes.evidence(Phi, Y[:, c], least * certain, certain) - found[c]
        assert 0 < gain < 0.5


def test_zero_features_leave_noise_alone() -> None:
    spectrum = spectrum_of(np.zeros((4, 3)), np.array([[1.0], [1.0], [0.0], [0.0]]))
    fitted = maximise_evidence(spectrum)
    assert (fitted.alpha[0], fitted.beta[0]) == (math.inf, 2.0)
    assert log_evidence(spectrum, fitted)[0] == pytest.approx(2 * math.log(1 / math.pi) - 2)


def test_a_class_without_samples_is_refused() -> None:
    with pytest.raises(InputError, match="without samples"):
        maximise_evidence(spectrum_of(np.ones((3, 2)), np.zeros((3, 1))))


def about_the_mean(Phi: Any, Y: Any, mean: Any, device: str | None = None) -> Any:
    float64 = backend(device).float64
    centred = Phi - Phi.mean(axis=0)
    gram, targets, sums = float64(centred.T @ centred), float64(centred.T @ Y), float64(Y.sum(0))
    squares = float64((Y**2).sum(0))
    return decompose_offset(gram, targets, float64(mean), sums, squares, len(Phi))


@pytest.mark.parametrize(("n", "d", "rank"), [*SHAPES, (30, 1, None)])
def test_an_offset_has_the_spectrum_of_its_gram_matrix(
    n: int, d: int, rank: int | None, device: str | None
) -> None:
    Phi, Y = labelled(n, max(d, 3), rank=rank)
    Phi = Phi[:, :d] + np.random.default_rng(1).normal(0, 20, size=d)
    expected = spectrum_of(Phi, Y)
    found, vectors = about_the_mean(Phi, Y, Phi.mean(axis=0), device)
    V, S = to_numpy(vectors), to_numpy(found.eigenvalues)
    np.testing.assert_allclose(V.T @ V, np.eye(d), atol=1e-12)
    np.testing.assert_allclose(V * S @ V.T, Phi.T @ Phi, rtol=1e-11, atol=1e-11 * S[-1])
    np.testing.assert_allclose(to_numpy(found.projections).T, V.T @ Phi.T @ Y, atol=1e-8)
    np.testing.assert_allclose(to_numpy(found.residuals), expected.residuals, atol=1e-9)
    best = maximise_evidence(expected)
    np.testing.assert_allclose(
        to_numpy(log_evidence(found, maximise_evidence(found))),
        log_evidence(expected, best),
        rtol=1e-8,
    )


@pytest.mark.parametrize(("n", "d", "rank"), SHAPES)
def test_a_large_offset_is_an_intercept(n: int, d: int, rank: int | None) -> None:
    """At given precisions, its size changes the evidence by its own eigenvalue alone."""
    Phi, Y = labelled(n, d, rank=rank)
    unit = np.random.default_rng(1).normal(size=d)
    small, large = (about_the_mean(Phi, Y, size * unit)[0] for size in (1e5, 1e9))
    given_precisions = precisions([1.0, 2.0, 0.5], [3.0, 1.0, 9.0])
    one, two = (log_evidence(each, given_precisions) for each in (small, large))
    np.testing.assert_allclose(one - two, math.log(1e4), rtol=1e-5)


def test_the_features_are_used_however_large_their_offset() -> None:
    """The range of the ridge must not follow the eigenvalue of the offset."""
    Phi, Y = labelled(2000, 5)
    unit = np.random.default_rng(1).normal(size=5)
    ridges = [maximise_evidence(about_the_mean(Phi, Y, s * unit)[0]).ridge for s in (1e4, 1e9)]
    np.testing.assert_allclose(ridges[0], ridges[1], rtol=1e-4)

"""Slow and literal twins of the ranking's mathematics, straight from the paper's formulae.

Nothing here is shared with the library: densities are of whole vectors with dense covariances, and
precisions come from the plain fixed-point iteration of Appendix B.3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def gaussian(y: Floats, mean: Floats, covariance: Floats) -> float:
    """log N(y; mean, covariance)."""
    sign, determinant = np.linalg.slogdet(covariance)
    assert sign > 0
    error = y - mean
    quadratic = error @ np.linalg.solve(covariance, error)
    return float(-0.5 * (len(y) * np.log(2 * np.pi) + determinant + quadratic))


def evidence(Phi: Floats, y: Floats, alpha: float, beta: float) -> float:
    """log p(y | Phi; alpha, beta): the density of y ~ N(0, I/beta + Phi Phi'/alpha)."""
    covariance = np.eye(len(y)) / beta + Phi @ Phi.T / alpha
    return gaussian(y, np.zeros(len(y)), covariance)


def printed_evidence(Phi: Floats, y: Floats, alpha: float, beta: float) -> float:
    """log L(alpha, beta) term by term as Appendix B.3 prints it."""
    n, d = Phi.shape
    A = alpha * np.eye(d) + beta * Phi.T @ Phi
    m = beta * np.linalg.solve(A, Phi.T @ y)
    residual = float(np.sum((y - Phi @ m) ** 2))
    return float(
        n / 2 * np.log(beta)
        + d / 2 * np.log(alpha)
        - n / 2 * np.log(2 * np.pi)
        - beta / 2 * residual
        - alpha / 2 * m @ m
        - 0.5 * np.linalg.slogdet(A)[1]
    )


def fixed_point(
    Phi: Floats, y: Floats, tolerance: float = 1e-13, iterations: int = 100_000
) -> tuple[float, float]:
    """alpha and beta by alpha <- gamma / |m|^2, beta <- (n - gamma) / |y - Phi m|^2."""
    n, d = Phi.shape
    G = Phi.T @ Phi
    alpha = beta = 1.0
    for _ in range(iterations):
        A = alpha * np.eye(d) + beta * G
        m = beta * np.linalg.solve(A, Phi.T @ y)
        gamma = d - alpha * np.trace(np.linalg.inv(A))
        before = alpha, beta
        alpha = gamma / float(m @ m)
        beta = (n - gamma) / float(np.sum((y - Phi @ m) ** 2))
        if np.all(np.abs(np.log([alpha / before[0], beta / before[1]])) < tolerance):
            break
    return alpha, beta


def degrees_left(Phi: Floats, ridge: float) -> float:
    """n - gamma at ridge = alpha/beta: what is left to determine the noise, 1 at least."""
    K = Phi @ Phi.T
    return float(np.trace(ridge * np.linalg.inv(K + ridge * np.eye(len(K)))))


def least_ridge(Phi: Floats) -> float:
    """The ridge at which n - gamma is 1; 0 if it is more for any ridge."""
    n = len(Phi)
    rank = np.linalg.matrix_rank(Phi)
    if n - rank >= 1:
        return 0.0
    low, high = 1e-14, 1e8  # relative to the squares of the features
    unit = float(np.sum(Phi**2))
    for _ in range(100):
        middle = np.sqrt(low * high)
        low, high = (low, middle) if degrees_left(Phi, middle * unit) >= 1 else (middle, high)
    return float(high * unit)


def posterior(Phi: Floats, y: Floats, alpha: float, beta: float) -> tuple[Floats, Floats]:
    """m and A^-1 of the weights."""
    A = alpha * np.eye(Phi.shape[1]) + beta * Phi.T @ Phi
    m = beta * np.linalg.solve(A, Phi.T @ y)
    return m.astype(np.float64), np.linalg.inv(A).astype(np.float64)


def ratio(Phi_i: Floats, y_i: Floats, Phi: Floats, y: Floats, alpha: float, beta: float) -> float:
    """log p(y_i | Phi_i, y, Phi) as a ratio of evidences, the paper's choice."""
    union = evidence(np.vstack([Phi_i, Phi]), np.concatenate([y_i, y]), alpha, beta)
    return union - evidence(Phi, y, alpha, beta)


def remark(Phi_i: Floats, y_i: Floats, Phi: Floats, y: Floats, alpha: float, beta: float) -> float:
    """The same as the paper's Remark has it: y_i ~ N(Phi_i m, I/beta + Phi_i A^-1 Phi_i')."""
    m, inverse = posterior(Phi, y, alpha, beta)
    return gaussian(y_i, Phi_i @ m, np.eye(len(y_i)) / beta + Phi_i @ inverse @ Phi_i.T)


def marginals(
    Phi_i: Floats, y_i: Floats, Phi: Floats, y: Floats, alpha: float, beta: float
) -> Floats:
    """log p(y_ij | phi_ij, y, Phi) of each sample."""
    m, inverse = posterior(Phi, y, alpha, beta)
    return np.array(
        [
            gaussian(y_ij[None], (phi @ m)[None], np.array([[1 / beta + phi @ inverse @ phi]]))
            for phi, y_ij in zip(Phi_i, y_i, strict=True)
        ]
    )


def feature_densities(Phi_i: Floats, Phi: Floats, floor: float = 1e-6) -> Floats:
    """log N(phi_ij; mu, Sigma) of each sample, Sigma's eigenvalues floored."""
    mu = Phi.mean(axis=0)
    eigenvalues, U = np.linalg.eigh((Phi - mu).T @ (Phi - mu) / len(Phi))
    Sigma = U @ np.diag(np.maximum(eigenvalues, floor * eigenvalues.max())) @ U.T
    return np.array([gaussian(phi, mu, Sigma) for phi in Phi_i])


def relative_densities(Phi_i: Floats, Phi: Floats, shrinkage: float) -> Floats:
    """Density under a shrunk Gaussian, relative to the training samples' mean, per dimension."""
    d = Phi.shape[1]
    mu = Phi.mean(axis=0)
    Sigma = (Phi - mu).T @ (Phi - mu) / len(Phi)
    Sigma = (1 - shrinkage) * Sigma + shrinkage * np.trace(Sigma) / d * np.eye(d)
    own = np.mean([gaussian(phi, mu, Sigma) for phi in Phi])
    relative: Floats = (np.array([gaussian(phi, mu, Sigma) for phi in Phi_i]) - own) / d
    return relative


def times_as_far_out(Phi_i: Floats, Phi: Floats, shrinkage: float) -> float:
    """Root mean square Mahalanobis distance of the held-out samples over the training samples'."""
    d = Phi.shape[1]
    mu = Phi.mean(axis=0)
    Sigma = (Phi - mu).T @ (Phi - mu) / len(Phi)
    Sigma = (1 - shrinkage) * Sigma + shrinkage * np.trace(Sigma) / d * np.eye(d)
    inverse = np.linalg.inv(Sigma)
    here = np.mean([(phi - mu) @ inverse @ (phi - mu) for phi in Phi_i])
    there = np.mean([(phi - mu) @ inverse @ (phi - mu) for phi in Phi])
    return float(np.sqrt(here / there))


def one_hot(labels: NDArray[Any], n_classes: int) -> Floats:
    encoded: Floats = np.eye(n_classes)[labels]
    return encoded

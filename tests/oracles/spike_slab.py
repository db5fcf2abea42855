"""Slow and literal twin of the feature selection: one coordinate at a time, from the formulae.

Nothing is shared with the library. Expectations are written out where they are used, the data come
as Φ and y, and the bound has all its terms.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, expit, gammaln

Floats = NDArray[np.float64]


@dataclass
class Hyper:
    """logit π and ν of each feature (arrays of d), and ν₀."""

    odds: Floats
    slab1: Floats
    slab2: Floats
    spike1: Floats
    spike2: Floats
    noise1: float
    noise2: float

    @classmethod
    def paper(cls, d: int) -> Hyper:
        return cls(np.zeros(d), np.ones(d), np.ones(d), 5 * np.ones(d), np.ones(d), 1.0, 1.0)

    @property
    def pi(self) -> Floats:
        probability: Floats = expit(self.odds)
        return probability

    def copy(self) -> Hyper:
        return deepcopy(self)


def mean_log(nu1: Floats | float, nu2: Floats | float) -> Floats:
    """E ln α of a one-dimensional Wishart distribution."""
    expected: Floats = digamma(np.asarray(nu1) / 2) + np.log(2) + np.log(nu2)
    return expected


def divergence(q1: Floats, q2: Floats, p1: Floats, p2: Floats) -> float:
    """KL of Gamma distributions with shape ν₁/2 and rate 1/(2ν₂), summed."""
    a, r, a0, r0 = q1 / 2, 1 / (2 * q2), p1 / 2, 1 / (2 * p2)
    terms = (
        (a - a0) * digamma(a) - gammaln(a) + gammaln(a0) + a0 * np.log(r / r0) + a * (r0 / r - 1)
    )
    return float(np.sum(terms))


def expected_residual(Phi: Floats, y: Floats, m: Floats, lam: Floats) -> float:
    """E |y - Φw|²."""
    return float(np.sum((y - Phi @ m) ** 2) + np.sum(np.sum(Phi**2, axis=0) / lam))


def bound(Phi: Floats, y: Floats, m: Floats, lam: Floats, q: Hyper, prior: Hyper) -> float:
    """E ln p(y, ξ; prior) - E ln Q(ξ), every term."""
    n = len(y)
    w2 = m**2 + 1 / lam
    likelihood = n / 2 * (mean_log(q.noise1, q.noise2) - np.log(2 * np.pi))
    likelihood -= 0.5 * q.noise1 * q.noise2 * expected_residual(Phi, y, m, lam)
    slab = 0.5 * (mean_log(q.slab1, q.slab2) - np.log(2 * np.pi) - q.slab1 * q.slab2 * w2)
    spike = 0.5 * (mean_log(q.spike1, q.spike2) - np.log(2 * np.pi) - q.spike1 * q.spike2 * w2)
    weights = np.sum(q.pi * slab + (1 - q.pi) * spike)
    entropy = np.sum(0.5 * (1 + np.log(2 * np.pi) - np.log(lam)))
    masks = 0.0
    for sign in (1, -1):  # ln π = -ln(1 + e^-odds), which does not round to zero or one
        logs = np.logaddexp(0, -sign * prior.odds) - np.logaddexp(0, -sign * q.odds)
        masks += float(np.sum(expit(sign * q.odds) * logs))
    precisions = (
        divergence(q.slab1, q.slab2, prior.slab1, prior.slab2)
        + divergence(q.spike1, q.spike2, prior.spike1, prior.spike2)
        + divergence(*(np.array([v]) for v in (q.noise1, q.noise2, prior.noise1, prior.noise2)))
    )
    return float(likelihood + weights + entropy - masks - precisions)


def fit(
    Phi: Floats, y: Floats, start: Floats, iterations: int
) -> tuple[Floats, Floats, list[float]]:
    """π, m, and the bound after each iteration."""
    n, d = Phi.shape
    prior = Hyper.paper(d)
    q = prior.copy()
    m, lam = start.copy(), 1 / np.maximum(start**2, 1e-12)
    bounds: list[float] = []
    for _ in range(iterations):
        q.noise1 = prior.noise1 + n
        q.noise2 = 1 / (1 / prior.noise2 + expected_residual(Phi, y, m, lam))
        beta = q.noise1 * q.noise2
        for i in range(d):
            w2 = m[i] ** 2 + 1 / lam[i]
            slab, spike = q.slab1[i] * q.slab2[i], q.spike1[i] * q.spike2[i]
            logs = mean_log(q.slab1[i], q.slab2[i]) - mean_log(q.spike1[i], q.spike2[i])
            q.odds[i] = prior.odds[i] + 0.5 * logs - 0.5 * (slab - spike) * w2
            q.slab1[i] = prior.slab1[i] + q.pi[i]
            q.slab2[i] = 1 / (1 / prior.slab2[i] + q.pi[i] * w2)
            q.spike1[i] = prior.spike1[i] + 1 - q.pi[i]
            q.spike2[i] = 1 / (1 / prior.spike2[i] + (1 - q.pi[i]) * w2)
            slab, spike = q.slab1[i] * q.slab2[i], q.spike1[i] * q.spike2[i]
            lam[i] = beta * np.sum(Phi[:, i] ** 2) + q.pi[i] * slab + (1 - q.pi[i]) * spike
            others = y - Phi @ m + Phi[:, i] * m[i]
            m[i] = beta * np.sum(Phi[:, i] * others) / lam[i]
        prior = q.copy()
        bounds.append(bound(Phi, y, m, lam, q, prior))
    return q.pi, m, bounds

"""The mixture of classes of a domain and a head adapted to it, literally as the formulas say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


class Measured(NamedTuple):
    """Rates, reference mixture and noise."""

    rates: list[list[float]]
    reference: list[float]
    noise: float


def rates(probabilities: Sequence[Floats], labels: Sequence[Labels]) -> list[list[float]]:
    """Row c: mean predicted probabilities of the images of class c, domains weighing alike."""
    n_classes = probabilities[0].shape[1]
    rows = []
    for c in range(n_classes):
        means = [
            np.mean([p[i] for i in range(len(y)) if y[i] == c], axis=0)
            for p, y in zip(probabilities, labels, strict=True)
            if c in y
        ]
        row = np.mean(means, axis=0) if means else np.array(reference(labels, n_classes))
        rows.append(row.tolist())
    return rows


def reference(labels: Sequence[Labels], n_classes: int) -> list[float]:
    """Mean over the domains of the share of each class."""
    return [float(np.mean([np.mean(y == c) for y in labels])) for c in range(n_classes)]


def measured(probabilities: Sequence[Floats], labels: Sequence[Labels]) -> Measured:
    """Three times the mean squared error of b = rates^T pi, with the rates of other domains."""
    n_classes, n_domains = probabilities[0].shape[1], len(labels)
    errors = []
    for e in range(n_domains):
        others = [o for o in range(n_domains) if o != e] or [e]
        elsewhere = rates([probabilities[o] for o in others], [labels[o] for o in others])
        for k in range(n_classes):
            b = float(np.mean(probabilities[e][:, k]))
            expected = sum(np.mean(labels[e] == c) * elsewhere[c][k] for c in range(n_classes))
            errors.append((b - expected) ** 2)
    noise = 3 * float(np.mean(errors))
    return Measured(rates(probabilities, labels), reference(labels, n_classes), noise)


def mixture(probabilities: Floats, known: Measured) -> Floats:
    """The minimum of the penalised squares, by a general optimiser; clipped and normalised."""
    A, start = np.array(known.rates), np.array(known.reference)
    n, n_classes = probabilities.shape
    noise = known.noise + sum(share * (1 - share) for share in start) / n_classes / n
    prior = (sum(start) / n_classes) ** 2
    b = probabilities.mean(axis=0)

    def objective(pi: Floats) -> float:
        expected = [sum(pi[c] * A[c, k] for c in range(n_classes)) for k in range(n_classes)]
        misfit = sum((b[k] - expected[k]) ** 2 for k in range(n_classes)) / noise
        distance = sum((pi[c] - start[c]) ** 2 for c in range(n_classes)) / prior
        return float((misfit + distance) * min(noise, prior))

    found = minimize(objective, start, method="BFGS", options={"gtol": 1e-10}).x
    clipped = np.array([max(found[c], 0.1 * start[c]) if start[c] else 0 for c in range(n_classes)])
    result: Floats = clipped / clipped.sum()
    return result


def logits(
    x: Floats,
    plain: tuple[Floats, Floats],
    standardised: tuple[Floats, Floats],
    mean: Floats,
    std: Floats,
) -> Floats:
    """Logits of one image of a domain with this mean and standard deviation."""
    (W, b), (V, a) = plain, standardised
    z = [(x[j] - mean[j]) / std[j] if std[j] else 0.0 for j in range(len(x))]
    return np.array(
        [
            sum(W[c, j] * x[j] + V[c, j] * z[j] for j in range(len(x))) + b[c] + a[c]
            for c in range(len(b))
        ]
    )

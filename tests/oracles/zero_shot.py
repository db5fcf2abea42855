"""Zero-shot classification as it is written, one image and one class at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray


def class_embedding(texts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The mean of the normalised embeddings of the texts of a class, normalised again."""
    mean = np.mean([text / math.sqrt(text @ text) for text in texts], axis=0)
    result: NDArray[Any] = mean / math.sqrt(mean @ mean)
    return result


def logits(f: NDArray[Any], T: NDArray[Any], scale: float, bias: float = 0.0) -> list[float]:
    """Scaled cosines of one image and each class."""
    return [scale * float(f @ t) / math.sqrt(f @ f) + bias for t in T]


def accuracy(X: NDArray[Any], T: NDArray[Any], y: Any, domains: Any = None) -> float:
    """Share of the images whose nearest class is right, mean over domains."""
    names = [0] * len(y) if domains is None else list(domains)
    found = []
    for domain in sorted(set(names)):
        rows = [i for i in range(len(y)) if names[i] == domain]
        right = 0
        for i in rows:
            each = logits(X[i], T, 1.0)
            right += each.index(max(each)) == y[i]
        found.append(right / len(rows))
    return sum(found) / len(found)


def started_head(
    Z: NDArray[Any], y: NDArray[Any], offset: NDArray[Any], C: float
) -> NDArray[np.float64]:
    """Weights and, in the last column, bias that are added to given logits (n, C).

    They minimise the sum of -ln p(y|z) plus ‖W‖²/2C, by a solver that knows nothing of the problem.
    """
    n_classes, d = offset.shape[1], Z.shape[1]
    onehot = np.eye(n_classes)[y]

    def value_and_gradient(flat: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        both = flat.reshape(n_classes, d + 1)
        outputs = offset + Z @ both[:, :-1].T + both[:, -1]
        outputs = outputs - outputs.max(axis=1, keepdims=True)
        logp = outputs - np.log(np.exp(outputs).sum(axis=1, keepdims=True))
        residuals = np.exp(logp) - onehot
        gradient = np.column_stack([residuals.T @ Z + both[:, :-1] / C, residuals.sum(axis=0)])
        return -np.sum(logp * onehot) + np.sum(both[:, :-1] ** 2) / (2 * C), gradient.ravel()

    found = scipy.optimize.minimize(
        value_and_gradient,
        np.zeros(n_classes * (d + 1)),
        jac=True,
        method="L-BFGS-B",
        options={"gtol": 1e-9, "ftol": 0.0, "maxiter": 20_000, "maxfun": 40_000},
    )
    both: NDArray[np.float64] = found.x.reshape(n_classes, d + 1)
    return both

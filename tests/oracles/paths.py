"""Held-out predictions by scikit-learn, one fit at a time."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression


def left_out_path(
    X: NDArray[Any],
    labels: NDArray[Any],
    domains: NDArray[Any],
    left_out: Set[int],
    Cs: Sequence[float],
    n_classes: int,
) -> NDArray[np.float64]:
    """Log-probabilities (n_Cs, n, n_classes) of the samples of some domains."""
    train = np.array([domain not in left_out for domain in domains.tolist()])
    X = X.astype(np.float64)
    mean, std = X[train].mean(axis=0), X[train].std(axis=0)
    Z = (X - mean) / np.where(std > 0, std, 1)
    results = []
    for C in Cs:
        model = LogisticRegression(C=C, tol=1e-10, max_iter=10_000).fit(Z[train], labels[train])
        if len(model.classes_) == 2:  # one row of weights for two classes; twice the penalty
            model = _two_classes(Z[train], labels[train], C)
        result = np.full((int(np.sum(~train)), n_classes), -np.inf)
        result[:, model.classes_] = model.predict_log_proba(Z[~train])
        results.append(result)
    return np.stack(results)


def _two_classes(Z: NDArray[Any], labels: NDArray[Any], C: float) -> LogisticRegression:
    """With weights ±w/2 the penalty of both rows is ‖w‖²/4C: half of that of one row w."""
    return LogisticRegression(C=2 * C, tol=1e-10, max_iter=10_000).fit(Z, labels)

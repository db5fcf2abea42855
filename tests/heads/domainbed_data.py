"""A small problem of three domains, and two groups of runs."""

from __future__ import annotations

import numpy as np

from oodzoo.core.backend import backend
from oodzoo.linear.heads.domainbed.protocol import Hyperparameters, Split, folds, split
from oodzoo.linear.heads.domainbed.training import Group, Problem

GROUPS = [
    Group(0, 0, Hyperparameters(1e-3, 0.0, 4, 0.0)),
    Group(1, 2, Hyperparameters(3e-2, 1e-1, 7, 0.0)),
]


def problem(device: str | None, n: int = 60, d: int = 6, n_classes: int = 3) -> Problem:
    rng = np.random.default_rng(0)
    domains, labels = np.arange(n) // (n // 3), np.arange(n) % n_classes
    features = (rng.normal(size=(n, d)) + 2 * np.eye(n_classes, d)[labels]).astype(np.float32)
    splits = {}
    for domain in range(3):
        rows = np.flatnonzero(domains == domain)
        for trial in range(2):
            inside, outside = split(len(rows), trial, domain)
            splits[trial, domain] = Split(rows[inside], rows[outside])
    there = backend(device)
    return Problem(
        there, there.asarray(features), labels, n_classes, folds(range(3), range(3)), splits,
        (0, 1, 2), 5,
    )  # fmt: skip

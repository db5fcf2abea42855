"""Time the ranking of one model against a lower bound, the literal formula and public LogME.

    python benchmarks/rank.py [--rows 20000] [--features 1024] [--repeats 3]

The lower bound ("floor") for all folds is what log-densities of all samples cannot do without: one
float64 Gram matrix of all samples, one n × d by d × d product, and m + 1 eigendecompositions. The
default score does without the product. The literal
implementation computes the evidence of every fold and class from the samples; one fold and class is
timed and multiplied by their number. Public LogME follows its authors' code for one fit on all
samples, without domains: singular values of the Gram matrix, left singular vectors, then one class
after another.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

import oodzoo
from oodzoo.extraction.importing import import_features

Floats = NDArray[np.float64]
N_DOMAINS, N_CLASSES = 4, 10


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def floor(X: NDArray[np.float32]) -> None:
    whole = X.astype(np.float64)
    gram = whole.T @ whole
    for _ in range(N_DOMAINS + 1):
        _, vectors = scipy.linalg.eigh(gram, driver="evd", check_finite=False)
    whole @ vectors


def literal_fold_and_class(X: NDArray[np.float32], y: Floats) -> None:
    """Compute the evidence of one fold and class from the samples, by the paper's fixed point.

    Ten iterations of the fixed point, each of which inverts a d × d matrix.
    """
    Phi = X.astype(np.float64)
    n, d = Phi.shape
    alpha = beta = 1.0
    for _ in range(10):
        A = alpha * np.eye(d) + beta * Phi.T @ Phi
        inverse = np.linalg.inv(A)
        m = beta * inverse @ Phi.T @ y
        gamma = d - alpha * np.trace(inverse)
        alpha = gamma / (m @ m)
        beta = (n - gamma) / np.sum((y - Phi @ m) ** 2)
    np.linalg.slogdet(alpha * np.eye(d) + beta * Phi.T @ Phi)


def public_logme(X: NDArray[np.float32], y: NDArray[np.int64]) -> None:
    """Follow the steps of the public code, written from its description."""
    f = X.astype(np.float64)
    n = len(f)
    _, squares, vh = np.linalg.svd(f.T @ f)
    u = (f @ vh.T) / np.sqrt(squares)
    for label in range(N_CLASSES):
        target = (y == label).astype(np.float64)[:, None]
        x2 = (u.T @ target) ** 2
        rest = np.sum(target**2) - np.sum(x2)
        t = 1.0
        for _ in range(11):
            gamma = np.sum(squares / (squares + t))
            m2 = np.sum(squares[:, None] * x2 / (t + squares[:, None]) ** 2)
            residual = np.sum(x2 / (1 + squares[:, None] / t) ** 2) + rest
            t = (gamma / m2) / ((n - gamma) / residual)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--features", type=int, default=1_024)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    n, d = arguments.rows, arguments.features
    y = rng.integers(0, N_CLASSES, n)
    domains = rng.integers(0, N_DOMAINS, n).astype(str)
    X = rng.normal(size=(n, d)).astype(np.float32)
    X[:, :N_CLASSES] += np.eye(N_CLASSES, dtype=np.float32)[y]

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "net.npz"
        np.savez(file, labels=y.astype(str), domains=domains, net=X)
        store = import_features([file], Path(folder) / "store")
        cache = store.path / "cache"

        def rank() -> None:
            for cached in cache.rglob("*.npz"):
                cached.unlink()
            oodzoo.rank(store)

        ratios, publics = [], []
        for _ in range(arguments.repeats):
            base = seconds(lambda: floor(X))
            ours = seconds(rank)
            public = seconds(lambda: public_logme(X, y))
            ratios.append(ours / base)
            publics.append(ours / public)
            print(
                f"{n} x {d}: floor {base:.2f} s, ranking from disk {ours:.2f} s (ratio "
                f"{ratios[-1]:.2f}), one fit of the public LogME {public:.2f} s",
                flush=True,
            )
        second = seconds(lambda: oodzoo.rank(store))
        target = (y[domains != "0"] == 0).astype(np.float64)
        fold = X[domains != "0"]
        literal = seconds(lambda: literal_fold_and_class(fold, target)) * N_DOMAINS * N_CLASSES
        print(f"best ratio to the floor: {min(ratios):.2f} (target 1.3)")
        print(f"best ratio to one fit of the public LogME: {min(publics):.2f}")
        print(
            f"literal implementation: {literal:.0f} s, {literal / ours:.0f} times ours (target 20)"
        )
        print(f"ranking again, from the cache: {second:.2f} s")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"peak memory of this process, including the arrays of the floor: {peak:.1f} GB")


if __name__ == "__main__":
    main()

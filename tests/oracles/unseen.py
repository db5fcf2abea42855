"""Literal twins of the default ranking score: sample by sample, domain by domain.

Nothing but the values of the ridge is shared with the library. A ridge regression is a
least-squares problem with one extra row per feature, on centred features; no Gram matrix is formed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from tests.oracles import bayes

from oodzoo.ranking.transfer import RIDGES

Floats = NDArray[np.float64]
Domains = Mapping[str, tuple[Floats, NDArray[np.int64]]]
"""Features and labels of each domain."""


def one_hot(y: NDArray[np.int64], n_classes: int) -> Floats:
    Y = np.zeros((len(y), n_classes))
    for j in range(len(y)):
        Y[j, y[j]] = 1.0
    return Y


def ridge_regression(Psi: Floats, Y: Floats, relative: float) -> Floats:
    """Weights that minimise |Y - Psi W|² + δ|W|², δ relative to the mean non-zero eigenvalue.

    Psi has at most min(n, d) eigenvalues of Psi' Psi that are not zero.
    """
    n, d = Psi.shape
    eigenvalues = np.linalg.svd(Psi, compute_uv=False) ** 2
    delta = relative * sum(eigenvalues) / min(n, d)
    if delta == 0:
        return np.zeros((d, Y.shape[1]))
    rows = np.vstack([Psi, math.sqrt(delta) * np.eye(d)])
    right = np.vstack([Y, np.zeros((d, Y.shape[1]))])
    weights: Floats = np.linalg.lstsq(rows, right, rcond=None)[0]
    return weights


def centred(X: Floats) -> Floats:
    """Features minus their mean: zeros where all samples are equal, up to rounding."""
    return X - X.mean(axis=0) if np.ptp(X, axis=0).any() else np.zeros(X.shape)


def skill(
    source: tuple[Floats, NDArray[np.int64]],
    target: tuple[Floats, NDArray[np.int64]],
    n_classes: int,
    relative: float,
) -> float:
    """Share of the variance of the labels of the target that the source predicts, in [0, 1]."""
    Phi_e, Y_e = source[0], one_hot(source[1], n_classes)
    Phi_k, Y_k = target[0], one_hot(target[1], n_classes)
    mu, frequencies = Phi_e.mean(axis=0), Y_e.mean(axis=0)
    W = ridge_regression(centred(Phi_e), Y_e - frequencies, relative)
    own_frequencies = Y_k.mean(axis=0)
    error = variance = 0.0
    for phi, y in zip(Phi_k, Y_k, strict=True):
        predicted = frequencies + (phi - mu) @ W
        error += float(sum((y - predicted) ** 2))
        variance += float(sum((y - own_frequencies) ** 2))
    if variance == 0:
        return math.nan
    return min(max(1 - error / variance, 0.0), 1.0)


def pairs(
    data: Domains, n_classes: int, weights: Mapping[str, float] | None = None
) -> dict[tuple[str, str], float]:
    """Skill of each pair (source, target) at the ridge with the highest mean; NaN if unknown."""
    found: list[tuple[float, dict[tuple[str, str], float]]] = []
    for relative in RIDGES:
        skills = {
            (e, k): skill(data[e], data[k], n_classes, relative)
            for e in data
            for k in data
            if e != k
        }
        found.append((mean_over_domains(into(skills, data), weights), skills))
    return max(found, key=lambda pair: pair[0])[1]


def into(skills: Mapping[tuple[str, str], float], domains: Iterable[str]) -> dict[str, float]:
    """Mean skill into each domain from the others; NaN if there is none."""
    means = {}
    for domain in domains:
        values = [skills[e, k] for e, k in skills if k == domain]
        means[domain] = sum(values) / len(values) if values else math.nan
    return means


def mean_over_domains(values: Mapping[str, float], weights: Mapping[str, float] | None) -> float:
    """Weighted mean of what is known; zero if nothing is, plain if no known value has a weight."""
    known = [k for k in values if not math.isnan(values[k])]
    if not known:
        return 0.0
    shares = {k: 1.0 if weights is None else weights[k] for k in known}
    if sum(shares.values()) == 0:
        shares = dict.fromkeys(known, 1.0)
    return sum(shares[k] * values[k] for k in known) / sum(shares.values())


def transfer(data: Domains, n_classes: int, weights: Mapping[str, float] | None = None) -> float:
    """Mean over domains of the skill into them."""
    return mean_over_domains(into(pairs(data, n_classes, weights), data), weights)


def log_evidence(squares: Floats, eigenvalues: Floats, ridge: float) -> float:
    """ln N(y; 0, (I + XX'/ridge)/β) with the best β, 1/β at least 1e-6 mean(y²).

    In the basis of the eigenvectors of XX' (n × n) the covariance is diagonal; `squares` are those
    of y in this basis.
    """
    n = len(squares)
    quadratic = logarithms = 0.0
    for square, eigenvalue in zip(squares, eigenvalues, strict=True):
        quadratic += float(square) / (1 + eigenvalue / ridge)
        logarithms += math.log(1 + eigenvalue / ridge)
    beta = n / max(quadratic, 1e-6 * float(sum(squares)))
    return -0.5 * (n * math.log(2 * math.pi / beta) + logarithms + beta * quadratic)


def highest_log_evidence(X: Floats, y: Floats) -> float:
    """Over ridges from 1e-12 of the second eigenvalue of XX', at which a sample is left to
    determine the noise, to 1e6 times the first."""
    U, singular, _ = np.linalg.svd(X, full_matrices=True)
    squares = (y @ U) ** 2
    eigenvalues = np.zeros(max(len(X), 2))
    eigenvalues[: len(singular)] = singular**2
    first, second = eigenvalues[:2]
    eigenvalues = eigenvalues[: len(X)]
    if first == 0:
        return log_evidence(squares, eigenvalues, 1.0)
    low = math.log(max(1e-12 * (second or first), bayes.least_ridge(X)))
    high = math.log(1e6 * first)
    grid = np.linspace(low, high, 150)
    best = int(np.argmax([log_evidence(squares, eigenvalues, math.exp(x)) for x in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, 149)]
    for _ in range(60):  # thirds
        a, b = low + (high - low) / 3, high - (high - low) / 3
        values = [log_evidence(squares, eigenvalues, math.exp(x)) for x in (a, b)]
        low, high = (a, high) if values[0] < values[1] else (low, b)
    return log_evidence(squares, eigenvalues, math.exp((low + high) / 2))


def evidence(data: Domains) -> float:
    """LogME of all domains together, averaged over the classes that they have."""
    X = np.vstack([Phi for Phi, _ in data.values()])
    y = np.concatenate([y for _, y in data.values()])
    classes = sorted(set(y.tolist()))
    values = [highest_log_evidence(X, (y == c).astype(np.float64)) / len(y) for c in classes]
    return sum(values) / len(values)


def ranks(values: Sequence[float]) -> list[float]:
    """1 for the lowest value; equal values share the mean of their ranks."""
    found = []
    for value in values:
        lower = sum(other < value for other in values)
        equal = sum(other == value for other in values)
        found.append(lower + (equal + 1) / 2)
    return found


def standardised(values: Sequence[float]) -> list[float]:
    """To mean 0 and variance 1; zeros for equal values."""
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    if math.sqrt(variance) <= 1e-9 * max(abs(value) for value in values):
        return [0.0 for _ in values]
    return [(value - mean) / math.sqrt(variance) for value in values]


def reliability(table: Sequence[Sequence[float]]) -> float:
    """Intraclass correlation, one-way and of a single value: rows are models, columns pairs.

    From the mean squares between and within models of an analysis of variance; at least 0.
    """
    n_models, k = len(table), len(table[0])
    if n_models < 2 or k < 2:
        return 0.0
    grand = sum(sum(row) for row in table) / (n_models * k)
    between = sum(k * (sum(row) / k - grand) ** 2 for row in table) / (n_models - 1)
    within = sum(sum((value - sum(row) / k) ** 2 for value in row) for row in table) / (
        n_models * (k - 1)
    )
    if between <= within:
        return 0.0
    return (between - within) / (between + (k - 1) * within)


def combined(
    evidences: Sequence[float],
    skills: Sequence[Sequence[float]],
    weights: Sequence[float] | None = None,
) -> list[float]:
    """Score of each model from its evidence and its skill in each pair of domains.

    Skills that are equal to nine decimals are tied.
    """
    n_pairs = len(skills[0])
    if n_pairs == 0:
        return standardised(evidences)
    columns = [ranks([round(row[pair], 9) for row in skills]) for pair in range(n_pairs)]
    table = [[column[model] for column in columns] for model in range(len(skills))]
    shares = [1.0] * n_pairs if weights is None else list(weights)
    means = [
        sum(share * rank for share, rank in zip(shares, row, strict=True)) / sum(shares)
        for row in table
    ]
    r = reliability(table)
    return [
        (a + r * b) / (1 + r)
        for a, b in zip(standardised(evidences), standardised(means), strict=True)
    ]


def unseen(
    models: Mapping[str, Domains],
    n_classes: int,
    weights: Mapping[str, float] | None = None,
    without: str | None = None,
) -> dict[str, float]:
    """The default score of each model from its features and labels in each domain.

    `without` is a domain whose pairs, as a target, are left out.
    """
    skills = [pairs(data, n_classes, weights) for data in models.values()]
    known = [(e, k) for e, k in skills[0] if not math.isnan(skills[0][e, k]) and k != without]
    shares = None if weights is None else [weights[k] for _, k in known]
    if shares is not None and sum(shares) == 0:
        shares = None
    scores = combined(
        [evidence(data) for data in models.values()],
        [[each[pair] for pair in known] for each in skills],
        shares,
    )
    return dict(zip(models, scores, strict=True))

"""The scores as their papers write them: sample by sample, class by class, slow and obvious."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.covariance import ledoit_wolf_shrinkage
from tests.oracles import bayes


def members(y: Any, c: Any) -> list[int]:
    return [i for i in range(len(y)) if y[i] == c]


def classes_of(y: Any) -> list[Any]:
    return sorted(set(y))


def leep(theta: Any, y: Any) -> float:
    """Nguyen et al. 2020, eq. 1 and 2."""
    n, n_source = np.shape(theta)
    joint = {
        (c, z): sum(theta[i][z] for i in members(y, c)) / n
        for c in classes_of(y)
        for z in range(n_source)
    }
    marginal = [sum(joint[c, z] for c in classes_of(y)) for z in range(n_source)]
    total = 0.0
    for i in range(n):
        expected: float = 0.0
        for z in range(n_source):
            if marginal[z] > 0:
                expected += joint[y[i], z] / marginal[z] * theta[i][z]
        total += math.log(expected)
    return float(total / n)


def nce(source: Any, y: Any) -> float:
    """Tran et al. 2019: -H(Y | Z) of the empirical distribution."""
    n = len(y)
    total = 0.0
    for z in classes_of(source):
        with_z = members(source, z)
        for c in classes_of(y):
            both = [i for i in with_z if y[i] == c]
            if both:
                total += len(both) / n * math.log(len(both) / len(with_z))
    return total


def class_average(X: Any, y: Any) -> Any:
    """Each sample replaced by the mean of its class."""
    return np.array([np.mean([X[j] for j in members(y, y[i])], axis=0) for i in range(len(y))])


def covariance(X: Any, divisor: int) -> Any:
    mean = sum(X) / len(X)
    return sum(np.outer(x - mean, x - mean) for x in X) / divisor


def h_score(X: Any, y: Any) -> float:
    """Bao et al. 2019, definition 2."""
    n = len(X)
    total = covariance(X, n - 1)
    between = covariance(class_average(X, y), n - 1)
    return float(np.trace(np.linalg.pinv(total, rcond=1e-10, hermitian=True) @ between))


def regularized_h_score(X: Any, y: Any) -> float:
    """Ibrahim et al. 2022, section 4."""
    n, d = X.shape
    alpha = float(ledoit_wolf_shrinkage(X)) if d > 1 else 0.0
    S = covariance(X, n)
    shrunk = (1 - alpha) * S + alpha * np.trace(S) / d * np.eye(d)
    between = covariance(class_average(X, y), n - 1)
    return (1 - alpha) * float(np.trace(np.linalg.inv(shrunk) @ between))


def evidence(X: Any, target: Any, ridge: float) -> float:
    """ln N(target; 0, 1/β (I + XXᵀ/ridge)) with the best β, 1/β at least 1e-6 mean(target²)."""
    n = len(X)
    shape = np.eye(n) + X @ X.T / ridge
    quadratic = float(target @ np.linalg.solve(shape, target))
    beta = n / max(quadratic, 1e-6 * float(target @ target))
    log_determinant = float(np.linalg.slogdet(shape)[1]) - n * math.log(beta)
    return -0.5 * (n * math.log(2 * math.pi) + log_determinant + beta * quadratic)


def one_hot(y: Any) -> Any:
    """Labels of classes as columns of zeros and ones."""
    return np.array([[float(label == c) for c in classes_of(y)] for label in y])


def logme(X: Any, y: Any) -> float:
    """You et al. 2021, eq. 2, of the classes y."""
    return logme_of_columns(X, one_hot(y))


def logme_of_columns(X: Any, Y: Any) -> float:
    """The same of numbers, as a density of each column, with the best of many α/β."""
    values = []
    least = bayes.least_ridge(X)
    lowest = math.log(least) if least > 0 else -20.0
    for target in Y.T:
        grid = np.linspace(lowest, 20, 121)
        best = int(np.argmax([evidence(X, target, math.exp(x)) for x in grid]))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, 120)]
        for _ in range(60):  # thirds
            a, b = low + (high - low) / 3, high - (high - low) / 3
            if evidence(X, target, math.exp(a)) < evidence(X, target, math.exp(b)):
                low = a
            else:
                high = b
        values.append(evidence(X, target, math.exp((low + high) / 2)) / len(X))
    return sum(values) / len(values)


def published_logme(X: Any, y: Any) -> float:
    """You et al. 2022, algorithm 3, with the constants and the sums of the authors' code."""
    return published_logme_of_columns(X, one_hot(y))


def published_logme_of_columns(X: Any, Y: Any) -> float:
    """The same of numbers, `regression=True` in the authors' code."""
    n, d = X.shape
    U, singular, _ = np.linalg.svd(X, full_matrices=False)
    values = []
    for target in Y.T:
        z = [float(U[:, k] @ target) for k in range(len(singular))]
        outside = float(target @ target) - sum(value**2 for value in z)
        alpha = beta = 1.0
        for _ in range(11):
            t = alpha / beta
            gamma = sum(s**2 / (s**2 + t) for s in singular)
            norm = sum(s**2 * v**2 / (t + s**2) ** 2 for s, v in zip(singular, z, strict=True))
            residual = outside
            residual += sum(v**2 / (1 + s**2 / t) ** 2 for s, v in zip(singular, z, strict=True))
            alpha = gamma / (norm + 1e-5)
            beta = (n - gamma) / (residual + 1e-5)
            if abs(alpha / beta - t) / t <= 1e-3:
                break
        value = d / 2 * math.log(alpha) + n / 2 * math.log(beta) - n / 2 * math.log(2 * math.pi)
        value -= beta / 2 * residual + alpha / 2 * norm
        value -= sum(math.log(alpha + beta * s**2) for s in singular) / 2
        values.append(value / n)
    return float(sum(values) / len(values))


def knn(
    X: Any, y: Any, domains: Any, k: int = 200, temperature: float = 0.07, with_ties: bool = False
) -> float:
    """Wu et al. 2018, section 3.4, on each domain with the neighbours of all others.

    With ties, all neighbours as similar as the k-th vote; votes equal to 1e-9 tie, and the first
    class wins.
    """
    accuracies = []
    for domain in classes_of(domains):
        left_out = members(domains, domain)
        kept = [j for j in range(len(y)) if domains[j] != domain]
        right = 0
        for i in left_out:
            similarities = []
            for j in kept:
                lengths = math.sqrt(X[i] @ X[i]) * math.sqrt(X[j] @ X[j])
                similarities.append((X[i] @ X[j] / lengths if lengths > 0 else 0.0, y[j]))
            similarities.sort(key=lambda pair: -pair[0])
            votes = dict.fromkeys(classes_of(y), 0.0)
            least = similarities[min(k, len(similarities)) - 1][0] - 1e-13
            voters = [s for s in similarities if s[0] >= least] if with_ties else similarities[:k]
            for similarity, label in voters:
                votes[label] += math.exp(similarity / temperature)
            most = max(votes.values()) * (1 - 1e-9 if with_ties else 1)
            right += next(label for label in votes if votes[label] >= most) == y[i]
        accuracies.append(right / len(left_out))
    return sum(accuracies) / len(accuracies)


def coding_rate(Z: Any, eps: float) -> float:
    n, d = Z.shape
    return 0.5 * float(np.log(np.linalg.det(np.eye(d) + Z.T @ Z / (n * eps))))


def transrate(X: Any, y: Any, eps: float = 1e-4) -> float:
    """Huang et al. 2022, eq. 3 to 5."""
    Z = X - sum(X) / len(X)
    given_labels = 0.0
    for c in classes_of(y):
        mine = members(y, c)
        given_labels += len(mine) / len(y) * coding_rate(Z[mine], eps)
    return coding_rate(Z, eps) - given_labels


def gbc(X: Any, y: Any, covariance_form: str, n_components: int | None, floor: float) -> float:
    """Pándy et al. 2022, eq. 2 to 4, with full matrices."""
    Z = X - sum(X) / len(X)
    if n_components is not None:
        _, singular, directions = np.linalg.svd(Z, full_matrices=False)
        rank = int(np.sum(singular > 1e-9 * singular[0]))
        Z = Z @ directions[: min(n_components, rank)].T
    d = Z.shape[1]
    least = floor * sum(z @ z for z in Z) / len(Z) / d
    gaussians = []
    for c in classes_of(y):
        mine = Z[members(y, c)]
        variances = [float(np.mean((mine[:, j] - np.mean(mine[:, j])) ** 2)) for j in range(d)]
        if covariance_form == "spherical":
            variances = [sum(variances) / d] * d
        gaussians.append((np.mean(mine, axis=0), np.diag([max(v, least) for v in variances])))
    total = 0.0
    for i, (mean_i, cov_i) in enumerate(gaussians):
        for j, (mean_j, cov_j) in enumerate(gaussians):
            if i != j:
                shared = (cov_i + cov_j) / 2
                gap = mean_i - mean_j
                distance = gap @ np.linalg.inv(shared) @ gap / 8
                logs = [np.linalg.slogdet(S)[1] for S in (shared, cov_i, cov_j)]
                distance += (logs[0] - (logs[1] + logs[2]) / 2) / 2
                total += math.exp(-distance)
    return -total


def discriminant_posteriors(X: Any, y: Any, shrinkage: float) -> Any:
    """P(c | x) with Gaussian classes of one shrunk covariance, by the densities themselves."""
    n, d = X.shape
    S = sum(
        len(members(y, c)) / n * covariance(X[members(y, c)], len(members(y, c)))
        for c in classes_of(y)
    )
    S = (1 - shrinkage) * S + shrinkage * np.trace(S) / d * np.eye(d)
    posteriors = []
    for x in X:
        logs = []
        for c in classes_of(y):
            gap = x - np.mean(X[members(y, c)], axis=0)
            logs.append(math.log(len(members(y, c)) / n) - gap @ np.linalg.solve(S, gap) / 2)
        weights = [math.exp(value - max(logs)) for value in logs]
        posteriors.append([weight / sum(weights) for weight in weights])
    return posteriors


def sfda(X: Any, y: Any, a: float = 5.0) -> float:
    """Shao et al. 2022, sections 4.2 and 4.3, with the shrinkage and ConfMix of their code."""
    n = len(X)
    classes = classes_of(y)
    within = sum(
        len(members(y, c)) / n * covariance(X[members(y, c)], len(members(y, c))) for c in classes
    )
    shrinkage = max(math.exp(-a * float(np.linalg.eigvalsh(within).max())), 1e-10)
    posteriors = discriminant_posteriors(X, y, shrinkage)
    means = {c: np.mean(X[members(y, c)], axis=0) for c in classes}
    harder = []
    for i in range(n):
        softened = [math.exp(p) for p in posteriors[i]]
        sure = softened[classes.index(y[i])] / sum(softened)
        others = [means[c] for c in classes if c != y[i]]
        harder.append(sure * X[i] + (1 - sure) * sum(others) / len(others))
    posteriors = discriminant_posteriors(np.array(harder), y, shrinkage)
    return sum(math.log(posteriors[i][classes.index(y[i])]) for i in range(n)) / n


def mean_ranks(values: list[float]) -> list[float]:
    return [
        1 + sum(other < value for other in values) + (sum(o == value for o in values) - 1) / 2
        for value in values
    ]


def correlation(a: Any, b: Any) -> float:
    a, b = np.asarray(a) - np.mean(a), np.asarray(b) - np.mean(b)
    lengths = math.sqrt(a @ a) * math.sqrt(b @ b)
    return float(a @ b) / lengths if lengths > 0 else 0.0


def parc(X: Any, y: Any) -> float:
    """Bolya et al. 2021, section 4, with one-hot labels."""
    columns = []
    for column in X.T:
        spread = math.sqrt(np.mean((column - np.mean(column)) ** 2))
        columns.append((column - np.mean(column)) / (spread if spread > 0 else 1))
    Z = np.array(columns).T
    one_hot = [[float(label == c) for c in classes_of(y)] for label in y]
    pairs = [(i, j) for j in range(len(y)) for i in range(j)]
    by_features = [round(1 - correlation(Z[i], Z[j]), 12) for i, j in pairs]
    by_labels = [round(1 - correlation(one_hot[i], one_hot[j]), 12) for i, j in pairs]
    return 100 * correlation(mean_ranks(by_features), mean_ranks(by_labels))


def oas_shrinkage(S: Any, n: int) -> float:
    """Chen et al. 2010, eq. 23."""
    d = len(S)
    squares, trace = np.trace(S @ S), np.trace(S)
    denominator = (n + 1 - 2 / d) * (squares - trace**2 / d)
    if denominator <= 0:
        return 1.0
    return float(min(1.0, ((1 - 2 / d) * squares + trace**2) / denominator))


def lda(X: Any, y: Any, domains: Any) -> float:
    """A Gaussian for each class, of one shrunk covariance; each domain left out in turn."""
    accuracies = []
    for domain in classes_of(domains):
        kept = [i for i in range(len(y)) if domains[i] != domain]
        known = sorted({y[i] for i in kept})
        means, shares, within = {}, {}, np.zeros((X.shape[1], X.shape[1]))
        for c in known:
            mine = [i for i in kept if y[i] == c]
            means[c] = np.mean(X[mine], axis=0)
            shares[c] = len(mine) / len(kept)
            for i in mine:
                within += np.outer(X[i] - means[c], X[i] - means[c]) / len(kept)
        rho = oas_shrinkage(within, len(kept))
        shrunk = (1 - rho) * within + rho * np.trace(within) / len(within) * np.eye(len(within))
        inverse = np.linalg.inv(shrunk)
        right = 0
        for i in members(domains, domain):
            density = {
                c: math.log(shares[c]) - (X[i] - means[c]) @ inverse @ (X[i] - means[c]) / 2
                for c in known
            }
            right += max(known, key=lambda c: density[c]) == y[i]
        accuracies.append(right / len(members(domains, domain)))
    return sum(accuracies) / len(accuracies)

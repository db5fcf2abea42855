"""Comparison of models and the Pareto front, pair by pair, from their definitions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from scipy import integrate, special, stats


def probability_of_largest_t(q: float, k: int, freedom: float) -> float:
    """Dunnett 1955: all of k t variables are below q; they share a control and a variance."""

    def given_scale(s: float) -> float:
        def density(z: float) -> float:
            below = math.erfc(-q * s - z / math.sqrt(2)) / 2
            return below**k * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

        return float(integrate.quad(density, -9, 9)[0])

    def of_scale(s: float) -> float:
        half = freedom / 2
        chi = half * math.log(half) - math.lgamma(half) + (freedom - 1) * math.log(s) - half * s * s
        return given_scale(s) * 2 * math.exp(chi)

    largest = math.sqrt(float(stats.chi2.isf(1e-9, freedom)) / freedom)
    return float(integrate.quad(of_scale, 0, largest, epsabs=1e-7)[0])


def t_statistics(
    scores: Sequence[Sequence[float]],
    image_covariances: Sequence[Sequence[Sequence[float]]],
    weights: Sequence[float] | None = None,
) -> tuple[list[list[float]], float]:
    """Mean difference of each pair in standard errors, and the degrees of freedom."""
    n, m = len(scores), len(scores[0])
    w = [1 / m] * m if weights is None else list(weights)
    squares = sum(x * x for x in w)
    # the variance is a quadratic form with this matrix; its trace is 1
    form = [
        [((w[i] if i == j else 0) - w[i] * w[j]) / (1 - squares) for j in range(m)]
        for i in range(m)
    ]
    freedom = 1 / sum(form[i][j] * form[j][i] for i in range(m) for j in range(m))
    means, variances, images = {}, {}, {}
    for a in range(n):
        for b in range(n):
            d = [scores[a][i] - scores[b][i] for i in range(m)]
            means[a, b] = sum(w[i] * d[i] for i in range(m))
            variances[a, b] = sum(form[i][j] * d[i] * d[j] for i in range(m) for j in range(m))
            images[a, b] = sum(
                w[i] ** 2
                * (
                    image_covariances[i][a][a]
                    + image_covariances[i][b][b]
                    - 2 * image_covariances[i][a][b]
                )
                for i in range(m)
            )
    prior, scale = _prior([variances[a, b] for a in range(n) for b in range(a)], freedom)
    prior = min(prior, (n - 2) * freedom)
    total = prior + freedom
    table = []
    for a in range(n):
        row = []
        for b in range(n):
            moderated = (prior * scale(prior) + freedom * variances[a, b]) / total
            error = math.sqrt(max(squares * moderated, images[a, b]))
            row.append(means[a, b] / error)
        table.append(row)
    return table, total


def _prior(variances: Sequence[float], freedom: float):  # type: ignore[no-untyped-def]
    """Smyth 2004, section 6.2: moments of the logarithms; trigamma is inverted by bisection."""
    half = freedom / 2
    logs = [math.log(v) - float(special.digamma(half)) + math.log(half) for v in variances]
    mean = sum(logs) / len(logs)
    spread = sum((x - mean) ** 2 for x in logs) / (len(logs) - 1)
    spread -= float(special.zeta(2, half))  # trigamma
    low, high = 1e-6, 1e9
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if special.zeta(2, middle) > spread else (low, middle)

    def scale(prior: float) -> float:
        return math.exp(mean + float(special.digamma(prior / 2)) - math.log(prior / 2))

    return 2 * low, scale


def pareto_optimal(accuracy: Mapping[str, float], cost: Mapping[str, float | None]) -> set[str]:
    """Models that no other dominates."""
    known = {model: c for model, c in cost.items() if c is not None}
    return {
        a
        for a in known
        if not any(
            accuracy[b] >= accuracy[a]
            and known[b] <= known[a]
            and (accuracy[b] > accuracy[a] or known[b] < known[a])
            for b in known
        )
    }


def new_domain_interval(
    values: Sequence[float],
    image_variances: Sequence[float],
    weights: Sequence[float] | None = None,
    chosen_from: Sequence[Sequence[float]] = (),
) -> tuple[float, float]:
    """Where the value on one more domain lies in 90 % of cases."""
    m = len(values)
    w = [1 / m] * m if weights is None else list(weights)
    squares = sum(x * x for x in w)
    mean = sum(w[i] * values[i] for i in range(m))

    def variance(of: Sequence[float]) -> float:
        centre = sum(w[i] * of[i] for i in range(m))
        return sum(w[i] * (of[i] - centre) ** 2 for i in range(m)) / (1 - squares)

    between = variance(values)
    if chosen_from:
        typical = statistics.median(variance(each) for each in chosen_from)
        if typical > between:
            between += (typical - between) / 2
    images = sum(w[i] * image_variances[i] for i in range(m))
    form = [
        [((w[i] if i == j else 0) - w[i] * w[j]) / (1 - squares) for j in range(m)]
        for i in range(m)
    ]
    freedom = 1 / sum(form[i][j] * form[j][i] for i in range(m) for j in range(m))
    spread = max(between, images)
    margin = float(stats.t.isf(0.05, freedom)) * math.sqrt(spread + squares * spread)
    return mean - margin, mean + margin

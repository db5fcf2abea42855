"""Pools of heads and the choice between ways to combine models, literally, with loops."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import ttest_1samp
from tests.oracles.outputs import quality

from oodzoo.tasks import Kind, task_of

Floats = NDArray[Any]
Labels = NDArray[np.int64]


def pool(heads: Sequence[Floats], weights: Sequence[float] | None = None) -> Floats:
    """Normalised weighted geometric mean of probabilities (n, C); log-probabilities."""
    n, n_classes = heads[0].shape
    each = weights or [1 / len(heads)] * len(heads)
    result = np.empty((n, n_classes))
    for i in range(n):
        products = [
            math.prod(math.exp(h[i, c]) ** w for h, w in zip(heads, each, strict=True))
            for c in range(n_classes)
        ]
        for c in range(n_classes):
            result[i, c] = math.log(products[c] / sum(products)) if products[c] else -math.inf
    return result


def likelihood(log_probabilities: Floats, labels: Labels) -> float:
    """Mean normalised log-probability of the labels; nothing counts as less than -100."""
    values: list[float] = []
    for row, label in zip(log_probabilities.tolist(), labels.tolist(), strict=True):
        raised = [max(value, -100.0) for value in row]
        total = sum(math.exp(value) for value in raised)
        values.append(raised[label] - math.log(total))
    return sum(values) / len(values)


def pool_quality(
    kind: str, heads: Sequence[Floats], weights: Sequence[float], labels: Labels, every: Labels
) -> float:
    """Quality of a weighted pool of the outputs (n, C) of some heads for a domain."""
    if kind != "classification":
        pooled = sum(w * head for w, head in zip(weights, heads, strict=True))
        return quality(kind, np.asarray(pooled), labels, every)
    values = []
    for i, label in enumerate(labels.tolist()):
        raised = [[max(float(value), -100.0) for value in head[i]] for head in heads]
        if max(row[label] for row in raised) > -100:  # some head knows the class
            logs = [sum(w * row[c] for w, row in zip(weights, raised, strict=True))
                    for c in range(len(raised[0]))]  # fmt: skip
            largest = max(logs)
            total = sum(math.exp(value - largest) for value in logs)
            values.append(logs[label] - largest - math.log(total))
    return sum(values) / len(values) if values else math.nan


def pool_objective(
    kind: str,
    weights: Sequence[float],
    left_out: Sequence[Sequence[Floats]],
    within: Sequence[Sequence[Floats]] | None,
    labels: Sequence[Labels],
    share: float,
) -> float:
    """What the weights of heads maximise, by their outputs for each domain."""
    every, value = np.concatenate(labels), 0.0
    parts = [(share, left_out)] if within is None else [(share, left_out), (1 - share, within)]
    for factor, domains in parts:
        each = [
            pool_quality(kind, heads, weights, y, every)
            for heads, y in zip(domains, labels, strict=True)
        ]
        known = [one for one in each if not math.isnan(one)]
        value += factor * sum(known) / len(known) if known else 0.0
    n_heads = len(weights)
    divergence = sum(w * math.log(w * n_heads) for w in weights if w > 0)
    return value - divergence / math.sqrt(len(every))


def pool_weights(
    kind: str,
    left_out: Sequence[Sequence[Floats]],
    within: Sequence[Sequence[Floats]] | None,
    labels: Sequence[Labels],
    share: float,
) -> list[float]:
    """Weights on the simplex that maximise the objective, by sequential quadratic programming."""
    n_heads = len(left_out[0])
    found = minimize(
        lambda w: -pool_objective(kind, w.tolist(), left_out, within, labels, share),
        np.full(n_heads, 1 / n_heads),
        method="SLSQP",
        bounds=[(1e-12, 1.0)] * n_heads,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert found.success
    weights: list[float] = found.x.tolist()
    return weights


def carried_over(
    kind: Kind,
    left_out: Sequence[Sequence[Floats]],
    within: Sequence[Sequence[Floats]],
    labels: Sequence[Labels],
    shares: Sequence[float],
) -> list[float]:
    """The shares whose pools are not clearly worse than the last one on domains left out."""
    every = range(len(labels))

    def on_left_out(share: float) -> Known:
        hits = []
        for at in every:
            rest = [other for other in every if other != at]
            weights = pool_weights(
                kind,
                [left_out[i] for i in rest],
                [within[i] for i in rest],
                [labels[i] for i in rest],
                share,
            )
            pooled = task_of(kind).pooled(np.stack(left_out[at]), weights)
            hits.append(task_of(kind).contributions(pooled, labels[at]).tolist())
        return Known(hits, None, 0.0)

    best = on_left_out(shares[-1])
    return [s for s in shares if s == shares[-1] or not clearly_better(best, on_left_out(s))]


class Known(NamedTuple):
    """What is known about a way to combine models: hits by domain, and the cost."""

    left_out: Sequence[Sequence[float]]
    within: Sequence[Sequence[float]] | None
    cost: float


def recommended(ways: Mapping[str, Known]) -> str:
    """The pool or what is clearly better, but for what fails somewhere; then the cheapest."""
    pool = ways["pool"]
    better = [
        name for name, way in ways.items() if clearly_better(way, pool) and not by_chance(way, pool)
    ]
    best = "pool"
    for name in better:
        if best == "pool" or _mean(ways[name].left_out) > _mean(ways[best].left_out):
            best = name
    if "single" in ways:
        single = ways["single"]
        if fails(ways[best], single) and not fails(single, ways[best]):
            best = "single"
    good = [name for name, way in ways.items() if name == best or never_worse(way, ways[best])]
    return min(good, key=lambda name: (ways[name].cost, name != best))


def clearly_better(one: Known, other: Known) -> bool:
    """A test of Student's over domains at 90 %, and not worse within."""
    gains = [_share(a) - _share(b) for a, b in zip(one.left_out, other.left_out, strict=True)]
    if len(gains) == 1 or _gain(one.within, other.within) < -1e-9:
        return False
    if max(gains) - min(gains) < 1e-12:
        return gains[0] > 1e-9
    return bool(ttest_1samp(gains, 0, alternative="greater").pvalue < 0.1)


def by_chance(one: Known, other: Known) -> bool:
    """Whether the mean gain over held-out domains is within two standard errors of the images."""
    gain, error = gain_over_images(one, other)
    return gain <= 2 * error


def gain_over_images(one: Known, other: Known) -> tuple[float, float]:
    """The mean over held-out domains of the gain, and its standard error over the images."""
    total, variance = 0.0, 0.0
    for mine, theirs in zip(one.left_out, other.left_out, strict=True):
        gaps = [float(a) - float(b) for a, b in zip(mine, theirs, strict=True)]
        gap = _share(gaps)
        total += gap
        variance += sum((each - gap) ** 2 for each in gaps) / len(gaps) ** 2
    m = len(one.left_out)
    return total / m, math.sqrt(variance) / m


def never_worse(one: Known, other: Known) -> bool:
    """Whether the share of hits is nowhere lower, in any domain, left out or within."""
    if other.within is not None and one.within is None:
        return False
    gain, error = gain_over_images(one, other)
    if gain - 2 * error < -0.05:
        return False
    pairs = list(zip(one.left_out, other.left_out, strict=True))
    if other.within is not None:
        pairs += zip(one.within or (), other.within, strict=True)
    return all(_share(mine) >= _share(theirs) - 1e-9 for mine, theirs in pairs)


def fails(one: Known, other: Known) -> bool:
    """Whether it is worse by two standard errors on some domain, left out or within."""
    pairs = list(zip(one.left_out, other.left_out, strict=True))
    if one.within is not None and other.within is not None:
        pairs += zip(one.within, other.within, strict=True)
    for mine, theirs in pairs:
        gaps = [float(b) - float(a) for a, b in zip(mine, theirs, strict=True)]
        gap = _share(gaps)
        error = math.sqrt(sum((each - gap) ** 2 for each in gaps)) / len(gaps)
        if gap > 2 * error + 1e-9:
            return True
    return False


def _share(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _mean(domains: Sequence[Sequence[float]]) -> float:
    return sum(map(_share, domains)) / len(domains)


def _gain(one: Sequence[Sequence[float]] | None, other: Sequence[Sequence[float]] | None) -> float:
    return 0.0 if one is None or other is None else _mean(one) - _mean(other)


def standardised(X: Floats, weights: Sequence[float]) -> Floats:
    """Weighted mean 0 and weighted standard deviation 1 of each column; 0 for a constant one."""
    total = sum(weights)
    result = np.zeros(X.shape)
    for j in range(X.shape[1]):
        mean = sum(w * x for w, x in zip(weights, X[:, j].tolist(), strict=True)) / total
        square = sum(w * (x - mean) ** 2 for w, x in zip(weights, X[:, j].tolist(), strict=True))
        if len(set(X[:, j].tolist())) > 1:
            result[:, j] = (X[:, j] - mean) / math.sqrt(square / total)
    return result

r"""All heads of all models on the same samples: which to pool, and with which weights.

A pool predicts the normalised geometric mean of the probabilities of its heads,

.. math:: p(c\mid x) \propto \prod_k p_k(c\mid x)^{w_k}, \qquad \sum_k w_k = 1.

For each share s of held-out domains (:mod:`oodzoo.combining.predictions`), the weights of the
heads with this share are

.. math:: \max_w\; s\,Q_l(w) + (1 - s)\,Q_w(w)
   - \frac{1}{\sqrt{n}} \sum_k w_k \ln (w_k M),

where :math:`Q_l` and :math:`Q_w` are the mean log-likelihood of the labels under the pool, by
predictions of held-out domains and within the domains; all domains weigh alike. The last term is
the relative entropy of the M weights and equal ones. The problem is concave, so the solution is
unique. With few of the n samples, the weights stay near equal ones, whose error is known to be
small [1]_; with many, a model that is better than all others gets nearly all the weight. The factor
is the rate at which averages of n samples become certain, as for exponential weights [2]_.

The pools of all shares are multiplied: the weight of a head is its mean weight in them. A share is
left out if its pool, chosen without each domain in turn, is less accurate there than that of the
share 1, by more than domains differ (:func:`~oodzoo.combining.verdict.is_better`): some models
fit the known domains perfectly, and nothing of it carries over. Models with little weight are left
out, because each costs a forward pass.

The logarithm of the pool is linear in those of its heads, so a pool of linear heads is a linear
head of the concatenated features (:func:`~oodzoo.linear.heads.linear.LinearHead`).

A pool for several labels has the mean of the log-odds of its heads, and a pool for numbers the mean
of their numbers. In place of the likelihood of classes, the quality is the likelihood of the labels
or minus the squared error (:class:`oodzoo.tasks.Task`).

References
----------
.. [1] Smith, Wallis: A simple explanation of the forecast combination puzzle, Oxford Bulletin of
   Economics and Statistics 71 (2009).
.. [2] Cesa-Bianchi, Lugosi: Prediction, Learning, and Games, Cambridge University Press 2006,
   chapter 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, softmax

from oodzoo.combining.predictions import (
    SHARES,
    Head,
    HeadPredictions,
    Heads,
    Pooled,
    Weights,
)
from oodzoo.combining.verdict import Estimate, is_better
from oodzoo.core.errors import InputError
from oodzoo.core.limits import Limits
from oodzoo.core.text import count
from oodzoo.core.threads import Prefetch, blas_threads
from oodzoo.tasks import CLASSIFICATION, Task
from oodzoo.tasks.multilabel import bernoulli_likelihood
from oodzoo.tasks.regression import relative_errors

Floats = NDArray[np.floating[Any]]
Labels = NDArray[Any]

LEAST_WEIGHT = 0.02
"""Models with less weight are left out of a pool."""

LOWEST = -100.0
"""Log-probabilities below this, such as those of classes that a head does not know, count as it."""

_BLOCK = 2**17
"""Number of outputs that are converted to float64 at a time: they stay in the cache of a core."""

_PARALLEL = 2**20
"""Number of outputs from which all cores are used."""


class PoolChooser:
    """Chooses the heads of pools from predictions that are given once.

    Parameters
    ----------
    candidates : dict of Head to HeadPredictions
        Predictions for some domains. Unless all have predictions within the domains, only the heads
        that held-out domains regularise are pooled.
    labels : sequence of arrays
        For each domain the classes (n,) or the labels (n, C) of its samples.
    milliseconds : dict
        Time per image of each model; None if unknown.
    limits : Limits, optional
        Models are taken in the order of their weights while they are within the limits.
    task : Task
    known : dict, optional
        Weights that were computed before from the same predictions, which computed ones are added
        to: whatever the limits are, the weights of the same heads are the same.
    """

    def __init__(
        self,
        candidates: Mapping[Head, HeadPredictions],
        labels: Sequence[Labels],
        milliseconds: Mapping[str, float | None],
        limits: Limits | None = None,
        task: Task = CLASSIFICATION,
        known: Weights | None = None,
    ) -> None:
        self._candidates, self._labels, self._task = candidates, labels, task
        self._milliseconds, self._limits = dict(milliseconds), limits or Limits()
        self._known: Weights = {} if known is None else known
        within = all(each.within is not None for each in candidates.values())
        self._shares = SHARES if within else SHARES[-1:]
        models = dict.fromkeys(head.model for head in candidates)
        self._usable = [m for m in models if self._limits.allow([m], self._milliseconds)]
        if not self._usable:
            raise InputError(self._none_within(len(models)))

    def choose(self, domains: Sequence[int] | None = None) -> dict[Head, float]:
        """Weights of the heads chosen on some domains or all; the largest is first.

        `domains` are positions among those given.
        """
        numbers = tuple(range(len(self._labels)) if domains is None else domains)
        weights = self._weights(self._usable, numbers)
        models = _by_model(weights)
        most = next(iter(models))
        models = {m: w for m, w in models.items() if w >= LEAST_WEIGHT or m == most}
        used: list[str] = []
        for model in models:
            if self._limits.allow([*used, model], self._milliseconds):
                used.append(model)
        if len(used) < len(models):
            weights = self._weights(used, numbers)
        weights = {head: w for head, w in weights.items() if head.model in used and w > 0}
        total = sum(weights.values())
        order = sorted(weights, key=lambda head: -weights[head])
        return {head: weights[head] / total for head in order}

    def _weights(self, models: Sequence[str], domains: tuple[int, ...]) -> dict[Head, float]:
        """The weights of all heads of some models, in the product of the pools of the shares."""
        shares = self._carried_over(models, domains)
        return {
            head: weight / len(shares)
            for share in shares
            for head, weight in self._weights_of(share, models, domains).items()
        }

    def _weights_of(
        self, share: float, models: Sequence[str], domains: tuple[int, ...]
    ) -> dict[Head, float]:
        """The weights of the heads of one share."""
        heads = tuple(h for h in self._candidates if h.share == share and h.model in models)
        key = heads, domains
        if key not in self._known:
            self._known[key] = self._solve(heads, domains, share)
        return dict(zip(heads, self._known[key].tolist(), strict=True))

    def _carried_over(self, models: Sequence[str], domains: tuple[int, ...]) -> list[float]:
        """The shares whose pools are not worse on held-out domains than that of the share 1."""
        *others, last = self._shares
        if len(domains) < 2:
            return [*others, last]
        best = self._left_out(last, models, domains)
        kept = [s for s in others if not is_better(best, self._left_out(s, models, domains))]
        return [*kept, last]

    def _left_out(self, share: float, models: Sequence[str], domains: tuple[int, ...]) -> Estimate:
        """The metric on each domain of the pool of one share that the other domains choose."""
        found = []
        for at in domains:
            rest = tuple(other for other in domains if other != at)
            weights = self._weights_of(share, models, rest)
            outputs = [self._candidates[head].out_of_fold[at] for head in weights]
            pooled = self._task.pooled(np.stack(outputs), list(weights.values()))
            found.append(self._task.contributions(pooled, self._labels[at]))
        return Estimate(found, 0.0)

    def _solve(
        self, heads: Sequence[Head], domains: tuple[int, ...], share: float
    ) -> NDArray[np.float64]:
        members = [self._candidates[head] for head in heads]
        tables: list[tuple[float, _Table]] = []
        labels = [self._labels[at] for at in domains]
        for weight, name in ((share, "out_of_fold"), (1 - share, "within")):
            if weight:
                outputs = [np.stack([getattr(m, name)[at] for m in members]) for at in domains]
                found = _tables(outputs, labels, self._task)
                tables += [(weight / len(found), table) for table in found]
        return best_weights(tables, len(heads), sum(map(len, labels)))

    def _none_within(self, n_models: int) -> str:
        known = [ms for ms in self._milliseconds.values() if ms is not None]
        fastest = f"the fastest takes {min(known):.4g} ms" if known else "no time is known"
        return (
            f"none of the {count(n_models, 'model')} takes at most "
            f"{self._limits.max_ms:g} ms per image ({fastest}); raise --max-ms"
        )


def _by_model(weights: Mapping[Head, float]) -> dict[str, float]:
    """The weight of each model, the sum over its heads; the largest is first."""
    totals: dict[str, float] = {}
    for head, weight in weights.items():
        totals[head.model] = totals.get(head.model, 0.0) + weight
    return dict(sorted(totals.items(), key=lambda item: -item[1]))


class _Table(Protocol):
    """The outputs of all heads for the samples of a domain, by predictions of one kind."""

    @property
    def size(self) -> int:
        """Number of values."""
        ...

    def quality(self, weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Quality of the pool with these weights, and its gradient (M,)."""
        ...


@dataclass(frozen=True)
class _Classes:
    """Log-probabilities (M, n, C) of classes, and the classes (n,)."""

    outputs: Floats
    labels: Labels

    @property
    def size(self) -> int:
        return self.outputs.size

    def quality(self, weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, gradient = 0.0, np.zeros(len(weights))
        for rows, outputs in _blocks(self.outputs):
            labels = self.labels[rows]
            pool = np.tensordot(weights, outputs, 1)  # from LOWEST to 0
            every = np.arange(len(labels))
            value += float(pool[every, labels].sum())
            residual = np.exp(pool, out=pool)
            sums = residual.sum(axis=1, keepdims=True)
            value -= float(np.log(sums).sum())
            residual *= -1 / sums
            residual[every, labels] += 1
            gradient += outputs.reshape(len(weights), -1) @ residual.reshape(-1)
        return value / len(self.labels), gradient / len(self.labels)


@dataclass(frozen=True)
class _Errors:
    """Mean products (M, M) of the errors of numbers, relative to their variation."""

    products: NDArray[np.float64]

    @property
    def size(self) -> int:
        return self.products.size

    def quality(self, weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        gradient = -self.products @ weights
        return float(weights @ gradient), 2 * gradient


@dataclass(frozen=True)
class _LogOdds:
    """Log-odds (M, n, C) of labels, and the labels (n, C)."""

    outputs: Floats
    labels: Floats

    @property
    def size(self) -> int:
        return self.outputs.size

    def quality(self, weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, gradient = 0.0, np.zeros(len(weights))
        for rows, outputs in _blocks(self.outputs):
            pool = np.tensordot(weights, outputs, 1)
            value += float(bernoulli_likelihood(pool, self.labels[rows]).sum())
            residual = self.labels[rows] - expit(pool)
            gradient += outputs.reshape(len(weights), -1) @ residual.reshape(-1)
        return value / self.labels.size, gradient / self.labels.size


def _blocks(outputs: Floats) -> Iterable[tuple[slice, NDArray[np.float64]]]:
    """Some samples at a time, in float64."""
    step = max(1, _BLOCK // (outputs.shape[0] * outputs.shape[2]))
    for start in range(0, outputs.shape[1], step):
        rows = slice(start, start + step)
        yield rows, np.ascontiguousarray(outputs[:, rows], np.float64)


def _tables(predictions: Sequence[Floats], labels: Sequence[Labels], task: Task) -> list[_Table]:
    """The table of each domain that says something about the heads."""
    if task.link == "identity":
        errors = relative_errors(predictions, labels)
        flat = [each.reshape(len(each), -1) for each in errors]
        return [_Errors(each @ each.T / each.shape[1]) for each in flat]
    tables: list[_Table] = []
    for outputs, y in zip(predictions, labels, strict=True):
        if task.link == "sigmoid":
            tables.append(_LogOdds(outputs, y.astype(np.float64)))
            continue
        outputs = np.maximum(outputs, LOWEST)
        known = outputs.max(axis=0)[np.arange(len(y)), y] > LOWEST  # by some head
        if known.any():
            tables.append(_Classes(outputs[:, known], y[known]))
    return tables


def best_weights(
    tables: Sequence[tuple[float, _Table]], n_heads: int, n_samples: int
) -> NDArray[np.float64]:
    """Weights (M,) with the highest quality, less the distance from equal weights.

    Parameters
    ----------
    tables : sequence of (float, _Table)
        With the weight of each.
    n_heads, n_samples : int
    """
    rate = 1 / math.sqrt(n_samples)
    large = sum(table.size for _, table in tables) >= _PARALLEL

    def each_table(weights: NDArray[np.float64]) -> Iterable[tuple[float, NDArray[np.float64]]]:
        if not large:
            return [table.quality(weights) for _, table in tables]
        calls = [(table, weights) for _, table in tables]
        return Prefetch(lambda table, each: table.quality(each), calls, n_threads=cpu_count())

    def loss(logits: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights = softmax(logits)
        logs = np.log(np.maximum(weights, 1e-300))
        value, gradient = -rate * (weights @ logs + math.log(n_heads)), -rate * (logs + 1)
        for (share, _), (quality, slope) in zip(tables, each_table(weights), strict=True):
            value, gradient = value + share * quality, gradient + share * slope
        return -value, -weights * (gradient - weights @ gradient)

    if n_heads == 1 or not tables:
        return np.full(n_heads, 1 / n_heads)
    options = {"maxiter": 1000, "ftol": 1e-11, "gtol": 1e-6}
    with blas_threads(0):  # many small products; large ones use threads of their own
        found = minimize(loss, np.zeros(n_heads), jac=True, method="L-BFGS-B", options=options)
    weights: NDArray[np.float64] = softmax(found.x)
    return weights


def qualities(
    predictions: Sequence[Floats], labels: Sequence[Labels], task: Task
) -> NDArray[np.float64]:
    """Quality (domains, M) of the outputs (M, n, C) of M heads for each domain."""
    if not task.one_class:
        return task.quality(predictions, labels)
    return np.array(
        [
            [likelihood_of_labels(head, y) for head in heads]
            for heads, y in zip(predictions, labels, strict=True)
        ]
    )


def likelihood_of_labels(log_probabilities: Floats, labels: Labels) -> float:
    """Mean log-probability of the labels, after normalisation."""
    log_probabilities = np.maximum(log_probabilities, LOWEST, dtype=np.float64)
    correct = log_probabilities[np.arange(len(labels)), labels]
    # nothing is below LOWEST, so that this does not underflow; logsumexp takes ten times as long
    return float(np.mean(correct - np.log(np.exp(log_probabilities).sum(axis=1))))


@dataclass(frozen=True)
class Pool:
    """A pool of heads, and its predictions.

    Attributes
    ----------
    members : tuple of Head
        The head with the largest weight first.
    out_of_fold : list of arrays (n, C)
        Outputs for the samples of each training domain (:class:`oodzoo.tasks.Task`).
    test : array (n, C), optional
        Those of the held-out domain.
    weights : tuple of float
        Weight of each member; they add up to 1.
    """

    members: tuple[Head, ...]
    out_of_fold: list[NDArray[np.float64]]
    test: NDArray[np.float64] | None
    weights: tuple[float, ...]

    @property
    def models(self) -> tuple[str, ...]:
        """The models of the members, each once."""
        return tuple(dict.fromkeys(head.model for head in self.members))


def choose_pool(heads: Heads, limits: Limits | None = None) -> Pool:
    """Choose a pool on all training domains."""
    return pool_of(heads, _chooser(heads, limits).choose())


def pool_of(heads: Heads, weights: Mapping[Head, float]) -> Pool:
    """The pool of some heads with given weights."""
    shares = tuple(weights.values())
    members = [heads.candidates[head] for head in weights]
    tests = [each.test for each in members if each.test is not None]
    return Pool(
        tuple(weights),
        [
            _pooled(heads, [each.out_of_fold[at] for each in members], shares)
            for at in range(len(heads.domains))
        ],
        _pooled(heads, tests, shares) if len(tests) == len(members) else None,
        shares,
    )


def left_out_pools(heads: Heads, limits: Limits | None = None) -> Pooled:
    """Outputs for each training domain by a pool that was chosen without it.

    The heads of its predictions within the domains are trained on a part of the domain.
    """
    chooser = _chooser(heads, limits)
    every = range(len(heads.domains))
    out_of_fold, within = [], []
    for left_out in every:
        chosen = chooser.choose([at for at in every if at != left_out])
        members, weights = [heads.candidates[head] for head in chosen], tuple(chosen.values())
        out_of_fold.append(_pooled(heads, [m.out_of_fold[left_out] for m in members], weights))
        inside = [each.within[left_out] for each in members if each.within is not None]
        if len(inside) == len(members):
            within.append(_pooled(heads, inside, weights))
    return Pooled(out_of_fold, within if len(within) == len(out_of_fold) else None)


def _chooser(heads: Heads, limits: Limits | None) -> PoolChooser:
    return PoolChooser(
        heads.candidates, heads.labels, heads.milliseconds, limits, heads.task, heads.weights
    )


def _pooled(
    heads: Heads, outputs: Iterable[NDArray[Any]], weights: Sequence[float]
) -> NDArray[np.float64]:
    """Outputs (n, C) of a pool, from those of its members."""
    return heads.task.pooled(np.stack(list(outputs)), weights)

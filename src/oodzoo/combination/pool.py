r"""Which heads to pool, from their out-of-fold predictions.

A pool predicts the normalised geometric mean of the probabilities of its heads,

.. math:: p(c\mid x) \propto \prod_k p_k(c\mid x)^{w_k}, \qquad \sum_k w_k = 1.

Its heads are chosen by greedy forward selection with replacement [1]_: starting from nothing, the
head is added that raises the likelihood of the labels most, in which all domains weigh alike; the
best of the first 30 pools counts. The selection is repeated without each of the domains, and the
*share* of a head is the mean of its weights.

All chosen heads get the same weight. A few domains tell which heads are useful, but not how useful
they are on another domain: there, equal weights are more accurate than estimated ones, as for
forecasts in general [2]_.

The logarithm of the pool is linear in those of its heads, so a pool of linear heads is a linear
head of the concatenated features (:func:`~oodzoo.heads.linear.LinearHead`).

A pool for several labels has the mean of the log-odds of its heads, and a pool for numbers the mean
of their numbers, weighted by their shares. In place of the likelihood of classes, their heads are
chosen by the likelihood of the labels or the squared error (:mod:`oodzoo.heads.outputs`). Weights
matter more for numbers: a poor classifier is uncertain and thus changes the mean of
log-probabilities little, but a poor regression predicts the mean of the labels with full weight.

References
----------
.. [1] Caruana, Niculescu-Mizil, Crew, Ksikes: Ensemble selection from libraries of models,
   ICML 2004.
.. [2] Smith, Wallis: A simple explanation of the forecast combination puzzle, Oxford Bulletin of
   Economics and Statistics 71 (2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oodzoo._text import count
from oodzoo.errors import InputError
from oodzoo.heads.outputs import bernoulli_likelihood, outputs_of, relative_errors
from oodzoo.ranking.constraints import Limits as Limits
from oodzoo.task import Kind

Floats = NDArray[np.floating[Any]]
Labels = NDArray[Any]

ROUNDS = 30
PATIENCE = 10
"""The selection ends early after this many rounds without a better pool."""

_BLOCK = 2**20
"""Number of outputs that are added up at a time."""

LOWEST = -100.0
"""Log-probabilities below this, such as those of classes that a head does not know, count as it."""


Shares = dict[tuple[tuple[int, ...], tuple[int, ...] | None], NDArray[np.float64]]
"""Shares of heads, by their numbers and those of the domains that they were computed from."""


class PoolChooser:
    """Chooses the heads of pools from predictions that are given once.

    Parameters
    ----------
    predictions : sequence of arrays (M, n, C)
        For each domain the outputs for its samples by M heads that have not seen it, such as
        log-probabilities.
    labels : sequence of arrays
        For each domain the classes (n,) or the labels (n, C) of its samples.
    models : sequence of str
        The model of each head.
    milliseconds : dict
        Time per image of each model; None if unknown.
    limits : Limits, optional
        Heads are taken in the order of their shares while the models are within the limits.
    kind : {"classification", "regression", "multilabel"}
    shares : dict, optional
        Shares that were computed before from the same predictions, which computed ones are added
        to: whatever the limits are, the shares of the same heads are the same.
    """

    def __init__(
        self,
        predictions: Sequence[Floats],
        labels: Sequence[Labels],
        models: Sequence[str],
        milliseconds: dict[str, float | None],
        limits: Limits | None = None,
        kind: Kind = "classification",
        shares: Shares | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._models, self._milliseconds = models, milliseconds
        self._equal = kind != "regression"
        self._usable = [
            at for at, model in enumerate(models) if self._limits.allow([model], milliseconds)
        ]
        if not self._usable:
            raise InputError(self._none_within())
        self._predictions, self._labels, self._kind = predictions, labels, kind
        self._known: Shares = {} if shares is None else shares

    @cached_property
    def _greedy(self) -> GreedyShares:
        usable = [each[self._usable] for each in self._predictions]
        return GreedyShares(usable, self._labels, self._kind)

    def _shares(self, domains: Sequence[int] | None) -> NDArray[np.float64]:
        key = tuple(self._usable), None if domains is None else tuple(domains)
        if key not in self._known:
            self._known[key] = self._greedy.of(domains)
        return self._known[key]

    def choose(self, domains: Sequence[int] | None = None) -> dict[int, float]:
        """Weights of the heads chosen on some domains or all, by their numbers.

        `domains` are positions among those given. The head with the largest share is first.
        """
        shares = self._shares(domains)
        chosen: dict[int, float] = {}
        used: list[str] = []
        for at in np.argsort(-shares, kind="stable"):
            model = self._models[self._usable[at]]
            more = used if model in used else [*used, model]
            if shares[at] > 0 and self._limits.allow(more, self._milliseconds):
                chosen[self._usable[at]] = 1.0 if self._equal else float(shares[at])
                used = more
        total = sum(chosen.values())
        return {at: weight / total for at, weight in chosen.items()}

    def _none_within(self) -> str:
        known = [ms for ms in self._milliseconds.values() if ms is not None]
        fastest = f"the fastest takes {min(known):.4g} ms" if known else "no time is known"
        return (
            f"none of the {count(len(set(self._models)), 'model')} takes at most "
            f"{self._limits.max_ms:g} ms per image ({fastest}); raise --max-ms"
        )


class GreedyShares:
    """Shares of heads: their mean weights in greedy selections without each of some domains.

    Selections are remembered: leaving out two domains, one after the other, gives the same one in
    either order. Parameters are as in :class:`PoolChooser`.

    Examples
    --------
    >>> y = np.array([0, 1, 0, 1])
    >>> good, bad = np.log(np.eye(2)[y] * 0.8 + 0.1), np.log(np.full((4, 2), 0.5))
    >>> GreedyShares([np.stack([bad, good])] * 2, [y, y]).of().tolist()
    [0.0, 1.0]
    """

    def __init__(
        self,
        predictions: Sequence[Floats],
        labels: Sequence[Labels],
        kind: Kind = "classification",
    ) -> None:
        self._n_heads = len(predictions[0])
        self._domains = _tables(predictions, labels, kind)
        self._found: dict[frozenset[int], NDArray[np.float64]] = {}

    def of(self, domains: Sequence[int] | None = None) -> NDArray[np.float64]:
        """Compute the share (M,) of each head, from some domains or all."""
        wanted = self._domains if domains is None else domains
        usable = frozenset(number for number in wanted if number in self._domains)
        if not usable:
            return np.full(self._n_heads, 1 / self._n_heads)
        if len(usable) == 1:
            return self._weights(usable)
        shares: NDArray[np.float64] = np.mean(
            [self._weights(usable - {number}) for number in sorted(usable)], axis=0
        )
        return shares

    def _weights(self, domains: frozenset[int]) -> NDArray[np.float64]:
        if domains not in self._found:
            self._found[domains] = _greedy_weights([self._domains[at] for at in sorted(domains)])
        return self._found[domains]


class _Table(Protocol):
    """The outputs of all heads for the samples of a domain."""

    @property
    def outputs(self) -> Floats:
        """(C, M, n): with the classes first, sums over them are several times faster."""
        ...

    def quality(self, pools: Floats) -> NDArray[Any]:
        """Quality (P,) of the outputs (C, P, n) of P pools, which may be overwritten."""
        ...


@dataclass(frozen=True)
class _Classes:
    """Log-probabilities of classes, and the classes (n,)."""

    outputs: Floats
    labels: Labels

    def quality(self, pools: Floats) -> NDArray[Any]:
        correct = pools[self.labels, :, np.arange(len(self.labels))].T
        highest = pools.max(axis=0)
        pools -= highest
        np.exp(pools, out=pools)
        likelihood: NDArray[Any] = (correct - highest - np.log(pools.sum(axis=0))).mean(axis=1)
        return likelihood


@dataclass(frozen=True)
class _Errors:
    """Errors of numbers, relative to their variation; that of a pool is the mean of its heads'."""

    outputs: Floats

    def quality(self, pools: Floats) -> NDArray[Any]:
        quality: NDArray[Any] = -np.mean(pools**2, axis=(0, 2))
        return quality


@dataclass(frozen=True)
class _LogOdds:
    """Log-odds of labels, and the labels (C, 1, n)."""

    outputs: Floats
    labels: Floats

    def quality(self, pools: Floats) -> NDArray[Any]:
        likelihood: NDArray[Any] = bernoulli_likelihood(pools, self.labels).mean(axis=(0, 2))
        return likelihood


def _tables(
    predictions: Sequence[Floats], labels: Sequence[Labels], kind: Kind
) -> dict[int, _Table]:
    """The table of each domain that says something about the heads."""
    if kind == "regression":
        errors = relative_errors(predictions, labels)
        return {number: _Errors(_classes_first(each)) for number, each in enumerate(errors)}
    tables: dict[int, _Table] = {}
    for number, (each, y) in enumerate(zip(predictions, labels, strict=True)):
        if kind == "multilabel":
            log_odds = _classes_first(each.astype(np.float32))
            tables[number] = _LogOdds(log_odds, y.T[:, None].astype(np.float32))
            continue
        table = np.maximum(each, LOWEST).astype(np.float32)
        known = table.max(axis=0) > LOWEST  # classes that some head knows
        rows = known[np.arange(len(y)), y]
        if rows.any():
            tables[number] = _Classes(_classes_first(table[:, rows]), y[rows])
    return tables


def _classes_first(outputs: Floats) -> Floats:
    return np.ascontiguousarray(np.moveaxis(outputs, 2, 0))


def _greedy_weights(domains: Sequence[_Table]) -> NDArray[np.float64]:
    """Weights (M,) of the best pool among the first `ROUNDS` of the greedy selection."""
    n_heads = domains[0].outputs.shape[1]
    sums = [np.zeros_like(table.outputs[:, 0]) for table in domains]
    counts, best, best_value, best_size = np.zeros(n_heads), np.zeros(n_heads), -np.inf, 0
    for size in range(1, ROUNDS + 1):
        values = np.zeros(n_heads)
        for total, table in zip(sums, domains, strict=True):
            values += _qualities_with(total, table, size)
        added = int(values.argmax())
        counts[added] += 1
        for total, table in zip(sums, domains, strict=True):
            total += table.outputs[:, added]
        if values[added] > best_value:
            best_value, best, best_size = values[added], counts.copy(), size
        elif size >= best_size + PATIENCE:
            break
    weights: NDArray[np.float64] = best / best.sum()
    return weights


def _qualities_with(total: Floats, table: _Table, size: int) -> NDArray[np.float64]:
    """Quality (M,) of pools of `size` heads, if each head of a table is the last one.

    `total` (C, n) is the sum of the outputs of the other heads of the pool.
    """
    step = max(1, _BLOCK // total.size)
    found = []
    for start in range(0, table.outputs.shape[1], step):
        pools = (table.outputs[:, start : start + step] + total[:, None]) / np.float32(size)
        found.append(table.quality(pools))
    return np.concatenate(found).astype(np.float64)


def qualities(
    predictions: Sequence[Floats], labels: Sequence[Labels], kind: Kind
) -> NDArray[np.float64]:
    """Quality (domains, M) of the outputs (M, n, C) of M heads for each domain."""
    if kind != "classification":
        return outputs_of(kind).quality(predictions, labels)
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

r"""Contribution of each feature to the prediction of domains that its weight has not seen.

For each domain e, a ridge regression of the labels on the standardised features of all models is
fitted to the other domains, with weights :math:`W_{-e}`. Classes are one-hot labels; numbers to
predict are divided by their standard deviation. The contribution of feature j is

.. math:: s_j = \frac1m \sum_e \sum_c W_{-e,cj}\,\operatorname{cov}_e(z_j, y_c),

where the covariance is over the samples of the left-out domain e. Summed over all features this is
the covariance of predictions and labels in the left-out domains: a feature whose relation to the
classes differs between domains takes away from it. Because a covariance is about the mean of the
domain, a shift of a feature in a domain does not matter.

The penalty of domain e is :math:`\rho` times the mean eigenvalue of the centred Gram matrix of the
training samples; of `RIDGES`, :math:`\rho` has the smallest squared error on the left-out domains.

With n samples, only the n × n Gram matrix of the samples and the features of one model are in
memory. Each model is read twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import Array, Backend, backend, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.core.threads import LARGE_PRODUCT, blas_threads
from oodzoo.extraction.source import FeatureSource, groups_of
from oodzoo.linear.heads.groups import group_numbers, grouped_folds
from oodzoo.linear.heads.left_out import call_for_sets
from oodzoo.linear.heads.samples import mean_and_std, standardised
from oodzoo.linear.moments import blocks
from oodzoo.tasks.strata import strata

RIDGES = tuple(10.0**power for power in range(-4, 3))
"""Values of ρ."""

MAX_SAMPLES = 2048
"""Number of samples from which an evenly spaced part of each class and domain is used."""

_FOLDS = 3
"""Parts of a single domain that are left out instead of domains."""

_EPSILON = float(np.finfo(np.float32).eps)

_VERSION = "1"
"""Cached contributions of other versions are computed again."""


class Contributions(NamedTuple):
    """Contribution of each concatenated feature, and the class that it contributes most to.

    For other tasks than classification, the number or label that it contributes most to.
    """

    total: NDArray[np.float64]
    best_class: NDArray[np.int64]


class _Sample(NamedTuple):
    """Rows used of each domain, and the label and fold of each sample."""

    rows: dict[str, NDArray[np.int64]]
    labels: NDArray[Any]
    folds: NDArray[np.int64]


def contributions(
    source: FeatureSource,
    models: Sequence[str],
    domains: Sequence[str],
    *,
    device: str | None = None,
) -> Contributions:
    """Compute the contributions of all features of some models, from some domains.

    Parameters
    ----------
    source : FeatureSource
    models : sequence of str
        In the order in which their features are concatenated.
    domains : sequence of str
        If there is a single one, three parts of it take the place of domains; groups stay whole.
    device : str, optional
        PyTorch device; NumPy if None.
    """

    def compute() -> dict[str, NDArray[Any]]:
        n = sum(map(len, thinned(source, domains).values()))
        widest = max(source.facts(model).feature_dim for model in models)
        with blas_threads(n * widest, LARGE_PRODUCT):
            return _contributions(source, models, domains, backend(device))._asdict()

    arrays = source.cached("contributions", models, compute, domains=domains, settings=_VERSION)
    return Contributions(arrays["total"], arrays["best_class"])


def _contributions(
    source: FeatureSource, models: Sequence[str], domains: Sequence[str], be: Backend
) -> Contributions:
    sample = _sample(source, domains)
    targets = _targets(source, sample.labels)
    gram = be.float64(np.zeros((len(targets), len(targets))))
    for model in models:
        features = _features(source, model, sample.rows, be)
        gram += be.float64(features @ features.T)
    coefficients = be.asarray(_ridge(gram, targets, sample.folds, be).astype(np.float32))
    del gram
    shape = len(_usable(sample.folds)), targets.shape[1]
    covariances = be.asarray(_covariances(targets, sample.folds).astype(np.float32))
    total, best = [], []
    for model in models:
        features = _features(source, model, sample.rows, be)
        parts = (features.T @ coefficients) * (features.T @ covariances)
        per_class = to_numpy(parts).astype(np.float64).reshape(len(parts), *shape)
        values = per_class.sum(axis=1) / max(shape[0], 1)
        total.append(values.sum(axis=1))
        best.append(values.argmax(axis=1))
    return Contributions(np.concatenate(total), np.concatenate(best))


def _targets(source: FeatureSource, labels: NDArray[Any]) -> NDArray[np.float64]:
    """Labels (n, C) on scales that can be compared."""
    if source.task.is_classification:
        labels = np.eye(len(source.classes))[labels]
    targets: NDArray[np.float64] = labels
    if source.task.kind == "regression":
        spread = targets.std(axis=0)
        targets = (targets - targets.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return targets


def thinned(source: FeatureSource, domains: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Rows of each domain: about `MAX_SAMPLES` in all, the same share of each class and domain.

    For other tasks than classification, of each stratum, see :mod:`oodzoo.tasks.strata`.
    """
    n = sum(len(source.labels(domain)) for domain in domains)
    rows = {}
    for domain in domains:
        values = strata(source.task.kind, source.labels(domain))
        chosen = [
            cell[np.arange(0, len(cell), max(1.0, n / MAX_SAMPLES)).astype(np.int64)]
            for cell in (np.flatnonzero(values == label) for label in np.unique(values))
        ]
        rows[domain] = np.sort(np.concatenate(chosen))
    return rows


def _sample(source: FeatureSource, domains: Sequence[str]) -> _Sample:
    rows = thinned(source, domains)
    labels = [source.labels(domain)[chosen] for domain, chosen in rows.items()]
    sizes = list(map(len, labels))
    folds = np.repeat(np.arange(len(sizes)), sizes)
    labelled = np.concatenate(labels)
    if len(domains) == 1:
        every = groups_of(source, domains)
        numbers = group_numbers([every[row] for row in rows[domains[0]].tolist()], len(labelled))
        own = np.arange(len(labelled)) if numbers is None else numbers
        folds = grouped_folds(strata(source.task.kind, labelled), own, _FOLDS)
    return _Sample(rows, labelled, folds)


def _features(
    source: FeatureSource, model: str, rows: dict[str, NDArray[np.int64]], be: Backend
) -> Array:
    """Standardised features (n, d) of a model, in float32."""
    parts = []
    for domain, chosen in rows.items():
        name, start = f"model {model!r}, domain {domain!r}", 0
        shards = source.shards(model, domain)
        for block, _ in blocks(shards, len(source.classes), backend(), context=name):
            inside = chosen[(start <= chosen) & (chosen < start + len(block))]
            parts.append(block[inside - start])
            start += len(block)
        if start != len(source.labels(domain)):
            expected = count(len(source.labels(domain)), "label")
            raise InputError(f"{name}: {count(start, 'sample')} but {expected}")
    features = np.concatenate(parts)
    return be.asarray(standardised(features, *mean_and_std(features)))


def _ridge(
    gram: Array, targets: NDArray[np.float64], folds: NDArray[np.int64], be: Backend
) -> NDArray[np.float64]:
    """Coefficients (n, folds x classes) of the samples in the weights of each fold's regression."""
    n, n_classes = targets.shape
    errors = np.zeros(len(RIDGES))
    solutions = []
    for fold in _usable(folds):
        train, held_out = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        own = gram[be.asarray(train), :][:, be.asarray(train)]
        cross = gram[be.asarray(held_out), :][:, be.asarray(train)]
        mean = be.xp.mean(own, axis=0)
        centred = own - mean[None, :] - mean[:, None] + be.xp.mean(mean)
        size = float(be.xp.linalg.trace(centred)) / len(train) or 1.0  # 0 if all are constant
        # of the Gram matrix of float32; it matters if domains are far from each other
        rounding = _EPSILON * float(be.xp.linalg.trace(own)) / math.sqrt(len(train))
        prior = targets[train].mean(axis=0)
        centred_targets = be.float64(targets[train] - prior)
        calls = [(be, centred, max(ridge * size, rounding), centred_targets) for ridge in RIDGES]
        solved = call_for_sets(_solve, calls, len(train) ** 2, on_cpu=be.is_numpy)
        for at, solution in enumerate(solved):
            predicted = to_numpy(cross @ solution - (mean @ solution)[None, :]) + prior
            errors[at] += np.square(targets[held_out] - predicted).sum(axis=1).mean()
            whole = np.zeros((n, n_classes))
            whole[train] = to_numpy(solution)
            solutions.append(whole)
    best = solutions[int(errors.argmin()) :: len(RIDGES)]
    return np.hstack(best) if best else np.zeros((n, 0))


def _solve(be: Backend, gram: Array, penalty: float, targets: Array) -> Array:
    """Coefficients of the centred samples in a ridge regression."""
    solution = be.solve_positive(gram, penalty, targets)
    return solution - be.xp.mean(solution, axis=0)[None, :]


def _covariances(targets: NDArray[np.float64], folds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weights (n, folds x classes) of the samples in the covariances of each left-out fold."""
    parts = []
    for fold in _usable(folds):
        held_out = folds == fold
        centred = targets - targets[held_out].mean(axis=0)
        parts.append(np.where(held_out[:, None], centred, 0) / held_out.sum())
    return np.hstack(parts) if parts else np.zeros((len(targets), 0))


def _usable(folds: NDArray[np.int64]) -> NDArray[np.int64]:
    """The folds that can be left out: none if there is only one."""
    numbers = np.unique(folds)
    return numbers if len(numbers) > 1 else numbers[:0]

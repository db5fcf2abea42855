r"""What a feature contributes to held-out domains; the features that help in every domain.

For each domain e, a ridge regression of the labels on the standardised features of all models is
fitted to the other domains, with weights :math:`W_{-e}`. Classes are one-hot labels; numbers to
predict are divided by their standard deviation. The contribution of feature j is

.. math:: s_j = \frac1m \sum_e \sum_c W_{-e,cj}\,\operatorname{cov}_e(z_j, y_c),

where the covariance is over the samples of the held-out domain e. Summed over all features this is
the covariance of predictions and labels in the held-out domains: a feature whose relation to the
classes differs between domains takes away from it. Because a covariance is about the mean of the
domain, a shift of a feature in a domain does not matter.

The penalty of domain e is :math:`\rho` times the mean eigenvalue of the centred Gram matrix of the
training samples; of `RIDGES`, :math:`\rho` has the smallest squared error on the held-out domains.

With n samples, only the n × n Gram matrix of the samples and the features of one model are in
memory, and each model is read twice; or all features, if there are fewer than samples.

To select features, they are ordered by their contribution, and the first ones are kept. How many is
chosen on held-out domains: for each domain, the features are ordered without it, heads on the first
ones are trained without it, and predict it. The number with the highest mean log-likelihood, over
the domains, is kept. A feature without a positive contribution never is. With many samples, an
evenly spaced part of each class and domain decides.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import Array, Backend, backend, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.events import Progress, part, tracked
from oodzoo.core.text import count
from oodzoo.core.threads import LARGE_PRODUCT, blas_threads
from oodzoo.extraction.columns import Columns, Samples
from oodzoo.extraction.features import FeatureSource, groups_of
from oodzoo.linear.heads.kinds import PATHS
from oodzoo.linear.heads.paths import call_for_sets
from oodzoo.linear.heads.samples import group_numbers, grouped_folds, mean_and_std, standardised
from oodzoo.linear.moments import blocks

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

    settings = f"{_VERSION}{groups_key(source, domains)}"
    arrays = source.cached("contributions", models, compute, domains=domains, settings=settings)
    return Contributions(arrays["total"], arrays["best_class"])


def groups_key(source: FeatureSource, domains: Sequence[str], *, divided: int = 1) -> str:
    """A digest of the groups, if a domain is divided into parts, which keep them whole.

    So is one of at most `divided` domains; empty without groups.
    """
    groups = groups_of(source, domains)
    if len(domains) > divided or groups.count(None) == len(groups):
        return ""
    return f" {hashlib.sha256(json.dumps(groups).encode()).hexdigest()}"


def _contributions(
    source: FeatureSource, models: Sequence[str], domains: Sequence[str], be: Backend
) -> Contributions:
    sample = _sample(source, domains)
    targets = _targets(source, sample.labels)
    if sum(source.facts(model).feature_dim for model in models) < len(targets):
        each = [_features(source, model, sample.rows, be) for model in models]
        coefficients = _ridge(_Primal(be, be.float64(be.xp.concat(each, axis=1))), targets, sample)
    else:
        gram = be.float64(np.zeros((len(targets), len(targets))))
        for model in models:
            features = _features(source, model, sample.rows, be)
            gram += be.float64(features @ features.T)
        coefficients = _ridge(_Dual(be, gram), targets, sample)
        del gram
    weights = be.asarray(coefficients.astype(np.float32))
    shape = len(_usable(sample.folds)), targets.shape[1]
    covariances = be.asarray(_covariances(targets, sample.folds).astype(np.float32))
    total, best = [], []
    for model in models:
        features = _features(source, model, sample.rows, be)
        parts = (features.T @ weights) * (features.T @ covariances)
        per_class = to_numpy(parts).astype(np.float64).reshape(len(parts), *shape)
        values = per_class.sum(axis=1) / max(shape[0], 1)
        total.append(values.sum(axis=1))
        best.append(values.argmax(axis=1))
    return Contributions(np.concatenate(total), np.concatenate(best))


def _targets(source: FeatureSource, labels: NDArray[Any]) -> NDArray[np.float64]:
    """Labels (n, C) on scales that can be compared."""
    if source.task.one_class:
        labels = np.eye(len(source.classes))[labels]
    targets: NDArray[np.float64] = labels
    if not source.task.has_probabilities:
        spread = targets.std(axis=0)
        targets = (targets - targets.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return targets


def thinned(source: FeatureSource, domains: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Rows of each domain: about `MAX_SAMPLES` in all, the same share of each class and domain.

    For other tasks than classification, of each stratum, see :meth:`oodzoo.tasks.Task.strata`.
    """
    n = sum(len(source.labels(domain)) for domain in domains)
    rows = {}
    for domain in domains:
        values = source.task.strata(source.labels(domain))
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
        folds = grouped_folds(source.task.strata(labelled), own, _FOLDS)
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


class _Dual:
    """Ridge regressions by the Gram matrix (n, n) of the samples."""

    def __init__(self, be: Backend, gram: Array) -> None:
        self.be, self.gram = be, gram
        self.size = len(gram)

    def fold(self, train: NDArray[np.int64], held_out: NDArray[np.int64]) -> tuple[Any, ...]:
        """The centred training samples, the others, and the traces before and after centring."""
        be, rows = self.be, self.be.asarray(train)
        own = self.gram[rows, :][:, rows]
        mean = be.xp.mean(own, axis=0)
        centred = own - mean[None, :] - mean[:, None] + be.xp.mean(mean)
        cross = self.gram[be.asarray(held_out), :][:, rows] - mean[None, :]
        return centred, cross, float(be.xp.linalg.trace(own)), float(be.xp.linalg.trace(centred))

    def solve(
        self, own: Array, cross: Array, penalty: float, targets: Array
    ) -> tuple[Callable[[], Array], Array]:
        """What returns the coefficients of the centred samples, and predictions of the others."""
        solution = self.be.solve_positive(own, penalty, targets)
        solution = solution - self.be.xp.mean(solution, axis=0)[None, :]
        return lambda: solution, cross @ solution


class _Primal:
    """The same by the features (n, d), of which there are fewer than samples."""

    def __init__(self, be: Backend, features: Array) -> None:
        self.be, self.features = be, features
        self.size = features.shape[1]

    def fold(self, train: NDArray[np.int64], held_out: NDArray[np.int64]) -> tuple[Any, ...]:
        be, own = self.be, self.features[self.be.asarray(train), :]
        mean = be.xp.mean(own, axis=0)
        centred = own - mean[None, :]
        others = self.features[be.asarray(held_out), :] - mean[None, :]
        traces = float(be.xp.sum(own * own)), float(be.xp.sum(centred * centred))
        return (centred, centred.T @ centred), others, *traces

    def solve(
        self, own: tuple[Array, Array], cross: Array, penalty: float, targets: Array
    ) -> tuple[Callable[[], Array], Array]:
        features, gram = own
        weights = self.be.solve_positive(gram, penalty, features.T @ targets)
        return lambda: (targets - features @ weights) / penalty, cross @ weights


def _ridge(form: _Dual | _Primal, targets: NDArray[np.float64], sample: _Sample) -> NDArray[Any]:
    """Coefficients (n, folds x classes) of the samples in the weights of each fold's regression."""
    (n, n_classes), be, folds = targets.shape, form.be, sample.folds
    errors = np.zeros(len(RIDGES))
    solutions = []
    for fold in _usable(folds):
        train, held_out = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        own, cross, before, after = form.fold(train, held_out)
        size = after / len(train) or 1.0  # 0 if all are constant
        # of the Gram matrix of float32; it matters if domains are far from each other
        rounding = _EPSILON * before / math.sqrt(len(train))
        prior = targets[train].mean(axis=0)
        centred = be.float64(targets[train] - prior)
        calls = [(own, cross, max(ridge * size, rounding), centred) for ridge in RIDGES]
        solved = call_for_sets(form.solve, calls, form.size**2, on_cpu=be.is_numpy)
        for at, (solution, predicted) in enumerate(solved):
            wrong = targets[held_out] - to_numpy(predicted) - prior
            errors[at] += np.square(wrong).sum(axis=1).mean()
            solutions.append((train, solution))
    best = solutions[int(errors.argmin()) :: len(RIDGES)]
    result = np.zeros((n, len(best) * n_classes))
    for at, (train, solution) in enumerate(best):
        result[train, at * n_classes : (at + 1) * n_classes] = to_numpy(solution())
    return result


def _covariances(targets: NDArray[np.float64], folds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weights (n, folds x classes) of the samples in the covariances of each held-out fold."""
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


SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 1.0)
"""Shares of all features that may be kept."""

MAX_VALUES = 2**27
"""Largest number of values (samples times kept features): 512 MiB. Fits make copies of them."""


def select_by_contribution(
    source: FeatureSource,
    models: Sequence[str],
    domains: Sequence[str],
    device: str | None,
    progress: Progress | None = None,
) -> dict[str, NDArray[Any]]:
    """Select the features with the largest contributions to held-out domains.

    Returns
    -------
    dict of array
        "total" and "best_class" as in
        :class:`~oodzoo.linear.selection.contributions.Contributions`, the mask "support"
        (n_features,), the candidates for the number of features, "numbers", and their
        "likelihoods".
    """
    _require_common_classes(source, domains)
    advance = progress or (lambda done, total: None)
    advance(0, len(domains) + 1)
    with part(0.0, 1 / (len(domains) + 1)):
        scores = contributions(source, models, domains, device=device)
    advance(1, len(domains) + 1)
    if not (scores.total > 0).any():
        warnings.warn(
            f"no feature of {', '.join(models)} helps to predict held-out domains; keeping one",
            stacklevel=3,
        )
    n = sum(len(source.labels(domain)) for domain in domains)
    numbers = np.array([_number(scores.total, share, n) for share in SHARES])
    numbers, at = np.unique(numbers, return_index=True)
    shares = [SHARES[place] for place in at]
    likelihoods = np.full(len(shares), np.nan)
    if len(shares) > 1:
        with part(1 / (len(domains) + 1), 1.0):
            likelihoods = _likelihoods(source, models, domains, shares, device, advance)
    # Without any held-out prediction there is no reason to drop features that help.
    kept = -1 if np.isnan(likelihoods).any() else int(likelihoods.argmax())
    support = np.zeros(len(scores.total), np.bool_)
    support[_order(scores.total)[: numbers[kept]]] = True
    return {
        **scores._asdict(),
        "support": support,
        "numbers": numbers,
        "likelihoods": likelihoods,
    }


def _likelihoods(
    source: FeatureSource,
    models: Sequence[str],
    domains: Sequence[str],
    shares: Sequence[float],
    device: str | None,
    advance: Progress,
) -> NDArray[np.float64]:
    """Mean quality of heads on held-out domains for each share, with the best setting.

    It is the log-likelihood of the labels, or minus the squared error of numbers; NaN if unknown.
    """
    task = source.task
    predicted: list[list[NDArray[Any]]] = []  # of each domain, for each share (settings, n, C)
    truth = []
    for left_out, domain in enumerate(tracked(domains)):
        advance(1 + left_out, len(domains) + 1)
        others = [other for other in domains if other != domain]
        total = contributions(source, models, others, device=device).total
        if not total.any():
            continue
        n = sum(len(source.labels(other)) for other in others)
        numbers = [_number(total, share, n) for share in shares]
        rank = np.empty(len(total), np.int64)
        rank[_order(total)] = np.arange(len(total))
        columns = Columns.by_mask(source, models, rank < max(numbers))
        samples = thinned_samples(columns, source, domains)
        rank = rank[rank < max(numbers)]
        truth.append(samples.labels[samples.domains == left_out])
        found = []
        for number in numbers:
            best = samples._replace(features=samples.features[:, rank < number])
            found += PATHS[task.link].left_out(
                best, len(source.classes), [{left_out}], device=device
            )
        predicted.append(found)
    if not predicted:
        return np.full(len(shares), np.nan)
    # all domains together: the scale of numbers is that of all of them
    tables = [task.quality(each, truth) for each in zip(*predicted, strict=True)]
    return np.array([table.mean(axis=0).max() for table in tables])


def thinned_samples(columns: Columns, source: FeatureSource, domains: Sequence[str]) -> Samples:
    """Samples of some columns: all, or a part of many."""
    samples = columns.samples(source, domains)
    sizes = [len(source.labels(domain)) for domain in domains]
    starts = np.cumsum([0, *sizes[:-1]])
    parts = thinned(source, domains).values()
    rows = np.concatenate([start + part for start, part in zip(starts, parts, strict=True)])
    return samples if len(rows) == sum(sizes) else Samples(*(each[rows] for each in samples))


def _number(total: NDArray[np.float64], share: float, n: int) -> int:
    """Number of features of a share: of those that help, and as many as memory allows."""
    most = min(int((total > 0).sum()), MAX_VALUES // n)
    return max(1, min(round(share * len(total)), most))


def _order(total: NDArray[np.float64]) -> NDArray[np.int64]:
    """Features from the largest contribution to the smallest."""
    return np.argsort(-total, kind="stable")


def _require_common_classes(source: FeatureSource, domains: Sequence[str]) -> None:
    if len(domains) < 2:
        raise InputError(
            "features are selected by their use in held-out domains, which needs two or more "
            f"domains, got {', '.join(map(repr, domains))}; add domains, or use the method 'paper'"
        )
    if not source.task.one_class:
        return
    present = np.sum([np.isin(range(len(source.classes)), source.labels(d)) for d in domains], 0)
    if present.max() < 2:
        raise InputError(
            f"no class is in two of the domains {', '.join(map(repr, domains))}, so no feature can "
            "be compared between them; use the method 'paper'"
        )

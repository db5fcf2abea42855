r"""Domains proposed by clustering features: coordinates of samples, clusters, separability.

*Coordinates* are features without what the labels explain. For each model, the part of the features
that is a linear function of the labels is removed (for classes: the mean of each class), because
domains should not be classes. What is left is projected onto its first principal components, each
divided by its standard deviation:

.. math:: R = \Phi - \tilde Y (\tilde Y^\top \tilde Y)^{+} \tilde Y^\top \Phi,\qquad
   Z = R V_p \operatorname{diag}(\sigma_1, \dots, \sigma_p)^{-1},

with :math:`\tilde Y = [1, Y]`. The coordinates of all models are concatenated, so that each model
weighs the same.

For *clusters*, the coordinates are reduced to their first ten principal components and clustered by
k-means. Samples of a group stay together: the mean of each group is clustered, with its number of
samples as weight. The number of clusters is chosen by *stability*: the samples are divided at
random into two halves, k-means is fitted to each, and both assign all samples to clusters; the
stability of k is the mean adjusted Rand index of the two assignments over ten divisions. The
largest k of at most eight with a stability of at least 0.9 is chosen; if there is none, the most
stable one.

For the *separability* of domains, a ridge regression on the coordinates predicts the domain of
samples that it was not fitted to (five folds, groups kept whole). With its balanced accuracy *b*
and k domains, the separability is

.. math:: \max\left(0, \frac{b - 1/k}{1 - 1/k}\right),

0 at chance and 1 if every sample is right. Domains with a separability near 0 differ in no way that
the models see: to leave one out is then no harder than a random split.

References
----------
T. Lange, V. Roth, M. L. Braun, J. M. Buhmann, "Stability-based validation of clustering solutions",
Neural Computation 16, 2004.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GroupKFold, KFold
from sklearn.utils.extmath import randomized_svd

from oodzoo.core.backend import to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.data.proposals import MIN_IMAGES
from oodzoo.extraction.features import FeatureSource

Floats = NDArray[np.float64]

PER_MODEL = 10
"""Principal components of a model."""

_FITTED = 5000
"""Samples, or groups of them, that principal components and stability are computed from."""


def embed(source: FeatureSource, models: Sequence[str], *, seed: int = 0) -> Floats:
    """Return the coordinates (n, p) of the samples of all domains, in the order of the source.

    Raises
    ------
    InputError
        If no feature varies within the classes.
    """
    targets = np.concatenate([_targets(source, domain) for domain in source.domains])
    parts = [_of_model(source, model, targets, seed) for model in models]
    found = np.concatenate(parts, axis=1)
    if not found.shape[1]:
        raise InputError("the features do not vary within a class; they cannot be clustered")
    return found


def principal_components(matrix: Floats, most: int) -> Floats:
    """Return the first principal components (n, at most `most`) of a matrix, not scaled."""
    centred = matrix - matrix.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    order = np.argsort(-values)[:most]
    kept = vectors[:, order[values[order] > 1e-10 * values.max()]]
    # eigenvectors are unique up to their sign
    kept = kept * np.sign(kept[np.abs(kept).argmax(axis=0), np.arange(kept.shape[1])])
    projected: Floats = centred @ kept
    return projected


def _targets(source: FeatureSource, domain: str) -> Floats:
    """Return the matrix [1, Y] of a domain."""
    labels = source.labels(domain)
    if labels.ndim == 1:
        labels = np.eye(len(source.classes))[labels]
    return np.concatenate([np.ones((len(labels), 1)), labels], axis=1)


def _of_model(source: FeatureSource, model: str, targets: Floats, seed: int) -> Floats:
    sums = np.zeros((targets.shape[1], source.facts(model).feature_dim))
    for rows, block in _blocks(source, model):
        sums += targets[rows].T @ block
    weights = np.linalg.pinv(targets.T @ targets, hermitian=True) @ sums
    n = len(targets)
    sample = np.sort(np.random.default_rng(seed).permutation(n)[:_FITTED])
    chosen = np.zeros(n, bool)
    chosen[sample] = True
    rest = np.concatenate(
        [(block - targets[rows] @ weights)[chosen[rows]] for rows, block in _blocks(source, model)]
    )
    most = min(PER_MODEL, *rest.shape)
    _, scales, components = randomized_svd(rest, most, random_state=seed)
    total = np.sqrt((rest**2).sum())
    varying = scales > 1e-6 * max(total, np.sqrt((sums**2).sum()) / n)
    axes = components[varying].T / (scales[varying] / np.sqrt(len(rest)))
    projected = [(block - targets[rows] @ weights) @ axes for rows, block in _blocks(source, model)]
    return np.concatenate(projected)


def _blocks(source: FeatureSource, model: str) -> Iterator[tuple[slice, Floats]]:
    """Yield the rows and the features of each block of all domains."""
    start = 0
    for domain in source.domains:
        for features, _ in source.shards(model, domain):
            block = to_numpy(features).astype(np.float64)
            yield slice(start, start + len(block)), block
            start += len(block)


# --- clusters -------------------------------------------------------------------------------------

MOST = 8
STABLE = 0.9
COMPONENTS = 10
_DIVISIONS = 10

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Clusters:
    """Clusters of samples, numbered from 0, the largest first.

    Attributes
    ----------
    numbers : array
        The cluster of each sample.
    k : int
        Number of clusters that were looked for; small ones were merged with the nearest.
    stability : dict of int to float
        Stability by number of clusters; empty if the number was given.
    """

    numbers: Numbers
    k: int
    stability: dict[int, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.numbers.max()) + 1


def cluster(
    coordinates: Floats,
    labels: Sequence[Collection[str]],
    groups: Sequence[str | None],
    *,
    k: int | None = None,
    seed: int = 0,
) -> Clusters:
    """Cluster samples.

    Parameters
    ----------
    coordinates : array (n, p)
        See :func:`embed`.
    labels : sequence of collections of str
        The labels of each sample; none if the target is numeric. Clusters of a single class are
        merged with the nearest.
    groups : sequence
        The group of each sample; None for a sample of its own.
    k : int, optional
        Number of clusters; by default chosen by stability.
    seed : int

    Raises
    ------
    InputError
        If there are too few samples, or a single cluster is left.
    """
    reduced = principal_components(coordinates, COMPONENTS)
    unit_of = _units(groups)
    weights = np.bincount(unit_of).astype(np.float64)
    sums = [np.bincount(unit_of, column) for column in reduced.T]
    units = np.stack(sums, axis=1).astype(np.float64) / weights[:, None]
    # for the stability, k-means is fitted to half of the units
    possible = min(len(reduced) // MIN_IMAGES, len(units) // 2)
    if k is not None and k < 2:
        raise InputError(f"the number of clusters must be at least 2, got {k}")
    if possible < (k or 2):
        raise InputError(
            f"{count(len(reduced), 'sample')} in {count(len(units), 'group')} are too few for "
            f"{k or 2} clusters of at least {MIN_IMAGES} samples"
        )
    stability: dict[int, float] = {}
    if k is None:
        stability = {
            n: stability_of(units, weights, n, seed) for n in range(2, min(MOST, possible) + 1)
        }
        k = choose(stability)
    fitted = _fit(units, weights, k, seed)
    numbers = _merged(units, fitted.cluster_centers_, unit_of, labels)
    if numbers.max() == 0:
        raise InputError(
            f"of {count(k, 'cluster')} a single one is left: the others have fewer than "
            f"{MIN_IMAGES} samples or a single class"
        )
    return Clusters(numbers, k, stability)


def choose(stability: dict[int, float]) -> int:
    """Return the largest number of clusters that is stable, else the most stable one.

    Examples
    --------
    >>> choose({2: 0.81, 3: 0.95, 4: 0.93, 5: 0.87}), choose({2: 0.6, 3: 0.4})
    (4, 2)
    """
    stable = [k for k, value in stability.items() if value >= STABLE]
    return max(stable) if stable else max(stability, key=lambda k: (stability[k], -k))


def stability_of(units: Floats, weights: Floats, k: int, seed: int) -> float:
    """Return the mean agreement of clusterings of random halves."""
    rng = np.random.default_rng([seed, k])
    values = []
    for _ in range(_DIVISIONS):
        order = rng.permutation(len(units))[:_FITTED]
        halves = order[: len(order) // 2], order[len(order) // 2 :]
        first, second = (
            _fit(units[half], weights[half], k, seed, starts=3).predict(units[order])
            for half in halves
        )
        values.append(adjusted_rand_score(first, second))
    return float(np.mean(values))


def confined_classes(names: Sequence[str], labels: Sequence[Collection[str]]) -> dict[str, str]:
    """Return the classes that occur in one domain only, each with the domain.

    Examples
    --------
    >>> confined_classes(["x", "x", "y"], [("cat",), ("dog",), ("cat",)])
    {'dog': 'x'}
    """
    where: dict[str, set[str]] = {}
    for name, some in zip(names, labels, strict=True):
        for label in some:
            where.setdefault(label, set()).add(name)
    return {label: min(found) for label, found in sorted(where.items()) if len(found) == 1}


def _fit(units: Floats, weights: Floats, k: int, seed: int, starts: int = 10) -> KMeans:
    with warnings.catch_warnings():
        # fewer different points than clusters: small clusters are merged
        warnings.simplefilter("ignore", ConvergenceWarning)
        return KMeans(k, n_init=starts, random_state=seed).fit(units, sample_weight=weights)


def _units(groups: Sequence[str | None]) -> Numbers:
    """Number the groups, and the samples without one, from 0."""
    numbers: dict[object, int] = {}
    keys = [row if group is None else group for row, group in enumerate(groups)]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


def _merged(
    units: Floats, centres: Floats, unit_of: Numbers, labels: Sequence[Collection[str]]
) -> Numbers:
    """Assign units to the nearest centre; remove the centre of a small cluster until none is."""
    has_classes = any(labels)
    left = list(range(len(centres)))
    distances = ((units[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
    while True:
        numbers = np.array(left)[distances[:, left].argmin(axis=1)][unit_of]
        sizes = Counter(numbers.tolist())
        small = []
        for at in left:
            rows = np.flatnonzero(numbers == at)
            classes = {label for row in rows.tolist() for label in labels[row]}
            if len(rows) < MIN_IMAGES or (has_classes and len(classes) < 2):
                small.append(at)
        if not small or len(left) == 1:
            order = sorted(left, key=lambda at: (-sizes[at], at))
            position = {at: number for number, at in enumerate(order)}
            return np.array([position[at] for at in numbers.tolist()], np.int64)
        left.remove(min(small, key=lambda at: (sizes[at], at)))


# --- separability ---------------------------------------------------------------------------------

_FOLDS = 5


def separability(
    coordinates: Floats,
    domains: Sequence[str],
    groups: Sequence[str | None],
    *,
    seed: int = 0,
) -> float:
    """Return the separability of domains, from 0 to 1."""
    names, codes = np.unique(np.asarray(domains), return_inverse=True)
    keys = [f"row {row}" if group is None else f"group {group}" for row, group in enumerate(groups)]
    units = np.unique(keys, return_inverse=True)[1]
    if len(set(units.tolist())) < _FOLDS:
        return 0.0
    if len(set(units.tolist())) == len(units):
        splits = KFold(_FOLDS, shuffle=True, random_state=seed).split(coordinates)
    else:
        splits = GroupKFold(_FOLDS).split(coordinates, groups=units)
    right = np.zeros(len(codes), bool)
    for train, test in splits:
        if len(np.unique(codes[train])) < 2:
            continue
        model = RidgeClassifier(class_weight="balanced").fit(coordinates[train], codes[train])
        right[test] = model.predict(coordinates[test]) == codes[test]
    balanced = float(np.mean([right[codes == at].mean() for at in range(len(names))]))
    chance = 1 / len(names)
    return max(0.0, (balanced - chance) / (1 - chance))

r"""Domains proposed by clustering features.

The coordinates of :mod:`oodzoo.domains.embedding` are reduced to their first ten principal
components and clustered by k-means. Samples of a group stay together: the mean of each group is
clustered, with its number of samples as weight.

The number of clusters is chosen by *stability*: the samples are divided at random into two halves,
k-means is fitted to each, and both assign all samples to clusters; the stability of k is the mean
adjusted Rand index of the two assignments over ten divisions. The largest k of at most eight with a
stability of at least 0.9 is chosen; if there is none, the most stable one.

References
----------
T. Lange, V. Roth, M. L. Braun, J. M. Buhmann, "Stability-based validation of clustering solutions",
Neural Computation 16, 2004.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from oodzoo._text import count
from oodzoo.data.proposals import MIN_IMAGES
from oodzoo.domains.embedding import Floats, principal_components
from oodzoo.errors import InputError

MOST = 8
STABLE = 0.9
COMPONENTS = 10
_DIVISIONS = 10
_FITTED = 5000
"""Units that the stability is computed from."""

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
        See :func:`oodzoo.domains.embedding.embed`.
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

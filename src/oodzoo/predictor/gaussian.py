r"""Distance of an image from the training images: a warning, not a probability.

Domains differ in appearance and classes in content, so a single Gaussian over all training images
would be wider than any class of any domain. The training features are modelled as one Gaussian per
class and domain (a cell), all with the same covariance; the distance of an image is that from the
nearest of them:

.. math:: \delta^2(x) = \min_c\,(z - m_c)^\top\Sigma^{-1}(z - m_c),\qquad
   \Sigma = V\Lambda V^\top + \sigma^2(I - VV^\top),

where z are the standardised features scaled to length 1, :math:`V, \Lambda` the leading principal
axes of the deviations from the means and their variances, and :math:`\sigma^2` the mean variance
along all other directions: probabilistic principal component analysis [1]_, which is defined for
fewer images than features. Such distances detect out-of-distribution images better than the
confidence of a classifier [2]_; without the scaling, an image that activates no feature, such as an
empty one, would be close to the centre [3]_.

The reported distance is :math:`\delta/\delta_0`. The limit :math:`\delta_0` is the `LEVEL` quantile
of the cross-validated distances of the training images (five folds; images of one group are in the
same fold). An image with a distance above 1 is out of domain.

References
----------
.. [1] Tipping, Bishop: Probabilistic principal component analysis, JRSS B 61 (1999).
.. [2] Lee et al.: A simple unified framework for detecting out-of-distribution samples and
   adversarial attacks, NeurIPS 2018.
.. [3] Mueller, Hein: Mahalanobis++: improving OOD detection via feature normalization, ICML 2025.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.threads import LARGE_PRODUCT, blas_threads
from oodzoo.extraction.columns import Samples
from oodzoo.tasks import CLASSIFICATION, Task

LEVEL = 0.975
"""Share of held-out training images within the limit. The target is at most 5 % false alarms on new
images; the difference is a margin for sampling error."""

AXES = 64
"""Maximum number of principal axes; more axes did not change the measured detection."""

_N_FOLDS = 5
_MAX_IMAGES = 20_000
"""Number of images used; more would take longer without improving the covariance."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GaussianScalars:
    """The scalars of a :class:`TrainingGaussian`, for JSON."""

    rest: float
    limit: float
    alarms: float
    level: float = LEVEL

    def __post_init__(self) -> None:
        if not (self.rest > 0 and self.limit > 0):
            raise InputError(
                f"rest and limit must be positive, got {self.rest!r} and {self.limit!r}"
            )


@dataclass(frozen=True)
class TrainingGaussian:
    """Gaussians of the training features, one per class and domain, with a common covariance.

    Attributes
    ----------
    mean, scale : array (d,)
        Mean and standard deviation by which features are standardised. The scale of a constant
        feature is inf, which ignores it.
    centres : array (n_cells, d)
        Mean of each class in each domain, of standardised features of length 1.
    axes : array (d, r)
        Principal axes of the deviations from the centres.
    variances : array (r,)
        Variance along each axis.
    rest : float
        Variance along every other direction.
    limit : float
        The distance that is reported as 1.
    alarms : float
        Share of training images beyond the limit, cross-validated.
    """

    mean: Floats
    scale: Floats
    centres: Floats
    axes: Floats
    variances: Floats
    rest: float
    limit: float = 1.0
    alarms: float = 0.0

    def distances(self, features: NDArray[np.floating]) -> Floats:
        """Distance of each row, in units of the limit."""
        z = _directions(features, self.mean, self.scale)
        # ‖z - m‖² and its part along the axes as matrix products: an array of all differences
        # (rows, cells, d) would be too large
        squares = _squared_distances(z, self.centres) / self.rest
        weight = np.sqrt(1 / self.rest - 1 / self.variances)
        along = _squared_distances(z @ self.axes * weight, self.centres @ self.axes * weight)
        nearest = np.clip(squares - along, 0, None).min(axis=1)
        distances: Floats = np.sqrt(nearest) / self.limit
        return distances

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The arrays, by name."""
        return {name: getattr(self, name) for name in _TENSORS}

    def scalars(self) -> GaussianScalars:
        """The other attributes."""
        return GaussianScalars(self.rest, self.limit, self.alarms)

    @staticmethod
    def shapes(tensors: dict[str, NDArray[Any]], d: int) -> dict[str, tuple[int, ...]]:
        """The shapes that tensors of this many numbers must have for d features, in order."""
        cells = np.size(tensors.get("centres", ())) // max(d, 1)
        axes = np.size(tensors.get("variances", ()))
        shapes: list[tuple[int, ...]] = [(d,), (d,), (cells, d), (d, axes), (axes,)]
        return dict(zip(_TENSORS, shapes, strict=True))


_TENSORS = ("mean", "scale", "centres", "axes", "variances")


def fit_gaussian(
    samples: Samples,
    groups: Sequence[Sequence[str | None] | None] | None = None,
    task: Task = CLASSIFICATION,
) -> TrainingGaussian:
    """Fit Gaussians to training features, and determine the limit by cross-validation.

    Parameters
    ----------
    samples : Samples
    groups : sequence, optional
        For each domain, the group of each sample; None where it is unknown.
    task : Task
        What the labels are; where they are not classes, strata take their place, see
        :meth:`oodzoo.tasks.Task.strata`.
    """
    features, labels, domains = samples
    labels = task.strata(labels)
    cells = domains * (labels.max() + 1) + labels
    units = _number_groups(domains, groups)
    rows = _subsample(cells)
    features, cells, units = features[rows], cells[rows], units[rows]
    folds = _assign_folds(cells, units)
    held_out = np.empty(len(features))
    for fold in range(_N_FOLDS):
        train, test = folds != fold, folds == fold
        if train.any() and test.any():
            held_out[test] = _fit(features[train], cells[train]).distances(features[test])
        elif test.any():  # a single group: nothing can be held out
            held_out[test] = _fit(features, cells).distances(features)
    limit = float(np.quantile(held_out, LEVEL, method="higher"))
    limit = limit if limit > 0 else 1.0
    return replace(_fit(features, cells), limit=limit, alarms=float(np.mean(held_out > limit)))


def _fit(features: NDArray[np.float32], cells: NDArray[np.int64]) -> TrainingGaussian:
    from sklearn.utils.extmath import randomized_svd

    mean = features.mean(axis=0, dtype=np.float64)
    scale = features.std(axis=0, dtype=np.float64)
    # the computed deviation of a constant feature is not exactly 0
    scale[scale <= 1e-6 * np.abs(mean)] = np.inf
    z = _directions(features, mean, scale)
    _, cell, counts = np.unique(cells, return_inverse=True, return_counts=True)
    centres = np.zeros((len(counts), z.shape[1]))
    np.add.at(centres, cell, z)
    centres /= counts[:, None]
    deviations = z - centres[cell]
    n, d = deviations.shape
    total = float(np.square(deviations).sum()) / n
    n_axes = min(AXES, (min(n, d) - 1) // 2)
    if n_axes < 1 or total == 0:
        return TrainingGaussian(
            mean, scale, centres, np.zeros((d, 0)), np.zeros(0), total / d or 1.0
        )
    with blas_threads(deviations.size, LARGE_PRODUCT):
        _, singular, axes = randomized_svd(deviations, n_axes, n_iter=4, random_state=0)
    variances = singular**2 / n
    rest = (total - variances.sum()) / (d - n_axes)
    # if the deviations span few dimensions, what remains is rounding error
    rest = max(rest, 1e-6 * total / d)
    return TrainingGaussian(
        mean, scale, centres, axes.T.copy(), np.maximum(variances, rest), float(rest)
    )


def _directions(features: NDArray[np.floating], mean: Floats, scale: Floats) -> Floats:
    """Standardised features, scaled to length 1."""
    z: Floats = (features - mean) / scale
    length = np.linalg.norm(z, axis=1, keepdims=True)
    return z / np.where(length > 0, length, 1)


def _squared_distances(a: Floats, b: Floats) -> Floats:
    """Squared distances between the rows of two matrices."""
    squares: Floats = np.square(a).sum(axis=1)[:, None] - 2 * a @ b.T + np.square(b).sum(axis=1)
    return squares


def _number_groups(
    domains: NDArray[np.int64], groups: Sequence[Sequence[str | None] | None] | None
) -> NDArray[np.int64]:
    """Number the groups; a sample without a group is one of its own."""
    if groups is None or all(group is None for group in groups):
        return np.arange(len(domains))
    counts = np.bincount(domains, minlength=len(groups)).tolist()
    names: list[object] = []
    for group, count in zip(groups, counts, strict=True):
        names += list(group) if group is not None else [None] * count
    numbers: dict[object, int] = {}
    return np.array(
        [
            numbers.setdefault(at if name is None else str(name), len(numbers))
            for at, name in enumerate(names)
        ]
    )


def _subsample(cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """All rows, or `_MAX_IMAGES` of them with the same proportions of cells."""
    if len(cells) <= _MAX_IMAGES:
        return np.arange(len(cells))
    order = _shuffled_by_cell(cells)
    return np.sort(order[np.linspace(0, len(order) - 1, _MAX_IMAGES).astype(np.int64)])


def _assign_folds(cells: NDArray[np.int64], units: NDArray[np.int64]) -> NDArray[np.int64]:
    """Distribute the groups over the folds, cell by cell."""
    fold: dict[int, int] = {}
    for unit in units[_shuffled_by_cell(cells)].tolist():
        fold.setdefault(unit, len(fold) % _N_FOLDS)
    return np.array([fold[unit] for unit in units.tolist()])


def _shuffled_by_cell(cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows sorted by cell, in random order within each."""
    order = np.random.default_rng(0).permutation(len(cells))
    return order[np.argsort(cells[order], kind="stable")]

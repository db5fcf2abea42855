r"""How far an image is from the training images: a warning, not a probability.

Every domain has its own look and every class its own place, so that one Gaussian over all of them
is wider than any of them. The training features are seen as one Gaussian for each class of each
domain, all with the same covariance, and an image is as far as the nearest of them:

.. math:: \delta^2(x) = \min_c\,(z - m_c)^\top\Sigma^{-1}(z - m_c),\qquad
   \Sigma = V\Lambda V^\top + \sigma^2(I - VV^\top),

where z are the standardised features scaled to length 1, :math:`V, \Lambda` the greatest principal
axes of the deviations from the means and :math:`\sigma^2` the mean variance along all others:
probabilistic principal component analysis [1]_, which is defined for fewer images than features.
Such distances tell other data apart better than the confidence of a classifier [2]_; without the
scaling an image that excites no feature, such as an empty one, would lie in the middle [3]_.

The distance that is reported is :math:`\delta/\delta_0`. The limit :math:`\delta_0` is the
`LEVEL` quantile of the distances of training images from Gaussians that were fitted without them,
five parts in turn (images of one group go together). An image beyond 1 is called out of domain.

References
----------
.. [1] Tipping, Bishop: Probabilistic principal component analysis, JRSS B 61 (1999).
.. [2] Lee et al.: A simple unified framework for detecting out-of-distribution samples and
   adversarial attacks, NeurIPS 2018.
.. [3] Mueller, Hein: Mahalanobis++: improving OOD detection via feature normalization, ICML 2025.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.features.columns import Samples

LEVEL = 0.975
"""Of training images that the Gaussians have not seen, this share is within the limit. The promise
is at most 5 % false alarms; the rest is a margin for the chance of which images are seen."""

AXES = 64
"""Principal axes of the covariance; more changed nothing where it was measured."""

_PARTS = 5
_MOST = 20_000
"""Images that are looked at; more would make the covariance no better, only later."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TrainingGaussian:
    """Gaussians of training features with one covariance.

    Attributes
    ----------
    mean, scale : array (d,)
        By which features are standardised; a feature that never varied has the scale inf and
        does not count.
    centres : array (n_cells, d)
        Mean of each class in each domain, of standardised features of length 1.
    axes : array (d, r)
        Principal axes of the deviations from the centres.
    variances : array (r,)
        Along the axes.
    rest : float
        Variance along any direction besides.
    limit : float
        The distance that is called 1.
    alarms : float
        Share of training images beyond the limit, each seen by Gaussians fitted without it.
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
        """The distance of each row, in units of the limit."""
        z = _directions(features, self.mean, self.scale)
        # ‖z - m‖² and its part along the axes, by products alone: rows × cells × d is too much
        squares = _squares(z, self.centres) / self.rest
        weight = np.sqrt(1 / self.rest - 1 / self.variances)
        along = _squares(z @ self.axes * weight, self.centres @ self.axes * weight)
        nearest = np.clip(squares - along, 0, None).min(axis=1)
        distances: Floats = np.sqrt(nearest) / self.limit
        return distances

    def tensors(self) -> dict[str, NDArray[Any]]:
        """What is written to disk."""
        names = ("mean", "scale", "centres", "axes", "variances")
        return {name: getattr(self, name) for name in names}

    def facts(self) -> dict[str, Any]:
        """What is written down beside the tensors."""
        return {"rest": self.rest, "limit": self.limit, "level": LEVEL, "alarms": self.alarms}

    @classmethod
    def from_tensors(
        cls, tensors: dict[str, NDArray[Any]], facts: dict[str, Any]
    ) -> TrainingGaussian:
        """What :meth:`tensors` and :meth:`facts` gave."""
        numbers: dict[str, Any] = {key: float(facts[key]) for key in ("rest", "limit", "alarms")}
        if not (numbers["rest"] > 0 and numbers["limit"] > 0):
            raise ValueError(f"distances of rest {facts['rest']!r}, limit {facts['limit']!r}")
        return cls(**tensors | numbers)

    @staticmethod
    def shapes(tensors: dict[str, NDArray[Any]], d: int) -> dict[str, tuple[int, ...]]:
        """The shapes that tensors for d features must have."""
        cells, axes = len(tensors["centres"]), len(tensors["variances"])
        return {
            "mean": (d,),
            "scale": (d,),
            "centres": (cells, d),
            "axes": (d, axes),
            "variances": (axes,),
        }


def fit_gaussian(
    samples: Samples, groups: Sequence[Sequence[str | None] | None] | None = None
) -> TrainingGaussian:
    """Fit Gaussians to training features, and find the limit with parts left out in turn.

    Parameters
    ----------
    samples : Samples
    groups : sequence, optional
        For each domain which of its samples belong together; None where nothing is known.
    """
    features, labels, domains = samples
    cells = domains * (labels.max() + 1) + labels
    units = _units(domains, groups)
    rows = _sampled(cells)
    features, cells, units = features[rows], cells[rows], units[rows]
    parts = _parts(cells, units)
    held_out = np.empty(len(features))
    for part in range(_PARTS):
        outside, inside = parts != part, parts == part
        if outside.any() and inside.any():
            held_out[inside] = _fitted(features[outside], cells[outside]).distances(
                features[inside]
            )
        elif inside.any():  # a single group: nothing can be left out
            held_out[inside] = _fitted(features, cells).distances(features)
    limit = float(np.quantile(held_out, LEVEL, method="higher"))
    limit = limit if limit > 0 else 1.0
    fitted = _fitted(features, cells)
    return TrainingGaussian(
        fitted.mean,
        fitted.scale,
        fitted.centres,
        fitted.axes,
        fitted.variances,
        fitted.rest,
        limit,
        float(np.mean(held_out > limit)),
    )


def _fitted(features: NDArray[np.float32], cells: NDArray[np.int64]) -> TrainingGaussian:
    from sklearn.utils.extmath import randomized_svd

    mean = features.mean(axis=0, dtype=np.float64)
    scale = features.std(axis=0, dtype=np.float64)
    # rounding alone makes the deviation of equal numbers a little more than 0
    scale[scale <= 1e-6 * np.abs(mean)] = np.inf
    z = _directions(features, mean, scale)
    _, where, counts = np.unique(cells, return_inverse=True, return_counts=True)
    centres = np.zeros((len(counts), z.shape[1]))
    np.add.at(centres, where, z)
    centres /= counts[:, None]
    deviations = z - centres[where]
    n, d = deviations.shape
    total = float(np.square(deviations).sum()) / n
    n_axes = min(AXES, (min(n, d) - 1) // 2)
    if n_axes < 1 or total == 0:
        return TrainingGaussian(
            mean, scale, centres, np.zeros((d, 0)), np.zeros(0), total / d or 1.0
        )
    _, singular, axes = randomized_svd(deviations, n_axes, n_iter=4, random_state=0)
    variances = singular**2 / n
    rest = (total - variances.sum()) / (d - n_axes)
    # deviations that lie in a few dimensions leave nothing for the others but rounding
    rest = max(rest, 1e-6 * total / d)
    return TrainingGaussian(
        mean, scale, centres, axes.T.copy(), np.maximum(variances, rest), float(rest)
    )


def _directions(features: NDArray[np.floating], mean: Floats, scale: Floats) -> Floats:
    """Standardised features, scaled to length 1."""
    z: Floats = (features - mean) / scale
    length = np.linalg.norm(z, axis=1, keepdims=True)
    return z / np.where(length > 0, length, 1)


def _squares(a: Floats, b: Floats) -> Floats:
    """Squared distances between rows."""
    squares: Floats = np.square(a).sum(axis=1)[:, None] - 2 * a @ b.T + np.square(b).sum(axis=1)
    return squares


def _units(
    domains: NDArray[np.int64], groups: Sequence[Sequence[str | None] | None] | None
) -> NDArray[np.int64]:
    """A number for each sample, the same for samples that belong together."""
    if groups is None or all(group is None for group in groups):
        return np.arange(len(domains))
    counts = np.bincount(domains, minlength=len(groups)).tolist()
    names: list[object] = []
    for group, count in zip(groups, counts, strict=True):
        names += list(group) if group is not None else [None] * count
    known: dict[object, int] = {}
    return np.array(
        [
            known.setdefault(at if name is None else str(name), len(known))
            for at, name in enumerate(names)
        ]
    )


def _sampled(cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """All rows, or as many of each cell as its share of those that are looked at."""
    if len(cells) <= _MOST:
        return np.arange(len(cells))
    order = np.random.default_rng(0).permutation(len(cells))
    # every k-th of the rows sorted by cell, in random order within it
    spread = order[np.argsort(cells[order], kind="stable")]
    return np.sort(spread[np.linspace(0, len(spread) - 1, _MOST).astype(np.int64)])


def _parts(cells: NDArray[np.int64], units: NDArray[np.int64]) -> NDArray[np.int64]:
    """Deal the samples into parts, cell by cell; samples that belong together stay together."""
    order = np.random.default_rng(0).permutation(len(cells))
    order = order[np.argsort(cells[order], kind="stable")]
    part: dict[int, int] = {}
    for unit in units[order].tolist():
        part.setdefault(unit, len(part) % _PARTS)
    return np.array([part[unit] for unit in units.tolist()])

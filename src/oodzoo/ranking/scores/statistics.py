"""Class means, spectra and Gaussian classes of features that are read block by block.

Eigenvalues of XᵀX are computed from the smaller of XᵀX and XXᵀ. Linear discriminants are those of
Gaussian classes with a common covariance.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from oodzoo.core.backend import Array, Backend, backend_of
from oodzoo.extraction.source import Shard
from oodzoo.linear.moments import Centred, Moments, blocks, merge
from oodzoo.ranking.scores.inputs import Codes, float64_blocks

# A feature whose deviation relative to its values is below this is constant up to rounding.
CONSTANT = 1e-10


class ClassMeans(NamedTuple):
    """One-hot labels (n, C), class counts (C,), and mean features per class (C, d)."""

    one_hot: Array
    counts: Array
    means: Array


def one_hot(backend: Backend, y: Codes, n_classes: int) -> Array:
    """One-hot labels (n, C): 1 if sample i is of class c, else 0."""
    xp = backend.xp
    classes = xp.arange(n_classes, device=backend.device)
    return xp.astype(backend.asarray(y)[:, None] == classes[None, :], xp.float64)


def class_means(backend: Backend, X: Array, y: Codes, n_classes: int) -> ClassMeans:
    """Compute the means of classes that have at least one sample each."""
    Y = one_hot(backend, y, n_classes)
    counts = backend.xp.sum(Y, axis=0)
    return ClassMeans(Y, counts, (Y.T @ X) / counts[:, None])


def centre(backend: Backend, X: Array) -> Array:
    """Subtract the mean; a constant feature becomes exactly zero."""
    return X - column_centre(backend, X)


def column_centre(backend: Backend, X: Array) -> Array:
    """Compute the mean of each feature (d,), in float64; the value itself of a constant feature."""
    xp = backend.xp
    lowest, highest, total = None, None, None
    for _, block in float64_blocks(backend, X):
        low, high, part = xp.min(block, axis=0), xp.max(block, axis=0), xp.sum(block, axis=0)
        lowest = low if lowest is None else xp.minimum(lowest, low)
        highest = high if highest is None else xp.maximum(highest, high)
        total = part if total is None else total + part
    # The mean of equal numbers can differ from them by rounding.
    return xp.where(lowest == highest, lowest, total / X.shape[0])


def standardise(backend: Backend, X: Array) -> Array:
    """Scale to zero mean and unit variance; a constant feature becomes zero, not noise."""
    xp = backend.xp
    size = xp.max(xp.abs(X), axis=0)
    X = centre(backend, X)
    deviation = xp.sqrt(xp.mean(X * X, axis=0))
    varies = deviation > CONSTANT * size
    X = xp.where(varies, X, xp.zeros_like(X))
    return X / xp.where(varies, deviation, xp.ones_like(deviation))


def spectrum(backend: Backend, X: Array, Y: Array) -> tuple[Array, Array]:
    """Compute the non-zero eigenvalues of XᵀX, ascending, and UᵀY.

    U are the corresponding left singular vectors of X. Eigenvalues below rounding error are
    dropped, so constant and repeated features have no effect. Complexity O(n·d·min(n, d)).
    """
    if not _is_wide(X):
        return spectrum_of_gram(backend, backend.gram(X), X.T @ Y, _rounding(X))
    eigenvalues, vectors = nonzero_eigh(backend, backend.gram(X.T), _rounding(X))
    return eigenvalues, vectors.T @ Y


def spectrum_of_gram(
    backend: Backend, gram: Array, targets: Array, rounding: float
) -> tuple[Array, Array]:
    """Compute what :func:`spectrum` does, from XᵀX and XᵀY."""
    eigenvalues, vectors = nonzero_eigh(backend, gram, rounding)
    return eigenvalues, (vectors.T @ targets) / backend.xp.sqrt(eigenvalues)[:, None]


def principal_components(backend: Backend, X: Array) -> tuple[Array, Array]:
    """Compute the variances (1/n), descending, and the coordinates of a centred X."""
    xp = backend.xp
    gram = backend.gram(X.T if _is_wide(X) else X)
    eigenvalues, vectors = nonzero_eigh(backend, gram, _rounding(X))
    coordinates = vectors * xp.sqrt(eigenvalues) if _is_wide(X) else X @ vectors
    return xp.flip(eigenvalues) / X.shape[0], xp.flip(coordinates, axis=1)


def nonzero_eigh(backend: Backend, gram: Array, rounding: float) -> tuple[Array, Array]:
    """Eigenvalues, ascending, and eigenvectors; without those below `rounding` times the last."""
    eigenvalues, vectors = backend.eigh(gram)
    least = max(float(eigenvalues[-1]) * rounding, 0.0)
    first = int(backend.xp.count_nonzero(eigenvalues <= least))
    return eigenvalues[first:], vectors[:, first:]


def _is_wide(X: Array) -> bool:
    return bool(X.shape[0] <= X.shape[1])


def _rounding(X: Array) -> float:
    return float(max(X.shape) * sys.float_info.epsilon)


# Within-class variance, relative to the total variance, to assume if all classes are points.
_COLLAPSED = 1e-12


def shrink(backend: Backend, covariance: Array, shrinkage: float, spread: float) -> Array:
    """Shrink a covariance S to (1 - λ) S + λ μ I, where μ is its mean variance.

    `spread` is the mean variance of all data. If every class is a single point, S is zero and has
    no inverse; a small part of the spread then replaces it, so that distances are very large
    instead of undefined.
    """
    xp = backend.xp
    d = covariance.shape[0]
    mean = float(xp.linalg.trace(covariance)) / d
    eye = xp.eye(d, dtype=xp.float64, device=backend.device)
    if mean <= _COLLAPSED * spread:
        return eye * (_COLLAPSED * spread if spread > 0 else 1.0)
    return (1 - shrinkage) * covariance + shrinkage * mean * eye


class Discriminant(NamedTuple):
    """ln p(x, c), up to a constant per x, as a linear function: directions (d, C), offsets (C,)."""

    directions: Array
    offsets: Array

    @classmethod
    def of(
        cls, backend: Backend, means: Array, covariance: Array, log_priors: Array
    ) -> Discriminant:
        xp = backend.xp
        directions = xp.linalg.solve(covariance, means.T)
        return cls(directions, log_priors - xp.sum(means.T * directions, axis=0) / 2)

    def log_joint(self, X: Array) -> Array:
        return X @ self.directions + self.offsets


class Gaussians(NamedTuple):
    """Classes with a common covariance: means (C, d), within-class covariance S_W, ln π_c (C,).

    The prior of a class without samples is 0. `spread` is the mean variance of all features.
    """

    means: Array
    within: Array
    log_priors: Array
    spread: float

    @classmethod
    def of(cls, moments: Moments) -> Gaussians:
        xp = backend_of(moments.gram).xp
        present = moments.label_sum > 0
        counts = xp.where(present, moments.label_sum, xp.ones_like(moments.label_sum))
        means = (moments.products / counts).T
        within = (moments.gram - moments.products @ means) / moments.n
        priors = xp.where(present, xp.log(counts / moments.n), -xp.inf + xp.zeros_like(counts))
        spread = float(xp.linalg.trace(moments.covariance)) / moments.n_features
        return cls(means, within, priors, max(spread, 0.0))

    def discriminant(self, shrinkage: float) -> Discriminant:
        """The discriminant with the shrunk covariance."""
        backend = backend_of(self.within)
        covariance = shrink(backend, self.within, shrinkage, self.spread)
        return Discriminant.of(backend, self.means, covariance, self.log_priors)


def log_softmax(backend: Backend, values: Array) -> Array:
    """Logarithm of the softmax of each row, without overflow."""
    xp = backend.xp
    values = values - xp.max(values, axis=1, keepdims=True)
    return values - xp.log(xp.sum(xp.exp(values), axis=1, keepdims=True))


Shards = Callable[[str], Iterable[Shard]]
"""Features and labels of a domain, block by block."""

LARGEST_OFFSET = 30.0
"""Ratio of the mean of a feature to its spread up to which moments are as precise as the scores
need. Otherwise moments are computed again, from the features minus their mean."""

_SAME = 1e-9
"""Relative difference up to which a sample replaces the mean, so that constant features are 0."""


@dataclass(frozen=True, eq=False)
class Stream:
    """Labelled features of several domains, for scores that are invariant to translation.

    Attributes
    ----------
    moments : dict of str to Moments
        Moments by domain, of the features minus `origin`.
    total : Moments
        Their sum.
    origin : array (d,)
        Zero, or close to the mean if the mean of a feature is many times its spread.
    """

    moments: Mapping[str, Moments]
    total: Moments
    origin: Array
    shards: Shards

    @classmethod
    def of(cls, moments: Mapping[str, Moments], shards: Shards) -> Stream:
        """Make a stream of moments and shards; one more pass if the offset is large."""
        total = merge(moments.values())
        xp = backend_of(total.gram).xp
        stream = cls(moments, total, xp.zeros_like(total.feature_sum), shards)
        squares = total.mean**2
        variances = xp.linalg.diagonal(total.covariance)
        if not bool(xp.any((squares > 0) & (squares > LARGEST_OFFSET**2 * variances))):
            return stream
        first = next(block[0, :] for domain in moments for block, _ in stream.blocks(domain))
        same = xp.abs(first - total.mean) <= _SAME * xp.abs(total.mean)
        stream = cls(moments, total, xp.where(same, first, total.mean), shards)
        device = None if stream.backend.is_numpy else str(stream.backend.device)
        centred = {
            domain: Moments.stream(stream.blocks(domain), total.n_classes, device=device)
            for domain in moments
        }
        return cls(centred, merge(centred.values()), stream.origin, shards)

    @property
    def backend(self) -> Backend:
        return backend_of(self.origin)

    @property
    def centred(self) -> Centred:
        """Moments of all samples about their mean."""
        total = self.total
        return Centred(
            gram=total.n * total.covariance,
            products=total.products - total.mean[:, None] * total.label_sum[None, :],
        )

    @property
    def rounding(self) -> float:
        """Error of the centred Gram matrix, relative to the size of its features."""
        xp = self.backend.xp
        variances = xp.linalg.diagonal(self.total.covariance)
        varies = variances > 0
        ratios = self.total.mean**2 / xp.where(varies, variances, xp.ones_like(variances))
        offset = float(xp.max(xp.where(varies, ratios, xp.zeros_like(ratios))))
        sizes = max(self.total.n, self.total.n_features)
        return sizes * float(xp.finfo(xp.float64).eps) * (1 + offset)

    def blocks(self, domain: str) -> Iterator[Shard]:
        """Float64 features of a domain minus `origin`, and labels, block by block."""
        n_classes = self.total.n_classes
        for X, y in blocks(self.shards(domain), n_classes, self.backend, context=repr(domain)):
            yield X - self.origin[None, :], y

    def centred_blocks(self) -> Iterator[Shard]:
        """Float64 features of all domains minus their mean, and labels, block by block."""
        for domain in self.moments:
            for X, y in self.blocks(domain):
                yield X - self.total.mean[None, :], y

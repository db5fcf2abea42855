"""Validated inputs of scores; class means, spectra and Gaussian classes of features.

Eigenvalues of XᵀX are computed from the smaller of XᵀX and XXᵀ. Linear discriminants are those of
Gaussian classes with a common covariance.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oodzoo.core.backend import Array, Backend, backend_of, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.extraction.features import Shard
from oodzoo.linear.heads.samples import Groups, group_numbers, grouped_folds
from oodzoo.linear.moments import Centred, Moments, blocks, label_matrix, merge, require_size
from oodzoo.tasks import as_labels

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


Codes = npt.NDArray[np.int64]
"""Labels as class indices."""

_SUM_TOLERANCE = 1e-3  # accuracy of a softmax in half precision


class Labelled(NamedTuple):
    """Validated values with the class of each row."""

    backend: Backend
    values: Array
    y: Codes
    n_classes: int


def labelled_features(X: Any, y: Any) -> Labelled:
    """Validate features X (n, d) and labels y of at least two classes.

    X is converted to float64 on its own device. The result may share its memory, so do not modify
    it.
    """
    backend, values, codes, n_classes = labelled_samples(X, y)
    return Labelled(backend, backend.float64(values), codes, n_classes)


class Targeted(NamedTuple):
    """Validated features, and labels as a matrix Y (n, C)."""

    backend: Backend
    values: Array
    Y: Array


def targeted_features(X: Any, y: Any, task: str | None = None) -> Targeted:
    """Validate features X (n, d), and labels of any kind that vary.

    A matrix y (n, C) is Y as it is. Otherwise y is as in :func:`oodzoo.tasks.as_labels`; classes
    become one-hot labels.
    """
    backend, values = _features(X)
    if getattr(y, "ndim", 1) == 2 and to_numpy(y).dtype.kind in "biuf" and task is None:
        kind = "multilabel" if np.isin(to_numpy(y), (0, 1)).all() else "regression"
        labels = as_labels(y, kind)
    else:
        labels = as_labels(y, task)
    if len(labels.values) != values.shape[0]:
        raise InputError(
            f"y has {count(len(labels.values), 'label')} for {values.shape[0]} samples; pass one "
            "per sample"
        )
    labels.task.require_variation(labels)
    codes = backend.asarray(labels.values)
    return Targeted(backend, backend.float64(values), label_matrix(codes, len(labels.classes)))


def labelled_samples(X: Any, y: Any) -> Labelled:
    """Validate as :func:`labelled_features`, but leave the features in their own number type."""
    backend, values = _features(X)
    return _labelled(backend, values, y)


def _features(X: Any) -> tuple[Backend, Array]:
    backend, values = _matrix(X, "X", "n samples, d features")
    largest = max(
        float(backend.xp.max(backend.xp.abs(block))) for _, block in float64_blocks(backend, values)
    )
    require_size(largest, "X")
    return backend, values


def float64_blocks(
    backend: Backend, values: Array, rows: npt.NDArray[np.intp] | None = None
) -> Iterator[tuple[int, Array]]:
    """Split all or some rows into float64 blocks, each with the number of its first row."""
    size = max(1, backend.block_bytes // (8 * values.shape[1]))
    for start in range(0, values.shape[0] if rows is None else len(rows), size):
        part = slice(start, start + size)
        taken = values[part, :] if rows is None else values[backend.asarray(rows[part]), :]
        yield start, backend.float64(taken)


def labelled_probabilities(probabilities: Any, y: Any) -> Labelled:
    """Validate and normalise probabilities (n, S), and labels y of at least two classes."""
    backend, values = _matrix(probabilities, "source_probabilities", "n samples, source classes")
    xp = backend.xp
    values = backend.float64(values)
    if (least := float(xp.min(values))) < 0:
        raise InputError(
            f"source_probabilities contains the negative value {least:g}; "
            "pass probabilities (the softmax of the logits), not logits"
        )
    sums = xp.sum(values, axis=1, keepdims=True)
    if (off := float(xp.max(xp.abs(sums - 1)))) > _SUM_TOLERANCE:
        raise InputError(
            f"the sum of a row of source_probabilities differs from one by {off:.3g}; "
            "pass probabilities (the softmax of the logits) of all source classes"
        )
    return _labelled(backend, values / sums, y)


def as_classes(
    labels: Any, name: str, n: int | None = None, at_least: int = 1
) -> tuple[Codes, int]:
    """Convert labels, strings or integers, to class indices in sorted order of the labels."""
    try:
        array = to_numpy(labels)
    except ValueError as error:
        raise InputError(f"{name} is not a list of labels: {error}") from error
    if array.ndim != 1:
        raise InputError(f"{name} must have shape (n,), one label per sample, got {array.shape}")
    if n is not None and len(array) != n:
        raise InputError(
            f"{name} has {count(len(array), 'label')} for {n} samples; pass one per sample"
        )
    if len(array) < 2:
        raise InputError(
            f"{name} has {count(len(array), 'label')}; at least two samples are needed"
        )
    classes, codes = np.unique(_discrete(array, name), return_inverse=True)
    if len(classes) < at_least:
        raise InputError(
            f"{name} has only the value {classes.tolist()[0]!r}; at least two are needed"
        )
    return codes.astype(np.int64), len(classes)


def positive(value: float, name: str) -> float:
    """Require a finite number above zero."""
    if not (np.isfinite(value) and value > 0):
        raise InputError(f"{name} must be a number above 0, got {value!r}")
    return value


def _labelled(backend: Backend, values: Array, y: Any) -> Labelled:
    codes, n_classes = as_classes(y, "y", n=values.shape[0], at_least=2)
    return Labelled(backend, values, codes, n_classes)


def _matrix(values: Any, name: str, meaning: str) -> tuple[Backend, Array]:
    backend = backend_of(values)
    xp = backend.xp
    try:
        values = backend.asarray(values)
    except ValueError as error:
        raise InputError(f"{name} is not a matrix ({meaning}): {error}") from error
    if not backend.is_numpy:
        values = values.detach()  # scores have no gradient
    if values.ndim != 2 or 0 in values.shape:
        raise InputError(f"{name} must be a matrix ({meaning}), got shape {tuple(values.shape)}")
    if values.shape[0] < 2:
        raise InputError(
            f"{name} has {count(values.shape[0], 'row')}; at least two samples are needed"
        )
    if not _is_real(xp, values):
        raise InputError(f"{name} must be real numbers, got {values.dtype}")
    _require_finite(backend, values, name)
    return backend, values


def _require_finite(backend: Backend, values: Array, name: str) -> None:
    xp = backend.xp
    first, n_wrong = "", 0
    for start, block in float64_blocks(backend, values):
        wrong = ~xp.isfinite(block)
        n_wrong += int(xp.count_nonzero(wrong))
        if n_wrong and not first:
            row, column = (int(at[0]) for at in xp.nonzero(wrong))
            first = f"{float(block[row, column])} in row {start + row}, column {column}"
    if n_wrong:
        raise InputError(
            f"{name} is not finite: {first}, {count(n_wrong, 'such value')} in all; "
            "remove or replace them"
        )


def _is_real(xp: Any, values: Array) -> bool:
    try:
        return bool(xp.isdtype(values.dtype, ("real floating", "integral", "bool")))
    except TypeError:  # types outside the array API, such as NumPy strings
        return False


def _discrete(array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    if array.dtype.kind in "biuUS":
        return array
    if array.dtype.kind == "f":
        invalid = ~np.isfinite(array) | (array != np.floor(array))
        if invalid.any():
            raise InputError(f"{name} must be strings or integers, got {float(array[invalid][0])}")
        return array
    if array.dtype.kind == "O":
        values = array.tolist()
        kind = str if isinstance(values[0], str) else (int, np.integer)
        invalid = [value for value in values if not isinstance(value, kind)]
        if not invalid:
            return np.asarray(values)
        raise InputError(f"{name} must be all strings or all integers, got {invalid[0]!r}")
    raise InputError(f"{name} must be strings or integers, got {array.dtype}")


def generator(random_state: int) -> np.random.Generator:
    """Create a random-number generator from a seed, a non-negative integer."""
    if random_state != int(random_state) or random_state < 0:
        raise InputError(f"random_state must be a non-negative integer, got {random_state!r}")
    return np.random.default_rng(int(random_state))


def stratified_order(y: Codes, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Return a random order whose every prefix is approximately stratified."""
    by_class = _shuffled_by_class(y, rng)
    counts = np.bincount(y)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    place = (np.arange(len(y)) - starts + rng.random(len(y))) / np.repeat(counts, counts)
    return by_class[np.argsort(place, kind="stable")]


def stratified_folds(
    y: Codes, n_folds: int, rng: np.random.Generator, groups: Groups | None = None
) -> Codes:
    """Return the fold of each sample; folds are stratified and of about equal size.

    Groups are kept whole; at least two are needed.
    """
    numbers = group_numbers(groups, len(y))
    if numbers is not None:
        if (n_groups := int(numbers.max()) + 1) < 2:
            raise InputError("all samples are of one group; folds keep groups whole and need two")
        shuffled = rng.permutation(n_groups)  # decides between groups of equal size
        return grouped_folds(y, shuffled[numbers], min(n_folds, n_groups))
    folds = np.empty(len(y), dtype=np.int64)
    folds[_shuffled_by_class(y, rng)] = np.arange(len(y)) % n_folds  # round robin, class by class
    return folds


def _shuffled_by_class(y: Codes, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    order = rng.permutation(len(y))
    return order[np.argsort(y[order], kind="stable")]

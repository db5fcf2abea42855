"""Sufficient statistics of features and labels.

They add up over shards, machines and domains, so a single pass over the features is enough to
leave any domain out.

If the mean of the features is far larger than their spread, the spread is lost in the rounding of
their products. Then the moments about a shift (the mean of the first block) are accumulated as
well, and :attr:`Moments.centred` gives the moments about the mean without that loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import Array, Backend, backend, backend_of, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.extraction.features import FeatureSource, Shard

# Features are converted to float64 in blocks, so that a large float32 shard is never copied as a
# whole. With fewer rows per block, summing the Gram matrices would dominate the cost.
_MIN_ROWS = 1024

_ARRAYS = ("feature_sum", "gram", "products", "label_sum", "label_squares", "label_scatter")

VERSION = "3"
"""Cached moments of other versions are computed again."""

LARGE_OFFSET = 1e3
"""Ratio of the mean of the features to their spread from which they are centred first. There, the
rounding of moments about zero is 1e-10 of the variance."""

_CONSTANT = 8 * float(np.finfo(np.float64).eps)
"""Spread relative to the mean up to which features are constant: it is rounding."""

CONSTANT = 1e-12
"""Features whose variance relative to their mean square is at most this are constant."""

SIZES = (1e-70, 1e70)
"""Sizes of features whose fourth powers, which shrinkage needs, are represented in float64."""


@dataclass(frozen=True, eq=False)
class Centred:
    r"""Moments about the mean :math:`\mu`: with :math:`\Psi = \Phi - 1\mu^\top`,

    `gram` is :math:`\Psi^\top\Psi` (d, d) and `products` is :math:`\Psi^\top Y` (d, C).
    """

    gram: Array
    products: Array


@dataclass(frozen=True, eq=False)
class Moments:
    r"""Moments of n samples with features :math:`\Phi` (n × d) and labels Y (n × C).

    Labels of classes are one-hot; numbers to predict, and zeros and ones, are Y as they are.

    Always in float64, whatever the storage type of the features.

    Attributes
    ----------
    n : int
    feature_sum : array (d,)
        :math:`s = \Phi^\top 1`.
    gram : array (d, d)
        :math:`G = \Phi^\top \Phi`.
    products : array (d, C)
        :math:`B = \Phi^\top Y`.
    label_sum : array (C,)
        :math:`Y^\top 1`; for one-hot labels the number of samples of each class.
    label_squares : array (C,)
        :math:`y^\top y` of each column y of Y; for zeros and ones equal to `label_sum`.
    label_scatter : array (C,)
        The same about the mean of y, :math:`\sum_i (y_i - \bar y)^2`; exact if the mean is large.
    shift, shifted : array (d,), Moments
        A vector close to the mean, and the moments of the features minus this vector; None unless
        the first block has a large offset.

    Examples
    --------
    >>> import numpy as np
    >>> Phi, y = np.array([[1.0, 0.0], [1.0, 2.0], [0.0, 1.0]]), np.array([0, 1, 1])
    >>> whole = Moments.of(Phi, y, n_classes=2)
    >>> whole.gram
    array([[2., 2.],
           [2., 5.]])
    >>> parts = Moments.of(Phi[:1], y[:1], 2) + Moments.of(Phi[1:], y[1:], 2)
    >>> bool((parts.gram == whole.gram).all())
    True
    """

    n: int
    feature_sum: Array
    gram: Array
    products: Array
    label_sum: Array
    label_squares: Array
    label_scatter: Array
    shift: Array | None = None
    shifted: Moments | None = None

    @classmethod
    def of(
        cls,
        features: Array,
        labels: Array,
        n_classes: int,
        *,
        device: str | None = None,
        context: str = "features",
    ) -> Moments:
        """Compute the moments of features in memory; parameters as for :meth:`stream`."""
        return cls.stream([(features, labels)], n_classes, device=device, context=context)

    @classmethod
    def stream(
        cls,
        shards: Iterable[Shard],
        n_classes: int,
        *,
        device: str | None = None,
        context: str = "features",
    ) -> Moments:
        """Compute the moments of features that arrive in shards, block by block.

        Parameters
        ----------
        shards : iterable of (features, labels)
            Features (n, d) of any real type, as NumPy arrays, memory maps or PyTorch tensors;
            labels are integers (n,) in ``range(n_classes)``, or a matrix (n, n_classes) of numbers.
        n_classes : int
            Number of classes, or of columns of the labels.
        device : str, optional
            Compute with NumPy if None, else with PyTorch on this device.
        context : str
            Describes the shards in error messages, for example "model 'a', domain 'photo'".

        Raises
        ------
        InputError
            There are no samples, features are not finite, labels are out of range, or shapes
            do not match.
        """
        be = backend(device)
        total: Moments | None = None
        shift: Array | None = None
        for features, labels in blocks(shards, n_classes, be, context=context):
            Y = label_matrix(labels, n_classes)
            block = cls._of_block(features, Y, be)
            if total is None and block.has_large_offset:
                shift = _centre(features, be)
            if shift is not None:
                shifted = cls._of_block(features - shift[None, :], Y, be)
                block = replace(block, shift=shift, shifted=shifted)
            total = block if total is None else total + block
        if total is None:
            raise InputError(f"{context} has no samples")
        return total

    @classmethod
    def _of_block(cls, features: Array, Y: Array, be: Backend) -> Moments:
        xp = be.xp
        return cls(
            n=int(features.shape[0]),
            feature_sum=xp.sum(features, axis=0),
            gram=be.gram(features),
            products=features.T @ Y,
            label_sum=xp.sum(Y, axis=0),
            label_squares=xp.sum(Y**2, axis=0),
            label_scatter=xp.sum((Y - _centre(Y, be)[None, :]) ** 2, axis=0),
        )

    @property
    def n_features(self) -> int:
        return int(self.gram.shape[0])

    @property
    def n_classes(self) -> int:
        return int(self.label_sum.shape[0])

    @property
    def mean(self) -> Array:
        r"""Mean :math:`\mu` of the features, (d,)."""
        return self.feature_sum / self.n

    @property
    def label_mean(self) -> Array:
        r"""Mean :math:`\bar y` of the labels, (C,); for one-hot labels the share of each class."""
        return self.label_sum / self.n

    @property
    def label_varies(self) -> Array:
        """Whether each column of the labels varies by more than rounding, (C,)."""
        return self.label_scatter > self.n * (CONSTANT * self.label_mean) ** 2

    def label_squares_about(self, shift: Array) -> Array:
        """Squares of the labels minus a shift (C,), summed over the samples, (C,)."""
        return self.label_scatter + self.n * (self.label_mean - shift) ** 2

    @property
    def covariance(self) -> Array:
        r"""Covariance :math:`\Sigma = G/n - \mu\mu^\top` of the features, with 1/n, (d, d)."""
        if (centred := self.centred) is not None:
            return centred.gram / self.n
        mean = self.mean
        return self.gram / self.n - mean[:, None] * mean[None, :]

    @property
    def has_large_offset(self) -> bool:
        """Whether the mean of the features is at least `LARGE_OFFSET` times their spread.

        The mean of all features and their spread are lengths of vectors: one large feature counts
        as much as many small ones. Without a spread the ratio is infinite.
        """
        square, spread = self._mean_and_spread()
        return square > 0 and spread <= square / LARGE_OFFSET**2

    @property
    def varies(self) -> bool:
        """Whether the features vary between samples by more than rounding."""
        if self.centred is not None:
            return True
        xp = backend_of(self.gram).xp
        mean_square = float(xp.linalg.trace(self.gram)) / self.n
        return mean_square - float(xp.sum(self.mean**2)) > CONSTANT * mean_square

    @property
    def offset_ratio(self) -> float:
        """Ratio of the mean of the features to their spread, as lengths of vectors."""
        square, spread = self._mean_and_spread()
        return math.inf if spread == 0 else math.sqrt(square / spread)

    @property
    def centred(self) -> Centred | None:
        """Moments about the mean, if the offset is large and the features are not constant."""
        if self.shifted is None or not is_large_offset(*self._mean_and_spread()):
            return None
        part, mean = self.shifted, self.shifted.mean
        return Centred(
            gram=part.gram - mean[:, None] * part.feature_sum[None, :],
            products=part.products - mean[:, None] * self.label_sum[None, :],
        )

    def _mean_and_spread(self) -> tuple[float, float]:
        """Squared lengths of the mean of the features and of their standard deviation."""
        xp = backend_of(self.gram).xp
        part = self if self.shifted is None else self.shifted
        spread = float(xp.linalg.trace(part.gram)) / self.n - float(xp.sum(part.mean**2))
        return float(xp.sum(self.mean**2)), max(spread, 0.0)

    def about(self, shift: Array) -> Moments:
        """Moments of the features minus a shift."""
        part, change = (self, shift)
        if self.shifted is not None:
            part, change = self.shifted, shift - self.shift
        cross = change[:, None] * part.feature_sum[None, :]
        return Moments(
            n=part.n,
            feature_sum=part.feature_sum - part.n * change,
            gram=part.gram - cross - cross.T + part.n * change[:, None] * change[None, :],
            products=part.products - change[:, None] * part.label_sum[None, :],
            label_sum=part.label_sum,
            label_squares=part.label_squares,
            label_scatter=part.label_scatter,
        )

    def products_about(self, shift: Array, weights: Array) -> tuple[Array, Array, Array]:
        r"""Compute :math:`\Psi^\top\Psi W`, :math:`\Psi^\top 1` and :math:`\Psi^\top Y`.

        :math:`\Psi` are the features minus the shift (d,), W are weights (d, k). This needs no
        other d × d matrix, unlike :meth:`about`.
        """
        part, change = (self, shift)
        if self.shifted is not None:
            part, change = self.shifted, shift - self.shift
        sums = part.feature_sum - part.n * change
        along, total = change @ weights, part.feature_sum @ weights
        products = (
            part.gram @ weights
            - part.feature_sum[:, None] * along[None, :]
            - change[:, None] * (total - part.n * along)[None, :]
        )
        return products, sums, part.products - change[:, None] * part.label_sum[None, :]

    def __add__(self, other: Moments) -> Moments:
        """Combine the moments of two sets of samples."""
        if not isinstance(other, Moments):
            return NotImplemented
        mine, theirs = tuple(self.products.shape), tuple(other.products.shape)
        if mine != theirs:
            raise InputError(
                f"moments of {mine[0]} features and {mine[1]} classes cannot be added to moments "
                f"of {theirs[0]} features and {theirs[1]} classes"
            )
        added = other._arrays()
        arrays = {name: array + added[name] for name, array in self._arrays().items()}
        between = self.n * other.n / (self.n + other.n)
        arrays["label_scatter"] += between * (self.label_mean - other.label_mean) ** 2
        shift = other.shift if self.shift is None else self.shift
        shifted = None if shift is None else self.about(shift) + other.about(shift)
        return Moments(self.n + other.n, **arrays, shift=shift, shifted=shifted)

    def to(self, device: str | None) -> Moments:
        """Move the moments to a device (None: NumPy)."""
        return Moments.from_dict(self._named(), device=device)

    def to_dict(self) -> dict[str, NDArray[np.float64]]:
        """Return NumPy arrays by name, for example for :func:`numpy.savez`."""
        return {name: to_numpy(array) for name, array in self._named().items()}

    @classmethod
    def from_dict(cls, arrays: Mapping[str, Array], *, device: str | None = None) -> Moments:
        """Restore moments from the arrays of :meth:`to_dict`."""
        float64 = backend(device).float64
        n = int(arrays["n"])
        moments = cls(n=n, **{name: float64(arrays[name]) for name in _ARRAYS})
        if "shift" not in arrays:
            return moments
        shifted = cls(n=n, **{name: float64(arrays[f"shifted_{name}"]) for name in _ARRAYS})
        return replace(moments, shift=float64(arrays["shift"]), shifted=shifted)

    def _named(self) -> dict[str, Array]:
        named = self._arrays() | {"n": np.asarray(self.n, dtype=np.int64)}
        if self.shifted is None:
            return named
        shifted = {f"shifted_{name}": array for name, array in self.shifted._arrays().items()}
        return named | shifted | {"shift": self.shift}

    def _arrays(self) -> dict[str, Array]:
        return {name: getattr(self, name) for name in _ARRAYS}


def is_large_offset(square: float, spread: float) -> bool:
    """Whether features with these mean squares are to be centred: of their mean, and about it.

    Features that are constant up to rounding are not.
    """
    return _CONSTANT**2 * square < spread <= square / LARGE_OFFSET**2


def merge(moments: Iterable[Moments]) -> Moments:
    """Add up the moments of at least one set of samples."""
    return reduce(add, moments)


def oas_shrinkage(
    covariance: Array, n: int, *, c: float = 0.0, n_features: int | None = None
) -> float:
    r"""Shrinkage of a covariance of n samples towards a multiple of the identity.

    The oracle approximating shrinkage of Chen, Wiesel, Eldar and Hero (2010): with
    :math:`a = \operatorname{tr}(\Sigma^2)/d^2` and :math:`b = (\operatorname{tr}\Sigma/d)^2`,

    .. math:: \rho = \min\Big\{1,\; \frac{(1-c)\,a + b}{(n+1-c)(a - b/d)}\Big\}.

    Their equation 23 has :math:`c = 2/d`; scikit-learn neglects it for large d, :math:`c = 0`.
    `n_features` is d, if the covariance is that of fewer coordinates.
    """
    xp = backend_of(covariance).xp
    d = n_features or int(covariance.shape[0])
    a = float(xp.sum(covariance**2)) / d**2
    b = (float(xp.linalg.trace(covariance)) / d) ** 2
    numerator, denominator = (1 - c) * a + b, (n + 1 - c) * (a - b / d)
    return 1.0 if denominator <= numerator else numerator / denominator


def blocks(
    shards: Iterable[Shard], n_classes: int, be: Backend, *, context: str
) -> Iterator[Shard]:
    """Split shards into validated blocks on a backend.

    Features are float64, labels int64 classes (n,) or a float64 matrix (n, n_classes).
    """
    n_features: int | None = None
    for number, (features, labels) in enumerate(shards):
        here = f"{context}, shard {number}"
        shape, label_shape = np.shape(features), np.shape(labels)
        if (
            len(shape) != 2
            or label_shape[:1] != shape[:1]
            or label_shape[1:] not in ((), (n_classes,))
        ):
            raise InputError(
                f"{here}: features must have shape (samples, features) and labels (samples,) or "
                f"(samples, {n_classes}), got {tuple(shape)} and {tuple(label_shape)}"
            )
        if n_features not in (None, shape[1]):
            raise InputError(f"{here}: {shape[1]} features, but earlier shards have {n_features}")
        n_features = shape[1]
        if n_features == 0:
            raise InputError(f"{here}: samples have no features")
        codes = _checked_labels(labels, n_classes, be, here)
        rows = max(_MIN_ROWS, be.block_bytes // (8 * n_features))
        for start in range(0, shape[0], rows):
            block = _checked_features(features[start : start + rows], be, here, start)
            yield block, codes[start : start + rows]


def _checked_features(features: Array, be: Backend, context: str, start: int) -> Array:
    xp = be.xp
    features = be.asarray(features)
    if not xp.isdtype(features.dtype, ("real floating", "integral", "bool")):
        raise InputError(f"{context}: features must be real numbers, got {features.dtype}")
    block = be.float64(features)
    # NaN and infinite values show in the extremes, so that one more pass is needed for errors only.
    largest = max(float(xp.max(block)), -float(xp.min(block)))
    if not math.isfinite(largest):
        row, column = np.argwhere(~to_numpy(xp.isfinite(block)))[0]
        value = "NaN" if bool(xp.isnan(block[int(row), int(column)])) else "infinite"
        raise InputError(
            f"{context}: feature {column} of sample {start + row} is {value}; remove the sample "
            "or check the model"
        )
    require_size(largest, context)
    return block


def require_size(largest: float, context: str) -> None:
    """Raise an InputError if the largest feature is too large or too small to compute with."""
    if largest and not SIZES[0] <= largest <= SIZES[1]:
        raise InputError(
            f"{context}: the largest value is {largest:.3g}; rescale the features, their largest "
            f"value must be between {SIZES[0]:g} and {SIZES[1]:g}"
        )


def _centre(features: Array, be: Backend) -> Array:
    """The mean of the features; the value itself of a constant feature."""
    xp = be.xp
    lowest, highest = xp.min(features, axis=0), xp.max(features, axis=0)
    return xp.where(lowest == highest, lowest, xp.mean(features, axis=0))


def _checked_labels(labels: Array, n_classes: int, be: Backend, context: str) -> Array:
    xp = be.xp
    labels = be.asarray(labels)
    if labels.ndim == 2:
        labels = be.float64(labels)
        if not bool(xp.all(xp.isfinite(labels))):
            row = int(np.argwhere(~to_numpy(xp.isfinite(labels)))[0][0])
            raise InputError(f"{context}: the label of sample {row} is missing or infinite")
        return labels
    if not xp.isdtype(labels.dtype, "integral"):
        raise InputError(f"{context}: labels must be integers, got {labels.dtype}")
    labels = xp.astype(labels, xp.int64, copy=False)
    outside = (labels < 0) | (labels >= n_classes)
    if bool(xp.any(outside)):
        row = int(np.argmax(to_numpy(outside)))
        raise InputError(
            f"{context}: label {int(labels[row])} of sample {row} is not in the range "
            f"0 to {n_classes - 1} of {count(n_classes, 'class', 'classes')}"
        )
    return labels


def label_matrix(labels: Array, n_classes: int) -> Array:
    """Labels as a float64 matrix Y (n, n_classes): one-hot if they are classes (n,)."""
    if labels.ndim == 2:
        return labels
    be = backend_of(labels)
    classes = be.xp.arange(n_classes, device=be.device)
    return be.xp.astype(labels[:, None] == classes[None, :], be.xp.float64)


def domain_moments(
    source: FeatureSource, model: str, device: str | None = None
) -> dict[str, Moments]:
    """Compute the moments of a model per domain; cached where smaller than the features."""
    return {domain: _cached_moments(source, model, domain, device) for domain in source.domains}


def _cached_moments(source: FeatureSource, model: str, domain: str, device: str | None) -> Moments:
    compute = partial(moments_of_domain, source, model, domain, device)
    if len(source.labels(domain)) < 2 * source.facts(model).feature_dim:
        return compute()
    arrays = source.cached(
        "moments", [model], lambda: compute().to_dict(), domains=[domain], settings=VERSION
    )
    return Moments.from_dict(arrays)


def moments_of_domain(
    source: FeatureSource, model: str, domain: str, device: str | None = None
) -> Moments:
    """Compute the moments of a model in one domain, without the cache."""
    context = f"model {model!r}, domain {domain!r}"
    shards = source.shards(model, domain)
    return Moments.stream(shards, len(source.classes), device=device, context=context)

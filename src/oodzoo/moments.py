"""Sufficient statistics of features and labels: all that ranking needs to know of a domain.

They add up over shards, machines and domains, so one pass over the features serves every way of
leaving a domain out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from oodzoo.backend import Array, Backend, backend, to_numpy
from oodzoo.errors import InputError
from oodzoo.features.source import FeatureSource, Shard

# Features are converted to float64 in blocks, so that a large shard of float32 is never copied
# whole; a block of fewer rows would make adding up the Gram matrices dear.
_LEAST_ROWS = 1024


@dataclass(frozen=True, eq=False)
class Moments:
    r"""Moments of n samples with features :math:`\Phi` (n × d) and one-hot labels Y (n × C).

    Always float64, whatever type the features are stored in.

    Attributes
    ----------
    n : int
    feature_sum : array (d,)
        :math:`s = \Phi^\top 1`.
    gram : array (d, d)
        :math:`G = \Phi^\top \Phi`.
    class_sums : array (d, C)
        :math:`B = \Phi^\top Y`.
    class_counts : array (C,)
        :math:`Y^\top 1`, which for one-hot labels is also :math:`y^\top y` of each class.

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
    class_sums: Array
    class_counts: Array

    @classmethod
    def of(
        cls,
        features: Array,
        labels: Array,
        n_classes: int,
        *,
        device: str | None = None,
        where: str = "features",
    ) -> Moments:
        """Moments of features in memory."""
        return cls.stream([(features, labels)], n_classes, device=device, where=where)

    @classmethod
    def stream(
        cls,
        shards: Iterable[Shard],
        n_classes: int,
        *,
        device: str | None = None,
        where: str = "features",
    ) -> Moments:
        """Moments of features that come in shards, of which one block at a time is in float64.

        Parameters
        ----------
        shards : iterable of (features, labels)
            Features (n, d) of any real type, NumPy (a memory map too) or PyTorch; labels are
            integers in ``range(n_classes)``.
        n_classes : int
        device : str, optional
            Where to compute: NumPy if None, else PyTorch on this device.
        where : str
            What the shards are, for messages: "model 'a', domain 'photo'".

        Raises
        ------
        InputError
            No samples, features that are not finite, labels outside the classes, or shapes that
            do not fit each other.
        """
        where_to = backend(device)
        xp = where_to.xp
        total: Moments | None = None
        for features, labels in blocks(shards, n_classes, where_to, where=where):
            one_hot = xp.astype(
                labels[:, None] == xp.arange(n_classes, device=where_to.device)[None, :],
                xp.float64,
            )
            block = cls(
                n=int(features.shape[0]),
                feature_sum=xp.sum(features, axis=0),
                gram=where_to.gram(features),
                class_sums=features.T @ one_hot,
                class_counts=xp.sum(one_hot, axis=0),
            )
            total = block if total is None else total + block
        if total is None:
            raise InputError(f"{where}: there are no samples; remove it or give it some")
        return total

    @property
    def n_features(self) -> int:
        return int(self.gram.shape[0])

    @property
    def n_classes(self) -> int:
        return int(self.class_counts.shape[0])

    @property
    def mean(self) -> Array:
        r"""Mean :math:`\mu` of the features, (d,)."""
        return self.feature_sum / self.n

    @property
    def covariance(self) -> Array:
        r"""Covariance :math:`\Sigma = G/n - \mu\mu^\top` of the features, with 1/n, (d, d)."""
        mean = self.mean
        return self.gram / self.n - mean[:, None] * mean[None, :]

    def __add__(self, other: Moments) -> Moments:
        """Moments of both sets of samples together."""
        if not isinstance(other, Moments):
            return NotImplemented
        mine, theirs = tuple(self.class_sums.shape), tuple(other.class_sums.shape)
        if mine != theirs:
            raise InputError(
                f"moments of {mine[0]} features and {mine[1]} classes cannot be added to moments "
                f"of {theirs[0]} features and {theirs[1]} classes"
            )
        return Moments(
            n=self.n + other.n,
            feature_sum=self.feature_sum + other.feature_sum,
            gram=self.gram + other.gram,
            class_sums=self.class_sums + other.class_sums,
            class_counts=self.class_counts + other.class_counts,
        )

    def to(self, device: str | None) -> Moments:
        """The same moments on a device (None: NumPy)."""
        return Moments.from_dict(self._arrays() | {"n": self.n}, device=device)

    def to_dict(self) -> dict[str, NDArray[np.float64]]:
        """A dict of NumPy arrays, for example for :func:`numpy.savez`."""
        arrays = {name: to_numpy(array) for name, array in self._arrays().items()}
        return arrays | {"n": np.asarray(self.n, dtype=np.int64)}

    @classmethod
    def from_dict(cls, arrays: Mapping[str, Array], *, device: str | None = None) -> Moments:
        """The moments that :meth:`to_dict` took apart."""
        float64 = backend(device).float64
        names = ("feature_sum", "gram", "class_sums", "class_counts")
        return cls(n=int(arrays["n"]), **{name: float64(arrays[name]) for name in names})

    def _arrays(self) -> dict[str, Array]:
        return {
            "feature_sum": self.feature_sum,
            "gram": self.gram,
            "class_sums": self.class_sums,
            "class_counts": self.class_counts,
        }


def merge(moments: Iterable[Moments]) -> Moments:
    """Moments of all the samples together; at least one set of them is needed."""
    return reduce(add, moments)


def blocks(
    shards: Iterable[Shard], n_classes: int, where_to: Backend, *, where: str
) -> Iterator[Shard]:
    """Cut shards into blocks of float64 features and int64 labels on a backend, all checked."""
    n_features: int | None = None
    for number, (features, labels) in enumerate(shards):
        here = f"{where}, shard {number}"
        shape, count = np.shape(features), np.shape(labels)
        if len(shape) != 2 or len(count) != 1 or shape[0] != count[0]:
            raise InputError(
                f"{here}: features must have the shape (samples, features) and labels (samples,), "
                f"not {tuple(shape)} and {tuple(count)}"
            )
        if n_features not in (None, shape[1]):
            raise InputError(f"{here}: {shape[1]} features, and {n_features} in those before")
        n_features = shape[1]
        if n_features == 0:
            raise InputError(f"{here}: there are samples without any feature")
        known = _checked_labels(labels, n_classes, where_to, here)
        rows = max(_LEAST_ROWS, where_to.block_bytes // (8 * n_features))
        for start in range(0, shape[0], rows):
            block = _checked_features(features[start : start + rows], where_to, here, start)
            yield block, known[start : start + rows]


def _checked_features(features: Array, where_to: Backend, here: str, start: int) -> Array:
    xp = where_to.xp
    features = where_to.asarray(features)
    if not xp.isdtype(features.dtype, ("real floating", "integral", "bool")):
        raise InputError(f"{here}: features are {features.dtype}, and real numbers are needed")
    block = where_to.float64(features)
    finite = xp.isfinite(block)
    if not bool(xp.all(finite)):
        row, column = np.argwhere(~to_numpy(finite))[0]
        value = "NaN" if bool(xp.isnan(block[int(row), int(column)])) else "infinite"
        raise InputError(
            f"{here}: feature {column} of sample {start + row} is {value}; leave the sample out, "
            "or look for what went wrong in the model"
        )
    return block


def _checked_labels(labels: Array, n_classes: int, where_to: Backend, here: str) -> Array:
    xp = where_to.xp
    labels = where_to.asarray(labels)
    if not xp.isdtype(labels.dtype, "integral"):
        raise InputError(f"{here}: labels are {labels.dtype}, and integers are needed")
    labels = xp.astype(labels, xp.int64, copy=False)
    outside = (labels < 0) | (labels >= n_classes)
    if bool(xp.any(outside)):
        row = int(np.argmax(to_numpy(outside)))
        raise InputError(
            f"{here}: sample {row} has label {int(labels[row])}, and there are {n_classes} "
            f"classes: 0 to {n_classes - 1}"
        )
    return labels


def domain_moments(
    source: FeatureSource, model: str, device: str | None = None
) -> dict[str, Moments]:
    """Moments of a model in each domain, cached where they are smaller than the features."""
    return {domain: _domain_moments(source, model, domain, device) for domain in source.domains}


def _domain_moments(source: FeatureSource, model: str, domain: str, device: str | None) -> Moments:
    def compute() -> Moments:
        where = f"model {model!r}, domain {domain!r}"
        shards = source.shards(model, domain)
        return Moments.stream(shards, len(source.classes), device=device, where=where)

    if len(source.labels(domain)) < 2 * source.facts(model).feature_dim:
        return compute()
    arrays = source.cached("moments", [model], lambda: compute().to_dict(), domains=[domain])
    return Moments.from_dict(arrays)

"""Uniform access to feature arrays and stores."""

from __future__ import annotations

import copy
import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from oodzoo.backend import Array, to_numpy
from oodzoo.errors import InputError
from oodzoo.features.cache import Arrays, cached_arrays
from oodzoo.features.store import FeatureStore

Shard = tuple[Array, Array]
"""Features (n, d) and labels (n,), integers from 0."""

_ROWS = 4096
"""Small shards are merged up to this many rows, because summing moments is expensive."""


@dataclass(frozen=True)
class Facts:
    """Cost of a model, as far as it is known."""

    feature_dim: int
    parameters: int | None = None
    milliseconds: float | None = None


@runtime_checkable
class FeatureSource(Protocol):
    """Features of several models for the same labelled samples of several domains."""

    models: tuple[str, ...]
    domains: tuple[str, ...]
    classes: tuple[Any, ...]

    def shards(self, model: str, domain: str) -> Iterator[Shard]:
        """Features and labels (positions in `classes`) of a domain, piece by piece."""
        ...

    def labels(self, domain: str) -> NDArray[np.int64]: ...

    def groups(self, domain: str) -> Sequence[str | None] | None:
        """Samples that belong together, or None where no groups are known."""
        ...

    def logits(self, model: str, domain: str) -> NDArray[Any] | None:
        """The outputs of the head a model was pre-trained with, where it has one."""
        ...

    def facts(self, model: str) -> Facts: ...

    @property
    def provenance(self) -> dict[str, str]:
        """Name and, where there is one, fingerprint of the data; informational only."""
        ...

    def only(self, domains: Sequence[str]) -> FeatureSource:
        """A view of some domains, without the classes that only the others have."""
        ...

    def cached(
        self,
        kind: str,
        models: Sequence[str],
        compute: Callable[[], Arrays],
        *,
        domains: Sequence[str] | None = None,
        settings: str = "",
        keep: Callable[[Arrays], bool] = lambda _: True,
    ) -> Arrays:
        """Arrays computed from the features of some models, reused where that is possible.

        Parameters
        ----------
        kind : str
            What the arrays are; with `settings` it identifies the computation.
        models : sequence of str
        compute : callable
            Computes the arrays if they are not cached.
        domains : sequence of str, optional
            The domains that the arrays depend on; all of them if None.
        keep : callable
            Whether computed arrays may be cached.
        """
        ...


class StoreSource:
    """The features of a store, some of its models or all."""

    def __init__(self, store: FeatureStore, models: Sequence[str] | None = None) -> None:
        self.store = store
        self.models = tuple(store.models if models is None else models)
        for model in self.models:
            store.model(model)
        labels = {domain: store.labels(domain) for domain in store.domains}
        # A domain of which no image could be read is none.
        self._labels = {domain: some for domain, some in labels.items() if len(some)}
        self.domains = tuple(self._labels)
        self.classes: tuple[Any, ...] = store.classes

    def only(self, domains: Sequence[str]) -> StoreSource:
        part = StoreSource(self.store, self.models)
        part.domains = tuple(domains)
        labels = [self._labels[domain] for domain in part.domains]
        present, codes = np.unique(np.concatenate(labels), return_inverse=True)
        part.classes = tuple(self.classes[at] for at in present)
        ends = np.cumsum([len(some) for some in labels])[:-1]
        codes = codes.astype(np.int64)
        part._labels = dict(zip(part.domains, np.split(codes, ends), strict=True))
        return part

    def shards(self, model: str, domain: str) -> Iterator[Shard]:
        labels = self.labels(domain)
        start = 0
        for features in _together(self.store.shards(model, domain)):
            yield features, labels[start : start + len(features)]
            start += len(features)

    def labels(self, domain: str) -> NDArray[np.int64]:
        return self._labels[domain]

    def groups(self, domain: str) -> Sequence[str | None] | None:
        groups = self.store.groups(domain)
        return groups if any(group is not None for group in groups) else None

    def logits(self, model: str, domain: str) -> NDArray[Any] | None:
        if self.store.model(model).n_logits is None:
            return None
        return self.store.logits(model, domain)

    def facts(self, model: str) -> Facts:
        stored = self.store.model(model)
        milliseconds = self.store.milliseconds_per_image(model)
        return Facts(stored.feature_dim, stored.parameters, milliseconds)

    @property
    def provenance(self) -> dict[str, str]:
        return {"name": self.store.path.resolve().name, "fingerprint": self.store.fingerprint}

    def cached(
        self,
        kind: str,
        models: Sequence[str],
        compute: Callable[[], Arrays],
        *,
        domains: Sequence[str] | None = None,
        settings: str = "",
        keep: Callable[[Arrays], bool] = lambda _: True,
    ) -> Arrays:
        names = list(self.domains if domains is None else domains)
        what = _digest([kind, settings, list(models), names, list(self.classes)])
        content = _digest([self._content(model, names) for model in models])
        path = self.store.path / "cache" / kind / f"{what[:32]}.npz"
        return cached_arrays(path, f"{what} {content}", compute, keep)

    def _content(self, model: str, domains: Sequence[str]) -> list[Any]:
        """Identifies the features and labels of a model in some domains."""
        shards = self.store.model(model).shards
        return [
            [shards[domain], hashlib.sha256(self.labels(domain).tobytes()).hexdigest()]
            for domain in domains
        ]


class ArraySource:
    """Features in memory: a dict of arrays (n, d), the label and the domain of each row."""

    def __init__(
        self,
        features: Mapping[str, Array],
        y: Sequence[Any] | Array,
        domains: Sequence[Any] | Array,
        groups: Sequence[Any] | None = None,
    ) -> None:
        if not features:
            raise InputError("there are no features to rank: the dict is empty")
        features = {name: _matrix(array, name) for name, array in features.items()}
        labels, names = _column(y, "y"), _column(domains, "domains")
        if groups is not None:
            groups = [None if g is None or g != g else str(g) for g in to_numpy(groups).tolist()]
        columns = [("domains", names), *features.items()]
        for what, column in [*columns, *([] if groups is None else [("groups", groups)])]:
            if len(column) != len(labels):
                raise InputError(f"y has {len(labels)} rows, and {what!r} has {len(column)}")
        self.models = tuple(features)
        classes, codes = np.unique(labels, return_inverse=True)
        kinds, places = np.unique(names, return_inverse=True)
        self.classes: tuple[Any, ...] = tuple(classes.tolist())
        self.domains = tuple(str(kind) for kind in kinds.tolist())
        self._rows = {d: np.flatnonzero(places == at) for at, d in enumerate(self.domains)}
        self._codes = codes.astype(np.int64)
        self._features = features
        self._groups = groups

    def shards(self, model: str, domain: str) -> Iterator[Shard]:
        features = self._features[model]
        rows = self._rows[domain]
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS]
            yield features[part], self._codes[part]

    def labels(self, domain: str) -> NDArray[np.int64]:
        return self._codes[self._rows[domain]]

    def groups(self, domain: str) -> Sequence[str | None] | None:
        if self._groups is None:
            return None
        return [self._groups[row] for row in self._rows[domain].tolist()]

    def logits(self, model: str, domain: str) -> NDArray[Any] | None:
        return None

    def facts(self, model: str) -> Facts:
        return Facts(int(self._features[model].shape[1]))

    @property
    def provenance(self) -> dict[str, str]:
        return {"name": "arrays"}

    def cached(
        self,
        kind: str,
        models: Sequence[str],
        compute: Callable[[], Arrays],
        *,
        domains: Sequence[str] | None = None,
        settings: str = "",
        keep: Callable[[Arrays], bool] = lambda _: True,
    ) -> Arrays:
        return compute()

    def only(self, domains: Sequence[str]) -> ArraySource:
        part = copy.copy(self)
        part.domains = tuple(domains)
        rows = np.concatenate([self._rows[domain] for domain in part.domains])
        present, codes = np.unique(self._codes[rows], return_inverse=True)
        part.classes = tuple(self.classes[at] for at in present)
        part._rows = {domain: self._rows[domain] for domain in part.domains}
        part._codes = np.full(len(self._codes), -1, np.int64)
        part._codes[rows] = codes
        return part


def as_source(
    features: Mapping[str, Array] | FeatureStore | FeatureSource,
    y: Sequence[Any] | Array | None = None,
    domains: Sequence[Any] | Array | None = None,
    groups: Sequence[Any] | None = None,
) -> FeatureSource:
    """A source of a dict of arrays or of a store; a source is returned as it is."""
    if isinstance(features, Mapping):
        if y is None or domains is None:
            raise InputError("arrays need the label (y) and the domain (domains) of each row")
        return ArraySource(features, y, domains, groups)
    if y is not None or domains is not None or groups is not None:
        raise InputError("a store has its own labels, domains and groups; leave them out")
    if isinstance(features, FeatureStore):
        source = StoreSource(features)
        if empty := [repr(d) for d in features.domains if d not in source.domains]:
            warnings.warn(f"{', '.join(empty)}: no samples, left out", stacklevel=3)
        return source
    if isinstance(features, FeatureSource):
        return features
    raise InputError(
        "features must be a dict {name: array (n, d)} or a FeatureStore, and are "
        f"{type(features).__name__}"
    )


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _matrix(values: Any, name: str) -> Array:
    """Features as an array (n, d); PyTorch's stay where they are."""
    try:
        array = values if is_torch_array(values) else np.asarray(values)
    except ValueError as error:
        raise InputError(f"the features of {name!r} are no array: {error}") from error
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(f"the features of {name!r} must be (n, d), and are {tuple(array.shape)}")
    return array


def _column(values: Any, name: str) -> NDArray[Any]:
    column = to_numpy(values)
    if column.ndim != 1:
        raise InputError(f"{name} must have one value for each row, and has shape {column.shape}")
    if column.dtype.kind == "f":
        wrong = column[~np.isfinite(column) | (column != np.round(column))]
        if len(wrong):
            raise InputError(f"{name} must be texts or integers, and holds {wrong[0].item()!r}")
        column = column.astype(np.int64)
    if column.dtype.kind == "O":
        for value in column:
            if value is None or value != value:
                raise InputError(f"{name} must be texts or integers, and holds {value!r}")
        column = np.array([str(value) for value in column])
    return column


def _together(shards: Iterator[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    waiting: list[NDArray[Any]] = []
    for shard in shards:
        waiting.append(shard)
        if sum(map(len, waiting)) >= _ROWS:
            yield np.concatenate(waiting)
            waiting = []
    if waiting:
        yield np.concatenate(waiting)

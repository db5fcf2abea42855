"""Features where they lie, arrays or a store, seen the same way by all that comes after."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from zood.backend import Array, to_numpy
from zood.errors import InputError
from zood.features.store import FeatureStore
from zood.moments import Shard

_ROWS = 4096
"""Small shards are put together up to this many rows: adding up moments has a cost of its own."""


@dataclass(frozen=True)
class Facts:
    """What a network costs, as far as it is known."""

    feature_dim: int
    parameters: int | None = None
    milliseconds: float | None = None


class FeatureSource(Protocol):
    """Features of several networks for the same labelled samples of several domains."""

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
        """The outputs of the head a network was pre-trained with, where it has one."""
        ...

    def facts(self, model: str) -> Facts: ...

    def only(self, domains: Sequence[str]) -> FeatureSource:
        """The same as if there were no other domains, and no classes that only those have."""
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
        """The same as if there were no other domains, and no classes that only those have."""
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

    def fingerprint(self, model: str, domains: Sequence[str] | None = None) -> str:
        """Identifies features and labels of a network, whatever else the store holds.

        Only those of some domains where they are named, so that others may come and go.
        """
        shards = self.store.model(model).shards
        content = [
            [domain, shards[domain], hashlib.sha256(self.labels(domain).tobytes()).hexdigest()]
            for domain in domains or self.domains
        ]
        text = json.dumps([list(self.classes), content], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


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

    def only(self, domains: Sequence[str]) -> ArraySource:
        """The same as if there were no other domains, and no classes that only those have."""
        part = copy.copy(self)
        part.domains = tuple(domains)
        rows = np.concatenate([self._rows[domain] for domain in part.domains])
        present, codes = np.unique(self._codes[rows], return_inverse=True)
        part.classes = tuple(self.classes[at] for at in present)
        part._rows = {domain: self._rows[domain] for domain in part.domains}
        part._codes = np.full(len(self._codes), -1, np.int64)
        part._codes[rows] = codes
        return part


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

"""Uniform access to feature arrays and stores, and caches of arrays computed from a store.

Each file contains the key of its inputs and ends in a checksum; with another key, or if it is
damaged, the arrays are recomputed. In a read-only store nothing is cached.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from oodzoo.core.backend import Array, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.io import write_tidily
from oodzoo.store.class_embeddings import ClassEmbeddings
from oodzoo.store.feature_store import BLOCK_ROWS, FeatureStore
from oodzoo.store.format import CACHE, require_no_links, sealed_bytes, unsealed_bytes
from oodzoo.tasks import CLASSIFICATION, Kind, Task, as_labels, require_kind

VERSION = 7
"""Increased when the computation of something cached changes."""

Arrays = dict[str, NDArray[Any]]

SMALL = 2**20
"""Bytes of the largest results that are kept in memory."""


def read_cached(path: Path, key: str) -> Arrays | None:
    """Read arrays from a cache file; None without this key."""
    key = f"{VERSION} {key}"
    try:
        with np.load(io.BytesIO(unsealed_bytes(path)), allow_pickle=False) as content:
            if str(content["key"]) == key:
                return {name: content[name] for name in content.files if name != "key"}
    except Exception:  # missing, damaged or of another format: recompute
        return None
    return None


def write_cached(path: Path, key: str, arrays: Arrays) -> None:
    """Write arrays into a cache file, if the store can be written."""
    key = f"{VERSION} {key}"
    buffer = io.BytesIO()
    np.savez(buffer, key=np.array(key), **arrays)  # type: ignore[arg-type]
    with contextlib.suppress(InputError):
        # thousands of small files, and a damaged one is recomputed
        write_tidily(path, sealed_bytes(buffer.getvalue()), durable=False)


Shard = tuple[Array, Array]
"""Features (n, d), and labels: classes (n,), numbered from 0, or a matrix (n, C) of numbers."""


@dataclass(frozen=True)
class ModelFacts:
    """Size, cost and licence of a model; None where unknown."""

    feature_dim: int
    parameters: int | None = None
    milliseconds: float | None = None
    licence: str | None = None


@runtime_checkable
class FeatureSource(Protocol):
    """Features of several models for the same labelled samples of several domains."""

    models: tuple[str, ...]
    domains: tuple[str, ...]
    classes: tuple[Any, ...]
    """The classes, or the names of the numbers or labels to predict."""
    task: Task = CLASSIFICATION

    def shards(self, model: str, domain: str) -> Iterator[Shard]:
        """Yield features and labels (as :meth:`labels`) of a domain, block by block."""
        ...

    def labels(self, domain: str) -> NDArray[Any]:
        """Return the labels of the samples.

        Of a classification, the position of each class in `classes`, (n,); else numbers, or zeros
        and ones, (n, C).
        """
        ...

    def groups(self, domain: str) -> Sequence[str | None] | None:
        """Return the group of each sample (a patient, a video, …); None if there are no groups."""
        ...

    def logits(self, model: str, domain: str) -> NDArray[Any] | None:
        """Return the logits of the pre-training head; None if the model has none."""
        ...

    def class_embeddings(self, model: str) -> ClassEmbeddings | None:
        """Return the embeddings of `classes` by the text tower of a model; None without them."""
        return None

    def facts(self, model: str) -> ModelFacts:
        """Return the size, cost and licence of a model."""
        ...

    @property
    def provenance(self) -> dict[str, str]:
        """Name and, for a store, fingerprint of the data; informational only."""
        ...

    def only(self, domains: Sequence[str]) -> FeatureSource:
        """Return a view of some domains; classes that only other domains have are dropped."""
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
        """Compute arrays from the features of some models, or read them from a cache.

        Parameters
        ----------
        kind : str
            Name of the computation, which identifies it together with `settings`.
        models : sequence of str
            The models that the arrays depend on.
        compute : callable
            Computes the arrays.
        domains : sequence of str, optional
            The domains that the arrays depend on; by default all.
        settings : str
            Options of the computation.
        keep : callable
            Whether to cache computed arrays.
        """
        return compute()


KEPT_BYTES = 2**27
"""Features of a store that are kept in memory after they were read, in bytes."""


class StoreSource:
    """Features of a feature store, of all or some of its models.

    The first features that are read are kept in memory, up to :data:`KEPT_BYTES`: an evaluation
    reads the features of each model a dozen times.
    """

    def __init__(self, store: FeatureStore, models: Sequence[str] | None = None) -> None:
        self.store = store
        self.models = tuple(store.models if models is None else models)
        for model in self.models:
            store.model(model)
        labels = {domain: store.labels(domain) for domain in store.domains}
        # A domain without any readable image is left out.
        self._labels = {domain: values for domain, values in labels.items() if len(values)}
        self.domains = tuple(self._labels)
        self.classes: tuple[Any, ...] = store.classes
        self.task: Task = store.task
        self._kept: dict[tuple[str, str], list[NDArray[Any]]] = {}

    def only(self, domains: Sequence[str]) -> StoreSource:
        part = StoreSource(self.store, self.models)
        part._kept = self._kept
        part.domains = tuple(domains)
        part._labels = {domain: self._labels[domain] for domain in part.domains}
        if not self.task.one_class:
            return part
        labels = list(part._labels.values())
        present, codes = np.unique(np.concatenate(labels), return_inverse=True)
        part.classes = tuple(self.classes[at] for at in present)
        ends = np.cumsum([len(values) for values in labels])[:-1]
        codes = codes.astype(np.int64)
        part._labels = dict(zip(part.domains, np.split(codes, ends), strict=True))
        return part

    def shards(self, model: str, domain: str) -> Iterator[Shard]:
        labels = self.labels(domain)
        start = 0
        for features in self._blocks(model, domain):
            yield features, labels[start : start + len(features)]
            start += len(features)

    def _blocks(self, model: str, domain: str) -> Iterable[NDArray[Any]]:
        blocks: Iterable[NDArray[Any]] | None = self._kept.get((model, domain))
        if blocks is None:
            blocks = self.store.blocks(model, domain)
            stored = self.store.model(model)
            size = len(self.labels(domain)) * stored.feature_dim * np.dtype(stored.dtype).itemsize
            known = sum(block.nbytes for kept in list(self._kept.values()) for block in kept)
            if known + size <= KEPT_BYTES:
                blocks = self._kept[model, domain] = list(blocks)
                for block in blocks:
                    block.flags.writeable = False
        return blocks

    def labels(self, domain: str) -> NDArray[Any]:
        return self._labels[domain]

    def groups(self, domain: str) -> Sequence[str | None] | None:
        groups = self.store.groups(domain)
        return groups if any(group is not None for group in groups) else None

    def logits(self, model: str, domain: str) -> NDArray[Any] | None:
        if self.store.model(model).n_logits is None:
            return None
        return self.store.logits(model, domain)

    def class_embeddings(self, model: str) -> ClassEmbeddings | None:
        found = self.store.class_embeddings(model) if self.task.one_class else None
        return None if found is None else found.of(self.classes)

    def facts(self, model: str) -> ModelFacts:
        stored = self.store.model(model)
        milliseconds = self.store.milliseconds_per_image(model)
        return ModelFacts(stored.feature_dim, stored.parameters, milliseconds, stored.licence)

    @property
    def domains_proposed(self) -> str | None:
        """What the domains were proposed by; None if they were given."""
        return self.store.domains_proposed

    @property
    def provenance(self) -> dict[str, str]:
        return {"name": self.store.name, "fingerprint": self.store.fingerprint}

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
        described = [kind, settings, list(models), names, list(self.classes)]
        if not self.task.one_class:
            described.append(self.task.kind)  # zeros and ones can be numbers, too
        what = _digest(described)
        key = f"{what} {_digest([self._content(model, names) for model in models])}"
        path = self.store.path / CACHE / kind / f"{what[:32]}.npz"
        try:
            require_no_links(self.store.path, path)
        except InputError:  # nothing outside the store is read or written
            return compute()
        arrays = read_cached(path, key)
        if arrays is None:
            arrays = compute()
            if keep(arrays):
                write_cached(path, key, arrays)
        return arrays

    def _content(self, model: str, domains: Sequence[str]) -> list[Any]:
        """Identify the features and labels of a model in some domains."""
        return [
            [
                self.store.samples_digest(domain),
                self.store.checksums(model, domain),
                hashlib.sha256(self.labels(domain).tobytes()).hexdigest(),
            ]
            for domain in domains
        ]


class ArraySource(FeatureSource):
    """Features in memory: a dict of arrays (n, d), and the label and domain of each row.

    `y` and `task` are as in :func:`oodzoo.tasks.as_labels`.
    """

    def __init__(
        self,
        features: Mapping[str, Array],
        y: Sequence[Any] | Array,
        domains: Sequence[Any] | Array,
        groups: Sequence[Any] | None = None,
        task: str | None = None,
    ) -> None:
        if not features:
            raise InputError("features must have at least one model, got an empty dict")
        features = {name: _matrix(array, name) for name, array in features.items()}
        self.task, self.classes, labels = as_labels(y, task)
        names = _column(domains, "domains")
        if groups is not None:
            groups = [None if g is None or g != g else str(g) for g in to_numpy(groups).tolist()]
        columns = [("domains", names), *features.items()]
        for what, column in [*columns, *([] if groups is None else [("groups", groups)])]:
            if len(column) != len(labels):
                raise InputError(f"y has {len(labels)} rows, {what!r} has {len(column)}")
        self.models = tuple(features)
        unique_names, numbers = np.unique(names, return_inverse=True)
        self.domains = tuple(map(str, unique_names.tolist()))
        self._rows = {d: np.flatnonzero(numbers == i) for i, d in enumerate(self.domains)}
        self._labels = labels
        self._features = features
        self._groups = groups
        self._results: dict[Any, Arrays] | None = None

    def keeping_results(self) -> ArraySource:
        """Return a view that keeps small results: what it is made of must not change."""
        part = copy.copy(self)
        part._results = {}
        return part

    def shards(self, model: str, domain: str) -> Iterator[Shard]:
        features = self._features[model]
        rows = self._rows[domain]
        for start in range(0, len(rows), BLOCK_ROWS):
            part = rows[start : start + BLOCK_ROWS]
            yield features[part], self._labels[part]

    def labels(self, domain: str) -> NDArray[Any]:
        return self._labels[self._rows[domain]]

    def groups(self, domain: str) -> Sequence[str | None] | None:
        if self._groups is None:
            return None
        return [self._groups[row] for row in self._rows[domain].tolist()]

    def logits(self, model: str, domain: str) -> NDArray[Any] | None:
        return None

    def facts(self, model: str) -> ModelFacts:
        return ModelFacts(int(self._features[model].shape[1]))

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
        names = tuple(self.domains if domains is None else domains)
        key = kind, settings, tuple(models), names, self.classes
        if self._results is None:
            return compute()
        if key not in self._results:
            arrays = compute()
            if not keep(arrays) or sum(each.nbytes for each in arrays.values()) > SMALL:
                return arrays
            self._results[key] = arrays
        return self._results[key]

    @property
    def provenance(self) -> dict[str, str]:
        return {"name": "arrays"}

    def only(self, domains: Sequence[str]) -> ArraySource:
        part = copy.copy(self)
        part.domains = tuple(domains)
        part._rows = {domain: self._rows[domain] for domain in part.domains}
        if not self.task.one_class:
            return part
        rows = np.concatenate(list(part._rows.values()))
        present, codes = np.unique(self._labels[rows], return_inverse=True)
        part.classes = tuple(self.classes[at] for at in present)
        part._labels = np.full(len(self._labels), -1, np.int64)
        part._labels[rows] = codes
        return part


Features = Mapping[str, Array] | FeatureStore | FeatureSource | str | Path
"""What models can be ranked and evaluated by."""


def as_source(
    features: Features,
    y: Sequence[Any] | Array | None = None,
    domains: Sequence[Any] | Array | None = None,
    groups: Sequence[Any] | None = None,
    *,
    task: str | None = None,
    models: Sequence[str] | None = None,
) -> FeatureSource:
    """Make a source of a dict of arrays, a store or its path; return a source unchanged."""
    if isinstance(features, str | Path):
        features = FeatureStore(features)
    if isinstance(features, Mapping):
        if y is None or domains is None:
            raise InputError("arrays need the label (y) and the domain (domains) of each row")
        return ArraySource(features, y, domains, groups, task).keeping_results()
    if not isinstance(features, FeatureStore | FeatureSource):
        raise InputError(
            "features must be a dict {name: array (n, d)}, a FeatureStore or its path, got "
            f"{type(features).__name__}"
        )
    if y is not None or domains is not None or groups is not None:
        raise InputError("a store has its own labels, domains and groups; leave them out")
    if task is not None:
        require_task(features, require_kind(task))
    if isinstance(features, FeatureStore):
        source = StoreSource(features, models)
        if empty := [repr(d) for d in features.domains if d not in source.domains]:
            warnings.warn(f"{', '.join(empty)}: no samples; skipped", stacklevel=3)
        return source
    return features


def with_models(source: FeatureSource, models: Sequence[str]) -> FeatureSource:
    """Return a view of some models of a source."""
    part = copy.copy(source)
    part.models = tuple(models)
    return part


def require_task(features: FeatureStore | FeatureSource, kind: Kind) -> None:
    """Raise an InputError if the labels of a store are of another kind."""
    found = features.task.kind
    if found != kind:
        raise InputError(
            f"the task is {kind!r}, but the store has labels for {found!r}; leave the task out, or "
            "extract into a new store"
        )


def groups_of(source: FeatureSource, domains: Sequence[str]) -> list[str | None]:
    """Return the group of each sample of some domains together; None for those without one."""
    groups: list[str | None] = []
    for domain in domains:
        known = source.groups(domain)
        groups += [None] * len(source.labels(domain)) if known is None else list(known)
    return groups


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _matrix(values: Any, name: str) -> Array:
    """Check an array (n, d); PyTorch tensors stay on their device."""
    try:
        array = values if is_torch_array(values) else np.asarray(values)
    except ValueError as error:
        raise InputError(f"the features of {name!r} are not an array: {error}") from error
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(f"the features of {name!r} must be (n, d), got {tuple(array.shape)}")
    return array


def _column(values: Any, name: str) -> NDArray[Any]:
    column = to_numpy(values)
    if column.ndim != 1:
        raise InputError(f"{name} must have one value per row, got shape {column.shape}")
    if column.dtype.kind == "f":
        wrong = column[~np.isfinite(column) | (column != np.round(column))]
        if len(wrong):
            raise InputError(f"{name} must be strings or integers, got {wrong[0].item()!r}")
        column = column.astype(np.int64)
    if column.dtype.kind == "O":
        for value in column:
            if value is None or value != value:
                raise InputError(f"{name} must be strings or integers, got {value!r}")
        column = np.array([str(value) for value in column])
    return column


def moment_costs(source: FeatureSource, models: Sequence[str]) -> list[float]:
    """Expected seconds of the moments and the ranking of each model; only their ratios matter."""
    return [0.3 + 5e-6 * source.facts(model).feature_dim ** 2 for model in models]


def head_costs(source: FeatureSource, models: Sequence[str]) -> list[float]:
    """Expected seconds to train the heads of each model; only their ratios matter."""
    images = sum(len(source.labels(domain)) for domain in source.domains)
    return [0.2 + 1e-7 * images * source.facts(model).feature_dim ** 1.5 for model in models]

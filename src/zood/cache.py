"""What has been computed from the features of a store, kept in it.

A cache file names the fingerprint of what it summarises; with another one it is computed again.
A store that cannot be written to is simply not cached in.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zood.access import StoreSource
from zood.backend import to_numpy
from zood.errors import InputError
from zood.features.disk import write_bytes
from zood.folds import Fold
from zood.moments import Moments

VERSION = 2
"""Goes up when what is cached is computed in another way."""


def cached_folds(
    source: StoreSource, model: str, kind: str, compute: Callable[[], list[Fold]]
) -> list[Fold]:
    """The folds of a network; `kind` says by which protocol and with which stability."""
    path = source.store.path / "cache" / model / f"folds-{kind}.npz"
    key = _key(source.fingerprint(model), kind)
    arrays = _read(path, key)
    if arrays is not None:
        return _unpack(arrays)
    folds = compute()
    _write(path, key, _pack(folds))
    return folds


def cached_moments(
    source: StoreSource, model: str, domain: str, compute: Callable[[], Moments]
) -> Moments:
    """The moments of a domain, cached where that is smaller than the features themselves."""
    n, d = len(source.labels(domain)), source.facts(model).feature_dim
    if n < 2 * d:
        return compute()
    key = _key(source.fingerprint(model, [domain]), "moments")
    folder = source.store.index.domain(domain).folder
    path = source.store.path / "cache" / model / f"moments-{folder}.npz"
    arrays = _read(path, key)
    if arrays is not None:
        return Moments.from_dict(arrays)
    moments = compute()
    _write(path, key, moments.to_dict())
    return moments


def cached_cross(
    source: StoreSource, one: str, two: str, domain: str, compute: Callable[[], Any]
) -> Any:
    """The product of two networks' features in a domain, cached as moments are."""
    dims = [source.facts(model).feature_dim for model in (one, two)]
    if len(source.labels(domain)) < 2 * max(dims):
        return compute()
    shards = [source.store.model(model).shards[domain] for model in (one, two)]
    key = _key(repr(shards), "cross")
    folder = source.store.index.domain(domain).folder
    path = source.store.path / "cache" / one / f"cross-{folder}-{_key(two)[:16]}.npz"
    arrays = _read(path, key)
    if arrays is not None:
        return arrays["cross"]
    cross = compute()
    _write(path, key, {"cross": to_numpy(cross)})
    return cross


def cached_arrays(
    source: StoreSource,
    kind: str,
    models: Sequence[str],
    domains: Sequence[str] | None,
    settings: str,
    compute: Callable[[], dict[str, NDArray[Any]]],
    keep: Callable[[dict[str, NDArray[Any]]], bool],
) -> dict[str, NDArray[Any]]:
    """What was made of some networks in some domains or all, where it is to be kept."""
    content = [f"{model} {source.fingerprint(model, domains)}" for model in models]
    key = _key(kind, settings, *content)
    path = source.store.path / "cache" / kind / f"{key[:32]}.npz"
    arrays = _read(path, key)
    if arrays is None:
        arrays = compute()
        if keep(arrays):
            _write(path, key, arrays)
    return arrays


def cached_numbers(
    source: StoreSource,
    model: str,
    kind: str,
    domains: Sequence[str],
    compute: Callable[[], dict[str, float]],
) -> dict[str, float]:
    """A few numbers about a network on some domains; `kind` says which, and names the file."""
    key = _key(source.fingerprint(model, domains), kind, *domains)
    path = source.store.path / "cache" / model / f"{kind}-{key[:16]}.npz"
    arrays = _read(path, key)
    if arrays is not None:
        return {name: float(value) for name, value in arrays.items()}
    numbers = compute()
    _write(path, key, {name: np.asarray(value) for name, value in numbers.items()})
    return numbers


def _key(*parts: str) -> str:
    fields = [field.name for field in dataclasses.fields(Fold)]
    return hashlib.sha256("\n".join([str(VERSION), *fields, *parts]).encode()).hexdigest()


def _read(path: Path, key: str) -> dict[str, NDArray[Any]] | None:
    try:
        with np.load(path, allow_pickle=False) as content:
            if str(content["key"]) == key:
                return {name: content[name] for name in content.files if name != "key"}
    except Exception:  # absent, damaged or of another kind: all the same
        return None
    return None


def _write(path: Path, key: str, arrays: dict[str, NDArray[Any]]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, key=np.array(key), **arrays)  # type: ignore[arg-type]
    with contextlib.suppress(InputError):
        write_bytes(path, buffer.getbuffer())


def _pack(folds: list[Fold]) -> dict[str, NDArray[Any]]:
    arrays = {}
    for number, fold in enumerate(folds):
        for field in dataclasses.fields(fold):
            value = getattr(fold, field.name)
            value = np.nan if value is None else value
            arrays[f"{number}.{field.name}"] = np.asarray(value)
    return arrays


def _unpack(arrays: dict[str, NDArray[Any]]) -> list[Fold]:
    folds = []
    for number in range(1 + max(int(name.split(".")[0]) for name in arrays)):
        values: dict[str, Any] = {}
        for field in dataclasses.fields(Fold):
            array = arrays[f"{number}.{field.name}"]
            if field.name in ("skipped", "unconverged"):
                values[field.name] = tuple(int(x) for x in array)
            else:
                values[field.name] = array if array.ndim else array.item()
        if np.isnan(values["shrinkage"]):
            values["shrinkage"] = None
        folds.append(Fold(**values))
    return folds

"""Reading a feature store: features and labels of each model and domain.

Layout on disk::

    STORE/images.json                            the image of each row
    STORE/skipped/<domain>/shard-00000.json      unreadable images of a shard
    STORE/<model>/model.json                     description of the model
    STORE/<model>/<domain>/shard-00000.features.npy, shard-00000.logits.npy
    STORE/manifest.json                          written last: complete models, with checksums
    STORE/local.json                             timings and locations; not part of the fingerprint
    STORE/cache/                                 arrays computed from the features
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import msgspec
import numpy as np
from numpy.typing import NDArray

from oodzoo._io import file_digest, read_json, require_schema, structured
from oodzoo._text import count
from oodzoo.errors import InputError
from oodzoo.features.index import DomainIndex, ImageIndex

SCHEMA = 1

Array = NDArray[Any]


def shard_name(shard: int, output: str) -> str:
    return f"shard-{shard:05d}.{output}.npy"


def output_widths(feature_dim: int, n_logits: int | None) -> dict[str, int]:
    widths = {"features": feature_dim}
    return widths if n_logits is None else widths | {"logits": n_logits}


class ShardRecord(TypedDict):
    """Number of rows of a shard and the SHA-256 of each of its files."""

    rows: int
    features: str
    logits: NotRequired[str]


@dataclass(frozen=True)
class StoredModel:
    """A model whose features are complete, as the manifest describes it.

    Attributes
    ----------
    shards : dict
        For each domain, the records of its shards.
    spec : dict or None
        The fields of a :class:`oodzoo.zoo.ModelSpec`, besides name and source, with which the model
        loads again from any location: `input_size` (int), `mean` and `std` (lists of three floats)
        as stated in the zoo, and for an ONNX file the output names in use, `features` and `logits`,
        and its `sha256`. All six keys are present; a value is None where it was not stated or does
        not apply. None instead of a dict: a Python model, imported features, or a store written
        before this field existed.
    """

    name: str
    source: str
    fingerprint: str
    feature_dim: int
    n_logits: int | None
    parameters: int | None
    pretraining: str | None
    precision: str
    dtype: str
    preprocessing: dict[str, Any] | None
    shards: dict[str, list[ShardRecord]]
    spec: dict[str, Any] | None = None

    @property
    def widths(self) -> dict[str, int]:
        """Number of columns of each output."""
        return output_widths(self.feature_dim, self.n_logits)


@dataclass(frozen=True)
class _Data:
    images: dict[str, int]
    skipped: list[dict[str, str]]


@dataclass(frozen=True)
class _Manifest:
    data: _Data
    models: dict[str, dict[str, Any]]


class FeatureStore:
    """A feature store, opened for reading; arrays are memory maps of its files.

    Parameters
    ----------
    path : path
        A folder written by :func:`oodzoo.extract` or `oodzoo import`.

    Attributes
    ----------
    models, domains, classes : tuple of str
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise InputError(
                f"no such feature store: {str(self.path)!r}; create one with "
                "oodzoo extract or oodzoo import"
            )
        if not (self.path / "manifest.json").is_file():
            if (self.path / "images.json").is_file():
                raise InputError(
                    f"the store {str(self.path)!r} has no finished model yet; rerun oodzoo extract "
                    "to resume"
                )
            inside = self.path / "store"
            is_run = (inside / "manifest.json").is_file()
            raise InputError(
                f"{str(self.path)!r} is not a feature store: it has no manifest.json; "
                + (f"did you mean {str(inside)!r}?" if is_run else "make one with oodzoo extract")
            )
        self.manifest = read_manifest(self.path)
        what = f"the manifest of {str(self.path)!r}"
        manifest = structured(self.manifest, _Manifest, what)
        # An unfinished later extraction may have appended images already.
        self.index = read_index(self.path).truncated(manifest.data.images)
        self.domains = tuple(d.name for d in self.index.domains)
        self._models = {
            name: structured(record | {"name": name}, StoredModel, what)
            for name, record in manifest.models.items()
        }
        self.models = tuple(self._models)
        self._skipped = manifest.data.skipped
        self._require_aligned()
        self.classes = row_classes(self.index, self.path)

    def __repr__(self) -> str:
        return (
            f"FeatureStore({str(self.path)!r}: {count(len(self.models), 'model')}, "
            f"{count(len(self.domains), 'domain')}, {count(self.n_images, 'image')})"
        )

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the manifest: equal for stores with the same features."""
        return file_digest(self.path / "manifest.json")

    @property
    def n_images(self) -> int:
        """Number of images with features."""
        return sum(len(self._rows[d]) for d in self.domains)

    @property
    def skipped(self) -> dict[str, str]:
        """Reason for each skipped image, by path."""
        return {entry["path"]: entry["reason"] for entry in self._skipped}

    def is_complete(self) -> bool:
        """Whether every shard file of the manifest exists; its content is not checked."""
        return all((self.path / file).is_file() for file, _ in self.shard_files())

    def shard_files(self) -> Iterator[tuple[str, str]]:
        """Path (relative to the store) and SHA-256 of each shard file of the manifest."""
        for name in self.models:
            stored = self.model(name)
            for domain in self.index.domains:
                for number, shard in enumerate(stored.shards[domain.name]):
                    for output in stored.widths:
                        file = f"{name}/{domain.folder}/{shard_name(number, output)}"
                        yield file, shard[output]  # type: ignore[literal-required]

    def model(self, name: str) -> StoredModel:
        """Return the record of a model."""
        if name not in self._models:
            known = ", ".join(self.models)
            raise InputError(f"the store has no model {name!r}; it has {known}")
        return self._models[name]

    def milliseconds_per_image(self, name: str) -> float | None:
        """Return the time of a forward pass on the machine of the extraction, None if unknown."""
        value = read_local(self.path).get(name, {}).get("milliseconds_per_image")
        return float(value) if isinstance(value, int | float) else None

    def paths(self, domain: str) -> list[str]:
        """Return the path of the image of each row."""
        return self._column(domain, "paths")

    def labels(self, domain: str) -> NDArray[np.int64]:
        """Return the class of each row, as a position in `classes`."""
        position = {label: at for at, label in enumerate(self.classes)}
        return np.array([position[x] for x in self._column(domain, "labels")], np.int64)

    def groups(self, domain: str) -> list[str | None]:
        """Return the group of each row; None for a row without one."""
        return self._column(domain, "groups")

    def shards(self, model: str, domain: str, output: str = "features") -> Iterator[Array]:
        """Yield the rows of a domain, shard by shard, as read-only memory maps."""
        stored = self.model(model)
        if output not in stored.widths:
            raise InputError(f"model {model!r} has no {output} in the store")
        folder = self.path / model / self.index.domain(domain).folder
        for number, shard in enumerate(stored.shards[domain]):
            if shard["rows"]:
                shape = (shard["rows"], stored.widths[output])
                yield open_shard(folder / shard_name(number, output), shape, stored.dtype)

    def features(self, model: str, domain: str) -> Array:
        """Load all features of a domain, (rows, feature_dim)."""
        return self._gather(model, domain, "features")

    def logits(self, model: str, domain: str) -> Array:
        """Load all logits of a domain, (rows, n_logits)."""
        return self._gather(model, domain, "logits")

    def _gather(self, model: str, domain: str, output: str) -> Array:
        parts = list(self.shards(model, domain, output))
        stored = self.model(model)
        return np.concatenate(parts or [np.empty((0, stored.widths[output]), stored.dtype)])

    def _column(self, domain: str, column: str) -> list[Any]:
        values = getattr(self.index.domain(domain), column)
        return [values[row] for row in self._rows[domain]]

    def _require_aligned(self) -> None:
        """Reject a store whose features and labels differ in number."""
        for name, stored in self._models.items():
            for domain in sorted({*stored.shards, *self.domains}):
                n_rows = sum(shard["rows"] for shard in stored.shards.get(domain, []))
                n_images = len(self._rows.get(domain, []))
                if n_rows != n_images:
                    raise InputError(
                        f"the store {str(self.path)!r} is damaged: model {name!r} has "
                        f"{count(n_rows, 'row')} of {domain!r}, images.json lists "
                        f"{count(n_images, 'image')}; rerun oodzoo extract, or use a new store"
                    )

    @cached_property
    def _rows(self) -> dict[str, list[int]]:
        """Positions of the images that have a row, by domain."""
        rows = {}
        for domain in self.index.domains:
            absent = skipped_positions(self.path, domain)
            rows[domain.name] = [at for at in range(len(domain.paths)) if at not in absent]
        return rows


def open_shard(path: Path, shape: tuple[int, int], dtype: str) -> Array:
    """Open a shard as a memory map; reject another shape or dtype."""
    try:
        # an empty array cannot be mapped
        array: Array = np.load(path, mmap_mode="r" if shape[0] else None, allow_pickle=False)
    except FileNotFoundError as error:
        raise InputError(f"the shard {str(path)!r} is missing; {_REPAIR}") from error
    except (EOFError, OSError, ValueError) as error:
        raise InputError(f"the shard {str(path)!r} is damaged; {_REPAIR}") from error
    if array.shape != shape or array.dtype != np.dtype(dtype):
        raise InputError(
            f"the shard {str(path)!r} contains {array.dtype} {array.shape} instead of "
            f"{dtype} {shape}; {_REPAIR}"
        )
    return array


_REPAIR = "remove damaged files with `oodzoo store check --repair`, then rerun `oodzoo extract`"


def read_manifest(store: Path) -> dict[str, Any]:
    return _read_document(store, "manifest.json", "the manifest")


def read_index(store: Path) -> ImageIndex:
    document = _read_document(store, "images.json", "the image index")
    return structured(document, ImageIndex, f"the image index of {str(store)!r}")


def _read_document(store: Path, file: str, what: str) -> dict[str, Any]:
    document = read_json(store / file, what)
    advice = "extract the features again into a new store"
    require_schema(document, SCHEMA, f"the store {str(store)!r}", advice)
    return document


def index_checksum(index: ImageIndex, store: Path) -> str:
    """Compute the SHA-256 of the image of each row, labels and skipped images included."""
    skipped = {d.name: skipped_positions(store, d) for d in index.domains}
    text = json.dumps([msgspec.to_builtins(index), skipped], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read_local(store: Path) -> dict[str, dict[str, Any]]:
    """Read local.json: facts about each model; empty if the file is missing or damaged."""
    try:
        models = json.loads((store / "local.json").read_text(encoding="utf-8"))["models"]
        return {name: dict(facts) for name, facts in models.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def row_classes(index: ImageIndex, store: Path) -> tuple[str, ...]:
    """Return the sorted classes of the images that have a row."""
    labels: set[str] = set()
    for domain in index.domains:
        absent = skipped_positions(store, domain)
        labels |= {label for at, label in enumerate(domain.labels) if at not in absent}
    return tuple(sorted(labels))


def skipped_positions(store: Path, domain: DomainIndex) -> dict[int, str]:
    """Return why images of a domain were skipped, by position in the domain."""
    return {
        domain.shard_range(shard).start + position: why
        for shard in range(len(domain.shards))
        for position, why in read_skipped(store, domain, shard).items()
    }


def read_skipped(store: Path, domain: DomainIndex, shard: int) -> dict[int, str]:
    """Read why images of a shard were skipped, by position in the shard."""
    path = skip_file(store, domain, shard)
    if not path.is_file():
        return {}
    what = "the list of skipped images"
    return structured(read_json(path, what), dict[int, str], f"{what} {str(path)!r}")


def skip_file(store: Path, domain: DomainIndex, shard: int) -> Path:
    return store / "skipped" / domain.folder / f"shard-{shard:05d}.json"

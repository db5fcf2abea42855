"""Write a feature store; the writer locks its folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from oodzoo._io import (
    explaining_disk_errors,
    file_digest,
    final_name,
    locked,
    npy_bytes,
    read_json,
    remove_temporaries,
    write_bytes,
    write_json,
)
from oodzoo.data.dataset import ImageDomains
from oodzoo.errors import InputError
from oodzoo.features.index import DomainIndex, ImageIndex
from oodzoo.features.store import (
    SCHEMA,
    FeatureStore,
    index_checksum,
    open_shard,
    output_widths,
    read_index,
    read_local,
    read_manifest,
    read_skipped,
    row_classes,
    shard_name,
    skip_file,
    skipped_positions,
)
from oodzoo.zoo.spec import require_folder_name

DTYPES = ("float32", "float16")

_RESERVED = frozenset({".lock", "cache", "images.json", "local.json", "manifest.json", "skipped"})
"""Names that a store uses for itself."""


@contextmanager
def writing(path: Path) -> Iterator[StoreWriter]:
    """Open a store, or a new or empty folder, for writing; only one writer is allowed."""
    with explaining_disk_errors(path):
        _require_store_or_empty(path)  # before the lock file is created
    with locked(path):
        yield StoreWriter(path)


_IDENTITY = ("fingerprint", "feature_dim", "n_logits", "precision", "dtype", "preprocessing")
"""Fields of a model's record that must not change once the store has features of it."""


class StoreWriter:
    """Adds images, models and shards to a store; created by :func:`writing`.

    Files are written atomically, so every shard that exists is finished; the manifest is written
    last.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checksums: dict[Path, str] = {}
        self._old: dict[str, Any] = {}
        self._models: dict[str, dict[str, Any]] = {}
        if (path / "manifest.json").is_file():
            self._old = read_manifest(path)
            if not (path / "images.json").is_file():
                raise InputError(
                    f"the store {str(path)!r} has no images.json, so the image of each row is "
                    "unknown; extract into a new store"
                )
            FeatureStore(path)  # rejects a manifest that does not match the index
        self.index = ImageIndex([])
        if (path / "images.json").is_file():
            self.index = read_index(path)
        remove_temporaries(path)

    def add_images(self, dataset: ImageDomains) -> None:
        """Append the images of a data set that the store lacks to its index."""
        index = self.used_index()
        skipped = set()
        for domain in index.domains:
            absent = skipped_positions(self.path, domain)
            skipped |= {key for at, key in enumerate(domain.image_keys()) if at in absent}
        self.write_index(index.grown(dataset.samples, dataset.digests, skipped))

    def used_index(self) -> ImageIndex:
        """Return the index up to the last shard with data on disk.

        An interrupted extraction may have written more; later rows are unused and may change.
        """
        counts = self._old.get("data", {}).get("images", {})
        used = {}
        for domain in self.index.domains:
            shards = len(domain.shards)
            while shards and not self._has_data(domain, shards - 1):
                shards -= 1
            used[domain.name] = max(sum(domain.shards[:shards]), counts.get(domain.name, 0))
        return self.index.truncated(used)

    def write_index(self, index: ImageIndex) -> None:
        self.index = index
        write_json(self.path / "images.json", {"schema": SCHEMA, **msgspec.to_builtins(index)})

    def add_model(self, name: str, record: dict[str, Any]) -> None:
        """Register a model before its shards; reject a different one under the same name."""
        require_model_name(name)
        record = json.loads(json.dumps(record))  # as it will be read: lists, no tuples
        path = self.path / name / "model.json"
        old = read_json(path, "the record of a model") if path.is_file() else None
        if old is not None and any(path.parent.glob("*/shard-*.npy")):
            for key in _IDENTITY:
                if old.get(key) != record[key]:
                    raise InputError(
                        f"the store contains features of another model under the name {name!r} "
                        f"({key} {_shortened(old.get(key))}, now {_shortened(record[key])}); "
                        f"rename the model, or remove the folder {str(path.parent)!r}"
                    )
        if old != record:
            write_json(path, record)
        self._models[name] = record

    def missing_shards(self, name: str) -> list[tuple[DomainIndex, int]]:
        """List the shards that a model lacks, ordered by domain and row."""
        return [
            (domain, shard)
            for domain in self.index.domains
            for shard in range(len(domain.shards))
            if not self._is_finished(name, domain, shard)
        ]

    def skipped(self, domain: DomainIndex, shard: int) -> dict[int, str] | None:
        """Return the skipped images of a shard by position; None if it was never decoded."""
        reasons = read_skipped(self.path, domain, shard)
        return reasons if reasons or self._has_data(domain, shard) else None

    def write_skipped(self, domain: DomainIndex, shard: int, reasons: dict[int, str]) -> None:
        """Record the unreadable images of a shard, before any of its features are written."""
        if reasons:
            document = {str(at): why for at, why in reasons.items()}
            write_json(skip_file(self.path, domain, shard), document)

    def write_shard(
        self, name: str, domain: DomainIndex, shard: int, outputs: dict[str, NDArray[Any]]
    ) -> None:
        """Write the outputs of a model for one shard; the features last, as a completion mark."""
        for output in sorted(outputs, reverse=True):
            path = self.path / name / domain.folder / shard_name(shard, output)
            content = npy_bytes(as_stored(outputs[output], self._models[name]["dtype"], name))
            write_bytes(path, content)
            self._checksums[path] = hashlib.sha256(content).hexdigest()

    def finish(self, fingerprint: str) -> list[str]:
        """Write the manifest of all complete models.

        Returns the models that are no longer complete because images were added.
        """
        models = {}
        for path in sorted(self.path.glob("*/model.json")):
            name = path.parent.name
            record = self._models.get(name) or read_json(path, "the record of a model")
            self._models[name] = record
            if not self.missing_shards(name):
                shards = {domain.name: self._shards(name, domain) for domain in self.index.domains}
                models[name] = {**record, "shards": shards}
        if not models:
            return []
        write_json(
            self.path / "manifest.json",
            {
                "schema": SCHEMA,
                "data": {
                    "fingerprint": fingerprint,
                    "images": self.index.counts(),
                    "index": index_checksum(self.index, self.path),
                    "classes": row_classes(self.index, self.path),
                    "skipped": self._skipped(),
                },
                "models": models,
            },
        )
        return sorted(set(self._old.get("models", {})) - set(models))

    def update_local(self, name: str, facts: dict[str, Any]) -> None:
        """Record facts that depend on time and place (timings, location) in local.json."""
        path = self.path / "local.json"
        models = read_local(self.path)
        write_json(path, {"models": models | {name: models.get(name, {}) | facts}})

    def _has_data(self, domain: DomainIndex, shard: int) -> bool:
        """Whether features or skipped images of a shard are on disk."""
        return skip_file(self.path, domain, shard).exists() or any(
            (record.parent / domain.folder / shard_name(shard, output)).exists()
            for record in self.path.glob("*/model.json")
            for output in ("features", "logits")
        )

    def _skipped(self) -> list[dict[str, str]]:
        """List the images without a row; a repaired image has a later row under the same path."""
        found = []
        for domain in self.index.domains:
            absent = skipped_positions(self.path, domain)
            repaired = {path for at, path in enumerate(domain.paths) if at not in absent}
            reasons = {domain.paths[at]: why for at, why in absent.items()}
            found += [{"path": p, "reason": why} for p, why in reasons.items() if p not in repaired]
        return found

    def _rows(self, domain: DomainIndex, shard: int) -> int:
        """Count the images of a shard without the skipped ones."""
        return domain.shards[shard] - len(read_skipped(self.path, domain, shard))

    def _is_finished(self, name: str, domain: DomainIndex, shard: int) -> bool:
        record = self._models[name]
        for output, width in _widths(record).items():
            path = self.path / name / domain.folder / shard_name(shard, output)
            if not path.is_file():
                return False
            try:
                open_shard(path, (self._rows(domain, shard), width), record["dtype"])
            except InputError:
                return False
        return True

    def _shards(self, name: str, domain: DomainIndex) -> list[dict[str, Any]]:
        outputs = _widths(self._models[name])
        return [
            {"rows": self._rows(domain, shard)}
            | {output: self._checksum(name, domain, shard, output) for output in outputs}
            for shard in range(len(domain.shards))
        ]

    def _checksum(self, name: str, domain: DomainIndex, shard: int, output: str) -> str:
        path = self.path / name / domain.folder / shard_name(shard, output)
        if path in self._checksums:
            return self._checksums[path]
        # Keep the checksums of the old manifest, so that damage is detected.
        old = self._old.get("models", {}).get(name, {})
        if old.get("fingerprint") == self._models[name]["fingerprint"]:
            shards = old["shards"].get(domain.name, [])
            if shard < len(shards):
                return str(shards[shard][output])
        return file_digest(path)


def _widths(record: dict[str, Any]) -> dict[str, int]:
    return output_widths(record["feature_dim"], record["n_logits"])


def require_model_name(name: str) -> None:
    """Reject a name that cannot be a folder or that the store uses itself."""
    if name in _RESERVED:
        raise InputError(f"a model cannot be named {name!r}: the store uses that name")
    require_folder_name(name, "the store")


def as_stored(array: NDArray[Any], dtype: str, name: str) -> NDArray[Any]:
    """Convert outputs of a model to the dtype of a store; reject values out of its range."""
    with np.errstate(over="ignore"):
        stored = array.astype(dtype, copy=False)
    if not np.isfinite(stored).all():
        raise InputError(
            f"model {name!r}: values up to {np.abs(array).max():.3g} do not fit {dtype}; "
            "store them as float32"
        )
    return stored


def _shortened(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 80 else f"{text[:12]}…"


def _require_store_or_empty(path: Path) -> None:
    """Reject a folder with other content than that of a store."""
    if not path.is_dir() or (path / "manifest.json").is_file():
        return
    started = (path / "images.json").is_file()
    for entry in sorted(path.iterdir()):
        # an interrupted extraction may leave the folder of a model without its record
        if final_name(entry.name) not in _RESERVED and not (started and entry.is_dir()):
            raise InputError(
                f"{str(path)!r} is neither empty nor a feature store (it contains {entry.name!r}); "
                "choose another folder"
            )

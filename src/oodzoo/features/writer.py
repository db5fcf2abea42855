"""The one who writes a feature store, with its lock held."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    read_index,
    read_local,
    require_schema,
    row_classes,
    shard_name,
    skip_file,
    skipped_positions,
)
from oodzoo.zoo.spec import require_folder_name

DTYPES = ("float32", "float16")

_RESERVED = frozenset({".lock", "cache", "images.json", "local.json", "manifest.json", "skipped"})
"""What a store holds beside its models."""


@contextmanager
def writing(path: Path) -> Iterator[StoreWriter]:
    """Open a store, or an empty or missing folder, for writing; only one may at a time."""
    with explaining_disk_errors(path):
        _refuse_foreign(path)  # before anything of ours lies there
    with locked(path):
        yield StoreWriter(path)


_DECIDING = ("fingerprint", "feature_dim", "n_logits", "precision", "dtype", "preprocessing")
"""What must not change of a model whose features are in a store."""


class StoreWriter:
    """Adds images, models and shards to a store; :func:`writing` makes it, with the lock held.

    Every file is written whole under its final name, or not at all, so a shard that exists is a
    shard that is finished; the manifest is written last.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checksums: dict[Path, str] = {}
        self._old: dict[str, Any] = {}
        self._models: dict[str, dict[str, Any]] = {}
        if (path / "manifest.json").is_file():
            self._old = read_json(path / "manifest.json", "the manifest")
            require_schema(self._old, path)
            if not (path / "images.json").is_file():
                raise InputError(
                    f"the store {str(path)!r} has lost its images.json, so nobody knows which row "
                    "is which image; make it anew elsewhere"
                )
            FeatureStore(path)  # refuses a manifest that does not fit the rest
        self.index = ImageIndex([])
        if (path / "images.json").is_file():
            self.index = read_index(path)
        remove_temporaries(path)

    def grow(self, dataset: ImageDomains) -> None:
        """Lay down the rows of the images that the store does not have yet."""
        settled = self.settled()
        skipped = set()
        for domain in settled.domains:
            absent = skipped_positions(self.path, domain)
            skipped |= {key for at, key in enumerate(domain.image_keys()) if at in absent}
        self.lay_down(settled.grown(dataset.samples, dataset.digests, skipped))

    def settled(self) -> ImageIndex:
        """The index up to the last shard that anything is known of.

        What an interrupted extraction laid down behind it binds nobody: such images may still
        change or go.
        """
        counts = self._old.get("data", {}).get("images", {})
        known = {}
        for domain in self.index.domains:
            shards = len(domain.shards)
            while shards and not self._touched(domain, shards - 1):
                shards -= 1
            known[domain.name] = max(sum(domain.shards[:shards]), counts.get(domain.name, 0))
        return self.index.truncated(known)

    def lay_down(self, index: ImageIndex) -> None:
        self.index = index
        write_json(self.path / "images.json", {"schema": SCHEMA, **index.to_json()})

    def add_model(self, name: str, record: dict[str, Any]) -> None:
        """Declare a model before its shards; another one of that name is refused."""
        require_free_name(name)
        record = json.loads(json.dumps(record))  # as it will be read again: lists, no tuples
        path = self.path / name / "model.json"
        old = read_json(path, "the record of a model") if path.is_file() else None
        if old is not None and any(path.parent.glob("*/shard-*.npy")):
            for key in _DECIDING:
                if old.get(key) != record[key]:
                    raise InputError(
                        f"the store holds features of another model under the name {name!r} "
                        f"({key} {_short(old.get(key))}, now {_short(record[key])}); rename the "
                        f"model, or remove the folder {str(path.parent)!r}"
                    )
        if old != record:
            write_json(path, record)
        self._models[name] = record

    def missing_shards(self, name: str) -> list[tuple[DomainIndex, int]]:
        """The shards that a model still lacks, in the order of domains and rows."""
        return [
            (domain, shard)
            for domain in self.index.domains
            for shard in range(len(domain.shards))
            if not self._complete(name, domain, shard)
        ]

    def skipped(self, domain: DomainIndex, shard: int) -> dict[int, str] | None:
        """Which images of a shard were skipped, by position in it; None if nobody looked yet."""
        path = skip_file(self.path, domain, shard)
        if path.is_file():
            reasons = read_json(path, "the list of skipped images")
            return {int(at): why for at, why in reasons.items()}
        return {} if self._touched(domain, shard) else None

    def skip(self, domain: DomainIndex, shard: int, reasons: dict[int, str]) -> None:
        """Record the images of a shard that cannot be read, before any of its features."""
        if reasons:
            document = {str(at): why for at, why in reasons.items()}
            write_json(skip_file(self.path, domain, shard), document)

    def write_shard(
        self, name: str, domain: DomainIndex, shard: int, outputs: dict[str, NDArray[Any]]
    ) -> None:
        """Write the outputs of a model for one shard; features last, they say it is there."""
        for output in sorted(outputs, reverse=True):
            path = self.path / name / domain.folder / shard_name(shard, output)
            content = npy_bytes(as_stored(outputs[output], self._models[name]["dtype"], name))
            write_bytes(path, content)
            self._checksums[path] = hashlib.sha256(content).hexdigest()

    def finish(self, fingerprint: str) -> list[str]:
        """Write the manifest: the models that are complete, with checksums.

        Returns the models that were complete before and are no longer: images were added.
        """
        models = {}
        for path in sorted(self.path.glob("*/model.json")):
            name = path.parent.name
            record = self._models.get(name) or read_json(path, "the record of a model")
            self._models[name] = record
            if not self.missing_shards(name):
                models[name] = {**record, "shards": self._shards(name)}
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

    def note_locally(self, name: str, facts: dict[str, Any]) -> None:
        """Keep what depends on time and place (timings, where a model lies) in the side file."""
        path = self.path / "local.json"
        models = read_local(self.path)
        write_json(path, {"models": models | {name: models.get(name, {}) | facts}})

    def _touched(self, domain: DomainIndex, shard: int) -> bool:
        """Whether something about the images of a shard is on disk."""
        return skip_file(self.path, domain, shard).exists() or any(
            (record.parent / domain.folder / shard_name(shard, output)).exists()
            for record in self.path.glob("*/model.json")
            for output in ("features", "logits")
        )

    def _skipped(self) -> list[dict[str, str]]:
        """The images that have no row; one that was mended has a later row under its path."""
        found = []
        for domain in self.index.domains:
            absent = skipped_positions(self.path, domain)
            mended = {path for at, path in enumerate(domain.paths) if at not in absent}
            reasons = {domain.paths[at]: why for at, why in absent.items()}
            found += [{"path": p, "reason": why} for p, why in reasons.items() if p not in mended]
        return found

    def _rows(self, domain: DomainIndex, shard: int) -> int:
        """How many rows a shard has: its images without those that were skipped."""
        if not skip_file(self.path, domain, shard).is_file():
            return domain.shards[shard]
        return domain.shards[shard] - len(self.skipped(domain, shard) or {})

    def _complete(self, name: str, domain: DomainIndex, shard: int) -> bool:
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

    def _shards(self, name: str) -> dict[str, list[dict[str, Any]]]:
        return {
            domain.name: [
                self._shard_record(name, domain, shard) for shard in range(len(domain.shards))
            ]
            for domain in self.index.domains
        }

    def _shard_record(self, name: str, domain: DomainIndex, shard: int) -> dict[str, Any]:
        outputs = _widths(self._models[name])
        return {"rows": self._rows(domain, shard)} | {
            output: self._checksum(name, domain, shard, output) for output in outputs
        }

    def _checksum(self, name: str, domain: DomainIndex, shard: int, output: str) -> str:
        path = self.path / name / domain.folder / shard_name(shard, output)
        if path in self._checksums:
            return self._checksums[path]
        # What the manifest already vouches for keeps its checksum, so that damage shows.
        old = self._old.get("models", {}).get(name, {})
        if old.get("fingerprint") == self._models[name]["fingerprint"]:
            shards = old["shards"].get(domain.name, [])
            if shard < len(shards):
                return str(shards[shard][output])
        return file_digest(path)


def _widths(record: dict[str, Any]) -> dict[str, int]:
    widths = {"features": record["feature_dim"], "logits": record["n_logits"]}
    return {output: width for output, width in widths.items() if width is not None}


def require_free_name(name: str) -> None:
    """Refuse a model whose folder would lie where a store keeps something else."""
    if name in _RESERVED:
        raise InputError(f"a model cannot be named {name!r}: the store uses that name")
    require_folder_name(name, "the store")


def as_stored(array: NDArray[Any], dtype: str, name: str) -> NDArray[Any]:
    """Outputs of a model in the type of a store; values that it cannot hold are refused."""
    with np.errstate(over="ignore"):
        stored = array.astype(dtype, copy=False)
    if not np.isfinite(stored).all():
        raise InputError(
            f"model {name!r}: values up to {np.abs(array).max():.3g} do not fit {dtype}; "
            "store them as float32"
        )
    return stored


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 80 else f"{text[:12]}…"


def _refuse_foreign(path: Path) -> None:
    """Refuse a folder that holds something no store would hold."""
    if not path.is_dir() or (path / "manifest.json").is_file():
        return
    started = (path / "images.json").is_file()
    for entry in sorted(path.iterdir()):
        # a kill between two steps may leave the folder of a model without its record
        if final_name(entry.name) not in _RESERVED and not (started and entry.is_dir()):
            raise InputError(
                f"{str(path)!r} is not empty and no feature store (it holds {entry.name!r}); "
                "choose another folder"
            )

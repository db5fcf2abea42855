"""Writing a feature store: images, models, shards, and the manifest last.

Several processes may write to a store at the same time. Files are created atomically and, where
two processes could create the same one, exclusively; locks only keep maintenance commands apart
from writers on one machine.
"""

from __future__ import annotations

import os
import unicodedata
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import DiskError, InputError
from oodzoo.core.io import (
    explaining_disk_errors,
    file_digest,
    json_bytes,
    locked,
    remove_temporaries,
    shown,
    structured,
)
from oodzoo.core.text import count, typed
from oodzoo.store import shards
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.format import (
    IDENTITY,
    MANIFEST,
    Manifest,
    ModelRecord,
    StoredModel,
    model_folder,
    read_local,
    read_manifest,
    require_no_links,
)
from oodzoo.store.mirror import fetch_records, mirror_of, pull, store_folder, write_bytes, write_new
from oodzoo.store.shards import Coverage, Coverages, Shard
from oodzoo.store.table import (
    ImageIndex,
    SampleTable,
    add_table,
    cut,
    newest_table,
    read_model,
    registered_models,
    require_store_or_empty,
    segment_of,
    table_file,
    table_numbers,
)

DTYPES = ("float32", "float16")

_SCALES = {"full": "full size", "reduced": "a reduced scale"}


@contextmanager
def writing(
    store: str | Path, *, exclusive: bool = False, without_table: bool = False
) -> Iterator[StoreWriter]:
    """Open a store, or a new or empty folder, for writing.

    Writers share the lock of the store; with `exclusive`, there is no other writer on this machine.
    With `without_table`, a damaged table of samples counts as empty.
    """
    path = store_folder(store)
    pull(path)
    with explaining_disk_errors(path):
        require_store_or_empty(path)  # before the lock file is created
    with locked(path, shared=not exclusive), ExitStack() as locks:
        if (mirror := mirror_of(path)) is not None:
            mirror.push()  # what an interrupted command has left
        manifest_file = require_no_links(path, path / MANIFEST)
        if not manifest_file.exists():  # another process may create it now
            write_new(manifest_file, Manifest().content)
        manifest = read_manifest(path)
        number, table = newest_table(path, manifest, lost=without_table)
        remove_temporaries(path)
        yield StoreWriter(path, manifest, number, table, locks)


class PlannedShard(NamedTuple):
    """A shard that some models lack."""

    name: str
    images: list[str]
    models: list[str]


class StoreWriter:
    """Adds images, models and shards to a store; created by :func:`writing`.

    Attributes
    ----------
    table : SampleTable
        The samples that the next manifest will have.
    index : ImageIndex
        The images of each shard.
    """

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        number: str | None,
        table: SampleTable | None,
        locks: ExitStack,
    ) -> None:
        self.path = path
        self.manifest = manifest
        self.table = table or SampleTable([])
        self.table_lost = number is not None and table is None
        self._newest = (number, table)
        self.index = ImageIndex.read(path)
        self._locks = locks
        self._own: set[str] = set()
        self._models: dict[str, ModelRecord] = {}
        self._coverages = Coverages()
        self._parsed: dict[str, dict[str, Shard]] = {}

    # --- samples and images ----------------------------------------------------------------------

    def set_table(self, table: SampleTable) -> None:
        """Replace the samples; domains without labels that the new table lacks are kept.

        So are proposed domains, unless the samples have changed.
        """
        self.table = self.keeping_proposed(table).keeping_unlabelled(self.table)

    def keeping_proposed(self, table: SampleTable) -> SampleTable:
        """Return a table with the proposed domains of the store, or warn that they are replaced."""
        kept = table.keeping_proposed(self.table)
        if kept is None:
            warnings.warn(
                f"the domains of the store {shown(self.path)!r} were proposed by "
                f"{self.table.proposed}; its samples have changed, so they are now those of the "
                f"data set: propose them again with `oodzoo domains {typed(shown(self.path))}`",
                stacklevel=2,
            )
        return kept or table

    def require_all_images(
        self, table: SampleTable, unreadable: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Reject a table without some of the images that the store has features of.

        `unreadable` has the reason, by path, of files that could not be read.
        """
        given = set(table.images(labelled=True))
        if not self.manifest.models or given.issuperset(self.table.images(labelled=True)):
            return  # without a finished model `sync` could not drop any
        known = {image for name in self.manifest.models for image in self.coverage(name).rows}
        known -= self.manifest.skipped.keys()
        have = [image for image in self.table.images(labelled=True) if image in known]
        gone = [image for image in have if image not in given]
        if not gone:
            return
        if len(gone) == len(have):
            raise InputError(
                f"the store {shown(self.path)!r} contains features of another data set: none of "
                f"its {count(len(have), 'image')} is in this one; use another store"
            )
        path = self.table.places()[gone[0]][1]
        if path in unreadable:
            raise InputError(
                f"cannot read {path!r} any more ({unreadable[path]}), but the store has "
                "features of it; restore the image, or drop it with "
                f"`oodzoo store sync {typed(shown(self.path))} DATA`"
            )
        paths = {path for domain in table.labelled for path in domain.paths}
        raise InputError(
            f"{len(gone):,} of the {count(len(have), 'image')} in the store have been removed or "
            f"changed, the first is {path!r} ({'changed' if path in paths else 'removed'}); drop "
            f"them with `oodzoo store sync {typed(shown(self.path))} DATA`, or use another store"
        )

    def require_task(self, table: SampleTable) -> None:
        """Reject a table whose labels are of another kind than those of the store."""
        old, new = self.table.task.kind, table.task.kind
        if self.table.labelled and self.manifest.models and old != new:
            raise InputError(
                f"the store {shown(self.path)!r} has labels for {old}, the data for {new}; change "
                f"them with `oodzoo store sync {typed(shown(self.path))} DATA --task {new}`, or "
                "use another store"
            )

    def add_images(self) -> None:
        """Add the images of the table that the index lacks."""
        known = self.index.images()
        self._add([image for image in self.table.images() if image not in known])

    def _add(self, images: Collection[str]) -> None:
        """Add images to the index; another process may add some of them first."""
        places = self.table.places()
        wanted = sorted(set(images), key=lambda image: (*places.get(image, ("", "")), image))
        before = set(self.index.shards)
        while wanted:
            cuts = cut((places.get(image, ("", ""))[0], image) for image in wanted)
            if self.index.add(self.path, cuts, self._newest[0]):
                return
            new = self.index.shards.keys() - before
            present = {image for shard in new for image in self.index.shards[shard]}
            wanted = [image for image in wanted if image not in present]

    # --- models and shards -----------------------------------------------------------------------

    def add_model(self, name: str, record: ModelRecord) -> None:
        """Register a model before its shards; reject a different one under the same name."""
        folder = model_folder(self.path, name)
        self._require_distinct(name)
        if name not in self._own:
            self._locks.enter_context(locked(require_no_links(self.path, folder), shared=True))
        path = require_no_links(self.path, folder / "model.json")
        content = json_bytes(msgspec.to_builtins(record))
        # as it will be read: lists, no tuples
        record = structured(msgspec.json.decode(content), ModelRecord, "the record of a model")
        if not write_new(path, content):
            old = read_model(self.path, name)
            if old.identity == record.identity and (old.spec or not record.spec):
                record = old
            elif old.identity != record.identity and shards.record_files(folder):
                self._require_decoded_alike(name, old, record)
                key = next(k for k in IDENTITY if getattr(old, k) != getattr(record, k))
                raise InputError(
                    f"the store contains features of another model under the name {name!r} ({key} "
                    f"{_shortened(getattr(old, key))}, now {_shortened(getattr(record, key))}); "
                    f"rename the model, or remove the old one with `oodzoo store rm "
                    f"{typed(shown(self.path))} {typed(name)}`"
                )
            else:
                write_bytes(path, content)
        self._own.add(name)
        self._models[name] = record

    def _require_decoded_alike(self, name: str, old: ModelRecord, new: ModelRecord) -> None:
        """Reject images that are decoded otherwise than those that a model has features of."""
        others = [key for key in IDENTITY if getattr(old, key) != getattr(new, key)]
        if old.decode != new.decode and others == ["preprocessing"]:
            raise InputError(
                f"model {name!r}: the store has its features of images decoded at "
                f"{_SCALES[old.decode]}, now {_SCALES[new.decode]}; give --decode {old.decode} "
                f"(decode={old.decode!r}), use another store, or remove the model with `oodzoo "
                f"store rm {typed(shown(self.path))} {typed(name)}`"
            )

    def _require_distinct(self, name: str) -> None:
        """Reject a name that some file systems cannot distinguish from that of another model."""
        for other in registered_models(self.path):
            if other != name and _folded(other) == _folded(name):
                raise InputError(
                    f"the store has a model {other!r}; {name!r} differs only in case or in the "
                    "form of its characters: rename it"
                )

    def adopt(self, models: Iterable[str]) -> None:
        """Take models that other processes write for this one to be its own."""
        self._own.update(models)

    def refresh(self) -> None:
        """Look for what other processes have written; of use for a store at a URL only."""
        pull(self.path)

    def is_registered(self, name: str) -> bool:
        """Whether a model is in the store, finished or not."""
        return (model_folder(self.path, name) / "model.json").is_file()

    def records(self, name: str) -> dict[str, Shard]:
        """Return the finished shards of a model; none if the model is not registered."""
        if not self.is_registered(name):
            return {}
        folder = require_no_links(self.path, model_folder(self.path, name))
        identity = self.record(name).identity
        present = {e.name for e in os.scandir(folder) if e.is_file(follow_symlinks=False)}
        known = self._known_records(name)
        listed = [shard for shard in self.index.shards if f"{shard}.json" in present]
        fetch_records(shards.record_file(folder, s) for s in listed if s not in known)
        found = {}
        for shard in listed:
            images = self.index.digest(shard)
            record = known.get(shard)
            if record is None or record.images != images or not _has_files(record, present):
                record = shards.read_record(shards.record_file(folder, shard))
            if (
                record is not None
                and record.model == identity
                and record.images == images
                and _has_files(record, present)
            ):
                found[shard] = known[shard] = record
        return found

    def _known_records(self, name: str) -> dict[str, Shard]:
        """Return the records that were read before; at first those of the manifest."""
        if name not in self._parsed:
            self._parsed[name] = {}
            stored = self.manifest.models.get(name)
            if stored is not None:
                folder = model_folder(self.path, name)
                with suppress(InputError):  # damaged: the records themselves are read
                    listed = shards.read_list(self.path, folder, stored.shards)
                    self._parsed[name] = {record.shard: record for record in listed}
        return self._parsed[name]

    def coverage(self, name: str) -> Coverage:
        """Return the images that a model has rows of."""
        return self._coverages.of(self.index.shards, list(self.records(name).values()))

    def plan(
        self,
        models: Sequence[str],
        available: Collection[str],
        again: Collection[str] = (),
        *,
        only: bool = False,
    ) -> list[PlannedShard]:
        """List the shards to compute so that models have rows of all available images.

        Images that are known to be unreadable are left out, except those in `again`. With `only`,
        the shards have no other images; for a sample of the images, new ones are added.
        """
        while True:
            plan: dict[str, list[str]] = {}
            homeless: set[str] = set()
            lacking: dict[Coverage, list[str]] = {}  # models share coverages
            for name in models:
                records = self.records(name)
                coverage = self._coverages.of(self.index.shards, list(records.values()))
                if coverage not in lacking:
                    lacking[coverage] = []
                    wanted = set(coverage.missing(available))
                    wanted |= {image for image in again if image not in coverage.rows}
                    for shard, images in self.index.shards.items():
                        if not wanted or shard in records or wanted.isdisjoint(images):
                            continue
                        if only and any(
                            image not in wanted and image not in coverage.unreadable
                            for image in images
                        ):
                            continue
                        lacking[coverage].append(shard)
                        wanted.difference_update(images)
                    if not only:
                        homeless |= wanted
                    elif not homeless:  # of these models only: others may have some of them
                        homeless = wanted
                for shard in lacking[coverage]:
                    plan.setdefault(shard, []).append(name)
            if not homeless:
                return [PlannedShard(s, self.index.shards[s], plan[s]) for s in sorted(plan)]
            self._add(homeless)

    def write_shard(
        self,
        name: str,
        shard: str,
        outputs: Mapping[str, NDArray[Any]],
        absent: Mapping[int, str | None],
    ) -> Shard:
        """Write the outputs of a model for the images of a shard, without the absent ones."""
        record = self.record(name)
        self._own.add(name)
        folder = require_no_links(self.path, model_folder(self.path, name))
        stored = {key: as_stored(outputs[key], record.dtype, name) for key in record.widths}
        images = self.index.shards[shard]
        return shards.write_shard(folder, shard, images, record.identity, stored, absent)

    def copy_rows(self, source: FeatureStore, model: str, images: Collection[str]) -> None:
        """Copy the rows of images that a registered model lacks, instead of computing them.

        Images that the source could not decode are recorded as such.
        """
        coverage = source.coverage(model)
        unreadable = {i: why for i, why in coverage.unreadable.items() if i in images}
        available = {image for image in images if image in coverage.rows} | unreadable.keys()
        for shard in self.plan([model], available):
            rows = [image for image in shard.images if image in coverage.rows]
            absent = {
                position: unreadable.get(image)
                for position, image in enumerate(shard.images)
                if image not in coverage.rows
            }
            widths = self.record(model).widths
            outputs = {output: source.gather(model, rows, output) for output in widths}
            self.write_shard(model, shard.name, outputs, absent)

    def record(self, name: str) -> ModelRecord:
        """Return the description of a registered model."""
        if name not in self._models:
            self._models[name] = read_model(self.path, name)
        return self._models[name]

    # --- manifest --------------------------------------------------------------------------------

    def finish(self, *, all_models: bool = False) -> list[str]:
        """Write the table and the manifest of all complete models.

        Models of other writers are taken from their manifest, if it has the same table, unless all
        are to be checked. Returns the models that are not complete any more.
        """
        before = set(self.manifest.models)
        for _ in range(_ROUNDS):
            pull(self.path)
            self._commit_table()
            self.index = ImageIndex.read(self.path).without(self.index.ignored)
            manifest = self._derive(None if all_models else read_manifest(self.path))
            self.manifest = manifest
            write_bytes(require_no_links(self.path, self.path / MANIFEST), manifest.content)
            # Another writer may have changed something meanwhile and written its manifest earlier.
            pull(self.path)
            written = read_manifest(self.path)
            again = self._derive(None if all_models else written)
            if written == manifest == again and not self._is_outdated():
                break  # else repeat; a writer that goes on meanwhile will finish later
        return sorted(before - set(manifest.models))

    def _commit_table(self) -> None:
        """Write the table under the next number, unless the newest one is equal."""
        while self._is_outdated() or self._newest[1] != self.table:
            if self._is_outdated():
                self._adopt_newest_table()
            elif (number := add_table(self.path, self._newest[0], self.table)) is not None:
                self._newest = (number, self.table)

    def _is_outdated(self) -> bool:
        """Whether another process has written a newer table."""
        return table_numbers(self.path)[-1:] not in ([], [self._newest[0]])

    def _adopt_newest_table(self) -> None:
        """Add domains without labels of another process; reject other samples with labels."""
        before = [self.table, self._newest[1] or self.table]
        self._newest = newest_table(self.path, self.manifest)
        table = self._newest[1] or SampleTable([])
        if all((table.labelled, table.task) != (other.labelled, other.task) for other in before):
            raise InputError(
                f"the images of the store {shown(self.path)!r} were changed by another process; "
                "rerun the command: the features that it computed are kept"
            )
        self.table = self.table.keeping_unlabelled(table)

    def _derive(self, found: Manifest | None) -> Manifest:
        """Make the manifest of the table and the finished shards on disk.

        Models of other writers are those that have been found.
        """
        number = self._newest[0]
        if number is None:
            return Manifest()  # of an extraction that has not finished yet
        needed = dict.fromkeys(self.table.images(labelled=True))
        wanted = set(self.table.images())
        kept = found.models if found is not None and found.table == number else {}
        models: dict[str, StoredModel] = {}
        segments = dict(found.segments) if found is not None and kept else {}
        complete: dict[Coverage, bool] = {}  # models share coverages
        for name in registered_models(self.path):
            if name in kept and name not in self._own:
                models[name] = kept[name]
                continue
            try:
                records = self.records(name)
            except DiskError:
                raise
            except (FileNotFoundError, InputError):
                continue  # removed by another process, or its description is damaged
            coverage = self._coverages.of(self.index.shards, list(records.values()))
            if coverage not in complete:
                complete[coverage] = bool(records) and not coverage.missing(needed)
            if not complete[coverage]:
                continue
            folder = model_folder(self.path, name)
            digest = shards.write_list(folder, list(records.values()))
            unreadable = {i: why for i, why in coverage.unreadable.items() if i in wanted}
            models[name] = self.record(name).stored(name, digest, unreadable)
            segments |= {s: self.index.segments[s] for s in map(segment_of, records)}
        return Manifest(
            table=number,
            samples=None if number is None else file_digest(table_file(self.path, number)),
            segments=dict(sorted(segments.items())),
            models=models,
        )


_ROUNDS = 10


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


def _has_files(record: Shard, present: Collection[str]) -> bool:
    return all(file.file in present for file in record.files.values())


def _shortened(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= 40 else f"{text[:12]}…"


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def update_local(store: Path, model: str, facts: dict[str, Any]) -> None:
    """Add facts to those of a model that its timings and location are kept in."""
    path = require_no_links(store, model_folder(store, model) / "local.json")
    write_bytes(path, json_bytes(read_local(store, model) | facts))

"""What a store contains and takes on disk; what of it can be removed; and the merging of stores."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.core.io import explaining_disk_errors, locked, shown
from oodzoo.core.text import count, did_you_mean
from oodzoo.store.class_embeddings import FILE as CLASS_EMBEDDINGS
from oodzoo.store.class_embeddings import write_class_embeddings
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.format import (
    CACHE,
    IMAGES,
    MANIFEST,
    MODELS,
    SAMPLES,
    model_folder,
    read_local,
    read_manifest,
    require_no_links,
)
from oodzoo.store.mirror import (
    fetch_records,
    file_size,
    folder_size,
    pulled,
    remove_files,
    remove_folder,
    store_folder,
)
from oodzoo.store.shards import list_file, read_record, record_file
from oodzoo.store.table import (
    SampleTable,
    newest_table,
    old_tables,
    registered_models,
    require_store,
    segment_file,
    segment_of,
    segment_table,
)
from oodzoo.store.writer import StoreWriter, update_local, writing
from oodzoo.tasks import CLASSIFICATION, Task


@dataclass(frozen=True)
class Pruned:
    """Number of images whose features were removed, and bytes freed."""

    images: int
    bytes: int


def prune_store(store: str | Path, *, unfinished: bool = False, cache: bool = False) -> Pruned:
    """Remove features of images that are not in the table any more, and unused files.

    Shards with rows of removed images are replaced by shards without them; no feature is computed.
    Features of images that an interrupted extraction was adding are kept.

    Parameters
    ----------
    store : path or URL
    unfinished : bool
        Remove features that an interrupted extraction has computed for new images too.
    cache : bool
        Remove the cache too.
    """
    path = pulled(store)
    require_store(path)
    before = folder_size(path)
    with writing(path, exclusive=True) as writer:
        if writer.manifest.table is None:
            raise InputError(
                f"the store {shown(path)!r} has no finished model; finish it with oodzoo extract"
            )
        writer.finish(all_models=True)  # an interrupted command may have left another manifest
        outdated = outdated_segments(writer, unfinished=unfinished)
        removed = writer.index.images() - writer.index.without(outdated).images()
        removed -= set(writer.table.images())
        if outdated:
            _replace(writer, outdated)
        files = list(unused_files(path, writer))
        if cache and (path / CACHE).is_dir():
            folder = require_no_links(path, path / CACHE)
            files += [file for file in folder.rglob("*") if file.is_file()]
        with explaining_disk_errors(path):
            # first, so that their shards do not count any more
            remove_files([segment_file(path, name) for name in outdated])
            remove_files(files)
            _remove_empty_folders(path)
    return Pruned(len(removed), before - folder_size(path))


def outdated_segments(writer: StoreWriter, *, unfinished: bool = False) -> set[str]:
    """Return the segments with images that are not in the table.

    Those of an interrupted extraction, which would add the images, count only with `unfinished`.
    """
    needed = set(writer.table.images())
    outdated = {
        segment_of(shard)
        for shard, images in writer.index.shards.items()
        if not needed.issuperset(images)
    }
    if unfinished:
        return outdated
    current = writer.manifest.table
    return {name for name in outdated if segment_table(writer.path, name) != current}


def _replace(writer: StoreWriter, outdated: set[str]) -> None:
    """Copy the rows that are still needed out of outdated segments, and finish without these."""
    names = registered_models(writer.path)
    old = {name: list(writer.records(name).values()) for name in names}
    models = {name: writer.record(name).stored(name) for name in names}
    index, needed = writer.index, set(writer.table.images())
    writer.index = index.without(outdated)
    if models:
        source = FeatureStore.partial(writer.path, models, writer.table, index, old)
        for name in names:
            writer.copy_rows(source, name, needed)
    writer.finish(all_models=True)


_OURS = re.compile(
    r"[0-9]{5}-[0-9]{5}(\.(features|logits)\.[0-9a-f]{16}\.npy|\.json)|shards\.[0-9a-f]{16}\.json"
)
"""Names of shard files, records and lists."""


_LEFT = ("local.json", CLASS_EMBEDDINGS, ".lock")
"""Files that a killed removal of a model may leave."""


def unused_files(path: Path, writer: StoreWriter) -> Iterator[Path]:
    """Yield the files that neither the manifest nor an unfinished extraction uses."""
    registered = set(registered_models(path))
    for folder in sorted((path / MODELS).glob("*")):
        if folder.is_symlink() or not folder.is_dir():
            continue
        used: set[str] = set()
        if folder.name in registered:
            fetch_records(record_file(folder, shard) for shard in writer.index.shards)
            for shard in writer.index.shards:
                record = read_record(record_file(folder, shard))
                if record is not None:
                    used |= {f"{shard}.json", *(file.file for file in record.files.values())}
        if folder.name in writer.manifest.models:
            used.add(list_file(folder, writer.manifest.models[folder.name].shards).name)
        for file in sorted(folder.iterdir()):
            left = folder.name not in registered and file.name in _LEFT
            if left or (file.name not in used and _OURS.fullmatch(file.name)):
                yield file
    yield from old_tables(path, writer.manifest)


def _remove_empty_folders(path: Path) -> None:
    for folder in (path / MODELS).glob("*"):
        if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()
    if (path / CACHE).is_dir() and not any(f.is_file() for f in (path / CACHE).rglob("*")):
        shutil.rmtree(path / CACHE)


@dataclass(frozen=True)
class DomainEntry:
    """A domain; `images` can be read."""

    name: str
    images: int
    labelled: bool


@dataclass(frozen=True)
class ModelEntry:
    """A model; it is complete if it has features of all images with labels."""

    name: str
    complete: bool
    images: int
    features: int
    logits: int | None
    dtype: str
    bytes: int
    parameters: int | None
    milliseconds: float | None
    source: str
    measured: str | None = None
    """How `milliseconds` were measured."""


@dataclass(frozen=True)
class Contents:
    """The models and domains of a store; `domains_proposed` says by what, if they were."""

    models: tuple[ModelEntry, ...]
    domains: tuple[DomainEntry, ...]
    classes: int
    """Number of classes, labels or numbers."""
    task: Task = CLASSIFICATION
    domains_proposed: str | None = None


@dataclass(frozen=True)
class Usage:
    """Bytes that the parts of a store take.

    `unused` can be freed by pruning: features of removed images, which are also part of `models`,
    and files that nothing uses.
    """

    models: dict[str, int]
    samples: int
    cache: int
    unused: int
    total: int


def list_contents(store: str | Path) -> Contents:
    """List the models, finished or not, and the domains of a store."""
    path = pulled(store)
    view = _view(path)
    table, skipped = view.table, view.manifest.skipped
    domains = [
        DomainEntry(
            domain.name,
            sum(image not in skipped for image in domain.images),
            labelled=domain.labels is not None,
        )
        for domain in table.domains
    ]
    classes = {label for domain in table.labelled for label in domain.labels or []}
    return Contents(
        tuple(_entry(view, name) for name in registered_models(path)),
        tuple(domains),
        len(table.task.outputs or classes),
        table.task,
        table.proposed,
    )


def disk_usage(store: str | Path) -> Usage:
    """Measure the disk space of the parts of a store."""
    path = pulled(store)
    view = _view(path)
    needed = set(view.table.images())
    segments = outdated_segments(view)
    outdated = 0.0
    for name in registered_models(path):
        folder = model_folder(path, name)
        for shard in view.records(name).values():
            images = view.index.shards[shard.shard]
            gone = sum(image not in needed for image in images)
            if gone and segment_of(shard.shard) in segments:
                files = sum(file_size(folder / file.file) for file in shard.files.values())
                outdated += files * gone / len(images)
    unused = sum(map(file_size, unused_files(path, view)))
    return Usage(
        models={name: folder_size(model_folder(path, name)) for name in registered_models(path)},
        samples=folder_size(path / SAMPLES)
        + folder_size(path / IMAGES)
        + (path / MANIFEST).stat().st_size,
        cache=folder_size(path / CACHE),
        unused=unused + round(outdated),
        total=folder_size(path),
    )


def _view(path: Path) -> StoreWriter:
    """Open a store to look at it; nothing is locked or written."""
    require_store(path)
    manifest = read_manifest(path)
    number, table = newest_table(path, manifest)
    return StoreWriter(path, manifest, number, table, ExitStack())


def _entry(view: StoreWriter, name: str) -> ModelEntry:
    record = view.record(name)
    facts = read_local(view.path, name)
    return ModelEntry(
        name=name,
        complete=name in view.manifest.models,
        images=len(view.coverage(name).rows),
        features=record.feature_dim,
        logits=record.n_logits,
        dtype=record.dtype,
        bytes=folder_size(model_folder(view.path, name)),
        parameters=record.parameters,
        milliseconds=facts.get("milliseconds_per_image"),
        source=record.source,
        measured=facts.get("measured"),
    )


def remove_models(store: str | Path, models: Sequence[str]) -> int:
    """Remove models, finished or not, with their features; return the number of bytes freed.

    A model that another process is extracting on this machine is not removed.
    """
    path = pulled(store)
    require_store(path)
    # a killed removal leaves a folder without model.json
    known = sorted(folder.name for folder in (path / MODELS).glob("*") if folder.is_dir())
    for name in models:
        if name not in known:
            raise InputError(
                f"the store {shown(path)!r} has no model {name!r}; "
                + (did_you_mean(name, known) or f"it has {', '.join(known) or 'none'}")
            )
    with writing(path) as writer, ExitStack() as locks:
        names = dict.fromkeys(models)
        folders = [require_no_links(path, model_folder(path, name)) for name in names]
        freed = sum(map(folder_size, folders))
        for folder in folders:
            locks.enter_context(locked(folder))
        with explaining_disk_errors(path):
            for folder in folders:  # without it, a model does not count any more
                remove_files([folder / "model.json"])
            writer.finish()
            for folder in folders:
                remove_folder(folder)
    return freed


def merge_stores(stores: Sequence[str | Path], out: str | Path) -> FeatureStore:
    """Copy the models of several stores of the same images into a new store.

    The stores must have the same images, task, labels, domains and groups. A model that is in
    several of them must have the same features. Domains without labels are merged by name.

    Parameters
    ----------
    stores : sequence of path or URL
        Two or more stores; paths of images are taken from the first.
    out : path or URL
        A new or empty folder.
    """
    if len(stores) < 2:
        raise InputError(f"merging needs two or more stores, got {len(stores)}")
    sources = [FeatureStore(store) for store in stores]
    table = sources[0].table
    for other in sources[1:]:
        _require_same_samples(sources[0], other)
        table = _with_unlabelled(table, sources[0], other)
    holders = {
        name: [source for source in sources if name in source.models]
        for source in sources
        for name in source.models
    }
    for name, having in holders.items():
        for other in having[1:]:
            _require_same_features(name, having[0], other)
    path = store_folder(out)
    with writing(path) as writer:
        if writer.manifest.table is not None:
            raise InputError(f"the store {shown(path)!r} exists already; choose another folder")
        writer.set_table(table)
        writer.add_images()
        needed = set(table.images())
        for name, having in sorted(holders.items()):
            writer.add_model(name, having[0].model(name).record)
            update_local(path, name, having[0].local(name))
            if (texts := having[0].class_embeddings(name)) is not None:
                write_class_embeddings(path, name, writer.record(name).identity, texts)
            for source in having:  # another one may have more domains without labels
                writer.copy_rows(source, name, needed)
        writer.finish()
    return FeatureStore(path)


def _require_same_samples(first: FeatureStore, other: FeatureStore) -> None:
    if first.task != other.task:
        raise InputError(
            f"{shown(first.path)!r} has labels for {first.task}, {shown(other.path)!r} "
            f"for {other.task}; stores can be merged if they have the same task"
        )
    one, two = _samples(first.table), _samples(other.table)
    for here, there, missing in ((first, other, one - two), (other, first, two - one)):
        if missing:
            domain, label, _, image = next(iter(missing))
            path = here.table.places()[image][1]
            raise InputError(
                f"{shown(there.path)!r} differs from {shown(here.path)!r} in "
                f"{count(missing.total(), 'sample')}, the first is {path!r} (domain {domain!r}, "
                f"label {label!r}); stores can be merged if they have the same images and labels"
            )


def _samples(table: SampleTable) -> Counter[tuple[str, str, str | None, str]]:
    return Counter((s.domain, s.label, s.group, image) for s, image in table.samples())


def _with_unlabelled(table: SampleTable, first: FeatureStore, other: FeatureStore) -> SampleTable:
    for domain in other.table.unlabelled:
        same = next((d for d in table.unlabelled if d.name == domain.name), None)
        if same is not None and sorted(same.images) != sorted(domain.images):
            raise InputError(
                f"the unlabelled domain {domain.name!r} has other images in {shown(first.path)!r} "
                f"than in {shown(other.path)!r}; rename one of them"
            )
    return table.keeping_unlabelled(other.table)


def _require_same_features(name: str, first: FeatureStore, other: FeatureStore) -> None:
    """Reject models of the same name with other features."""
    same = first.model(name).identity == other.model(name).identity
    shared = first.coverage(name).rows.keys() & other.coverage(name).rows.keys()
    images = sorted(shared)
    for start in range(0, len(images), 4096):
        part = images[start : start + 4096]
        for output in first.model(name).widths if same else ():
            same = same and np.array_equal(
                first.gather(name, part, output), other.gather(name, part, output)
            )
    if not same:
        raise InputError(
            f"model {name!r} has other features in {shown(first.path)!r} than in "
            f"{shown(other.path)!r}; remove it from one of them with `oodzoo store rm`"
        )

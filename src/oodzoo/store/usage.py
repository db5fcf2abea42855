"""The contents of a store and the disk space that they take."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from oodzoo.store.contents import newest_table, registered_models, require_store
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.files import file_size, folder_size, pulled
from oodzoo.store.first_form import is_first_form
from oodzoo.store.index import segment_of
from oodzoo.store.local import read_local
from oodzoo.store.manifest import ModelRecord, read_manifest
from oodzoo.store.places import CACHE, IMAGES, MANIFEST, SAMPLES, model_folder
from oodzoo.store.prune import outdated_segments, unused_files
from oodzoo.store.writer import StoreWriter
from oodzoo.task import CLASSIFICATION, Task


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
    if path.is_dir() and is_first_form(path):
        opened = FeatureStore(path)
        entries = [
            _entry(name, opened.model(name), complete=True, images=len(opened.coverage(name).rows))
            for name in opened.models
        ]
        table, skipped = opened.table, opened.manifest.skipped
        sizes = {name: folder_size(path / name) for name in opened.models}
        facts = {name: opened.local(name) for name in opened.models}
    else:
        view = _view(path)
        names = registered_models(path)
        entries = [
            _entry(
                name,
                view.record(name),
                complete=name in view.manifest.models,
                images=len(view.coverage(name).rows),
            )
            for name in names
        ]
        table, skipped = view.table, view.manifest.skipped
        sizes = {name: folder_size(model_folder(path, name)) for name in names}
        facts = {name: read_local(path, name) for name in names}
    models = []
    for entry in entries:
        known = facts[entry.name].get("milliseconds_per_image")
        milliseconds = float(known) if isinstance(known, int | float) else None
        measured = facts[entry.name].get("measured")
        models.append(
            replace(entry, bytes=sizes[entry.name], milliseconds=milliseconds, measured=measured)
        )
    domains = [
        DomainEntry(
            domain.name,
            sum(image not in skipped for image in domain.images),
            labelled=domain.labels is not None,
        )
        for domain in table.domains
    ]
    classes = {label for domain in table.labelled for label in domain.labels or []}
    n_classes = len(table.task.outputs or classes)
    return Contents(tuple(models), tuple(domains), n_classes, table.task, table.proposed)


def disk_usage(store: str | Path) -> Usage:
    """Measure the disk space of the parts of a store of the second form."""
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


def _entry(name: str, record: ModelRecord, *, complete: bool, images: int) -> ModelEntry:
    return ModelEntry(
        name=name,
        complete=complete,
        images=images,
        features=record.feature_dim,
        logits=record.n_logits,
        dtype=record.dtype,
        bytes=0,
        parameters=record.parameters,
        milliseconds=None,
        source=record.source,
    )

"""The contents of a store and the disk space that they take."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from oodzoo.store.contents import newest_table, registered_models, require_store
from oodzoo.store.files import file_size, folder_size, pulled
from oodzoo.store.index import segment_of
from oodzoo.store.local import read_local
from oodzoo.store.manifest import read_manifest
from oodzoo.store.places import CACHE, IMAGES, MANIFEST, SAMPLES, model_folder
from oodzoo.store.prune import outdated_segments, unused_files
from oodzoo.store.writer import StoreWriter
from oodzoo.tasks import CLASSIFICATION, Task


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

"""Merging stores of the same images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.core.io import shown
from oodzoo.core.text import count
from oodzoo.store.class_embeddings import write_class_embeddings
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.files import store_folder
from oodzoo.store.local import update_local
from oodzoo.store.manifest import ModelRecord
from oodzoo.store.table import SampleTable
from oodzoo.store.writer import writing


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
            writer.add_model(name, _record(having[0], name))
            update_local(path, name, having[0].local(name))
            if (texts := having[0].class_embeddings(name)) is not None:
                write_class_embeddings(path, name, writer.record(name).identity, texts)
            for source in having:  # another one may have more domains without labels
                writer.copy_rows(source, name, needed)
        writer.finish()
    return FeatureStore(path)


def _record(store: FeatureStore, name: str) -> ModelRecord:
    stored = store.model(name)
    fields = {field: getattr(stored, field) for field in ModelRecord.__struct_fields__}
    return ModelRecord(**fields)


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
    return Counter(
        (domain.name, label, group, image)
        for domain in table.labelled
        for label, group, image in zip(
            domain.labels or [], domain.groups, domain.images, strict=True
        )
    )


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

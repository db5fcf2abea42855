"""Importing features computed elsewhere into a feature store.

The formats are those of :mod:`oodzoo.extraction.feature_files`; each row needs a label and a
domain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.core.io import shown
from oodzoo.core.text import count
from oodzoo.data.listing import Sample
from oodzoo.data.sources.targets import Targets, read_targets, require_varied
from oodzoo.extraction.feature_files import Array, FeatureFiles, check_array, read_feature_files
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.files import store_folder
from oodzoo.store.manifest import ModelRecord
from oodzoo.store.table import SampleTable
from oodzoo.store.writer import DTYPES, StoreWriter, as_stored, writing
from oodzoo.tasks import Kind, Task, require_kind
from oodzoo.zoo.spec import ModelSpec, check_spec

_ROWS = 4096  # at once


@dataclass(frozen=True)
class ImportedFeatures:
    """Arrays of each model, the sample of each row, and what their labels are."""

    samples: list[Sample]
    task: Task
    features: dict[str, Array]
    logits: dict[str, Array]


def import_features(
    files: Sequence[str | Path],
    store: str | Path,
    *,
    table: str | Path | None = None,
    dtype: str = "float32",
    columns: Mapping[str, str] | None = None,
    task: str | None = None,
) -> FeatureStore:
    """Import features computed elsewhere into a feature store.

    Parameters
    ----------
    files : sequence of path
        One `.npz`, `.parquet` or `.csv` file, or one or more `.npy` files with a `table`.
    store : path or URL
        A new store, or one with the same rows.
    table : path, optional
        The CSV table of the rows of `.npy` files.
    dtype : {"float32", "float16"}
        Storage type of the features.
    columns : dict of str to str, optional
        The column of a table for `label`, `domain`, `group` or `path`, where its name is another.
        Numbers or labels may be in several columns, as "age+height".
    task : {"classification", "regression", "multilabel"}, optional
        What the labels are; by default, what they look like.
    """
    kind = None if task is None else require_kind(task)
    if dtype not in DTYPES:
        raise InputError(f"unknown dtype {dtype!r}; expected one of {', '.join(DTYPES)}")
    listed_in = None if table is None else Path(table)
    imported = read_features([Path(f) for f in files], listed_in, columns, kind)
    _require_storable(imported, dtype)
    path = store_folder(store)
    with writing(path) as writer:
        _require_same_task(writer, imported.task)
        samples = _identified(writer, imported.samples)
        row_of = {image: row for row, (_, image) in enumerate(samples)}
        listed = msgspec.structs.replace(SampleTable.of_samples(samples), task=imported.task)
        writer.require_all_images(listed)
        writer.set_table(listed)
        writer.add_images()
        for name, features in imported.features.items():
            logits = imported.logits.get(name)
            writer.add_model(name, _record(features, logits, row_of, dtype))
            for shard in writer.plan([name], row_of.keys()):
                rows = [row_of[image] for image in shard.images if image in row_of]
                outputs = {"features": np.asarray(features[rows])}
                if logits is not None:
                    outputs["logits"] = np.asarray(logits[rows])
                absent = {at: None for at, i in enumerate(shard.images) if i not in row_of}
                writer.write_shard(name, shard.name, outputs, absent)
        writer.finish()
    return FeatureStore(path)


def read_features(
    files: Sequence[Path],
    table: Path | None,
    columns: Mapping[str, str] | None = None,
    task: Kind | None = None,
) -> ImportedFeatures:
    """Read features in one of the formats of :mod:`oodzoo.extraction.feature_files`."""
    if table is None and {file.suffix.lower() for file in files} == {".npy"}:
        raise InputError(
            f"{str(files[0])!r} needs a table of its rows: --table rows.csv with the columns "
            "domain,label[,group][,path]"
        )
    return _checked(read_feature_files(files, table, columns), task)


# --- checks ----------------------------------------------------------------------------------


def _checked(read: FeatureFiles, task: Kind | None) -> ImportedFeatures:
    columns, features, logits, context = read.columns, read.features, read.logits, read.context
    for column, known in (("label", read.labels), ("domain", read.columns.get("domain"))):
        if not known:
            raise InputError(f"{context!r} has no {column}s; each row needs a label and a domain")
    n = len(next(iter(read.labels.values())))
    for column, values in columns.items():
        if len(values) != n:
            raise InputError(f"{context!r} has {n} labels and {len(values)} {column}s")
        try:
            "".join(values).encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{context!r}: the {column}s are not valid text: {error}") from error
        if column != "group" and (empty := [r for r, v in enumerate(values) if not v]):
            raise InputError(f"{context!r}: the {column} of row {empty[0]} is empty")
    if not features:
        raise InputError(f"{context!r} has no features")
    for kind, arrays in (("features", features), ("logits", logits)):
        for name, array in arrays.items():
            check_spec(ModelSpec(name, "onnx/imported"), context)
            check_array(array, n, f"{context!r}: {kind} of {name!r}")
    if orphans := sorted(set(logits) - set(features)):
        raise InputError(f"{context!r} has logits of {orphans[0]!r} without its features")
    targets = _targets(read.labels, context, task)
    samples = _samples(columns, targets.texts, context)
    if targets.task.is_classification and len(set(targets.texts)) < 2:
        raise InputError(
            f"{context!r} has one class, {targets.texts[0]!r}; at least two are needed"
        )
    require_varied(targets.task, targets.texts, context)
    return ImportedFeatures(samples, targets.task, features, logits)


def _targets(labels: Mapping[str, list[Any]], context: str, task: Kind | None) -> Targets:
    for name, values in labels.items():
        try:
            "".join(value for value in values if isinstance(value, str)).encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{context!r}: the labels are not valid text: {error}") from error
        empty = [row for row, value in enumerate(values) if value == ""]
        if empty and task != "multilabel":
            which = "label" if len(labels) == 1 else f"label {name!r}"
            raise InputError(f"{context!r}: the {which} of row {empty[0]} is empty")
    return read_targets(labels, context, task)


def _samples(columns: Mapping[str, list[str]], labels: list[str], context: str) -> list[Sample]:
    n = len(labels)
    paths = columns.get("path") or [f"row-{row:07d}" for row in range(n)]
    groups = columns.get("group") or [""] * n
    if len(set(paths)) < n:
        twice = next(p for p in paths if paths.count(p) > 1)
        raise InputError(f"{context!r} lists the path {twice!r} twice")
    samples = [
        Sample(path, domain, label, group or None)
        for path, domain, label, group in zip(paths, columns["domain"], labels, groups, strict=True)
    ]
    names = columns["domain"]
    if len(set(names)) < 2:
        raise InputError(f"{context!r} has one domain, {names[0]!r}; at least two are needed")
    return samples


def _require_same_task(writer: StoreWriter, task: Task) -> None:
    """Reject labels of another kind, or of other outputs, than those of the store."""
    if writer.table.labelled and writer.table.task != task:
        raise InputError(
            f"the store {shown(writer.path)!r} has labels for {writer.table.task}, the import for "
            f"{task}; use another store"
        )


def _require_storable(imported: ImportedFeatures, dtype: str) -> None:
    """Reject values out of the range of the dtype, before anything is written."""
    for name, array in (*imported.features.items(), *imported.logits.items()):
        for start in range(0, len(array), _ROWS):
            as_stored(array[start : start + _ROWS], dtype, name)


def _identified(writer: StoreWriter, samples: list[Sample]) -> list[tuple[Sample, str]]:
    """Return each sample with the identity of its image.

    Rows of a store are found by domain and path, and keep their group if none is given; a new store
    has identities made of the paths. New rows, which the other models of the store lack, are
    rejected, and so are changed labels and groups: rows without paths are identified by number
    alone, so another label means another row.
    """
    old = {
        (domain.name, path): (label, group, image)
        for domain in writer.table.labelled
        for path, label, group, image in zip(
            domain.paths, domain.labels or [], domain.groups, domain.images, strict=True
        )
    }
    more = [sample for sample in samples if old and (sample.domain, sample.path) not in old]
    if more and len(more) < len(samples):
        raise InputError(
            f"the import has {count(len(more), 'row')} not in the store, the first is "
            f"{more[0].path!r} of {more[0].domain!r}; use another store"
        )
    found: dict[str, Sample] = {}
    for sample in samples:
        new = (sample.label, sample.group, _path_identity(sample.path))
        label, group, image = old.get((sample.domain, sample.path), new)
        for what, before, now in (("label", label, sample.label), ("group", group, sample.group)):
            if now is not None and before is not None and before != now:
                raise InputError(
                    f"the store has the {what} {before!r} for {sample.path!r}, the import has "
                    f"{now!r}; use another store"
                )
        if image in found:
            raise InputError(
                f"{found[image].path!r} and {sample.path!r} are the same image in the store "
                f"{shown(writer.path)!r}; import into a new store"
            )
        found[image] = sample._replace(group=sample.group or group)
    return [(sample, image) for image, sample in found.items()]


def _path_identity(path: str) -> str:
    """Make an identity for a row that has no image file."""
    return hashlib.sha256(f"row\0{path}".encode()).hexdigest()


def _record(
    features: Array, logits: Array | None, row_of: Mapping[str, int], dtype: str
) -> ModelRecord:
    digest = hashlib.sha256("\n".join(sorted(row_of)).encode())
    rows = [row_of[image] for image in sorted(row_of)]
    for array in (features, logits):
        for start in range(0, len(rows) if array is not None else 0, _ROWS):
            part = np.asarray(array)[rows[start : start + _ROWS]]
            digest.update(np.ascontiguousarray(part, np.float32).tobytes())
    return ModelRecord(
        source="import",
        fingerprint=digest.hexdigest(),
        feature_dim=features.shape[1],
        n_logits=None if logits is None else logits.shape[1],
        parameters=None,
        pretraining=None,
        precision="float32",
        dtype=dtype,
        preprocessing=None,
        versions={"oodzoo": version("oodzoo")},
    )

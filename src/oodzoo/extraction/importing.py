"""Importing files of features computed elsewhere into a feature store.

Each row needs a label and a domain. The formats: one `.npz` file with an array (n, d) per model,
and `labels`, `domains`, `groups`, `paths` and `<model>.logits` where there are any; `.npy` files,
one per model, with a CSV table of their rows (`domain`, `label`, `group`, `path`); a `.parquet`
table with these columns and one column of lists per model; and a `.parquet` or `.csv` table with
these columns and one column per feature of a single model, which has the name of the file.

Labels are classes, numbers, or several labels per row (see
:func:`oodzoo.data.sources.targets.read_targets`): a column, or several of a table; in an `.npz`
file an array (n,) or (n, C), whose columns `label_names` names.
"""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import msgspec
import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import available_memory
from oodzoo.core.errors import InputError, MissingPackageError
from oodzoo.core.io import shown
from oodzoo.core.text import count, file_size, one_line
from oodzoo.data.listing import Sample
from oodzoo.data.sources.column_roles import find_columns, separator_of, split_columns
from oodzoo.data.sources.targets import Targets, read_targets, require_varied
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.format import ModelRecord
from oodzoo.store.mirror import store_folder
from oodzoo.store.table import SampleTable
from oodzoo.store.writer import DTYPES, StoreWriter, as_stored, writing
from oodzoo.tasks import Kind, Task, require_kind
from oodzoo.zoo.sources import check_spec
from oodzoo.zoo.spec import ModelSpec, require_unique_names

Array = NDArray[Any]

SUFFIXES = (".npz", ".npy", ".parquet", ".csv")

_ROWS = 4096  # at once
_COLUMNS = ("label", "domain", "group", "path")

_COPIES = 3
"""How often the arrays of an .npz file are in memory at a time: as read, and as written."""


@dataclass(frozen=True)
class FeatureFiles:
    """Content of files of features; its rows are not checked yet.

    Attributes
    ----------
    columns : dict
        What is known of each row: domain, group, path.
    labels : dict
        The labels of each row by column, as text or lists; empty if there are none.
    features, logits : dict of arrays
    context : str
        The file that messages name.
    named : bool
        Whether the content names the models; otherwise the name of each file does.
    """

    columns: dict[str, list[str]]
    labels: dict[str, list[Any]]
    features: dict[str, Array]
    logits: dict[str, Array]
    context: str
    named: bool


def read_feature_files(
    files: Sequence[Path], table: Path | None = None, names: Mapping[str, str] | None = None
) -> FeatureFiles:
    """Read features in one of the formats described at the top of this module.

    `names` has the column of a table for `label`, `domain`, `group` or `path`, where its name is
    another; labels may be in several, as "age+height".
    """
    for file in files:
        if not file.is_file():
            raise InputError(f"no such file: {str(file)!r}")
    suffixes = {file.suffix.lower() for file in files}
    if suffixes == {".npy"}:
        require_unique_names([file.stem for file in files], "the list of files")
        features = {file.stem: _load_npy(file) for file in files}
        if table is None:
            return FeatureFiles({}, {}, features, {}, str(files[0]), named=False)
        columns, labels, _ = _read_table(table, names)
        return FeatureFiles(columns, labels, features, {}, str(table), named=False)
    if table is not None:
        raise InputError(f"a table ({str(table)!r}) is only used with .npy files")
    readers = {".npz": _read_npz, ".parquet": _read_parquet, ".csv": _read_csv}
    (suffix,) = suffixes if len(files) == 1 else ("",)
    if suffix not in readers:
        raise InputError(
            f"cannot read features from {', '.join(repr(str(f)) for f in files)}; give one .npz, "
            ".parquet or .csv file, or .npy files"
        )
    return readers[suffix](files[0], names)


def check_array(array: Array, n: int, what: str) -> None:
    """Raise InputError unless this is a finite array (n, d); `what` begins the message."""
    if array.ndim != 2 or array.dtype.kind not in "fiu" or array.shape[1] == 0:
        raise InputError(f"{what} must be numbers (n, d), got {array.dtype} {array.shape}")
    if len(array) != n:
        raise InputError(f"{what} have {len(array)} rows, but there are {n} labels")
    for start in range(0, n, _ROWS):
        finite = np.isfinite(array[start : start + _ROWS]).all(axis=1)
        if not finite.all():
            row = start + int(finite.argmin())
            raise InputError(f"{what} contain NaN or infinity, first in row {row}")


def _load_npy(file: Path) -> Array:
    try:
        array: Array = np.lib.format.open_memmap(file, mode="r")
    except Exception as error:  # NumPy raises OSError, ValueError, EOFError, SyntaxError, ...
        reason = one_line(error)
        raise InputError(f"{str(file)!r} is not a plain .npy array: {reason}") from error
    return array


def _read_npz(file: Path, names: Mapping[str, str] | None) -> FeatureFiles:
    if names is not None:
        raise InputError(f"columns are not used with {str(file)!r}: its arrays have fixed names")
    try:
        _check_headers(file)
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as content:
            arrays = {key: content[key] for key in content.files}
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{str(file)!r} cannot be read as plain arrays ({one_line(error)}); "
            "save strings as string arrays, not as objects"
        ) from error
    columns = {c: arrays.pop(f"{c}s") for c in _COLUMNS if f"{c}s" in arrays}
    for column, values in columns.items():
        is_matrix = column == "label" and values.ndim == 2 and values.dtype.kind in "biuf"
        if values.ndim != 1 and not is_matrix:
            raise InputError(f"{str(file)!r}: {column}s must be (n,), got shape {values.shape}")
    labels = _named_labels(columns.pop("label", None), arrays.pop("label_names", None), str(file))
    strings = {c: _strings(v) for c, v in columns.items()}
    return FeatureFiles(strings, labels, *_split_logits(arrays), str(file), named=True)


def _check_headers(file: Path) -> None:
    """Reject arrays that do not fit each other or the memory, before they are unpacked."""
    headers, unpacked = {}, 0
    with ZipFile(file) as members:
        for each in members.namelist():
            with members.open(each) as member:
                version = np.lib.format.read_magic(member)
                read = getattr(np.lib.format, f"read_array_header_{min(version[0], 2)}_0")
                shape, _, dtype = read(member)
            headers[each.removesuffix(".npy")] = shape, dtype
            unpacked += math.prod(shape) * dtype.itemsize
    _check_shapes(headers, str(file))
    if _COPIES * unpacked > (available := available_memory()):
        raise InputError(
            f"{str(file)!r} unpacks to {file_size(unpacked)}, which takes "
            f"{file_size(_COPIES * unpacked)}, but {file_size(available)} of memory are available; "
            "give .npy files with a table of their rows, which are read in parts"
        )


def _check_shapes(arrays: Mapping[str, tuple[tuple[int, ...], Any]], context: str) -> None:
    """Reject arrays of other numbers of rows than the labels, if there are any."""
    if "labels" not in arrays or not (first := arrays["labels"][0]):
        return
    n, columns = first[0], [f"{column}s" for column in _COLUMNS]
    for name in columns:
        if name in arrays and arrays[name][0][:1] not in ((n,), ()):
            raise InputError(f"{context!r} has {n} labels and {arrays[name][0][0]} {name}")
    for name, (shape, dtype) in arrays.items():
        if name in (*columns, "label_names") or dtype.kind not in "fiu":
            continue
        kind = "logits" if name.endswith(".logits") else "features"
        what = f"{context!r}: {kind} of {name.removesuffix('.logits')!r}"
        if len(shape) != 2:
            raise InputError(f"{what} must be numbers (n, d), got {dtype} {shape}")
        if shape[0] != n:
            raise InputError(f"{what} have {shape[0]} rows, but there are {n} labels")


def _named_labels(labels: Array | None, names: Array | None, context: str) -> dict[str, list[Any]]:
    """Return an array of labels by column; columns without names are one of lists."""
    if labels is None:
        return {}
    width = 1 if labels.ndim == 1 else labels.shape[1]
    known = ["label"] if names is None else _strings(names.reshape(-1))
    if names is not None and (len(known) != width or len(set(known)) != width):
        raise InputError(
            f"{context!r}: label_names must name each of {width} columns of labels, got "
            f"{', '.join(map(repr, known))}"
        )
    if labels.ndim == 1:
        return {known[0]: _strings(labels)}
    if names is None:
        return {"label": labels.tolist()}
    return {name: labels[:, at].tolist() for at, name in enumerate(known)}


_Table = tuple[dict[str, list[str]], dict[str, list[Any]], list[dict[str, Any]]]
"""The columns, the labels by column, and the rows."""


def _read_table(table: Path, names: Mapping[str, str] | None) -> _Table:
    rows = _read_rows(table)
    header = [name for name in rows[0] if name is not None]
    found, labels = _find(header, names, str(table))
    columns = {role: _strings(row[column] for row in rows) for role, column in found.items()}
    return columns, {column: _strings(row[column] for row in rows) for column in labels}, rows


def _find(
    header: Sequence[str], names: Mapping[str, str] | None, context: str
) -> tuple[dict[str, str], list[str]]:
    """Find the columns of domain, group and path, and those of the labels."""
    found = find_columns(header, names, (), context, optional=_COLUMNS)
    label = found.pop("label", None)
    return found, [] if label is None else split_columns(label, header)


def _read_csv(file: Path, names: Mapping[str, str] | None) -> FeatureFiles:
    columns, labels, rows = _read_table(file, names)
    found, _ = _find([name for name in rows[0] if name is not None], names, str(file))
    if long := [number for number, row in enumerate(rows) if None in row]:
        raise InputError(f"{str(file)!r}: row {long[0]} has more cells than the header")
    rest = [name for name in rows[0] if name not in (*_COLUMNS, *found.values(), *labels)]
    features = np.empty((len(rows), len(rest)))
    for at, name in enumerate(rest):
        for number, row in enumerate(rows):
            try:
                features[number, at] = float(row[name])
            except ValueError as error:
                raise InputError(
                    f"{str(file)!r}: column {name!r} has {row[name]!r} in row {number}; every "
                    f"column besides {', '.join(_COLUMNS)} must be a feature, with numbers"
                ) from error
    arrays = {file.stem: features} if rest else {}
    return FeatureFiles(columns, labels, arrays, {}, str(file), named=False)


def _read_rows(table: Path) -> list[dict[str, Any]]:
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file, restval="", delimiter=separator_of(file)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read the table {str(table)!r}: {error}") from error
    if not rows:
        raise InputError(f"the table {str(table)!r} has no row below its header")
    return rows


def _read_parquet(file: Path, named: Mapping[str, str] | None) -> FeatureFiles:
    try:
        from pyarrow import ArrowException, parquet, types
    except ImportError as error:
        raise MissingPackageError("pyarrow", "parquet", "reading a Parquet file") from error
    try:
        table = parquet.read_table(file)
        names = table.column_names  # decoded here: a ValueError if they are not UTF-8
        found, label = _find(names, named, str(file))
        columns = {role: _strings(table[c].to_pylist()) for role, c in found.items()}
        labels = {c: _texts_or_lists(table[c].to_pylist()) for c in label}
    except InputError:
        raise
    except (OSError, ArrowException, ValueError) as error:
        raise InputError(f"{str(file)!r} is not a Parquet file: {one_line(error)}") from error
    rest = [c for c in names if c not in (*_COLUMNS, *found.values(), *label)]
    lists = [c for c in rest if _is_list(table.schema.field(c).type, types)]
    if lists:
        features = {c: _stacked(table[c].to_pylist(), c, file) for c in lists}
    else:
        features = {file.stem: np.column_stack([table[c].to_numpy() for c in rest])} if rest else {}
    return FeatureFiles(columns, labels, *_split_logits(features), str(file), named=bool(lists))


def _texts_or_lists(values: list[Any]) -> list[Any]:
    return values if any(isinstance(value, list) for value in values) else _strings(values)


def _is_list(kind: Any, types: Any) -> bool:
    return bool(types.is_list(kind) or types.is_fixed_size_list(kind) or types.is_large_list(kind))


def _split_logits(arrays: dict[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    logits = {k.removesuffix(".logits"): v for k, v in arrays.items() if k.endswith(".logits")}
    return {k: v for k, v in arrays.items() if not k.endswith(".logits")}, logits


def _stacked(rows: list[Any], column: str, file: Path) -> Array:
    lengths = {len(row) if row is not None else 0 for row in rows}
    if len(lengths) > 1:
        raise InputError(
            f"{str(file)!r}: the lists of column {column!r} have between {min(lengths)} and "
            f"{max(lengths)} numbers; they must have the same length"
        )
    try:
        return np.array(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{str(file)!r}: the lists of column {column!r} contain other values than numbers"
        ) from error


def _strings(values: Any) -> list[str]:
    decoded = (v.decode(errors="replace") if isinstance(v, bytes) else v for v in values)
    return ["" if value is None else str(value).strip() for value in decoded]


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
    """Read features in one of the formats of this module."""
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
    if targets.task.one_class and len(set(targets.texts)) < 2:
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

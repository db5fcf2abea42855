"""Importing features computed elsewhere into a feature store.

Three formats are supported: one `.npz` file with an array (n, d) per model and `labels`, `domains`
(optionally `groups`, `paths`, and `<model>.logits`); `.npy` files, one per model, with a CSV table
of their rows (`domain,label`, optionally `group,path`); and a `.parquet` table with these columns
and one column of lists per model, or one column per feature of a single model.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo._io import shown
from oodzoo._text import count, one_line
from oodzoo.data.listing import Sample
from oodzoo.errors import InputError, MissingPackageError
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.files import store_folder
from oodzoo.store.first_form import path_identity
from oodzoo.store.manifest import ModelRecord
from oodzoo.store.table import SampleTable
from oodzoo.store.writer import DTYPES, StoreWriter, as_stored, writing
from oodzoo.zoo.spec import ModelSpec, check_spec, require_unique_names

Array = NDArray[Any]


@dataclass(frozen=True)
class ImportedFeatures:
    """Arrays of each model, and the sample of each row."""

    samples: list[Sample]
    features: dict[str, Array]
    logits: dict[str, Array]


def import_features(
    files: Sequence[str | Path],
    store: str | Path,
    *,
    table: str | Path | None = None,
    dtype: str = "float32",
) -> FeatureStore:
    """Import features computed elsewhere into a feature store.

    Parameters
    ----------
    files : sequence of path
        One `.npz` or `.parquet` file, or one or more `.npy` files with a `table`.
    store : path or URL
        A new store, or one with the same rows.
    table : path, optional
        The CSV table of the rows of `.npy` files.
    dtype : {"float32", "float16"}
        Storage type of the features.
    """
    if dtype not in DTYPES:
        raise InputError(f"unknown dtype {dtype!r}; expected one of {', '.join(DTYPES)}")
    imported = read_features([Path(f) for f in files], None if table is None else Path(table))
    _require_storable(imported, dtype)
    path = store_folder(store)
    with writing(path) as writer:
        samples = _identified(writer, imported.samples)
        row_of = {image: row for row, (_, image) in enumerate(samples)}
        listed = SampleTable.of_samples(samples)
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


def read_features(files: Sequence[Path], table: Path | None) -> ImportedFeatures:
    """Read features in one of the formats described at the top of this module."""
    for file in files:
        if not file.is_file():
            raise InputError(f"no such file: {str(file)!r}")
    suffixes = {file.suffix.lower() for file in files}
    if suffixes == {".npy"}:
        if table is None:
            raise InputError(
                f"{str(files[0])!r} needs a table of its rows: --table rows.csv with the columns "
                "domain,label[,group][,path]"
            )
        require_unique_names([file.stem for file in files], "the list of files")
        features = {file.stem: _load_npy(file) for file in files}
        return _checked(_read_table(table), features, {}, str(table))
    if table is not None:
        raise InputError(f"a table ({str(table)!r}) is only used with .npy files")
    if len(files) != 1 or suffixes not in ({".npz"}, {".parquet"}):
        raise InputError(
            f"cannot import {', '.join(repr(str(f)) for f in files)}; give one .npz or .parquet "
            "file, or .npy files with --table"
        )
    return _read_npz(files[0]) if suffixes == {".npz"} else _read_parquet(files[0])


# --- formats ----------------------------------------------------------------------------------

_COLUMNS = ("label", "domain", "group", "path")


def _load_npy(file: Path) -> Array:
    try:
        array: Array = np.lib.format.open_memmap(file, mode="r")
    except Exception as error:  # NumPy raises OSError, ValueError, EOFError, SyntaxError, ...
        reason = one_line(error)
        raise InputError(f"{str(file)!r} is not a plain .npy array: {reason}") from error
    return array


def _read_npz(file: Path) -> ImportedFeatures:
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as content:
            arrays = {key: content[key] for key in content.files}
    except Exception as error:
        raise InputError(
            f"{str(file)!r} cannot be read as plain arrays ({one_line(error)}); "
            "save strings as string arrays, not as objects"
        ) from error
    columns = {c: arrays.pop(f"{c}s") for c in _COLUMNS if f"{c}s" in arrays}
    for column, values in columns.items():
        if values.ndim != 1:
            raise InputError(f"{str(file)!r}: {column}s must be (n,), got shape {values.shape}")
    strings = {c: _strings(v) for c, v in columns.items()}
    return _checked(strings, *_split_logits(arrays), str(file))


def _read_table(table: Path) -> dict[str, list[str]]:
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file, restval=""))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read the table {str(table)!r}: {error}") from error
    if not rows:
        raise InputError(f"the table {str(table)!r} has no row below its header")
    return {c: _strings(row[c] for row in rows) for c in _COLUMNS if c in rows[0]}


def _read_parquet(file: Path) -> ImportedFeatures:
    try:
        from pyarrow import ArrowInvalid, parquet, types
    except ImportError as error:
        raise MissingPackageError("pyarrow", "parquet", "reading a Parquet file") from error
    try:
        table = parquet.read_table(file)
        names = table.column_names  # decoded here: a ValueError if they are not UTF-8
        columns = {c: _strings(table[c].to_pylist()) for c in _COLUMNS if c in names}
    except (OSError, ArrowInvalid, ValueError) as error:
        raise InputError(f"{str(file)!r} is not a Parquet file: {one_line(error)}") from error
    rest = [c for c in names if c not in _COLUMNS]
    lists = [c for c in rest if _is_list(table.schema.field(c).type, types)]
    if lists:
        features = {c: _stacked(table[c].to_pylist(), c, file) for c in lists}
    else:
        features = {file.stem: np.column_stack([table[c].to_numpy() for c in rest])} if rest else {}
    return _checked(columns, *_split_logits(features), str(file))


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


_ROWS = 4096  # at once

# --- checks ----------------------------------------------------------------------------------


def _strings(values: Any) -> list[str]:
    decoded = (v.decode(errors="replace") if isinstance(v, bytes) else v for v in values)
    return ["" if value is None else str(value).strip() for value in decoded]


def _checked(
    columns: Mapping[str, list[str]],
    features: dict[str, Array],
    logits: dict[str, Array],
    context: str,
) -> ImportedFeatures:
    for column in ("label", "domain"):
        if column not in columns:
            raise InputError(f"{context!r} has no {column}s; each row needs a label and a domain")
    n = len(columns["label"])
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
            _check_array(array, n, f"{context!r}: {kind} of {name!r}")
    if orphans := sorted(set(logits) - set(features)):
        raise InputError(f"{context!r} has logits of {orphans[0]!r} without its features")
    return ImportedFeatures(_samples(columns, context), features, logits)


def _check_array(array: Array, n: int, what: str) -> None:
    if array.ndim != 2 or array.dtype.kind not in "fiu" or array.shape[1] == 0:
        raise InputError(f"{what} must be numbers (n, d), got {array.dtype} {array.shape}")
    if len(array) != n:
        raise InputError(f"{what} have {len(array)} rows, but there are {n} labels")
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise InputError(f"{what} contain NaN or infinity, first in row {row}")


def _samples(columns: Mapping[str, list[str]], context: str) -> list[Sample]:
    n = len(columns["label"])
    paths = columns.get("path") or [f"row-{row:07d}" for row in range(n)]
    groups = columns.get("group") or [""] * n
    if len(set(paths)) < n:
        twice = next(p for p in paths if paths.count(p) > 1)
        raise InputError(f"{context!r} lists the path {twice!r} twice")
    samples = [
        Sample(path, domain, label, group or None)
        for path, domain, label, group in zip(
            paths, columns["domain"], columns["label"], groups, strict=True
        )
    ]
    for what, names in (("domain", columns["domain"]), ("class", columns["label"])):
        if len(set(names)) < 2:
            raise InputError(f"{context!r} has one {what}, {names[0]!r}; at least two are needed")
    return samples


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
        new = (sample.label, sample.group, path_identity(sample.path))
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

"""Files of features computed elsewhere.

The formats: one `.npz` file with an array (n, d) per model, and `labels`, `domains`, `groups`,
`paths` and `<model>.logits` where there are any; `.npy` files, one per model, with a CSV table of
their rows (`domain`, `label`, `group`, `path`); a `.parquet` table with these columns and one
column of lists per model; and a `.parquet` or `.csv` table with these columns and one column per
feature of a single model, which has the name of the file.

Labels are classes, numbers, or several labels per row (see
:func:`oodzoo.data.sources.targets.read_targets`): a column, or several of a table; in an `.npz`
file an array (n,) or (n, C), whose columns `label_names` names.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError, MissingPackageError
from oodzoo.core.text import file_size, one_line
from oodzoo.data.sources.columns import find_columns, separator_of, split_columns
from oodzoo.zoo.device import available_memory
from oodzoo.zoo.spec import require_unique_names

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

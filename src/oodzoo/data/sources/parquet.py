"""Parquet files: tables whose cells are images or paths of images."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from oodzoo.core.errors import InputError
from oodzoo.core.packages import optional_package
from oodzoo.core.remote.location import Url
from oodzoo.core.text import one_line
from oodzoo.data.files import (
    MAX_GROUP_BYTES,
    Container,
    ParquetCell,
    find_containers,
    is_empty,
    read_each,
)
from oodzoo.data.listing import Listing
from oodzoo.data.sources.base import SourceOptions, SourceTable, common_folder
from oodzoo.data.sources.column_roles import ONE_DOMAIN, split_columns

_SUFFIXES = (".parquet",)


class _ParquetFile(NamedTuple):
    """What is read of one file.

    `found` is the column of each role, `further` the columns that can name domains, and `names`
    what the structs of images call them. The images are None if there are paths.
    """

    columns: list[str]
    found: dict[str, str]
    values: dict[str, list[Any]]
    further: list[str]
    images: list[ParquetCell] | None
    names: list[str | None]


def list_parquet(location: Path | Url, options: SourceOptions) -> Listing:
    """List the rows of Parquet files.

    A column `image` has the bytes of image files, or Hugging Face's struct of bytes and path. With
    a column `path` instead, the files are a table, whose paths are relative to their folder.
    Classes of Hugging Face become labels by name.
    """
    optional_package("pyarrow.parquet", extra="parquet", purpose="reading a Parquet file")
    name = str(location)
    files = find_containers(location, _SUFFIXES)
    start = len(common_folder([str(file) for file in files]) or "")
    parts = list(read_each(lambda file: _read(file, options, str(file)[start:]), files))
    first = parts[0]
    for file, part in zip(files, parts, strict=True):
        if part.found.keys() != first.found.keys():
            raise InputError(
                f"{str(files[0])!r} has columns for {_listed(first)}, and {str(file)!r} for "
                f"{_listed(part)}; give files of one form"
            )
    common = [column for column in first.values if all(column in part.values for part in parts)]
    values = {column: [v for part in parts for v in part.values[column]] for column in common}
    n = len(values[first.found["domain"]])
    if not n:
        raise InputError(f"{name!r} has no rows")
    base = location.parent if location.name.lower().endswith(_SUFFIXES) else location
    further = [column for column in first.further if column in values]
    table = SourceTable(name, first.columns, values.__getitem__, base, further)
    if first.images is None:
        return table.list(first.found, options)
    cells = [cell for part in parts for cell in part.images or ()]
    paths = [cell.name for cell in cells]
    in_structs = [each for part in parts for each in part.names]
    for given in (in_structs, values.get(first.found.get("path", ""), [])):
        known = [str(name) for name in given if name is not None and name != ""]
        if len(set(known)) == n:  # unique names
            paths = known
    return table.list(first.found, options, (paths, cells))


def _listed(part: _ParquetFile) -> str:
    roles = [role for role in part.found if role not in ("label", "image")]
    return ", ".join(["label", *roles, *(["image"] if part.images is not None else [])])


def _read(file: Container, options: SourceOptions, short: str) -> _ParquetFile:
    import pyarrow.parquet

    name = str(file)
    with _explained(name), pyarrow.parquet.ParquetFile(file.local()) as opened:
        schema = opened.schema_arrow
        table = SourceTable(name, schema.names, lambda column: [])
        found = table.find(options, table.content(options, "image"))
        labels = split_columns(found["label"], schema.names)
        roles = {column: role for role, column in found.items() if role not in ("image", "label")}
        roles |= dict.fromkeys(labels, "label")
        further: list[str] = []
        if options.propose:
            further = [n for n in schema.names if _is_plain(schema.field(n).type)]
        read = opened.read(list(dict.fromkeys([*roles, *further])), use_threads=False)
        values = {
            column: _class_names(
                read.column(column).to_pylist(),
                _classes(schema, column),
                roles.get(column, column),
                name,
            )
            for column in read.column_names
        }
        if "domain" not in found:
            found["domain"] = "domain"
            values["domain"] = [ONE_DOMAIN] * opened.metadata.num_rows
        names: list[str | None] = []
        cells = None
        if "image" in found:
            column, names = _image_column(opened, found["image"], name)
            # datasets writes paths of local files without their bytes
            if any(names) and is_empty(file.local(), opened.num_row_groups, column):
                values.setdefault(found.setdefault("path", found.pop("image")), names)
            else:
                cells = _cells(file, opened.metadata, column, short.lstrip("/\\"))
        return _ParquetFile(schema.names, found, values, further, cells, names)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn the errors of damaged files into an InputError."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InputError(f"{name!r} is not a Parquet file: {one_line(error)}") from error


def _is_plain(kind: Any) -> bool:
    """Whether values of a type can name domains."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    tests = ("string", "large_string", "integer", "boolean", "date", "timestamp")
    return any(getattr(types, f"is_{test}")(kind) for test in tests)


def _image_column(opened: Any, column: str, name: str) -> tuple[str, list[str | None]]:
    """Return the column of bytes, and the paths in its structs, if there are any."""
    from pyarrow import types

    kind = opened.schema_arrow.field(column).type
    if not types.is_struct(kind):
        _require_bytes(kind, column, name)
        return column, []
    fields = {kind.field(n).name: kind.field(n).type for n in range(kind.num_fields)}
    if "bytes" not in fields:
        raise InputError(
            f"the column {column!r} of {name!r} has the fields {', '.join(fields)}; it needs bytes"
        )
    _require_bytes(fields["bytes"], f"{column}.bytes", name)
    if "path" not in fields:
        return f"{column}.bytes", []
    structs = opened.read([f"{column}.path"], use_threads=False).column(column).to_pylist()
    return f"{column}.bytes", [None if value is None else value["path"] for value in structs]


def _require_bytes(kind: Any, column: str, name: str) -> None:
    if str(kind) not in ("binary", "large_binary", "binary_view"):
        raise InputError(
            f"the column {column!r} of {name!r} has {kind}; it needs the bytes of image files, or "
            f"name a column of paths with --columns path={column}"
        )


def _cells(file: Container, metadata: Any, column: str, short: str) -> list[ParquetCell]:
    width = max(6, len(str(metadata.num_rows - 1)))
    cells: list[ParquetCell] = []
    for number in range(metadata.num_row_groups):
        size = metadata.row_group(number).total_byte_size
        if size > MAX_GROUP_BYTES:
            raise InputError(
                f"row group {number} of {str(file)!r} has {size / 1e9:.1f} GB, which are decoded "
                "together; write the file with smaller ones, as with row_group_size=100"
            )
        for row in range(metadata.row_group(number).num_rows):
            name = f"{short}/{len(cells):0{width}d}"
            cells.append(ParquetCell(file, name, number, row, column))
    return cells


# --- classes of Hugging Face ------------------------------------------------------------------


def _classes(schema: Any, column: str) -> list[str] | None:
    """Return the names of the classes of a column, from the metadata that `datasets` writes.

    The column may have lists of classes.
    """
    try:
        document = json.loads((schema.metadata or {}).get(b"huggingface", b"null"))
        feature = document["info"]["features"][column]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    if isinstance(feature, dict) and isinstance(feature.get("feature"), dict):
        feature = feature["feature"]
    names = feature.get("names") if isinstance(feature, dict) else None
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return names if is_list else None


def _class_names(values: list[Any], classes: list[str] | None, role: str, name: str) -> list[Any]:
    if classes is None:
        return values

    def named(row: int, value: Any) -> Any:
        if isinstance(value, list):
            return [named(row, each) for each in value]
        if not isinstance(value, int):
            return value
        if value >= len(classes):
            raise InputError(
                f"{name!r}, row {row}: the {role} is {value}, and there are {len(classes)} classes"
            )
        return classes[value] if value >= 0 else None  # datasets writes -1 for a missing class

    return [named(row, value) for row, value in enumerate(values)]

"""Parquet files: tables whose cells are images or paths of images."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from oodzoo.core.errors import InputError
from oodzoo.core.packages import optional_package
from oodzoo.core.remote.location import Url
from oodzoo.core.text import one_line
from oodzoo.data.files import MAX_GROUP_BYTES, Container, ParquetCell, is_empty
from oodzoo.data.listing import Listing
from oodzoo.data.sources.base import list_roles
from oodzoo.data.sources.columns import (
    ONE_DOMAIN,
    find_columns,
    read_metadata,
    split_columns,
    used_columns,
)
from oodzoo.data.sources.containers import find_containers, read_each
from oodzoo.data.sources.rows import common_folder, list_columns
from oodzoo.tasks import Kind

_SUFFIXES = (".parquet",)


class _Part(NamedTuple):
    """What is read of one file: values by role, labels by column, its images, and the rest.

    The images are None if it has paths.
    """

    values: dict[str, list[Any]]
    labels: dict[str, list[Any]]
    images: list[_Image] | None
    metadata: dict[str, list[str | None]]


class _Image(NamedTuple):
    cell: ParquetCell
    name: str | None


def list_parquet(
    location: Path | Url,
    columns: Mapping[str, str] | None,
    *,
    propose: bool = False,
    task: Kind | None = None,
) -> Listing:
    """List the rows of Parquet files.

    A column `image` has the bytes of image files, or Hugging Face's struct of bytes and path. With
    a column `path` instead, the files are a table, whose paths are relative to their folder.
    Classes of Hugging Face become labels by name.
    """
    optional_package("pyarrow.parquet", extra="parquet", purpose="reading a Parquet file")
    name = str(location)
    files = find_containers(location, _SUFFIXES)
    start = len(common_folder([str(file) for file in files]) or "")
    parts = list(read_each(lambda file: _read(file, columns, str(file)[start:], propose), files))
    roles = parts[0].values.keys()
    for file, part in zip(files, parts, strict=True):
        if part.values.keys() != roles or (part.images is None) != (parts[0].images is None):
            raise InputError(
                f"{str(files[0])!r} has columns for {_listed(parts[0])}, and {str(file)!r} for "
                f"{_listed(part)}; give files of one form"
            )
    values = {role: [v for part in parts for v in part.values[role]] for role in roles}
    labels = {c: [v for part in parts for v in part.labels[c]] for c in parts[0].labels}
    if not values["domain"]:
        raise InputError(f"{name!r} has no rows")
    metadata = _common_metadata(parts)
    if parts[0].images is None:
        is_folder = not location.name.lower().endswith(_SUFFIXES)
        base = location if is_folder else location.parent
        listing = list_columns(name, {**values, "label": labels}, None, base, task)
        listing.metadata = metadata
        return listing
    images = [image for part in parts for image in part.images or ()]
    paths = _paths(values, images)
    cells = [image.cell for image in images]
    listing = list_roles(name, paths, cells, {**values, "label": labels}, task)
    listing.metadata = metadata
    return listing


def _common_metadata(parts: Sequence[_Part]) -> dict[str, list[str | None]]:
    """Concatenate the further columns that all files have."""
    names = [name for name in parts[0].metadata if all(name in part.metadata for part in parts)]
    return {name: [v for part in parts for v in part.metadata[name]] for name in names}


def _listed(part: _Part) -> str:
    return ", ".join(["label", *part.values, *(["image"] if part.images is not None else [])])


def _paths(values: Mapping[str, list[Any]], images: Sequence[_Image]) -> list[str]:
    """Return the paths of samples: of a column or the structs if they are unique, or else rows."""
    for given in (values.get("path", ()), [image.name for image in images]):
        known = [str(name) for name in given if name is not None and name != ""]
        if len(set(known)) == len(images):
            return known
    return [image.cell.name for image in images]


def _read(file: Container, columns: Mapping[str, str] | None, short: str, propose: bool) -> _Part:
    import pyarrow.parquet

    with _explained(str(file)), pyarrow.parquet.ParquetFile(file.local()) as opened:
        schema = opened.schema_arrow
        found = _columns(schema.names, columns, str(file), propose)
        named = split_columns(found["label"], schema.names)
        used = {role: name for role, name in found.items() if role not in ("image", "label")}
        table = opened.read([*used.values(), *named], use_threads=False)

        def read(role: str, name: str) -> list[Any]:
            numbers = table.column(name).to_pylist()
            return _class_names(numbers, _classes(schema, name), role, str(file))

        values = {role: read(role, name) for role, name in used.items()}
        labels = {name: read("label", name) for name in named}
        metadata: dict[str, list[str | None]] = {}
        if propose:
            values.setdefault("domain", [ONE_DOMAIN] * opened.metadata.num_rows)
            plain = [n for n in schema.names if _is_plain(schema.field(n).type)]
            rest = opened.read(plain, use_threads=False)
            columns_by_name = {
                n: _class_names(rest.column(n).to_pylist(), _classes(schema, n), n, str(file))
                for n in plain
            }
            taken = used_columns(found, schema.names)
            metadata = read_metadata(plain, taken, columns_by_name.__getitem__)
        if "image" not in found:
            return _Part(values, labels, None, metadata)
        column, names = _image_column(opened, found["image"], str(file))
        # datasets writes paths of local files without their bytes
        if any(names) and is_empty(file.local(), opened.num_row_groups, column):
            return _Part({"path": names, **values}, labels, None, metadata)
        cells = _cells(file, opened.metadata, column, short.lstrip("/\\"))
        images = list(map(_Image, cells, names or [None] * len(cells)))
        return _Part(values, labels, images, metadata)


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


def _columns(
    available: Sequence[str], columns: Mapping[str, str] | None, name: str, propose: bool
) -> dict[str, str]:
    """Find the columns; images come before paths, which then only name the samples."""
    given = columns or {}
    has_images = "image" in given or ("image" in available and "path" not in given)
    has_paths = "path" in given or "path" in available
    needed = ["label"] if propose else ["label", "domain"]
    optional = ["group", "domain"] if propose else ["group"]
    if has_images or not has_paths:
        optional.insert(0, "path")
        return find_columns(available, columns, ["image", *needed], name, optional=optional)
    return find_columns(available, columns, ["path", *needed], name, optional=optional)


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

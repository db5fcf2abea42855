"""CSV tables of images; or texts in a column of a CSV or Parquet file, or of a DataFrame."""

from __future__ import annotations

import csv
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from oodzoo.core.errors import InputError, MissingPackageError
from oodzoo.core.remote.location import Url
from oodzoo.core.text import one_line
from oodzoo.data.files import RemoteImage, TextFile
from oodzoo.data.listing import Listing
from oodzoo.data.sources.base import Options, list_labelled, require_no_root, row_names
from oodzoo.data.sources.columns import (
    ONE_DOMAIN,
    find_columns,
    read_metadata,
    separator_of,
    split_columns,
    used_columns,
)
from oodzoo.data.sources.rows import Row, list_rows
from oodzoo.data.sources.targets import read_targets
from oodzoo.tasks import Kind

_NEEDED = ("path", "domain", "label")


def list_table(
    location: Path | Url,
    root: Path | Url | None,
    columns: Mapping[str, str] | None = None,
    *,
    propose: bool = False,
    task: Kind | None = None,
) -> Listing:
    """List the rows of a CSV table `path,domain,label[,group]`.

    Paths are relative to `root`, by default the folder of the table; see
    :func:`oodzoo.data.sources.rows.list_rows`. Labels are read by
    :func:`oodzoo.data.sources.targets.read_targets`.
    """
    name = str(location)
    further: dict[str, list[str]] | None = {} if propose else None
    labels: dict[str, list[str]] = {}
    rows = list(_rows(_local(location), columns, name, labels, further, task))
    if not rows:
        raise InputError(f"{name!r} has no rows")
    targets = read_targets(labels, name, task, rows=[row.number for row in rows], unit="line")
    labelled = [r._replace(label=text) for r, text in zip(rows, targets.texts, strict=True)]
    listing = list_rows(name, labelled, root, location.parent, unit="line")
    listing.task = targets.task
    if further is not None:
        listing.metadata = read_metadata(further, (), lambda column: further[column])
    return listing


def _local(location: Path | Url) -> Path:
    return location if isinstance(location, Path) else RemoteImage.at(location).local()


def _rows(
    table: Path,
    columns: Mapping[str, str] | None,
    name: str,
    labels: dict[str, list[str]],
    further: dict[str, list[str]] | None,
    task: Kind | None,
) -> Iterator[Row]:
    """Yield the rows of a table, each with the number of its first line, and without its label.

    The columns of labels are added to `labels`. With `further`, a table needs no domains, and the
    columns without a role are added to it.
    """
    needed = _NEEDED if further is None else ("path", "label")
    optional = ("group",) if further is None else ("group", "domain")
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True, delimiter=separator_of(file))
            header = [cell.strip() for cell in next(reader, [])]
            found = find_columns(header, columns, needed, name, optional=optional)
            named = split_columns(found.pop("label"), header)
            labels.update({column: [] for column in named})
            positions = {role: header.index(column) for role, column in found.items()}
            taken = (*found.values(), *named)
            rest = {} if further is None else _without_role(header, taken)
            if further is not None:
                further.update({column: [] for column in rest})
            empty = ""
            line = reader.line_num + 1
            for cells in reader:
                if cells:
                    where = f"{name!r}, line {line}"
                    _require_width(cells, len(header), where)
                    if further is not None:
                        for column, at in rest.items():
                            further[column].append(cells[at].strip() if at < len(cells) else "")
                    for column in named:
                        at = header.index(column)
                        labels[column].append(cells[at].strip() if at < len(cells) else "")
                    if len(named) == 1 and task != "multilabel" and not labels[named[0]][-1]:
                        empty = empty or f"{where}: no label in {','.join(cells)!r}"
                    yield _row(line, cells, positions, where)
                line = reader.line_num + 1
            if empty:
                several = any(
                    "|" in text or ";" in text or text.startswith("[") for text in labels[named[0]]
                )
                advice = "; if images can have several labels or none, say --task multilabel"
                raise InputError(empty + (advice if several else ""))
    except UnicodeDecodeError as error:
        raise InputError(f"{name!r} is not UTF-8 text; save it as UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{name!r} is not a CSV table: {error}") from error


def _without_role(header: Sequence[str], used: Collection[str]) -> dict[str, int]:
    """Return the positions of the columns that have a name of their own and no role."""
    return {
        cell: at
        for at, cell in enumerate(header)
        if cell and cell not in used and list(header).count(cell) == 1
    }


def _row(line: int, cells: Sequence[str], positions: Mapping[str, int], where: str) -> Row:
    values = {role: cells[at].strip() if at < len(cells) else "" for role, at in positions.items()}
    values.setdefault("domain", ONE_DOMAIN)
    for role in ("path", "domain"):
        if not values[role]:
            raise InputError(f"{where}: no {role} in {','.join(cells)!r}")
    group = values.get("group") or None
    return Row(line, values["path"], values["domain"], "", group)


def _require_width(cells: Sequence[str], width: int, where: str) -> None:
    if any(cell.strip() for cell in cells[width:]):
        raise InputError(
            f"{where}: {len(cells)} cells, but the header has {width}: {','.join(cells)!r}; "
            "quote cells that contain a comma"
        )


Table = dict[str, list[Any]]
"""Values by column."""


def has_text(columns: Mapping[str, str] | None) -> bool:
    """Whether a column of texts is named."""
    return columns is not None and "text" in columns


def list_texts(source: Any, options: Options) -> Listing:
    """List the rows of a table with a column of texts.

    A column `path` names the rows; otherwise they are numbered.

    Raises
    ------
    InputError
        If the source is not a table, a column is missing, or a text is not a string.
    """
    name = str(source) if isinstance(source, Path | Url) else type(source).__name__
    require_no_root(options, name)
    table = _read(source, name)
    available = list(table)
    needed = ("text", *options.missing(("label", "domain")))
    optional = tuple(r for r in ("label", "domain", "group", "path") if r not in needed)
    found = find_columns(available, options.columns, needed, name, optional=optional)
    files = [
        TextFile(_text(value, row, found["text"], name), f"row {row} of {name}")
        for row, value in enumerate(table[found["text"]])
    ]
    own: dict[str, Any] = {
        role: table[found[role]] for role in ("domain", "group") if role in found
    }
    if "label" in found:
        own["label"] = {c: table[c] for c in split_columns(found["label"], available)}
    paths = list(map(str, table[found["path"]])) if "path" in found else row_names(len(files))
    listing = list_labelled(name, paths, files, own, options)
    if options.propose:
        used = used_columns(found, available)
        listing.metadata = read_metadata(available, used, table.__getitem__)
    return listing


def read_texts(file: Path, column: str) -> tuple[list[str], list[str]]:
    """Read texts to predict, and what to call each: its path, or its number.

    A table has them in a column; any other file has one per line.
    """
    if file.suffix.lower() not in (".csv", ".parquet"):
        try:
            texts = file.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read {str(file)!r} as text: {one_line(error)}") from error
        return texts, [f"line {number}" for number in range(1, len(texts) + 1)]
    table = _read(file, str(file))
    if column not in table:
        raise InputError(
            f"{str(file)!r} has no column {column!r}, it has {', '.join(map(repr, table))}; name "
            "the column with the texts: --text-column NAME"
        )
    texts = [_text(value, row, column, str(file)) for row, value in enumerate(table[column])]
    if "path" in table:
        return texts, list(map(str, table["path"]))
    return texts, [f"row {row}" for row in range(len(texts))]


def _read(source: Any, name: str) -> Table:
    if isinstance(source, Url):
        return _read_file(RemoteImage.at(source).local(), name)
    if isinstance(source, Path):
        return _read_file(source, name)
    if not hasattr(source, "columns"):
        raise InputError(
            f"a column of texts needs a table (.csv, .parquet or a DataFrame), got {name}"
        )
    return {str(column): source[column].to_list() for column in source.columns}


def _read_file(file: Path, name: str) -> Table:
    if not file.is_file():
        raise InputError(f"no such file: {name!r}")
    if name.lower().endswith(".parquet"):
        return _read_parquet(file, name)
    if not name.lower().endswith(".csv"):
        raise InputError(f"a column of texts needs a table (.csv or .parquet), got {name!r}")
    try:
        csv.field_size_limit(sys.maxsize)
        with file.open(newline="", encoding="utf-8-sig") as opened:
            rows = list(csv.reader(opened, delimiter=separator_of(opened)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {name!r}: {one_line(error)}") from error
    if len(rows) < 2:
        raise InputError(f"{name!r} has no rows")
    header, *cells = rows
    for line, row in enumerate(cells):
        if row and len(row) != len(header):
            raise InputError(
                f"{name!r}, row {line}: {len(row)} cells, but the header has {len(header)}; quote "
                "cells that contain a comma"
            )
    return {column: [row[at] for row in cells if row] for at, column in enumerate(header)}


def _read_parquet(file: Path, name: str) -> Table:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise MissingPackageError("pyarrow", "parquet", "reading a Parquet file") from error
    try:
        table: Table = parquet.read_table(file).to_pydict()
    except (OSError, ArrowException, ValueError) as error:
        raise InputError(f"{name!r} is not a Parquet file: {one_line(error)}") from error
    return table


def _text(value: Any, row: int, column: str, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(
            f"{name!r}: row {row} has no text in the column {column!r}, got {value!r}; leave the "
            "row out"
        )
    return value

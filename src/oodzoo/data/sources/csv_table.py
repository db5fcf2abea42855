"""CSV tables of images; or texts in a column of a CSV or Parquet file, or of a DataFrame."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

from oodzoo.core.errors import InputError, MissingPackageError
from oodzoo.core.remote.location import Url
from oodzoo.core.text import one_line
from oodzoo.data.files import RemoteImage, TextFile
from oodzoo.data.listing import Listing
from oodzoo.data.sources.base import SourceOptions, SourceTable, require_root_unused, row_names
from oodzoo.data.sources.column_roles import find_columns, separator_of, split_columns


def list_csv(location: Path | Url, options: SourceOptions) -> Listing:
    """List the rows of a CSV table `path,domain,label[,group]`.

    Paths are relative to the root, by default the folder of the table.
    """
    name = str(location)
    path = location if isinstance(location, Path) else RemoteImage.at(location).local()
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True, delimiter=separator_of(file))
            header = [cell.strip() for cell in next(reader, [])]
            line = reader.line_num + 1
            for cells in reader:
                if cells:
                    rows.append(cells)
                    lines.append(line)
                line = reader.line_num + 1
    except UnicodeDecodeError as error:
        raise InputError(f"{name!r} is not UTF-8 text; save it as UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{name!r} is not a CSV table: {error}") from error

    def values(column: str) -> list[str]:
        at = header.index(column)
        return [cells[at].strip() if at < len(cells) else "" for cells in rows]

    further = [cell for cell in header if cell and header.count(cell) == 1]
    table = SourceTable(name, header, values, location.parent, further, lines, unit="line")
    needed = ("path", *options.missing("domain", "label"))
    others = [role for role in ("group", "domain") if role not in needed]
    found = find_columns(header, options.columns, needed, name, optional=others)
    given = {role: values(found[role]) for role in ("path", "domain") if role in found}
    for at, cells in enumerate(rows):
        where, shown = f"{name!r}, line {lines[at]}", repr(",".join(cells))
        if any(cell.strip() for cell in cells[len(header) :]):
            raise InputError(
                f"{where}: {len(cells)} cells, but the header has {len(header)}: {shown}; quote "
                "cells that contain a comma"
            )
        for role, column in given.items():
            if not column[at]:
                raise InputError(f"{where}: no {role} in {shown}")
    if not rows:
        raise InputError(f"{name!r} has no rows")
    labels = split_columns(found["label"], header)
    texts = values(labels[0])
    if len(labels) == 1 and options.task != "multilabel" and "" in texts:
        at = texts.index("")
        advice = "; if images can have several labels or none, say --task multilabel"
        several = any("|" in text or ";" in text or text.startswith("[") for text in texts)
        raise InputError(
            f"{name!r}, line {lines[at]}: no label in {','.join(rows[at])!r}"
            + (advice if several else "")
        )
    return table.list(found, options)


# --- texts ----------------------------------------------------------------------------------------


def list_texts(source: Any, options: SourceOptions) -> Listing:
    """List the rows of a table with a column of texts.

    A column `path` names the rows; otherwise they are numbered.

    Raises
    ------
    InputError
        If the source is not a table, a column is missing, or a text is not a string.
    """
    name = str(source) if isinstance(source, Path | Url) else type(source).__name__
    require_root_unused(options, name)
    columns = _read(source, name)
    table = SourceTable(name, list(columns), columns.__getitem__)
    found = table.find(options, "text")
    files = [
        TextFile(_text(value, row, found["text"], name), f"row {row} of {name}")
        for row, value in enumerate(columns[found["text"]])
    ]
    paths = list(map(str, columns[found["path"]])) if "path" in found else row_names(len(files))
    return table.list(found, options, (paths, files))


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
    columns = _read(file, str(file))
    if column not in columns:
        raise InputError(
            f"{str(file)!r} has no column {column!r}, it has {', '.join(map(repr, columns))}; name "
            "the column with the texts: --text-column NAME"
        )
    texts = [_text(value, row, column, str(file)) for row, value in enumerate(columns[column])]
    if "path" in columns:
        return texts, list(map(str, columns["path"]))
    return texts, [f"row {row}" for row in range(len(texts))]


def _read(source: Any, name: str) -> dict[str, list[Any]]:
    """Read a table by column."""
    if not isinstance(source, Path | Url):
        if not hasattr(source, "columns"):
            raise InputError(
                f"a column of texts needs a table (.csv, .parquet or a DataFrame), got {name}"
            )
        return {str(column): source[column].to_list() for column in source.columns}
    file = RemoteImage.at(source).local() if isinstance(source, Url) else source
    if not file.is_file():
        raise InputError(f"no such file: {name!r}")
    if name.lower().endswith(".parquet"):
        try:
            from pyarrow import ArrowException, parquet
        except ImportError as error:
            raise MissingPackageError("pyarrow", "parquet", "reading a Parquet file") from error
        try:
            table: dict[str, list[Any]] = parquet.read_table(file).to_pydict()
        except (OSError, ArrowException, ValueError) as error:
            raise InputError(f"{name!r} is not a Parquet file: {one_line(error)}") from error
        return table
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


def _text(value: Any, row: int, column: str, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(
            f"{name!r}: row {row} has no text in the column {column!r}, got {value!r}; leave the "
            "row out"
        )
    return value

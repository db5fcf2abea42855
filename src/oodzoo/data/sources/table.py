"""A CSV table with the paths, domains and labels of images."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import Url
from oodzoo.data.files import RemoteImage
from oodzoo.data.listing import Listing
from oodzoo.data.sources.columns import (
    ONE_DOMAIN,
    find_columns,
    read_metadata,
    separator_of,
    split_columns,
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

"""Images in cells of Parquet files: row groups are decoded as a whole, and kept for a while."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from oodzoo.core.errors import InputError
from oodzoo.core.packages import optional_package
from oodzoo.core.text import one_line
from oodzoo.core.threads import Budget

MAX_GROUP_BYTES = 1 << 30
"""Most bytes of images in one row group, and of the row groups that are kept together."""


class _Group(NamedTuple):
    path: Path
    changed: int
    size: int
    number: int
    column: str


def read_cell(path: Path, number: int, row: int, column: str) -> bytes | None:
    """Return the bytes in a cell of a Parquet file; None if it is empty.

    Parameters
    ----------
    path : Path
    number : int
        The row group.
    row : int
        The row in this group.
    column : str
        A column of bytes, such as `image`, or a field of one, such as `image.bytes`.

    Raises
    ------
    InputError
        If the row group cannot be decoded.
    """
    cells = _cells(path, number, column)
    if row >= len(cells):
        raise InputError(f"{str(path)!r} changed while it was read")
    value = cells[row]
    return value.as_buffer().to_pybytes() if value.is_valid else None


def is_empty(path: Path, n_groups: int, column: str) -> bool:
    """Whether all cells of a column are empty."""
    return all(
        cells.null_count == len(cells)
        for cells in (_cells(path, n, column) for n in range(n_groups))
    )


def _cells(path: Path, number: int, column: str) -> Any:
    found = path.stat()
    group = _Group(path, found.st_mtime_ns, found.st_size, number, column)
    return _KEPT.get(group, lambda: _decode(group))


class GroupCache:
    """Decoded row groups, the least recently used of which are dropped; for several threads.

    Threads that need the same group wait for one of them to decode it.

    Parameters
    ----------
    most : int
        Bytes that are kept; a larger group is kept alone.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._groups: OrderedDict[_Group, Future[Any]] = OrderedDict()
        self._sizes: dict[_Group, int] = {}
        self._lock = Lock()

    def get(self, group: _Group, decode: Callable[[], Any]) -> Any:
        """Return a group, which is decoded unless it is kept."""
        with self._lock:
            future = self._groups.get(group)
            if future is not None:
                self._groups.move_to_end(group)
            else:
                mine = self._groups[group] = Future()
        if future is not None:
            return future.result()
        try:
            cells = decode()
        except BaseException as error:
            with self._lock:
                del self._groups[group]
            mine.set_exception(error)
            raise
        mine.set_result(cells)
        with self._lock:
            self._sizes[group] = cells.nbytes
            self._drop(group)
        return cells

    def _drop(self, newest: _Group) -> None:
        for group in [group for group in self._groups if group in self._sizes]:
            if sum(self._sizes.values()) <= self._most:
                return
            if group != newest:
                del self._groups[group], self._sizes[group]


_KEPT = GroupCache(MAX_GROUP_BYTES)
_DECODING = Budget(MAX_GROUP_BYTES)  # of all threads together


def _decode(group: _Group) -> Any:
    parquet = optional_package("pyarrow.parquet", extra="parquet", purpose="reading a Parquet file")
    try:
        metadata = _metadata(group.path, group.changed, group.size)
        with (
            _DECODING.reserve(metadata.row_group(group.number).total_byte_size),
            parquet.ParquetFile(group.path, metadata=metadata) as file,
        ):
            table = file.read_row_group(group.number, [group.column], use_threads=False)
            return _column(table, group.column)
    except MemoryError:
        raise
    except Exception as error:  # of a damaged file: of pyarrow, OSError, ValueError, …
        raise InputError(
            f"row group {group.number} of {str(group.path)!r} cannot be decoded: {one_line(error)}"
        ) from error


def _column(table: Any, column: str) -> Any:
    """Return a column of bytes; of one of structs, only the field was read."""
    import pyarrow.compute

    if column in table.column_names:
        return table.column(column)
    return pyarrow.compute.struct_field(table.column(column.rpartition(".")[0]), 0)


@lru_cache(maxsize=64)
def _metadata(path: Path, changed: int, size: int) -> Any:
    import pyarrow.parquet

    return pyarrow.parquet.read_metadata(path)

"""Which version of each remote file a mirror has: a small database beside the mirror.

A change of the database is also a lock: while a process makes one, other processes and threads
that want to make one wait.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from oodzoo.errors import DiskError

_PATIENCE = 3600
"""Seconds to wait for another process, which may upload many files."""


class Known(NamedTuple):
    """A remote file as it was last seen; the version is empty if it was written here."""

    version: str
    size: int | None


class MirrorState:
    """The remote files that a mirror knows, by name; opened by :func:`changing`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def read(self) -> dict[str, Known]:
        """Return all files."""
        rows = self._connection.execute("SELECT name, version, size FROM files")
        return {name: Known(version, size) for name, version, size in rows}

    def put(self, files: Iterable[tuple[str, Known]]) -> None:
        """Add or replace files."""
        rows = [(name, *known) for name, known in files]
        self._connection.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", rows)

    def drop(self, names: Iterable[str]) -> None:
        """Forget files."""
        self._connection.executemany("DELETE FROM files WHERE name = ?", [(n,) for n in names])


@contextmanager
def changing(file: Path) -> Iterator[MirrorState]:
    """Change the state; nothing is changed if an error is raised, or if the process is killed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with closing(sqlite3.connect(file, timeout=_PATIENCE, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")  # the store has all that matters
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS files (name TEXT PRIMARY KEY, version TEXT, size INT)"
            )
            yield MirrorState(connection)
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise DiskError(
            f"cannot use {str(file)!r}: {error}; delete this folder, or set OODZOO_CACHE to another"
        ) from error

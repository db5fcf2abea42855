"""Temporary files and folders next to what a command writes, and what killed runs left there."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from oodzoo._io import explaining_disk_errors, remove_stale, temporary_name


@contextlib.contextmanager
def replacing_text(path: Path) -> Iterator[TextIO]:
    """Open a text file that gets its name at the end of the block, if that is reached.

    Of several processes that write the same path, the last one to end wins, with a complete file.
    """
    with explaining_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_stale(path.parent)
        temporary = path.parent / temporary_name()
        try:
            with temporary.open("x", encoding="utf-8", errors="backslashreplace") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        except BaseException:  # also KeyboardInterrupt
            temporary.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Make a temporary folder that gets its name at the end of the block, if that is reached.

    A folder with that name must be empty; otherwise OSError is raised.
    """
    temporary = folder.parent / temporary_name()
    temporary.mkdir(parents=True)
    try:
        remove_stale(folder.parent)
        yield temporary
        if folder.is_dir():
            folder.rmdir()
        temporary.rename(folder)
    except BaseException:  # also KeyboardInterrupt
        shutil.rmtree(temporary, ignore_errors=True)
        raise

"""Temporary folders: of a predictor that is being written, and of models that a process made."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from oodzoo.core.io import remove_stale, temporary_name

_removed_at_exit: set[Path] = set()


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


def remove_at_exit(folder: Path, release: Callable[[], None] | None = None) -> Path:
    """Remove a folder at the end of this process, after a call of `release`; return the folder."""
    process = os.getpid()

    def remove() -> None:
        if os.getpid() == process:  # not in a process that was forked
            if release is not None:
                release()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    _removed_at_exit.add(folder.resolve())
    return folder


def is_removed_at_exit(folder: Path) -> bool:
    """Whether a folder, or one above it, is removed at the end of this process."""
    folder = folder.resolve()
    return any(each in _removed_at_exit for each in (folder, *folder.parents))

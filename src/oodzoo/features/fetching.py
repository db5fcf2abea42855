"""Bringing remote images into the local cache before they are decoded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Generic, TypeVar

from oodzoo.data.contents import REMOTE_READERS
from oodzoo.errors import InputError
from oodzoo.remote.cache import cached_file
from oodzoo.remote.objects import RemoteFile

T = TypeVar("T")

AHEAD = 8
"""Groups that are fetched at the same time: while one waits for a slow answer, others arrive."""


class Fetching(Generic[T]):
    """Gives out groups of images when all their files are here, so that decoding never waits.

    A group with a slow file is overtaken by others.

    Parameters
    ----------
    groups : iterable
    files : callable
        Returns the remote files of a group; a group without any is here at once.

    Attributes
    ----------
    failed : dict of RemoteFile to InputError
        Why some files could not be fetched.
    """

    def __init__(self, groups: Iterable[T], files: Callable[[T], Collection[RemoteFile]]) -> None:
        self._groups = iter(groups)
        self._files = files
        self._pool: ThreadPoolExecutor | None = None
        self._arrived: SimpleQueue[T] = SimpleQueue()
        self._under_way = 0
        self._lock = Lock()
        self.failed: dict[RemoteFile, InputError] = {}

    def take(self, *, wait: bool = True) -> T | None:
        """Return a group that is here; None if there are no more or, without `wait`, none yet."""
        while self._under_way < (AHEAD if self._pool is not None else 1):
            group = next(self._groups, None)
            if group is None:
                break
            self._start(group)
        if not self._under_way:
            self.close()
            return None
        try:
            group = self._arrived.get(block=wait)
        except Empty:
            return None
        self._under_way -= 1
        return group

    def close(self) -> None:
        """Cancel what has not started."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self, group: T) -> None:
        self._under_way += 1
        files = set(self._files(group))
        if not files:
            self._arrived.put(group)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(REMOTE_READERS)
        missing = len(files)

        def fetch(file: RemoteFile) -> None:
            nonlocal missing
            try:
                cached_file(file)
                self.failed.pop(file, None)  # it may have failed for another group
            except InputError as error:
                self.failed[file] = error
            finally:
                with self._lock:
                    missing -= 1
                    is_here = not missing
                if is_here:
                    self._arrived.put(group)

        for file in files:
            self._pool.submit(fetch, file)

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from tests.s3 import Bucket

from oodzoo.remote import requests
from oodzoo.remote.failures import RemoteError
from oodzoo.remote.filesystems import shared_filesystem
from oodzoo.remote.location import Url
from oodzoo.remote.requests import call, repeated, request

URL = Url("s3://bucket/x")


def test_a_request_is_repeated_with_growing_deadlines() -> None:
    deadlines = []

    def attempt(deadline: float) -> str:
        deadlines.append(deadline)
        if len(deadlines) < requests.ATTEMPTS:
            raise ConnectionResetError
        return "answer"

    assert repeated(URL, attempt, n_bytes=2 * requests.SLOW) == "answer"
    first = requests.FIRST_DEADLINE + 2
    assert deadlines == [first, 2 * first, 4 * first, 8 * first]


def test_the_last_error_is_explained() -> None:
    calls = []

    def attempt(deadline: float) -> None:
        calls.append(deadline)
        raise ConnectionResetError(f"reset {len(calls)}")

    with pytest.raises(RemoteError, match=r"^'s3://bucket/x': reset 4; check the network"):
        repeated(URL, attempt)


def test_a_permanent_error_is_not_repeated() -> None:
    calls = []

    def attempt(deadline: float) -> None:
        calls.append(deadline)
        raise FileNotFoundError

    with pytest.raises(FileNotFoundError):
        repeated(URL, attempt)
    assert len(calls) == 1


@pytest.fixture
def stalling(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Reading from memory waits for this event, once."""
    memory = pytest.importorskip("fsspec.implementations.memory")
    released, stalled = threading.Event(), threading.Event()
    real = memory.MemoryFileSystem.cat_file

    def cat_file(self: Any, *args: Any, **options: Any) -> Any:
        if not stalled.is_set():
            stalled.set()
            released.wait(60)
        return real(self, *args, **options)

    monkeypatch.setattr(memory.MemoryFileSystem, "cat_file", cat_file)
    return released


def test_a_blocking_request_that_stalls_is_repeated(
    in_memory: Url, stalling: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "FIRST_DEADLINE", 0.3)
    request(in_memory, "pipe_file", b"content")
    assert request(in_memory, "cat_file") == b"content"
    assert not stalling.is_set()  # it still waits
    stalling.set()


def test_a_deadline_is_told(in_memory: Url, stalling: threading.Event) -> None:
    request(in_memory, "pipe_file", b"content")
    with pytest.raises(TimeoutError, match=r"^no answer within 0\.20 s$"):
        call(in_memory, "cat_file", deadline=0.2)
    stalling.set()


def running_tasks(url: Url) -> set[Any]:
    filesystem = shared_filesystem(url)
    assert filesystem is not None

    async def tasks() -> set[Any]:
        return asyncio.all_tasks()

    return asyncio.run_coroutine_threadsafe(tasks(), filesystem.loop).result(30)


def test_a_request_that_stalls_is_cancelled(s3: Bucket) -> None:
    s3.put("x", b"content")
    s3.proxy.stall("^GET", seconds=60)
    url = Url(s3.url) / "x"
    call(url, "info", deadline=30)  # opens a session, which takes time
    with pytest.raises(TimeoutError, match=r"^no answer within 0\.20 s$"):
        call(url, "cat_file", deadline=0.2)
    while [task for task in running_tasks(url) if "_cat_file" in repr(task)]:
        time.sleep(0.01)  # it is cancelled in another thread
    assert call(url, "cat_file", deadline=30) == b"content"
    first, second = s3.proxy.asked("^GET")
    assert first.ended is None  # nobody waited for it
    assert second.ended is not None


def test_errors_of_a_filesystem_pass(in_memory: Url) -> None:
    with pytest.raises(FileNotFoundError):
        request(in_memory / "missing", "cat_file")

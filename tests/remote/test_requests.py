from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.s3 import Bucket

from oodzoo.remote import requests
from oodzoo.remote.failures import RemoteError
from oodzoo.remote.filesystems import shared_filesystem
from oodzoo.remote.location import Url
from oodzoo.remote.objects import RemoteFile, find_file, read_file, write_file
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


# --- second requests ------------------------------------------------------------------------------


@pytest.fixture
def one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """No attempt is repeated, and none ends soon."""
    monkeypatch.setattr(requests, "ATTEMPTS", 1)
    monkeypatch.setattr(requests, "FIRST_DEADLINE", 30.0)


@pytest.fixture
def file(s3: Bucket) -> RemoteFile:
    s3.put("a", b"content")
    found = find_file(Url(f"{s3.url}/a"))
    assert found is not None
    return found


@pytest.mark.usefixtures("one_attempt")
def test_what_stalls_is_asked_for_a_second_time(s3: Bucket, file: RemoteFile) -> None:
    s3.proxy.stall("^GET .*/a", seconds=60)
    assert read_file(file) == b"content"
    assert len(s3.proxy.asked("^GET .*/a")) == 2


@pytest.mark.usefixtures("one_attempt")
def test_the_first_answer_counts(s3: Bucket, file: RemoteFile) -> None:
    s3.proxy.slow("^GET .*/a", seconds=1.5, times=1)
    s3.proxy.slow("^GET .*/a", seconds=30, times=1)
    assert read_file(file) == b"content"
    assert len(s3.proxy.asked("^GET .*/a")) == 2


@pytest.mark.usefixtures("one_attempt")
def test_an_error_of_one_request_is_not_that_of_both(s3: Bucket, file: RemoteFile) -> None:
    s3.proxy.slow("^GET .*/a", seconds=2, times=1)
    s3.proxy.refuse("^GET .*/a", times=1)
    assert read_file(file) == b"content"
    s3.proxy.refuse("^GET .*/a")
    with pytest.raises(RemoteError):
        read_file(file)


def test_writing_is_never_asked_twice(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "SECOND_AFTER", 0.1)
    s3.proxy.slow("^PUT .*/a", seconds=1, times=1)
    write_file(Url(f"{s3.url}/a"), b"content")
    assert len(s3.proxy.asked("^PUT .*/a")) == 1


@pytest.mark.usefixtures("one_attempt")
def test_few_second_requests_at_the_same_time(s3: Bucket) -> None:
    """A server that is slow for all does not get twice the requests."""
    for i in range(20):
        s3.put(f"a{i}", b"content")
    found = [find_file(Url(f"{s3.url}/a{i}")) for i in range(20)]
    s3.proxy.slow("^GET .*/a", seconds=2)
    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(read_file, found)) == {b"content"}
    assert 20 < len(s3.proxy.asked("^GET .*/a")) <= 30

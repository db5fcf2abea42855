"""Requests with deadlines, repeated if they fail, stall or end early."""

from __future__ import annotations

import contextlib
import contextvars
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, TypeVar

from oodzoo._text import duration
from oodzoo.remote.failures import RemoteError, explain, is_permanent, reported
from oodzoo.remote.filesystems import (
    filesystem_class,
    give_back,
    shared_filesystem,
    take_filesystem,
)
from oodzoo.remote.location import Url

ATTEMPTS = 4
FIRST_DEADLINE = 5.0
"""Seconds that the first attempt may take; each further one may take twice as long."""
SLOW = 2**20
"""Bytes in a second; a request for many bytes gets more time."""
FIRST_PAUSE = 0.2
"""Seconds before the second attempt; each further pause is twice as long."""

SECOND_AFTER = 1.0
"""Seconds without an answer after which something small is asked for a second time."""
_SECONDS_AT_ONCE = threading.BoundedSemaphore(4)
"""Second requests at the same time; more would burden a server that is slow for all."""

T = TypeVar("T")


def request(url: Url, method: str, *args: Any, n_bytes: int = 0, **options: Any) -> Any:
    """Call a method of the filesystem of a URL, such as `cat_file`, on the path of the URL.

    Raises
    ------
    Exception
        What the method raises, if the same request would fail again.
    RemoteError
        If all attempts fail.
    """
    return repeated(
        url,
        lambda deadline: call(url, method, *args, deadline=deadline, **options),
        n_bytes=n_bytes,
    )


def repeated(url: Url, attempt: Callable[[float], T], *, n_bytes: int = 0) -> T:
    """Call a function with a deadline until it returns; errors that are permanent pass."""
    deadline, pause = FIRST_DEADLINE + n_bytes / SLOW, FIRST_PAUSE
    for remaining in reversed(range(ATTEMPTS)):
        try:
            return attempt(deadline)
        except Exception as error:
            if isinstance(error, RemoteError) or is_permanent(error):
                raise
            if not remaining:
                raise failure(url, error) from error
        time.sleep(pause * random.uniform(0.5, 1))  # many processes must not ask in step
        deadline, pause = 2 * deadline, 2 * pause
    raise AssertionError


def failure(url: Url, error: Exception) -> RemoteError:
    """The error of a request as one line that quotes the URL."""
    return RemoteError(f"{str(url)!r}: {explain(error, url.scheme)}")


def call(
    url: Url,
    method: str,
    *args: Any,
    deadline: float,
    second_after: float | None = None,
    **options: Any,
) -> Any:
    """Call a method of a filesystem once; raise TimeoutError after the deadline.

    After `second_after` seconds without an answer, a method that only reads may be called a second
    time, and the answer that comes first counts.
    """
    path = filesystem_class(url)._strip_protocol(str(url))
    filesystem = shared_filesystem(url)
    try:
        if filesystem is None:
            return _in_thread(url, method, (path, *args), options, deadline)
        function = getattr(filesystem, f"_{method}")
        return _on_loop(
            filesystem, lambda: function(path, *args, **options), deadline, second_after
        )
    except TimeoutError as error:
        raise TimeoutError(f"no answer within {duration(deadline)}") from error
    except Exception as error:
        if (found := reported(error)) is not error:
            raise found from None
        raise


def call_s3(filesystem: Any, method: str, deadline: float, **parameters: Any) -> Any:
    """Call a method of the S3 client once, such as `list_objects_v2`."""
    try:
        return _on_loop(filesystem, lambda: filesystem._call_s3(method, **parameters), deadline)
    except TimeoutError as error:
        raise TimeoutError(f"no answer within {duration(deadline)}") from error


def _on_loop(
    filesystem: Any,
    function: Callable[[], Any],
    deadline: float,
    second_after: float | None = None,
) -> Any:
    """Run a coroutine on the event loop of a filesystem; it is cancelled after the deadline."""
    import asyncio

    futures = [asyncio.run_coroutine_threadsafe(function(), filesystem.loop)]
    try:
        if second_after is None or second_after >= deadline:
            return futures[0].result(deadline)
        with contextlib.suppress(TimeoutError):
            return futures[0].result(second_after)
        if not _SECONDS_AT_ONCE.acquire(blocking=False):
            return futures[0].result(deadline - second_after)
        try:
            futures.append(asyncio.run_coroutine_threadsafe(function(), filesystem.loop))
            return _first_result(futures, deadline - second_after)
        finally:
            _SECONDS_AT_ONCE.release()
    finally:
        for future in futures:
            future.cancel()  # no effect on one that is done


def _first_result(futures: Sequence[Future[T]], timeout: float) -> T:
    """Return the first result; an error counts only if both end in one."""
    waiting = set(futures)
    end = time.monotonic() + timeout
    while waiting:
        done, waiting = wait(waiting, end - time.monotonic(), FIRST_COMPLETED)
        if not done:
            raise TimeoutError
        for future in done:
            if future.exception() is None or not waiting:
                return future.result()
    raise AssertionError


def _in_thread(
    url: Url, method: str, args: tuple[Any, ...], options: dict[str, Any], deadline: float
) -> Any:
    """Run a blocking method in a thread; after the deadline the thread is left alone."""
    filesystem = take_filesystem(url)
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(getattr(filesystem, method)(*args, **options))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True)
    thread.start()
    thread.join(deadline)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError
    give_back(url, filesystem)
    return results[0]

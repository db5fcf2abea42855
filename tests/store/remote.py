"""Stores at URLs: all their files, other machines, and processes that die at an upload."""

from __future__ import annotations

import hashlib
import importlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.store import tiny

from oodzoo.core.remote import objects
from oodzoo.core.remote.location import Url
from oodzoo.core.remote.objects import list_files, read_file, write_file


def remote_files(url: str) -> dict[str, str]:
    """SHA-256 of each file at a URL that must not depend on time and place; see `tiny.files`."""
    return {
        file.url.removeprefix(f"{url}/"): hashlib.sha256(read_file(file)).hexdigest()
        for file in list_files(Url(url))
        if not file.url.endswith("/local.json")
    }


def upload(folder: Path, url: str) -> str:
    """Copy a folder to a URL, as other tools do."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            write_file(Url(url) / path.relative_to(folder).as_posix(), path.read_bytes())
    return url


@contextmanager
def another_machine(cache: Path) -> Iterator[None]:
    """Use another cache folder, and with it another mirror."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OODZOO_CACHE", os.fspath(cache))
        yield


def killed_at(moment: int, function: str, arguments: list[Any], options: dict[str, Any]) -> None:
    """Call a function; be killed right before or right after a change at a URL, from 1."""
    request = objects.request
    seen = 0

    def counting(url: Url, method: str, *arguments: Any, **options: Any) -> Any:
        nonlocal seen
        is_change = method in ("pipe_file", "rm_file")
        seen += is_change
        number = 2 * seen if is_change else 0  # of now: other threads count on
        if number - 1 == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return request(url, method, *arguments, **options)
        finally:
            if number == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    objects.request = counting  # of a process of its own, which ends
    module, _, name = function.partition(":")
    getattr(importlib.import_module(module), name)(*arguments, **options)


def extract_on(cache: str, data: str, models: list[str], store: str) -> None:
    """Extract features with a cache folder of its own, as on another machine."""
    os.environ["OODZOO_CACHE"] = cache
    tiny.extract(data, models, store)

"""Places for objects: in memory, and on an S3 server."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from oodzoo.remote import requests
from oodzoo.remote.location import Url


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own."""
    folder = tmp_path / "object-cache"
    monkeypatch.setenv("OODZOO_CACHE", str(folder))
    monkeypatch.delenv("OODZOO_CACHE_SIZE", raising=False)
    return folder


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits long before it repeats a request."""
    monkeypatch.setattr(requests, "FIRST_PAUSE", 0.01)


@pytest.fixture
def in_memory() -> Url:
    """An empty place in memory."""
    pytest.importorskip("fsspec")
    return Url(f"memory://{secrets.token_hex(8)}/place")


@pytest.fixture(params=["memory", "s3"])
def place(request: pytest.FixtureRequest) -> Url:
    """An empty place, in memory or on a server."""
    if request.param == "s3":
        return Url(f"{request.getfixturevalue('s3').url}/place")
    found: Url = request.getfixturevalue("in_memory")
    return found

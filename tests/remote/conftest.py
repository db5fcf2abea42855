"""Places for objects: in memory, and on an S3 server."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from oodzoo.core.remote.location import Url


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own."""
    folder = tmp_path / "object-cache"
    monkeypatch.setenv("OODZOO_CACHE", str(folder))
    monkeypatch.delenv("OODZOO_CACHE_SIZE", raising=False)
    return folder


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


class _Server(ThreadingHTTPServer):
    statuses: list[int]
    """Of the next answers; then 200."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        self.send_response(status)
        self.send_header("Content-Length", "11")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(b"the content")

    do_HEAD = do_GET

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def web_server() -> Iterator[_Server]:
    pytest.importorskip("aiohttp")
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.statuses = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()

"""Objects on a web server, whose filesystem reports most errors as missing files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from oodzoo.remote.failures import RemoteError
from oodzoo.remote.location import Url
from oodzoo.remote.objects import find_file, read_file

CONTENT = b"the content"


class _Server(ThreadingHTTPServer):
    statuses: list[int]
    """Of the next answers; then 200."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        self.send_response(status)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(CONTENT)

    do_HEAD = do_GET

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[_Server]:
    pytest.importorskip("aiohttp")
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.statuses = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def url(server: _Server) -> Url:
    return Url(f"http://127.0.0.1:{server.server_port}/table.csv")


def test_a_file_that_exists(server: _Server) -> None:
    file = find_file(url(server))
    assert file is not None
    assert read_file(file) == CONTENT


@pytest.mark.parametrize("status", [404, 410])
def test_a_file_that_does_not_exist(server: _Server, status: int) -> None:
    server.statuses = [status] * 2  # to HEAD and GET
    assert find_file(url(server)) is None


@pytest.mark.parametrize("status", [401, 403])
def test_a_file_that_is_refused_is_not_missing(server: _Server, status: int) -> None:
    server.statuses = [status] * 2
    with pytest.raises(RemoteError, match="access is denied"):
        find_file(url(server))
    assert not server.statuses


def test_an_answer_that_fails_is_asked_for_again(server: _Server) -> None:
    server.statuses = [503] * 2
    file = find_file(url(server))
    assert file is not None
    server.statuses = [500]
    assert read_file(file) == CONTENT


def test_a_request_that_is_wrong_is_not_repeated(server: _Server) -> None:
    file = find_file(url(server))
    assert file is not None
    server.statuses = [400, 200]
    with pytest.raises(RemoteError, match="400"):
        read_file(file)
    assert server.statuses == [200]


def test_a_server_that_is_not_there(server: _Server) -> None:
    place = url(server)
    server.server_close()
    with pytest.raises(RemoteError, match="check the network, and the address") as caught:
        find_file(place)
    assert "\n" not in str(caught.value)

"""An S3 server on this machine, and a proxy in front of it whose requests fail as told.

The fixture `s3` is a fresh bucket; the environment of the test, and of processes that it starts,
leads to it through the proxy.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from email.message import Message
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import pytest

PACKAGES = ("moto", "flask", "s3fs")
# The server wants a signature, whatever it is.
SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=testing/20200101/us-east-1/s3/aws4_request"}

# It ends with its parent, however that ends: nothing remains to be read from standard input.
_SERVE = """
import os, sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
os._exit(0)
"""


def environment(endpoint: str) -> dict[str, str]:
    """The variables that lead clients of S3 to an endpoint, with credentials that it accepts."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_SESSION_TOKEN": "",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }


class S3Server(AbstractContextManager["S3Server"]):
    """moto's server in a process of its own; it ends with this process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        if not port:
            self.__exit__()
            raise RuntimeError("moto's server did not start: python -m moto.server shows why")
        self.endpoint = f"http://127.0.0.1:{port}"
        self.environment = environment(self.endpoint)

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def create_bucket(self, name: str) -> Bucket:
        self.request("PUT", f"/{name}")
        return Bucket(self, name)

    def request(self, method: str, path: str, content: bytes | None = None) -> bytes:
        """Send a request, not through a proxy; KeyError if there is no such object."""
        host = urlsplit(self.endpoint).netloc
        with closing(HTTPConnection(host, timeout=60)) as connection:
            connection.request(method, path, content, SIGNED)
            answer = connection.getresponse()
            body = answer.read()
        if answer.status == 404:
            raise KeyError(path)
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {body.decode(errors='replace')}")
        return body


class Request(NamedTuple):
    """A request that reached the proxy: method and path with query, such as `GET /bucket/key`."""

    line: str


@dataclass
class _Rule:
    kind: str
    pattern: re.Pattern[str]
    left: int | None
    """How many requests it is for; None: all."""
    settings: dict[str, Any] = field(default_factory=dict)


class FaultyProxy(AbstractContextManager["FaultyProxy"]):
    """A server in this process that forwards requests to another one, but for some rules.

    A rule has a pattern, searched in `METHOD /bucket/key?query`, and `times`: for how many requests
    it is; None is for all. The oldest rule that matches applies; delays (`slow`) come on top.
    """

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target).netloc
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()
        self._conditional = threading.Lock()
        self._over = threading.Event()
        self.requests: list[Request] = []
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self.environment = environment(self.endpoint)

    def __exit__(self, *_: object) -> None:
        """End the proxy and the requests that are under way."""
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.close_connections()
        self._server.server_close()

    def fail(self, pattern: str, *, status: int = 503, times: int | None = 1) -> None:
        """Answer with an error of the server: 500 or 503."""
        self._add("fail", pattern, times, status=status)

    def refuse(self, pattern: str, *, times: int | None = None) -> None:
        """Answer 403, as for credentials without permission."""
        self._add("refuse", pattern, times, status=403)

    def drop(self, pattern: str, *, times: int | None = 1) -> None:
        """Close the connection without an answer."""
        self._add("drop", pattern, times)

    def stall(self, pattern: str, *, seconds: float = 600, times: int | None = 1) -> None:
        """Send the headers, then nothing for some seconds, then the body."""
        self._add("stall", pattern, times, seconds=seconds)

    def truncate(self, pattern: str, *, times: int | None = 1) -> None:
        """Close the connection after half of the body, whatever was promised."""
        self._add("truncate", pattern, times)

    def slow(self, pattern: str, *, seconds: float, times: int | None = None) -> None:
        """Wait before forwarding the request."""
        self._add("slow", pattern, times, seconds=seconds)

    def replace(self, pattern: str, body: bytes, *, times: int | None = None) -> None:
        """Answer with another body; the headers remain, but for length and checksum."""
        self._add("replace", pattern, times, body=body)

    def forget(self) -> None:
        with self._lock:
            self._rules.clear()
            self.requests.clear()

    def asked(self, pattern: str) -> list[Request]:
        """Return the recorded requests that match a pattern."""
        with self._lock:
            return [request for request in self.requests if re.search(pattern, request.line)]

    def _add(self, kind: str, pattern: str, times: int | None, **settings: Any) -> None:
        with self._lock:
            self._rules.append(_Rule(kind, re.compile(pattern), times, settings))

    def begin(self, line: str) -> tuple[float, _Rule | None]:
        """Record a request; return its delay and its fault."""
        with self._lock:
            matching = [r for r in self._rules if r.left != 0 and r.pattern.search(line)]
            delays = [rule for rule in matching if rule.kind == "slow"]
            faults = [rule for rule in matching if rule.kind != "slow"][:1]
            for rule in (*delays, *faults):
                if rule.left is not None:
                    rule.left -= 1
            self.requests.append(Request(line))
        return sum(rule.settings["seconds"] for rule in delays), faults[0] if faults else None

    def wait(self, seconds: float) -> None:
        self._over.wait(seconds)

    def forward(
        self, method: str, path: str, headers: Message, body: bytes | None
    ) -> tuple[int, str, list[tuple[str, str]], bytes]:
        """Send a request on, its Host as received: the signature is of it.

        Of the requests with a condition, one at a time: S3 decides and writes at once, but the
        server looks first and writes then.
        """
        conditional = "if-none-match" in headers or "if-match" in headers
        turn = self._conditional if conditional else nullcontext()
        with turn, closing(HTTPConnection(self._target, timeout=120)) as connection:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                if name.lower() not in ("connection", "expect", "content-length", "keep-alive"):
                    connection.putheader(name, value)
            if body is not None and "transfer-encoding" not in headers:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.reason, answer.getheaders(), answer.read()


class _Server(ThreadingHTTPServer):
    """A server that can close its connections."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: set[socket.socket] = set()
        self._handlers: list[threading.Thread] = []
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        thread = threading.Thread(
            target=self.process_request_thread, args=(request, client_address), daemon=True
        )
        self._handlers.append(thread)
        thread.start()

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._handlers:
            thread.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), (OSError, HTTPException)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers for a proxy."""

    owner: FaultyProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def _answer(self) -> None:
        body = self._body()
        delay, rule = self.owner.begin(f"{self.command} {self.path}")
        self.owner.wait(delay)
        self._follow(rule, body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer

    def _body(self) -> bytes | None:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            read = line = b""
            while not line or int(line, 16):
                line = self.rfile.readline()
                read += line + self.rfile.read(int(line, 16) + 2)
            return read
        length = self.headers.get("Content-Length")
        return None if length is None else self.rfile.read(int(length))

    def _follow(self, rule: _Rule | None, body: bytes | None) -> None:
        kind = rule.kind if rule else None
        settings = rule.settings if rule else {}
        if kind == "drop":
            self.close_connection = True
            return
        if "status" in settings:
            code = {403: "AccessDenied", 500: "InternalError", 503: "SlowDown"}[settings["status"]]
            content = f"<Error><Code>{code}</Code><Message>as told</Message></Error>".encode()
            self._send(settings["status"], code, [("Content-Type", "application/xml")], content)
            return
        status, reason, headers, content = self.owner.forward(
            self.command, self.path, self.headers, body
        )
        if kind == "replace":
            headers = [(n, v) for n, v in headers if not n.lower().startswith("x-amz-checksum")]
            headers = [(n, v) for n, v in headers if n.lower() != "content-length"]
            content = settings["body"]
        size = len(content)
        if kind == "truncate":
            size //= 2
            self.close_connection = True
        stall = settings["seconds"] if kind == "stall" else 0
        self._send(status, reason, headers, content, size=size, stall=stall)

    def _send(
        self,
        status: int,
        reason: str,
        headers: Sequence[tuple[str, str]],
        content: bytes,
        *,
        size: int | None = None,
        stall: float = 0,
    ) -> None:
        self.send_response_only(status, reason)
        bodiless = self.command == "HEAD" or status in (204, 304)
        for name, value in headers:
            if name.lower() in ("connection", "transfer-encoding"):
                continue
            if name.lower() == "content-length" and not bodiless:
                continue
            self.send_header(name, value)
        if not bodiless:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.owner.wait(stall)
        self.wfile.write(b"" if bodiless else content[:size])


@dataclass
class Bucket:
    """A bucket; its objects are read and written directly, not through the proxy."""

    server: S3Server
    name: str
    proxy: FaultyProxy = field(init=False)

    @property
    def url(self) -> str:
        return f"s3://{self.name}"

    def put(self, key: str, content: bytes) -> None:
        self.server.request("PUT", f"/{self.name}/{quote(key)}", content)

    def get(self, key: str) -> bytes:
        return self.server.request("GET", f"/{self.name}/{quote(key)}")

    def delete(self, key: str) -> None:
        self.server.request("DELETE", f"/{self.name}/{quote(key)}")

    def keys(self) -> list[str]:
        found: list[str] = []
        token = ""
        while True:
            page = f"/{self.name}?list-type=2&encoding-type=url{token}"
            listing = ET.fromstring(self.server.request("GET", page))
            space = listing.tag.removesuffix("ListBucketResult")
            found += [unquote(key.text or "") for key in listing.iter(f"{space}Key")]
            following = listing.findtext(f"{space}NextContinuationToken")
            if not following:
                return sorted(found)
            token = f"&continuation-token={quote(following)}"

    def upload(self, folder: Path, prefix: str) -> str:
        """Write all files of a folder below a prefix; return the address."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        return f"{self.url}/{prefix}"


def forget_connections() -> None:
    """Let clients of this process read the environment again; fsspec keeps what it opened."""
    import s3fs  # type: ignore[import-untyped,unused-ignore]

    s3fs.S3FileSystem.clear_instance_cache()


@contextmanager
def served(proxied: FaultyProxy | S3Server) -> Iterator[None]:
    """Lead clients of this process, and of processes that it starts, to a server."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in proxied.environment.items():
            patch.setenv(name, value)
        patch.delenv("AWS_PROFILE", raising=False)
        forget_connections()
        try:
            yield
        finally:
            forget_connections()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One server for all tests of a process."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        pytest.skip(f"an S3 server needs packages that are absent: {', '.join(missing)}")
    with S3Server() as server:
        yield server


_buckets = count()


@pytest.fixture
def s3(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A fresh bucket, through a proxy of its own, with an empty cache of objects."""
    bucket = s3_server.create_bucket(f"bucket-{next(_buckets)}")
    monkeypatch.setenv("OODZOO_CACHE", os.fspath(tmp_path / "object-cache"))
    with FaultyProxy(s3_server.endpoint) as proxy, served(proxy):
        bucket.proxy = proxy
        yield bucket


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients wait one second for an answer, not fifteen."""
    s3fs = pytest.importorskip("s3fs")
    monkeypatch.setattr(s3fs.S3FileSystem, "read_timeout", 1)

"""The S3 server and the proxy of the tests: each fault is what it says."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection, IncompleteRead, RemoteDisconnected
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.s3 import SIGNED, Bucket, S3Server

CONTENT = bytes(range(256)) * 8


def ask(s3: Bucket, key: str = "a/b.png", method: str = "GET", timeout: float = 30) -> Any:
    """Return status, headers and body of a plain request through the proxy."""
    connection = HTTPConnection(urlsplit(s3.proxy.endpoint).netloc, timeout=timeout)
    try:
        connection.request(method, f"/{s3.name}/{key}", headers=SIGNED)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_objects(s3: Bucket) -> None:
    keys = sorted(f"a b/{at:04d} é+&.png" for at in range(1005))  # more than one page of a listing
    for key in keys:
        s3.put(key, key.encode())
    assert s3.keys() == keys
    assert s3.get(keys[7]) == keys[7].encode()
    s3.delete(keys[7])
    assert s3.keys() == keys[:7] + keys[8:]
    with pytest.raises(KeyError):
        s3.get(keys[7])
    assert s3.proxy.requests == []


def test_every_test_has_an_empty_bucket(s3: Bucket) -> None:
    assert s3.keys() == []
    assert not os.path.exists(os.environ["OODZOO_CACHE"])  # noqa: PTH110


def test_clients_find_it_by_the_environment(s3: Bucket) -> None:
    fsspec = pytest.importorskip("fsspec")
    s3.put("a/b.png", CONTENT)
    files = fsspec.filesystem("s3")
    assert files.find(s3.url) == [f"{s3.name}/a/b.png"]
    assert files.cat(f"{s3.url}/a/b.png") == CONTENT
    files.pipe(f"{s3.url}/new é", CONTENT)
    files.pipe(f"{s3.url}/large", bytes(12_000_000), chunksize=6_000_000)  # in two parts
    assert s3.get("new é") == CONTENT
    assert s3.get("large") == bytes(12_000_000)
    assert s3.proxy.asked(r"^GET .*/a/b\.png$")
    assert len(s3.proxy.asked("^PUT .*/large.*partNumber")) == 2


def test_also_from_another_process(s3: Bucket) -> None:
    s3.put("a/b.png", CONTENT)
    program = f"import fsspec; print(len(fsspec.filesystem('s3').cat('{s3.url}/a/b.png')))"
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == (str(len(CONTENT)), "")


def test_the_answer_is_that_of_the_server(s3: Bucket) -> None:
    s3.put("a/b.png", CONTENT)
    status, headers, body = ask(s3)
    assert (status, body) == (200, CONTENT)
    assert headers["Content-Length"] == str(len(CONTENT))
    assert headers["ETag"]
    status, headers, body = ask(s3, method="HEAD")
    assert (status, body) == (200, b"")
    assert headers["Content-Length"] == str(len(CONTENT))
    assert ask(s3, "a/c.png")[0] == 404


@pytest.mark.parametrize("status", [500, 503])
def test_fail(s3: Bucket, status: int) -> None:
    s3.put("a/b.png", CONTENT)
    s3.put("a/c.png", CONTENT)
    s3.proxy.fail(r"/b\.png", status=status, times=2)
    statuses = [ask(s3, key)[0] for key in ("a/b.png", "a/c.png", "a/b.png", "a/b.png")]
    assert statuses == [status, 200, status, 200]
    assert [request.fault for request in s3.proxy.requests] == ["fail", None, "fail", None]


def test_refuse(s3: Bucket) -> None:
    s3.put("a/b.png", CONTENT)
    s3.proxy.refuse("^GET")
    assert [ask(s3)[0] for _ in range(3)] == [403] * 3
    assert ask(s3, method="HEAD")[0] == 200
    s3.proxy.forget()
    assert ask(s3)[0] == 200
    assert len(s3.proxy.requests) == 1


def test_refuse_is_what_clients_call_it(s3: Bucket) -> None:
    fsspec = pytest.importorskip("fsspec")
    s3.put("a/b.png", CONTENT)
    s3.proxy.refuse("")
    with pytest.raises(PermissionError):
        fsspec.filesystem("s3").cat(f"{s3.url}/a/b.png")


def test_drop(s3: Bucket) -> None:
    s3.put("a/b.png", CONTENT)
    s3.proxy.drop("")
    with pytest.raises(RemoteDisconnected):
        ask(s3)
    assert ask(s3)[2] == CONTENT


def test_truncate(s3: Bucket) -> None:
    s3.put("a/b.png", CONTENT)
    s3.proxy.truncate("", size=100)
    with pytest.raises(IncompleteRead) as raised:
        ask(s3)
    assert raised.value.partial == CONTENT[:100]
    assert raised.value.expected == len(CONTENT) - 100
    assert ask(s3)[2] == CONTENT


def test_stall(s3: Bucket) -> None:
    s3.put("a/b.png", CONTENT)
    s3.proxy.stall("")
    connection = HTTPConnection(urlsplit(s3.proxy.endpoint).netloc, timeout=30)
    connection.request("GET", f"/{s3.name}/a/b.png", headers=SIGNED)
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("Content-Length")) == (200, str(len(CONTENT)))
    connection.sock.settimeout(0.5)
    with pytest.raises(TimeoutError):
        answer.read()
    answer.close()
    connection.close()
    assert ask(s3)[2] == CONTENT


def test_a_stall_ends(s3: Bucket) -> None:
    s3.put("a/b.png", CONTENT)
    s3.proxy.stall("", seconds=0.3)
    start = time.monotonic()
    assert ask(s3)[2] == CONTENT
    assert time.monotonic() - start >= 0.3


def test_slow_comes_on_top_of_faults(s3: Bucket) -> None:
    s3.put("a/b.png", CONTENT)
    s3.proxy.slow("", seconds=0.2)
    s3.proxy.fail("")
    start = time.monotonic()
    assert ask(s3)[0] == 503
    assert time.monotonic() - start >= 0.2
    assert ask(s3)[2] == CONTENT
    assert time.monotonic() - start >= 0.4


def test_replace(s3: Bucket) -> None:
    s3.put("a/b.png", CONTENT)
    s3.proxy.replace("", b"other", times=1)
    status, headers, body = ask(s3)
    assert (status, body, headers["Content-Length"]) == (200, b"other", "5")
    assert ask(s3)[2] == CONTENT


def test_requests_at_the_same_time(s3: Bucket) -> None:
    for name in "abc":
        s3.put(f"a/{name}.png", CONTENT)
    for name in "abc":
        ask(s3, f"a/{name}.png")
    assert s3.proxy.most_at_once() == 1
    s3.proxy.slow("", seconds=1)
    threads = [threading.Thread(target=ask, args=(s3, f"a/{name}.png")) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert s3.proxy.most_at_once() == 3
    assert s3.proxy.most_at_once(r"/[ab]\.png") == 2
    assert all(request.ended for request in s3.proxy.requests)


def test_the_server_ends_with_its_parent() -> None:
    pytest.importorskip("moto")
    program = (
        "from tests.s3 import S3Server; import os\n"
        "print(S3Server().endpoint, flush=True); os.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    address = urlsplit(done.stdout.strip()).netloc
    assert address.startswith("127.0.0.1:")
    for _ in range(100):
        connection = HTTPConnection(address, timeout=5)
        try:
            connection.connect()
        except ConnectionRefusedError:
            return
        except ConnectionResetError:  # it is about to end
            pass
        finally:
            connection.close()
        time.sleep(0.1)
    pytest.fail("the server is alive")


def test_a_server_of_its_own() -> None:
    pytest.importorskip("moto")
    with S3Server() as server:
        server.create_bucket("one")
        server.put("one", "key", b"content")
        assert server.keys("one") == ["key"]
        assert server.get("one", "key") == b"content"

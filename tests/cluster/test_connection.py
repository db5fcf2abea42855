"""Addresses where no cluster answers, and clusters that cannot be used."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.conftest import Command
from tests.conftest import Outcome
from tests.fixtures import draw_digits
from tests.raylets import Cluster

START = "start one with `ray start --head`, or leave the address out to use this machine"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_digits(tmp_path_factory.mktemp("images") / "images", 4)


@pytest.fixture
def extract(images: Path, command: Command, tmp_path: Path) -> Iterator[Command]:
    """Extract with other options; nothing may be written."""

    def extract(*options: str) -> Outcome:
        arguments = ["--zoo", "demo", "--store", tmp_path / "store", "--engine", "ray"]
        return command("extract", images, *arguments, *options, ray=False)

    yield extract
    assert not (tmp_path / "store").exists()


def test_an_address_where_no_cluster_answers(extract: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, _web_server() as web:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        complaint = extract("--address", address).complaint
        assert complaint == f"oodzoo: no Ray cluster answers at {address!r} within 20 s; {START}"
        complaint = extract("--address", web).complaint
        assert complaint.startswith(f"oodzoo: no Ray cluster answers at {web!r}")


def test_another_token_is_rejected(
    head: Cluster, extract: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")
    if not hasattr(ray.exceptions, "AuthenticationError"):
        pytest.skip(f"Ray {ray.__version__} has no tokens")
    monkeypatch.setitem(head.environment, "RAY_AUTH_TOKEN", "f" * 32)
    complaint = extract("--address", head.address).complaint
    rejects = f"the Ray cluster {head.address!r} rejects the token of this process"
    assert complaint.startswith(f"oodzoo: {rejects}; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN")


def test_a_cluster_without_a_gpu(head: Cluster, extract: Command) -> None:
    complaint = extract("--address", head.address, "--device", "cuda").complaint
    assert complaint == "oodzoo: the device is 'cuda', but the Ray cluster has no GPU; use cpu"


@contextmanager
def _web_server() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()

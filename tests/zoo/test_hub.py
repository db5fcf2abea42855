"""Models of a hub that cannot be reached, or that refuses: one line, each thing said once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.text_models import sentence_transformers
from tests.zoo.data import SQUASH, VIT, save_checkpoint

SOURCES = (
    "timm/resnet10t.c3_in1k",
    "timm/hf-hub:owner/name",
    "hf/facebook/dinov2-small",
    "open_clip/ViT-B-32/laion2b_s34b_b79k",
    "sentence-transformers/all-MiniLM-L6-v2",
)
PROGRAM = """
import sys
from oodzoo.core.errors import InputError
from oodzoo.zoo import ModelSpec, load_model
for source in sys.argv[1:]:
    try:
        load_model(ModelSpec("net", source))
    except InputError as error:
        print(error)
"""


@pytest.fixture(autouse=True)
def _packages(timm: Any, transformers: Any, open_clip: Any) -> None:
    """All libraries of the hub; other tests skip where one is missing."""
    sentence_transformers()


def require_once(message: str, source: str) -> None:
    """No word of a message is repeated, besides short ones and those of names and paths."""
    words = re.findall(r"[a-z_]{4,}", re.sub("'.*?'", "", message.replace(source, "")).lower())
    repeated = [word for word, n in Counter(words).items() if n > 1]
    assert not repeated, message


def run(
    folder: Path, endpoint: str, *sources: str, program: str = PROGRAM
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_HOME": str(folder), "HF_ENDPOINT": endpoint}
    environment |= {"HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1"}
    return subprocess.run(
        [sys.executable, "-c", program, *sources],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,  # the libraries themselves would try again for minutes
    )


def test_unreachable(tmp_path: Path) -> None:
    done = run(tmp_path, "http://127.0.0.1:9", *SOURCES)
    lines = done.stdout.splitlines()
    assert len(lines) == len(SOURCES)
    for source, line in zip(SOURCES, lines, strict=True):
        assert line.startswith(f"model 'net': {source} is not in the cache ")
        assert "http://127.0.0.1:9 cannot be reached (" in line
        require_once(line, source)
    assert "Retrying" not in done.stderr
    assert "refused" not in done.stderr


class Refusing(BaseHTTPRequestHandler):
    """A hub that has no such repository."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def refusing() -> Iterator[str]:
    Refusing.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_repository_that_does_not_exist(refusing: str, tmp_path: Path) -> None:
    lines = run(tmp_path, refusing, *SOURCES).stdout.splitlines()
    assert len(lines) == len(SOURCES)
    for source, line in zip(SOURCES, lines, strict=True):
        expected = f"model 'net': {refusing} has nothing for {source} that you may read; check its"
        assert line.startswith(expected)
        require_once(line, source)
    assert Refusing.asked.count("/") == 1  # whether it answers is asked once


def test_a_cached_model_loads_without_a_hub(transformers: Any, torch: Any, tmp_path: Path) -> None:
    snapshot = tmp_path / "hub" / "models--owner--net" / "snapshots" / "0"
    config = transformers.ViTConfig(**VIT)
    save_checkpoint(transformers, transformers.ViTModel(config), snapshot, SQUASH)
    refs = tmp_path / "hub" / "models--owner--net" / "refs"
    refs.mkdir()
    (refs / "main").write_text("0")
    program = PROGRAM.replace('ModelSpec("net", source))', 'ModelSpec("net", source)); print("ok")')
    done = run(tmp_path, "http://127.0.0.1:9", "hf/owner/net", program=program)
    assert done.stdout == "ok\n", done.stderr

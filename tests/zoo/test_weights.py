"""Weights in local caches, and descriptions of repositories by a hub on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.zoo.listing.data import cache_file

from oodzoo.zoo.weights import (
    Card,
    Weights,
    hub_card,
    hub_weights,
    known_licence,
    local_weights,
    url_weights,
)


def test_a_local_file_or_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name, size in {"w.bin": 30, "config.json": 5}.items():
        (tmp_path / "a" / name).write_bytes(b"x" * size)
    assert local_weights(tmp_path / "a") == Weights(tmp_path, True, 35)
    assert local_weights(tmp_path / "a" / "w.bin") == Weights(tmp_path / "a", True, 30)


def test_torch_hub(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder, url = tmp_path / "hub" / "checkpoints", "https://example.org/a/net-1.pth?x=1"
    assert url_weights(torch, url, 7) == Weights(folder, False, 7)
    folder.mkdir(parents=True)
    (folder / "net-1.pth").write_bytes(b"12345")
    assert url_weights(torch, url, 7) == Weights(folder, True, 5)


def test_the_cache_of_hugging_face(hub_cache: Path) -> None:
    files = ("model.safetensors", "pytorch_model.bin")
    assert hub_weights("me/net", files, 7) == Weights(hub_cache, False, 7)
    cache_file(hub_cache, "me/net", "pytorch_model.bin", b"123")
    assert hub_weights("me/net", files, 7) == Weights(hub_cache, True, 3)
    assert not hub_weights("me/net@v2", files, 7).is_local
    cache_file(hub_cache, "me/net", "model.safetensors", b"12345")
    assert hub_weights("me/net", files, 7).size == 5
    cache_file(hub_cache, "me/parts", "model.safetensors.index.json", b"{}")
    assert hub_weights("me/parts", ("model.safetensors.index.json",), None) == Weights(
        hub_cache, True, None
    )


def test_offline_the_hub_is_not_asked(hub_cache: Path) -> None:
    assert hub_card("me/offline") == Card()


@pytest.mark.parametrize(
    ("stated", "known"),
    [("mit", "mit"), ("other", None), ("unknown", None), (None, None), (["mit"], None), ("", None)],
)
def test_licences(stated: object, known: str | None) -> None:
    assert known_licence(stated) == known


# --- online: another process asks a server on this machine --------------------------------------

REPOSITORIES: dict[str, dict[str, Any]] = {
    "me/net": {
        "pipeline_tag": "image-feature-extraction",
        "cardData": {"license": "apache-2.0"},
        "siblings": {"config.json": 9, "model.safetensors": 1000, "pytorch_model.bin": 1100},
    },
    "me/old": {
        "pipeline_tag": "image-classification",
        "cardData": {"license": "other", "license_name": "my-licence"},
        "siblings": {"pytorch_model.bin": 77, "onnx/model.bin": 5},
    },
    "me/words": {"pipeline_tag": "text-generation", "cardData": {}, "siblings": {}},
}


class Hub(BaseHTTPRequestHandler):
    """The parts of the Hub's API that are used."""

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        name = path.removeprefix("/api/models").strip("/")
        if not name:
            assert query["author"] == ["me"]
            self._send(200, [self._info(each) for each in REPOSITORIES])
        elif name in REPOSITORIES:
            self._send(200, self._info(name))
        else:
            self._send(404, {"error": "Repository not found"})

    def _info(self, name: str) -> dict[str, Any]:
        known = REPOSITORIES[name]
        files = [{"rfilename": file, "size": size} for file, size in known["siblings"].items()]
        return {"id": name, "modelId": name, **known, "siblings": files}

    def _send(self, code: int, document: Any) -> None:
        content = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def online(code: str, endpoint: str) -> list[str]:
    """The lines that another process writes, which uses this hub."""
    settings = {"HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_TELEMETRY": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **settings, "no_proxy": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_cards(hub: str, hub_cache: Path) -> None:
    code = """
from oodzoo.zoo.weights import hub_card
for name in ("me/net", "me/old", "me/words", "me/none"):
    card = hub_card(name)
    print(card.licence, card.size)
"""
    expected = ["apache-2.0 1000", "my-licence 77", "None None", "None None"]
    assert online(code, hub) == expected


def test_models_of_an_owner(hub: str, hub_cache: Path) -> None:
    code = """
import oodzoo
for zoo in ("hf/me/*", "hf/me/n*", "hf/me/w*"):
    try:
        print(*(spec.source for spec in oodzoo.load_zoo(zoo)))
    except oodzoo.InputError as error:
        print(error)
"""
    assert online(code, hub) == [
        "hf/me/net hf/me/old",
        "hf/me/net",
        "hf has no pre-trained model that matches 'me/w*'; did you mean me/o* or me/n*?",
    ]


def test_a_hub_that_cannot_be_reached(hub_cache: Path) -> None:
    code = """
import oodzoo
from oodzoo.zoo import weights
print(weights.hub_card("me/net"), weights._is_unreachable)
try:
    oodzoo.load_zoo("hf/me/*")
except oodzoo.InputError as error:
    print(error)
"""
    first, second = online(code, "http://127.0.0.1:9")
    assert first == "Card(licence=None, size=None) True"
    assert second.startswith("the zoo 'hf/me/*' needs the Hugging Face Hub, which cannot be")

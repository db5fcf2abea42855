"""What is known about models that are not loaded; a hub on this machine describes repositories."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.zoo.data import cache_file

from oodzoo.core.errors import InputError
from oodzoo.zoo import load_zoo
from oodzoo.zoo import torch_source as measuring
from oodzoo.zoo.listing import ListedModel, select_models
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.torch_source import remembered
from oodzoo.zoo.weights import (
    Measured,
    Weights,
    hub_weights,
)


def test_what_a_zoo_states_is_believed() -> None:
    spec = ModelSpec("net", "onnx/none.onnx", parameters=5, licence="mit")
    model = ListedModel(spec)
    assert (model.name, model.parameters, model.licence) == ("net", 5, "mit")
    assert (model.is_local, model.size, model.weights) == (None, None, None)
    assert model.to_dict() == {**spec.to_dict(), "size": None, "cached": None}


def test_unknown_licences_are_left_out_with_a_warning() -> None:
    known = ModelSpec("known", "onnx/x.onnx", licence="MIT")
    others = [ModelSpec(f"net{i}", f"onnx/{i}.onnx") for i in range(5)]
    expected = (
        "--licence mit leaves out 5 models whose licence is unknown: net0, net1, net2 and 2 more"
    )
    with pytest.warns(UserWarning, match="unknown") as caught:
        assert select_models([known, *others], licence="mit") == [ListedModel(known)]
    assert [str(each.message) for each in caught] == [expected]


def test_models_that_do_not_meet_a_constraint_need_no_warning() -> None:
    specs = load_zoo("demo")
    kept = select_models(specs, licence="apache-2.0", max_parameters="40K")
    assert [m.spec for m in kept] == [s for s in specs if (s.parameters or 0) <= 40_000]
    with pytest.raises(InputError, match="no model meets --max-parameters 1K: the smallest"):
        select_models(specs, max_parameters="1K")


# --- sizes ----------------------------------------------------------------------------------------


SPEC = ModelSpec("net", "timm/net")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OODZOO_CACHE", str(tmp_path))
    return tmp_path / "sizes" / f"numpy-{version('numpy')}.jsonl"


def forget() -> None:
    """As another process, which has not read any file."""
    measuring._read.cache_clear()


def never() -> Measured:
    raise AssertionError("it is known already")


def test_a_size_is_computed_once(file: Path) -> None:
    assert remembered("numpy", SPEC, "a", lambda: Measured(3, 12)) == Measured(3, 12)
    assert remembered("numpy", SPEC, "b", lambda: Measured(4)) == Measured(4)
    assert remembered("numpy", SPEC, "a", never) == Measured(3, 12)
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        ["a", 3, 12],
        ["b", 4, None],
    ]
    forget()
    assert remembered("numpy", SPEC, "a", never) == Measured(3, 12)
    assert remembered("numpy", SPEC, "b", never) == Measured(4)


def test_models_that_may_change_are_not_remembered(file: Path) -> None:
    for source in ("hf/./folder", "timm/local-dir:x", "timm/hf-hub:me/x"):
        remembered("numpy", ModelSpec("net", source), "a", lambda: Measured(3))
    assert not file.exists()


def test_lines_that_are_not_complete_are_ignored(file: Path) -> None:
    file.parent.mkdir()
    file.write_text('["a", 3, 12]\n["b", "x", 4]\n{}\nnull\n["c", 5, 2')
    assert remembered("numpy", SPEC, "a", never) == Measured(3, 12)
    assert remembered("numpy", SPEC, "b", lambda: Measured(7)) == Measured(7)
    forget()
    assert remembered("numpy", SPEC, "c", lambda: Measured(8)) == Measured(8)


# --- weights in caches ----------------------------------------------------------------------------


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

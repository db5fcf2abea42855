"""Predictors on a hub: pushed to a server on this machine, and loaded from it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.predictor.hub_server import TOKEN, Hub, serving

import oodzoo
from oodzoo import InputError
from oodzoo.predictor.card import model_card
from oodzoo.zoo import hub as zoo_hub

NAME = "ada/digits"
URL = f"hf://{NAME}"


@pytest.fixture
def constants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The settings of huggingface_hub, with an empty cache and no token."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(zoo_hub, "_reached", False)
    monkeypatch.setattr(zoo_hub, "_failure", (float("-inf"), ""))
    return constants


@pytest.fixture
def hub(constants: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """An empty hub."""
    with serving() as found:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", found.url)
        template = found.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield found


def models(url: str) -> list[str]:
    return [model.name for model in oodzoo.load(url, device="cpu").models]


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def test_pushed_and_loaded(
    predictor: oodzoo.Predictor, hub: Hub, unseen: list[Path], tmp_path: Path
) -> None:
    assert predictor.push_to_hub(NAME, private=True, token=TOKEN) == f"{hub.url}/{NAME}"
    (settings,) = hub.settings
    assert settings.get("private") is True or settings.get("visibility") == "private"
    assert len(hub.commits) == 2  # all files in one, after the first of the repository
    files = hub.files(NAME)
    assert files["README.md"].decode() == model_card(predictor, URL)
    assert b'oodzoo.load("hf://ada/digits")' in files["README.md"]
    expected = predictor.predict_proba(unseen)
    hub.asked.clear()
    for loaded in (oodzoo.load(write(tmp_path / "copy", files)), oodzoo.load(URL, device="cpu")):
        np.testing.assert_array_equal(loaded.predict_proba(unseen), expected)
        assert loaded.provenance == predictor.provenance
    # the other files are of the same commit, whatever is pushed meanwhile
    assert {line.rpartition("/")[2] for line in hub.asked if "/main/" in line} == {"predictor.json"}


def test_a_predictor_is_replaced_and_other_files_stay(
    predictor: oodzoo.Predictor, other: oodzoo.Predictor, hub: Hub
) -> None:
    predictor.push_to_hub(NAME, token=TOKEN)
    first = hub.commit(NAME, {**hub.files(NAME), "notes.txt": b"mine"})
    assert models(URL) == [model.name for model in predictor.models]
    other.push_to_hub(NAME, token=TOKEN, commit_message="Another one")
    assert set(hub.files(NAME)) == {
        *(".gitattributes", "README.md", "notes.txt", "predictor.json", "head.safetensors"),
        *("gaussian.safetensors", "models/mlp_glyphs_augmented.onnx"),
    }
    assert models(URL) == ["mlp_glyphs_augmented"]
    assert models(f"{URL}@{first}") == [model.name for model in predictor.models]
    assert hub.files(NAME)["README.md"].decode() == model_card(other, URL)
    for _ in range(2):  # a branch
        url = predictor.push_to_hub(NAME, token=TOKEN, revision="large")
        assert url == f"{hub.url}/{NAME}/tree/large"
        assert models(f"{URL}@large") == [model.name for model in predictor.models]
        assert models(URL) == ["mlp_glyphs_augmented"]
    edited = hub.files(NAME)["README.md"] + b"Mine.\n"
    hub.commit(NAME, {**hub.files(NAME), "README.md": edited})
    with pytest.warns(UserWarning, match=rf"'{URL}/README.md' was edited.* and is kept"):
        predictor.push_to_hub(NAME, token=TOKEN)
    assert hub.files(NAME)["README.md"] == edited


def test_what_is_not_pushed(
    predictor: oodzoo.Predictor, hub: Hub, constants: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(says: str, name: str = NAME, token: str | None = TOKEN) -> None:
        with pytest.raises(InputError, match=says) as error:
            predictor.push_to_hub(name, token=token)
        assert "\n" not in str(error.value)
        assert token is None or token not in str(error.value)

    start = f"^cannot push to '{NAME}': "
    refused(f"{start}there is no token; log in with `hf auth login`", token=None)
    refused(f"{start}.*401 .*the token is not valid", token="wrong")
    refused("^cannot push to 's.*': .*403 .*the token may not write there", "somebody-else/x")
    for name in ("digits", "a/b/c", "ada/", "ada/x y", ""):
        refused("must be 'owner/name', got '", name)
    assert not hub.repositories
    other: list[dict[str, bytes]] = [{"a": b""}, {"predictor.json": b"{}"}, {"b/README.md": b""}]
    for files in other:
        hub.commit(NAME, files)
        refused(rf"^'{NAME}' exists and is not a predictor; choose")
        assert hub.files(NAME) == files
    # what was loaded once is read again from the cache
    predictor.push_to_hub("ada/known", token=TOKEN)
    expected = models("hf://ada/known")
    hub.asked.clear()
    with monkeypatch.context() as patch:
        patch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
        patch.setattr(zoo_hub, "_reached", False)
        assert models("hf://ada/known") == expected
        refused("'ada/digits': http://127.0.0.1:9 cannot be reached")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert models("hf://ada/known") == expected
    assert not hub.asked
    refused(f"{start}HF_HUB_OFFLINE is on; un")
    with pytest.raises(InputError, match=r"^'hf://ada/x' is not in the cache '.*', and HF_HUB_OFF"):
        oodzoo.load("hf://ada/x")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for action in (lambda: predictor.push_to_hub(NAME), lambda: oodzoo.load(URL)):
        with pytest.raises(InputError, match=r"huggingface_hub.*\[hub\]"):
            action()


def test_files_are_checked(predictor: oodzoo.Predictor, hub: Hub) -> None:
    predictor.push_to_hub(NAME, token=TOKEN)
    files = hub.files(NAME)
    document = json.loads(files["predictor.json"])
    document["files"]["../evil"] = "0" * 64
    lost = {path: each for path, each in files.items() if path != "head.safetensors"}
    cases: list[tuple[dict[str, bytes], str]] = [
        ({"config.json": b"{}"}, rf"^'{URL}' is not a predictor: it has no predictor.json"),
        ({"predictor.json": b"{}"}, rf"'{URL}.* was not written by oodzoo"),
        ({"predictor.json": b"{"}, rf"'{URL}.* is damaged"),
        (files | {"head.safetensors": b""}, rf"'{URL}/head.safetensors' has the sha256 .* saved"),
        (lost, rf"predictor '{URL}' lacks 'head.safetensors'; push it"),
        (files | {"predictor.json": json.dumps(document).encode()}, "is not inside its folder; fi"),
    ]
    for content, message in cases:
        hub.commit(NAME, content)
        with pytest.raises(InputError, match=message):
            oodzoo.load(URL)
    hub.commit(NAME, {f"sub/{path}": each for path, each in files.items()})
    assert models(f"{URL}/sub") == [model.name for model in predictor.models]
    for url in (f"{URL}@v9", "hf://ada/other"):
        with pytest.raises(InputError, match=rf"has nothing at '{url}' that you may read; check"):
            oodzoo.load(url)
    with pytest.raises(InputError, match=r"'hf://digits' is not a repository; expected hf://own"):
        oodzoo.load("hf://digits")

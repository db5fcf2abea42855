"""A predictor at a URL; what is there is written and read as other processes would."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.s3 import Bucket

import oodzoo
from oodzoo import InputError
from oodzoo.core.io import locked
from oodzoo.core.remote.cache import cached_file
from oodzoo.core.remote.location import Url, parse_location
from oodzoo.core.remote.objects import list_files, read_file, remove_files, write_file
from oodzoo.predictor import remote
from oodzoo.predictor.card import model_card


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own."""
    folder = tmp_path / "object-cache"
    monkeypatch.setenv("OODZOO_CACHE", str(folder))
    return folder


@pytest.fixture
def url() -> str:
    """An empty place in memory."""
    pytest.importorskip("fsspec")
    return f"memory://{secrets.token_hex(8)}/model"


def paths(url: str) -> list[str]:
    return [file.url.removeprefix(f"{url}/") for file in list_files(Url(url))]


def models(url: str) -> list[str]:
    return [model.name for model in oodzoo.load(url, device="cpu").models]


def content(url: str, path: str) -> bytes:
    (file,) = (file for file in list_files(Url(url)) if file.url == f"{url}/{path}")
    return read_file(file)


def test_it_is_saved_and_loaded(
    predictor: oodzoo.Predictor, s3: Bucket, unseen: list[Path], cache: Path, tmp_path: Path
) -> None:
    """Files are written in order, and fetched once."""
    url = f"{s3.url}/some/model"
    assert predictor.save(url) == Url(url)
    written = [request.line.rpartition("/")[2] for request in s3.proxy.asked("^PUT")]
    assert len(written) == len(s3.keys()) == 6
    assert written[-2:] == ["predictor.json", "README.md"]  # the document names the others
    assert content(url, "README.md").decode() == model_card(predictor, url)
    s3.proxy.forget()
    for _ in range(2):
        loaded = oodzoo.load(f"{url}/", device="cpu")
        assert len(s3.proxy.asked("^GET")) == 5
    for file in (cache / "objects").rglob("*.safetensors"):  # a damaged one is fetched again
        damaged = bytes(file.stat().st_size)
        file.unlink()  # it is linked
        file.write_bytes(damaged)
    assert oodzoo.load(url).provenance == predictor.provenance
    shutil.rmtree(cache / "objects")  # the cache may lose its files
    expected = predictor.predict_proba(unseen)
    np.testing.assert_array_equal(loaded.predict_proba(unseen), expected)
    assert loaded.save(url) == Url(url)  # where its models come from
    again = oodzoo.load(url, device="cpu")
    np.testing.assert_array_equal(again.predict_proba(unseen), expected)
    uri = (tmp_path / "a model").as_uri()
    assert predictor.save(uri) == tmp_path / "a model" == parse_location(uri)
    assert oodzoo.load(uri).provenance == predictor.provenance


@pytest.mark.parametrize("is_copied", [False, True])
def test_a_predictor_is_replaced(
    predictor: oodzoo.Predictor, other: oodzoo.Predictor, saved: Path, url: str, is_copied: bool
) -> None:
    """Also one whose folder was copied there; a card that was edited is kept."""
    if is_copied:
        for file in saved.rglob("*.*"):
            write_file(Url(url) / file.relative_to(saved).as_posix(), file.read_bytes())
    else:
        predictor.save(url)
    assert models(url) == [model.name for model in predictor.models]
    before = set(paths(url)) - {"predictor.json", "README.md"}
    # what killed processes left is removed a day later
    now, yesterday = (f"version-{int(time.time()) - ago:08x}00000000" for ago in (0, 25 * 3600))
    for name in ("notes.txt", f"{now}/head.safetensors", f"{yesterday}/head.safetensors"):
        write_file(Url(url) / name, b"mine")
    other.save(url)
    assert models(url) == ["mlp_glyphs_augmented"]
    after = set(paths(url))
    assert not {*before, f"{yesterday}/head.safetensors"} & after
    assert {"notes.txt", f"{now}/head.safetensors"} < after
    assert len(after) == 7
    assert content(url, "README.md").decode() == model_card(other, url)
    write_file(Url(url) / "README.md", b"mine")
    with pytest.warns(UserWarning, match=rf"'{url}/README.md' was edited.* and is kept"):
        predictor.save(url)
    assert content(url, "README.md") == b"mine"


def test_a_predictor_that_is_replaced_while_it_is_read(
    predictor: oodzoo.Predictor,
    other: oodzoo.Predictor,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    predictor.save(url)
    real = remote._verified
    replaced: list[object] = []

    def verified(*args: Any) -> Path:
        if not replaced:
            replaced.append(other.save(url))
        return real(*args)

    monkeypatch.setattr(remote, "_verified", verified)
    assert models(url) == ["mlp_glyphs_augmented"]
    assert replaced


def test_something_else_is_refused(predictor: oodzoo.Predictor, url: str) -> None:
    place = Url(url)
    refused = rf"^'{url}' exists and is not a predictor; choose another URL$"
    document = b'{"kind": "oodzoo predictor"%s}'
    for name, given, words in [
        ("mine.txt", b"mine", "it has no predictor.json"),
        ("predictor.json", b"{}", "its predictor.json was not written by oodzoo"),
        ("predictor.json", b"{", "is damaged: .*; fit again"),
        ("predictor.json", document % b"", "is damaged: .*files"),
        ("predictor.json", document % b', "files": {}, "models": []', "not match its checksum"),
    ]:
        write_file(place / name, given)
        if b"files" not in given:
            with pytest.raises(InputError, match=refused):
                predictor.save(url)
        with pytest.raises(InputError, match=rf"'{url}.*{words}") as error:
            oodzoo.load(url)
        assert "object-cache" not in str(error.value)
        assert paths(url) == [name]
        remove_files([place / name])
    write_file(place, b"mine")
    with pytest.raises(InputError, match=refused):
        predictor.save(url)
    remove_files([place])
    with pytest.raises(InputError, match=rf"^'{url}' is not a predictor: it has no predictor.j"):
        oodzoo.load(url)
    predictor.save(f"{url}/model")
    with pytest.raises(InputError, match=rf"; did you mean '{url}/model'\?$"):
        oodzoo.load(url)


def test_a_missing_changed_or_outer_file(
    predictor: oodzoo.Predictor, url: str, cache: Path
) -> None:
    predictor.save(url)
    for path in [name for name in paths(url) if name.endswith("head.safetensors")]:
        file = next(f for f in list_files(Url(url)) if f.url.endswith(path))
        whole = cached_file(file).read_bytes()
        write_file(Url(url) / path, whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(InputError, match=rf"^'{url}/{path}' has the sha256 .* saved with"):
            oodzoo.load(url)
        remove_files([Url(url) / path])
        with pytest.raises(InputError, match=rf"^the predictor '{url}' lacks '{path}'; copy"):
            oodzoo.load(url)
        write_file(Url(url) / path, whole)
    assert oodzoo.load(url).provenance == predictor.provenance
    document = json.loads(content(url, "predictor.json"))
    for name in ("../evil", "/evil", "a/../../evil", "a\\..\\evil"):
        outer = document | {"files": document["files"] | {name: "0" * 64}}
        write_file(Url(url) / "predictor.json", json.dumps(outer).encode())
        with pytest.raises(InputError, match="which is not inside its folder; fit again"):
            oodzoo.load(url)
    assert not list(cache.rglob("evil"))


def test_what_killed_processes_left_in_the_cache(
    predictor: oodzoo.Predictor, url: str, cache: Path
) -> None:
    predictor.save(url)
    killed, living, new = (cache / "predictors" / name for name in ("killed", "living", "new"))
    for folder in (killed, living, new):
        folder.mkdir(parents=True)
    with locked(living):
        for folder in (killed, living):
            os.utime(folder, (0, 0))
        oodzoo.load(url)
        assert [folder.exists() for folder in (killed, living, new)] == [False, True, True]

"""A predictor at a URL."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.killing import needs_fork
from tests.s3 import Bucket

import oodzoo
from oodzoo import InputError
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
def in_memory() -> str:
    """An empty place in memory."""
    pytest.importorskip("fsspec")
    return f"memory://{secrets.token_hex(8)}/model"


@pytest.fixture(params=["memory", "s3"])
def place(request: pytest.FixtureRequest) -> str:
    """An empty place, in memory or on a server."""
    if request.param == "s3":
        return f"{request.getfixturevalue('s3').url}/some/model"
    found: str = request.getfixturevalue("in_memory")
    return found


def paths(url: str) -> list[str]:
    return [file.url.removeprefix(f"{url}/") for file in list_files(Url(url))]


def models(url: str) -> list[str]:
    return [model.name for model in oodzoo.load(url, device="cpu").models]


def card(url: str) -> str:
    (file,) = (file for file in list_files(Url(url)) if file.url == f"{url}/README.md")
    return read_file(file).decode()


def upload(folder: Path, url: str) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            write_file(Url(url) / file.relative_to(folder).as_posix(), file.read_bytes())


def test_files_are_written_and_fetched_once_and_in_order(
    predictor: oodzoo.Predictor, s3: Bucket, cache: Path
) -> None:
    url = f"{s3.url}/model"
    assert predictor.save(url) == Url(url)
    written = [request.line.rpartition("/")[2] for request in s3.proxy.asked("^PUT")]
    assert len(written) == len(s3.keys()) == 6
    assert written[-2:] == ["predictor.json", "README.md"]  # the document names the others
    s3.proxy.forget()
    for _ in range(2):
        oodzoo.load(url)
        assert len(s3.proxy.asked("^GET")) == 5
    for file in (cache / "objects").rglob("*.safetensors"):  # a damaged one is fetched again
        content = file.read_bytes()
        file.unlink()  # it is linked
        file.write_bytes(bytes(len(content)))
    assert oodzoo.load(url).provenance == predictor.provenance


def test_a_predictor_is_saved_and_loaded(
    predictor: oodzoo.Predictor, place: str, unseen: list[Path], cache: Path
) -> None:
    predictor.save(place)
    names = paths(place)
    assert names[:2] == ["README.md", "predictor.json"]
    assert {name.partition("/")[0].partition("-")[0] for name in names[2:]} == {"version"}
    loaded = oodzoo.load(f"{place}/", device="cpu")
    shutil.rmtree(cache / "objects")  # the cache may lose its files
    expected = predictor.predict_proba(unseen)
    np.testing.assert_array_equal(loaded.predict_proba(unseen), expected)
    assert loaded.provenance == predictor.provenance
    assert loaded.save(place) == Url(place)  # where its models come from
    again = oodzoo.load(place, device="cpu")
    np.testing.assert_array_equal(again.predict_proba(unseen), expected)


def test_a_predictor_that_was_copied_from_a_url(
    predictor: oodzoo.Predictor, other: oodzoo.Predictor, s3: Bucket, tmp_path: Path
) -> None:
    predictor.save(f"{s3.url}/model")
    folder = tmp_path / "copy"
    keys = s3.keys()
    for key in keys:
        file = tmp_path / "copy" / key.removeprefix("model/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(s3.get(key))
    assert oodzoo.load(folder).provenance == predictor.provenance
    other.save(folder)
    assert oodzoo.load(folder).provenance == other.provenance
    assert len(list(folder.glob("version-*"))) == 1


@pytest.mark.parametrize("is_copied", [False, True])
def test_a_predictor_is_replaced(
    predictor: oodzoo.Predictor, other: oodzoo.Predictor, saved: Path, place: str, is_copied: bool
) -> None:
    """Also one whose folder was copied there; a card that was edited is kept."""
    if is_copied:
        upload(saved, place)
        assert models(place) == [model.name for model in predictor.models]
    else:
        predictor.save(place)
        assert card(place) == model_card(predictor._parts(), place)
    write_file(Url(place) / "notes.txt", b"mine")
    before = set(paths(place)) - {"predictor.json", "README.md", "notes.txt"}
    other.save(place)
    assert models(place) == ["mlp_glyphs_augmented"]
    after = set(paths(place))
    assert not before & after
    assert len(after) == 6
    assert "notes.txt" in after
    assert card(place) == model_card(other._parts(), place)
    write_file(Url(place) / "README.md", b"mine")
    with pytest.warns(UserWarning, match=rf"'{place}/README.md' was edited.* and is kept"):
        predictor.save(place)
    assert card(place) == "mine"


SAVE = "import sys, oodzoo; oodzoo.load(sys.argv[1]).save(sys.argv[2])"


@needs_fork
@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("moment", ["gaussian", "onnx", "predictor.json"])
def test_an_upload_that_fails_or_is_killed_leaves_the_old_predictor(
    predictor: oodzoo.Predictor,
    other: oodzoo.Predictor,
    s3: Bucket,
    process: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
    moment: str,
    is_killed: bool,
) -> None:
    url, at = f"{s3.url}/model", f"^PUT .*{moment}"
    predictor.save(url)
    before = s3.keys()
    s3.proxy.forget()
    if is_killed:
        s3.proxy.slow(at, seconds=600)
        child = process(SAVE, other.save(tmp_path / "other"), url)
        while not s3.proxy.asked(at):
            assert child.poll() is None, child.communicate()[1]
            time.sleep(0.05)
        child.send_signal(signal.SIGKILL)
        child.wait()
    else:
        s3.proxy.fail(at, times=None)
        with pytest.raises(InputError, match=rf"^'{url}/.*{moment}.*': .*as told"):
            other.save(url)
    s3.proxy.forget()
    assert models(url) == [model.name for model in predictor.models]
    if not is_killed and moment != "predictor.json":  # whose writing may have succeeded
        assert s3.keys() == before
    other.save(url)
    assert models(url) == ["mlp_glyphs_augmented"]


def test_what_killed_processes_left_is_removed_a_day_later(
    predictor: oodzoo.Predictor, in_memory: str
) -> None:
    predictor.save(in_memory)
    now = f"{int(time.time()):08x}"
    yesterday = f"{int(time.time()) - 25 * 3600:08x}"
    for then in (now, yesterday):
        write_file(Url(in_memory) / f"version-{then}00000000/head.safetensors", b"half")
    predictor.save(in_memory)
    left = {path.partition("/")[0] for path in paths(in_memory)}
    assert f"version-{now}00000000" in left
    assert f"version-{yesterday}00000000" not in left
    assert len(left) == 4


def test_a_predictor_that_is_replaced_while_it_is_read(
    predictor: oodzoo.Predictor,
    other: oodzoo.Predictor,
    in_memory: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    predictor.save(in_memory)
    real = remote._verified
    replaced: list[object] = []

    def verified(*args: Any) -> Path:
        if not replaced:
            replaced.append(other.save(in_memory))
        return real(*args)

    monkeypatch.setattr(remote, "_verified", verified)
    assert models(in_memory) == ["mlp_glyphs_augmented"]
    assert replaced


def test_something_else_is_refused(predictor: oodzoo.Predictor, place: str) -> None:
    url = Url(place)
    with pytest.raises(InputError, match=rf"^'{place}' is not a predictor: it has no predictor.j"):
        oodzoo.load(place)
    refused = rf"^'{place}' exists and is not a predictor; choose another URL$"
    document = b'{"kind": "oodzoo predictor"%s}'
    for name, content, words in [
        ("mine.txt", b"mine", "it has no predictor.json"),
        ("predictor.json", b"{}", "its predictor.json was not written by oodzoo"),
        ("predictor.json", b"{", "is damaged: .*; fit again"),
        ("predictor.json", document % b"", "is damaged: .*files"),
    ]:
        write_file(url / name, content)
        with pytest.raises(InputError, match=refused):
            predictor.save(place)
        with pytest.raises(InputError, match=rf"'{place}.*'.* {words}") as error:
            oodzoo.load(place)
        assert "object-cache" not in str(error.value)
        assert paths(place) == [name]
        remove_files([url / name])
    write_file(url / "predictor.json", document % b', "files": {}, "models": []')
    with pytest.raises(InputError, match="does not match its checksum"):
        oodzoo.load(place)
    remove_files([url / "predictor.json"])
    write_file(url, b"mine")
    with pytest.raises(InputError, match=refused):
        predictor.save(place)
    remove_files([url])
    predictor.save(f"{place}/model")
    with pytest.raises(InputError, match=rf"; did you mean '{place}/model'\?$"):
        oodzoo.load(place)


def test_a_missing_or_changed_file(predictor: oodzoo.Predictor, place: str) -> None:
    predictor.save(place)
    for path in paths(place):
        if path in ("predictor.json", "README.md"):
            continue
        file = next(f for f in list_files(Url(place)) if f.url.endswith(path))
        content = cached_file(file).read_bytes()
        write_file(Url(place) / path, content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(InputError, match=rf"^'{place}/{path}' has the sha256 .* saved with"):
            oodzoo.load(place)
        remove_files([Url(place) / path])
        with pytest.raises(InputError, match=rf"^the predictor '{place}' lacks '{path}'; copy"):
            oodzoo.load(place)
        write_file(Url(place) / path, content)
    assert oodzoo.load(place).provenance == predictor.provenance


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "a\\..\\evil"])
def test_a_file_outside_the_predictor(
    predictor: oodzoo.Predictor, in_memory: str, cache: Path, name: str
) -> None:
    predictor.save(in_memory)
    file = next(f for f in list_files(Url(in_memory)) if f.url.endswith("predictor.json"))
    document = json.loads(cached_file(file).read_bytes())
    document["files"][name] = "0" * 64
    write_file(Url(in_memory) / "predictor.json", json.dumps(document).encode())
    with pytest.raises(InputError, match="which is not inside its folder; fit again"):
        oodzoo.load(in_memory)
    assert not list(cache.rglob("evil"))


def test_a_file_url_is_a_folder(predictor: oodzoo.Predictor, tmp_path: Path) -> None:
    uri = (tmp_path / "a model").as_uri()
    assert predictor.save(uri) == tmp_path / "a model" == parse_location(uri)
    assert oodzoo.load(uri).provenance == predictor.provenance


LOAD = """
import os, sys, oodzoo
predictor = oodzoo.load(sys.argv[1], device="cpu")
print(predictor.models[0].spec.folder.parent, flush=True)
sys.stdin.read()
os.path.exists(predictor.models[0].spec.file) or sys.exit("its files are gone")
"""


def test_the_folder_of_a_process_ends_with_it(
    predictor: oodzoo.Predictor,
    s3: Bucket,
    process: Callable[..., subprocess.Popen[str]],
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "_NEW_SECONDS", 0)
    url = f"{s3.url}/model"
    predictor.save(url)
    killed, living = process(LOAD, url), process(LOAD, url)
    folders = []
    for child in (killed, living):
        assert child.stdout is not None
        folders.append(Path(child.stdout.readline().strip()))
        assert folders[-1].is_dir()
        os.utime(folders[-1], (0, 0))
    killed.kill()
    killed.wait()
    oodzoo.load(url)  # in this process, which removes what the killed one left
    assert not folders[0].exists()
    assert folders[1].exists()
    living.communicate()
    assert living.returncode == 0
    assert not folders[1].exists()

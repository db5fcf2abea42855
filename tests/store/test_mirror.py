"""Stores at URLs: in memory, and on an S3 server whose requests fail, stall and end early."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.s3 import Bucket
from tests.store.remote import another_machine, remote_files, upload
from tests.store.tiny import complaint, content, extract, files, ranked

from oodzoo.core.errors import DiskError, InputError
from oodzoo.core.io import locked, write_bytes
from oodzoo.core.remote import cache
from oodzoo.core.remote.location import Url
from oodzoo.core.remote.objects import find_file, list_files, write_file
from oodzoo.extraction.features import StoreSource
from oodzoo.store import mirror
from oodzoo.store.checking import check_store
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.maintenance import disk_usage, list_contents, prune_store, remove_models
from oodzoo.store.mirror import pull, store_folder, write_new
from oodzoo.store.sync import sync_store


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setenv("OODZOO_CACHE", os.fspath(tmp_path / "object-cache"))
    monkeypatch.delenv("OODZOO_CACHE_SIZE", raising=False)


@pytest.fixture
def url() -> str:
    """A place without a store, in memory."""
    return f"memory://{secrets.token_hex(8)}/features"


@pytest.fixture
def data(images: Path) -> Path:
    return images


@pytest.fixture
def local(tiny_store: Path) -> Path:
    """A local store of the images with two models."""
    for lock in tiny_store.rglob(".lock"):
        lock.unlink()
    return tiny_store


def test_an_extracted_store_equals_a_local_one(
    s3: Bucket, data: Path, local: Path, tmp_path: Path
) -> None:
    """Another machine finishes it, and this one reads it again."""
    url = f"{s3.url}/features"
    extract(data, ["a"], url)
    assert FeatureStore(url).milliseconds_per_image("a") is not None
    with another_machine(tmp_path / "elsewhere"):
        assert extract(data, ["a", "b"], url).written.keys() == {"b"}
    assert remote_files(url) == files(local)
    assert content(url) == content(local)
    assert ranked(url) == ranked(local)
    store, here = FeatureStore(f"{url}/"), FeatureStore(local)
    assert store.fingerprint == here.fingerprint
    assert (store.location, store.name) == (url, "features")
    assert (here.location, here.name) == (str(local), local.name)
    assert repr(store) == f"FeatureStore({url!r}: 2 models, 2 domains, 18 images)"
    assert StoreSource(store).provenance["name"] == "features"
    with locked(store.path, shared=True), pytest.raises(InputError, match=f"'{url}' is being wri"):
        prune_store(url)


COMMANDS: dict[str, Callable[[Any, Path], object]] = {
    "ls": lambda store, data: list_contents(store),
    "sync": lambda store, data: sync_store(store, data),
    "du": lambda store, data: disk_usage(store),
    "prune": lambda store, data: prune_store(store),
    "check": lambda store, data: check_store(store, repair=True),
    "rm": lambda store, data: remove_models(store, ["a"]),
}


def test_commands_do_the_same_as_on_a_local_store(
    url: str, data: Path, local: Path, tmp_path: Path
) -> None:
    """Another machine, which has read the store before, sees the difference."""
    upload(local, url)
    (data / "day/bike/1.png").unlink()
    (data / "day/cat/0.png").rename(data / "day/cat/moved.png")
    (data / "night/cat/0.png").rename(data / "night/bike/relabelled.png")
    for name, command in COMMANDS.items():
        assert command(url, data) == command(local, data), name
        assert remote_files(url) == files(local), name
        with another_machine(tmp_path / "elsewhere"):
            assert content(url) == content(local), name


def test_commands(url: str, data: Path, local: Path, tmp_path: Path, run: Run) -> None:
    """They show the URL, never the mirror, and the same numbers as for a local store."""
    upload(local, url)
    shutil.rmtree(data / "day/bike")
    for store in (url, local):
        assert "3 removed" in run("store", "sync", store, data).out
    for command in ("rank", "store ls", "store check", "store du"):
        outcomes = [run(*command.split(), store, "--json") for store in (url, local)]
        remote, here = (outcome.document for outcome in outcomes)
        if command == "rank":
            names = remote["store"].pop("name"), here["store"].pop("name")
            assert names == ("features", local.name)
        assert remote == here, command
        assert "object-cache" not in outcomes[0].out + outcomes[0].err
    assert f"can be freed with `oodzoo store prune {url}`" in run("store", "du", url).out
    merged = run("store", "merge", url, url, "--out", f"{url}/copy")
    assert f"2 models, 15 images, 2 domains in {url}/copy" in merged.out
    assert f"no such feature store: '{url}/none'" in run("rank", f"{url}/none").complaint
    assert "s3://bucket/x" in run("rank", "s3:/bucket/x").complaint


def test_documents_are_read_once_and_shards_when_they_are_needed(
    s3: Bucket, local: Path, tmp_path: Path
) -> None:
    url = s3.upload(local, "features")
    store = FeatureStore(url)
    assert not s3.proxy.asked(r"GET .*\.npy")
    assert not s3.proxy.asked(r"GET .*/[0-9]{5}-[0-9]{5}\.json")  # records, for writers
    store.features("a", "day")
    assert {re.findall("models/(.)/", each.line)[0] for each in s3.proxy.asked(r"GET .*npy")} == {
        "a"
    }
    content(url)
    s3.proxy.forget()
    assert content(url) == content(local)
    assert not s3.proxy.asked(r"GET .*\.(json|npy)")
    for copy in (tmp_path / "object-cache/objects").rglob("*.npy"):
        write_bytes(copy, bytes(copy.stat().st_size))  # damaged: fetched again
    assert content(url) == content(local)


def test_the_cache_is_smaller_than_the_features(
    s3: Bucket, data: Path, local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OODZOO_CACHE_SIZE", "300")
    monkeypatch.setattr(cache, "_IN_USE_SECONDS", -1)
    url = f"{s3.url}/features"
    extract(data, ["a", "b"], url)
    assert remote_files(url) == files(local)
    assert content(url) == content(local)
    kept = [f.stat().st_size for f in (tmp_path / "object-cache/objects").rglob("*.npy")]
    assert sum(kept) <= 300 + max(kept)
    shards = sum(f.stat().st_size for f in local.rglob("*.npy"))
    assert shards > 3 * (300 + max(kept))
    assert not [f for f in store_folder(url).rglob("*.npy") if f.stat().st_size]


@pytest.mark.parametrize(
    ("upload_of", "left"),
    [
        (r"PUT .*logits.*\.npy", 3),
        (r"PUT .*images/", 4),
        (r"PUT .*shards\.", 0),
    ],
)
def test_a_server_that_is_down_at_an_upload(
    s3: Bucket, data: Path, local: Path, upload_of: str, left: int
) -> None:
    """The command ends with one line; no shard that was computed is computed again."""
    url = f"{s3.url}/features"
    s3.proxy.refuse(upload_of)
    with pytest.raises(DiskError) as error:
        extract(data, ["a", "b"], url)
    message = str(error.value)
    assert re.fullmatch(f"'{url}/.*; rerun the command to resume: finished work is .*", message)
    assert "object-cache" not in message
    s3.proxy.forget()
    with another_machine(local.with_name("elsewhere")):
        assert re.search("no finished model|no such", complaint(FeatureStore, url))
    done = extract(data, ["a", "b"], url)
    assert sum(map(len, done.written.values())) == left
    assert remote_files(url) == files(local)
    assert content(url) == content(local)


def test_one_of_several_machines_creates_a_file(url: str, local: Path, tmp_path: Path) -> None:
    upload(local, url)
    folders = []
    for name in ("one", "two", "three"):
        with another_machine(tmp_path / name):
            folders.append(store_folder(url))
            pull(folders[-1])
    created = [write_new(f / "samples/00001.json", str(f).encode()) for f in folders]
    assert created == [True, False, False]
    assert {(f / "samples/00001.json").read_bytes() for f in folders} == {str(folders[0]).encode()}


def test_a_manifest_that_is_replaced_while_it_is_pulled(
    url: str, data: Path, local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing is older than the manifest that names new files: it is made again."""
    extract(data, ["a"], url)
    listings = []

    def list_and_extract(place: Url) -> Any:
        found = list_files(place)
        listings.append(found)
        if len(listings) == 1:
            monkeypatch.setattr(mirror, "list_files", list_files)
            with another_machine(tmp_path / "elsewhere"):
                extract(data, ["a", "b"], url)
        return found

    monkeypatch.setattr(mirror, "list_files", list_and_extract)
    assert content(url) == content(local)


def test_damage_is_found_at_the_remote_side(url: str, data: Path, local: Path) -> None:
    """The cache has the file as it was."""
    extract(data, ["a", "b"], url)
    content(url)
    name = min(name for name in files(local) if re.search(r"models/a/.*features.*npy", name))
    write_file(Url(f"{url}/{name}"), (local / name).read_bytes()[:-1] + b"x")
    (damage,) = check_store(url).damage
    assert damage.path == name
    with pytest.raises(
        InputError, match=f"'{url}/{name}' is damaged .* store check {url} --repair"
    ):
        content(url)
    assert check_store(url, repair=True).damage == (damage,)
    assert find_file(Url(f"{url}/{name}")) is None
    assert FeatureStore(url).models == ("b",)
    extract(data, ["a", "b"], url)
    assert remote_files(url) == files(local)
    for name in ("manifest.json", "samples/00000.json", "images/00000.json"):
        whole = (local / name).read_bytes()
        write_file(Url(f"{url}/{name}"), whole[:-20])
        assert name in [damage.path for damage in check_store(url).damage]
        with pytest.raises(InputError, match=f"'{url}/{name}' is damaged"):
            FeatureStore(url)
        write_file(Url(f"{url}/{name}"), whole)


def test_a_file_that_cannot_be_read_now_is_not_damaged(s3: Bucket, local: Path) -> None:
    url = s3.upload(local, "features")
    before = s3.keys()
    for name in ("npy", r"/00000-0000\d\.json", "manifest"):
        s3.proxy.forget()
        s3.proxy.refuse(f"GET .*{name}")
        with pytest.raises(InputError, match=f"'{url}/"):
            check_store(url, repair=True)
        assert s3.keys() == before


def test_what_is_no_store(url: str, data: Path, local: Path) -> None:
    for function in (FeatureStore, check_store, prune_store, list_contents):
        assert f"no such feature store: '{url}'" in complaint(function, url)
        assert "needs two slashes, as s3://bucket/x" in complaint(function, Path("s3://bucket/x"))
    for path in ("cats/1.json", "cats/2.png"):
        write_file(Url(f"{url}/{path}"), b"{}")
    assert f"'{url}' is not a feature store: it has no manifest.json" in complaint(
        FeatureStore, url
    )
    message = complaint(extract, data, ["a"], url)
    assert f"'{url}' is neither empty nor a feature store (it contains 'cats')" in message
    assert not list(store_folder(url).rglob("*.json"))
    upload(local, url)  # next to it
    assert content(url) == content(local)


def test_names_that_lead_out_of_the_mirror(s3: Bucket, local: Path) -> None:
    url = s3.upload(local, "features")
    for name in (
        *("../x.json", "models/../../x.json", "models/.x/model.json", "a\\..\\x.json"),
        "models/a/b/c/d.json",
    ):
        s3.put(f"features/{name}", b"{}")
    folder = store_folder(url)
    before = set(folder.parents[2].rglob("*.json"))
    assert content(url) == content(local)
    inside = set(folder.parents[2].rglob("*.json")) - before
    assert {path.relative_to(folder).as_posix() for path in inside} == {
        path.relative_to(local).as_posix() for path in local.rglob("*.json")
    }


def test_a_damaged_state(url: str, local: Path) -> None:
    upload(local, url)
    state = FeatureStore(url).path.parent / "state.db"
    state.write_bytes(b"x" * 5000)
    with pytest.raises(DiskError, match=r"state\.db.*delete this folder, or set OODZOO_CACHE"):
        FeatureStore(url)
    shutil.rmtree(state.parent)
    assert content(url) == content(local)

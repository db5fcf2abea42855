"""Stores at URLs: in memory, and on an S3 server whose requests fail, stall and end early."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import Run
from tests.killing import STEP, Job, children, needs_fork
from tests.s3 import Bucket
from tests.store.data import fill, letters
from tests.store.remote import another_machine, remote_files, upload
from tests.store.tiny import complaint, content, extract, files, ranked

import oodzoo
from oodzoo.core.errors import DiskError, InputError
from oodzoo.core.io import locked, write_bytes
from oodzoo.core.remote import cache
from oodzoo.core.remote.location import Url
from oodzoo.core.remote.objects import find_file, list_files, remove_files, write_file
from oodzoo.data.dataset import ImageDomains
from oodzoo.demo import write_digits
from oodzoo.extraction.config import ExtractionConfig
from oodzoo.extraction.engines.processes import Processes
from oodzoo.extraction.extract import run_extraction
from oodzoo.extraction.importing import import_features
from oodzoo.extraction.source import StoreSource
from oodzoo.store import mirror
from oodzoo.store.checking import check_store
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.files import pull, store_folder, write_new
from oodzoo.store.merge import merge_stores
from oodzoo.store.mirror import Known, changing
from oodzoo.store.prune import prune_store
from oodzoo.store.removal import remove_models
from oodzoo.store.sync import sync_store
from oodzoo.store.usage import disk_usage, list_contents


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setenv("OODZOO_CACHE", os.fspath(tmp_path / "object-cache"))
    monkeypatch.delenv("OODZOO_CACHE_SIZE", raising=False)


@pytest.fixture(params=["memory", "s3"])
def url(request: pytest.FixtureRequest) -> str:
    """A place without a store, in memory or on a server."""
    if request.param == "s3":
        return f"{request.getfixturevalue('s3').url}/features"
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


def shard(store: Path | str) -> str:
    """The name of a shard file of model a."""
    names = remote_files(store) if isinstance(store, str) else files(store)
    return min(name for name in names if re.search(r"models/a/.*features.*npy", name))


# --- the same as a local one --------------------------------------------------------------------


def test_an_extracted_store_equals_a_local_one(
    url: str, data: Path, local: Path, tmp_path: Path
) -> None:
    """Another machine finishes it, and this one reads it again."""
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


def change(data: Path) -> None:
    (data / "day/bike/1.png").unlink()
    (data / "day/cat/0.png").rename(data / "day/cat/moved.png")
    (data / "night/cat/0.png").rename(data / "night/bike/relabelled.png")


COMMANDS: dict[str, Callable[[Any, Path], object]] = {
    "rm": lambda store, data: remove_models(store, ["a"]),
    "sync": lambda store, data: sync_store(store, data),
    "prune": lambda store, data: (sync_store(store, data), prune_store(store))[1],
    "check": lambda store, data: check_store(store),
    "repair": lambda store, data: check_store(store, repair=True),
    "ls": lambda store, data: list_contents(store),
    "du": lambda store, data: disk_usage(store),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_does_the_same_as_on_a_local_store(
    url: str, data: Path, local: Path, tmp_path: Path, command: str
) -> None:
    """Another machine, which has read the store before, sees the difference."""
    upload(local, url)
    with another_machine(tmp_path / "elsewhere"):
        assert content(url) == content(local)
    change(data)
    assert COMMANDS[command](url, data) == COMMANDS[command](local, data)
    assert remote_files(url) == files(local)
    with another_machine(tmp_path / "elsewhere"):
        assert content(url) == content(local)


def test_merged_and_imported_features(url: str, data: Path, local: Path, tmp_path: Path) -> None:
    extract(data, ["c"], tmp_path / "other")
    upload(local, f"{url}/one")
    merge_stores([f"{url}/one", tmp_path / "other"], f"{url}/both")
    merge_stores([local, tmp_path / "other"], tmp_path / "both")
    assert remote_files(f"{url}/both") == files(tmp_path / "both")
    X = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    np.savez(tmp_path / "x.npz", m=X, labels=list("aabb") * 3, domains=list("cccccddddddd"))
    import_features([tmp_path / "x.npz"], f"{url}/x")
    import_features([tmp_path / "x.npz"], tmp_path / "x")
    assert remote_files(f"{url}/x") == files(tmp_path / "x")


def test_processes_write_the_same_store(s3: Bucket, data: Path, tmp_path: Path) -> None:
    zoo = oodzoo.load_zoo("demo")[:2]
    config = ExtractionConfig(device="cpu")
    engine = Processes(["cpu", "cpu"])
    store, done = run_extraction(ImageDomains(data), zoo, f"{s3.url}/x", config, engine=engine)
    run_extraction(ImageDomains(data), zoo, tmp_path / "here", config)
    assert store.location == f"{s3.url}/x"
    assert done.written.keys() == {spec.name for spec in zoo}
    assert content(f"{s3.url}/x") == content(tmp_path / "here")


def test_commands(url: str, data: Path, local: Path, tmp_path: Path, run: Run) -> None:
    """They show the URL, never the mirror, and the same numbers as for a local store."""
    upload(local, url)
    for command in ("rank", "select", "store ls", "store check", "store prune", "store du"):
        outcomes = [run(*command.split(), store, "--json") for store in (url, local)]
        remote, here = (outcome.document for outcome in outcomes)
        if command in ("rank", "select"):
            assert (remote["store"].pop("name"), here["store"].pop("name")) == (
                "features",
                local.name,
            )
        assert remote == here, command
        assert "object-cache" not in outcomes[0].out + outcomes[0].err
    shutil.rmtree(data / "day/bike")
    assert "3 removed" in run("store", "sync", url, data).out
    shown = run("store", "du", url)
    assert f"can be freed with `oodzoo store prune {url}`" in shown.out
    merged = run("store", "merge", url, url, "--out", f"{url}/copy")
    assert f"2 models, 15 images, 2 domains in {url}/copy" in merged.out
    assert f"no such feature store: '{url}/none'" in run("rank", f"{url}/none").complaint
    assert "s3://bucket/x" in run("rank", "s3:/bucket/x").complaint


def test_two_parts_on_two_machines(
    s3: Bucket,
    tmp_path: Path,
    process: Callable[..., Any],
    zoo_file: Callable[[list[Any]], Path],
) -> None:
    """They run at the same time, with a cache each; the last one writes the manifest."""
    data = write_digits(tmp_path / "digits")
    zoo = zoo_file(oodzoo.load_zoo("demo")[:2])
    program = "from oodzoo.cli import main; main()"
    options = ["--zoo", zoo, "--limit", "60", "--device", "cpu", "--dtype", "float16"]
    running = []
    for part in ("1/2", "2/2"):
        with another_machine(tmp_path / f"cache-{part[0]}"):
            command = ["extract", data, *options, "--store", f"{s3.url}/x", "--shard", part]
            running.append(process(program, *command))
    for child in running:
        _, err = child.communicate()
        assert child.returncode == 0, err
    sample = ImageDomains(data).sample(60)
    store = oodzoo.extract(sample, zoo, tmp_path / "here", device="cpu", dtype="float16")
    assert remote_files(f"{s3.url}/x") == files(tmp_path / "here")
    assert FeatureStore(f"{s3.url}/x").fingerprint == store.fingerprint


# --- requests -----------------------------------------------------------------------------------


def test_documents_are_read_once_and_shards_when_they_are_needed(s3: Bucket, local: Path) -> None:
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


def test_shards_are_fetched_several_at_a_time(s3: Bucket, tmp_path: Path) -> None:
    domains = {f"d{number:02d}": chr(ord("a") + number) for number in range(20)}  # a shard each
    made = fill(tmp_path / "made", letters(**domains), "m1")
    url = s3.upload(made, "features")
    store = FeatureStore(url)
    images = [image for domain in store.domains for image in store.images(domain)]
    s3.proxy.slow(r"GET .*\.npy", seconds=0.1)
    store.gather("m1", images, "features")
    assert len(s3.proxy.asked(r"GET .*features.*\.npy")) == 20
    assert s3.proxy.most_at_once(r"GET .*\.npy") > 4


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


@pytest.mark.parametrize("fault", ["fail", "drop", "truncate"])
def test_requests_that_fail_are_repeated(
    s3: Bucket, data: Path, local: Path, tmp_path: Path, fault: str
) -> None:
    """Each fault hits the first request for a file of each kind, written and read."""
    for pattern in ("PUT .*npy", "PUT .*json", "PUT .*manifest", "GET .*list", "GET .*json"):
        getattr(s3.proxy, fault)(pattern)
    url = f"{s3.url}/features"
    extract(data, ["a", "b"], url)
    assert remote_files(url) == files(local)
    getattr(s3.proxy, fault)("GET .*npy", times=2)
    with another_machine(tmp_path / "elsewhere"):
        assert content(url) == content(local)


# --- uploads that fail ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("upload_of", "left"),
    [
        (r"PUT .*features.*\.npy", 3),
        (r"PUT .*logits.*\.npy", 3),
        (r"PUT .*/00000-0000\d\.json", 3),
        (r"PUT .*/00000-00001\.json", 1),
        (r"PUT .*/b/.*logits", 2),
        (r"PUT .*samples", 0),
        (r"PUT .*images/", 4),
        (r"PUT .*shards\.", 0),
        (r"PUT .*model\.json", 4),
        (r"PUT .*local\.json", 0),
        (r"PUT .*manifest", 4),
    ],
)
@pytest.mark.parametrize("fault", ["fail", "refuse"])
def test_a_server_that_is_down_at_an_upload(
    s3: Bucket, data: Path, local: Path, upload_of: str, left: int, fault: str
) -> None:
    """The command ends with one line; no shard that was computed is computed again."""
    url = f"{s3.url}/features"
    getattr(s3.proxy, fault)(upload_of, times=None)
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


def test_a_manifest_that_cannot_be_uploaded(s3: Bucket, data: Path, local: Path) -> None:
    url = f"{s3.url}/features"
    extract(data, ["a"], url)
    old = content(url)
    s3.proxy.fail("PUT .*manifest", times=None)
    assert "manifest.json" in complaint(extract, data, ["a", "b"], url)
    assert content(url) == old
    s3.proxy.forget()
    assert extract(data, ["a", "b"], url).written == {}
    assert remote_files(url) == files(local)


def test_what_is_kept_here_gives_way_to_what_others_have_done(
    s3: Bucket, data: Path, local: Path, tmp_path: Path
) -> None:
    """Another machine finishes the extraction before this one resumes it."""
    url = f"{s3.url}/features"
    s3.proxy.fail(r"PUT .*/00000-00001\.json", times=None)
    assert complaint(extract, data, ["a", "b"], url)
    s3.proxy.forget()
    with another_machine(tmp_path / "elsewhere"):
        extract(data, ["a", "b"], url)
    assert extract(data, ["a", "b"], url).written == {}
    assert remote_files(url) == files(local)
    assert content(url) == content(local)


@needs_fork
def test_a_process_that_is_killed_at_an_upload(s3: Bucket, data: Path, local: Path) -> None:
    """Right before and right after each; with the first model the store can be read throughout."""
    url = f"{s3.url}/features"
    extract(data, ["a"], url)
    keys = s3.keys()
    start, old, new = {key: s3.get(key) for key in keys}, content(url), content(local)
    function, killed = "tests.store.remote:extract_until", (-signal.SIGKILL, "")
    with children("tests.store.remote") as started:
        moment = 1
        while (last := started.run(Job(function, (data, ["a", "b"], url, moment)))) == [killed]:
            assert content(url) in (old, new), moment
            extract(data, ["a", "b"], url)
            assert remote_files(url) == files(local), moment
            for key in set(s3.keys()) - start.keys():
                s3.delete(key)
            for key, body in start.items():
                s3.put(key, body)
            moment += STEP
    assert last == [(0, "")]
    assert moment > 20
    assert old != new


# --- several machines ---------------------------------------------------------------------------


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


@needs_fork
def test_machines_that_write_at_the_same_time(
    s3: Bucket, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has models of its own, and one that all have."""
    url = f"{s3.url}/features"
    function = "tests.store.remote:extract_on"
    jobs = [Job(function, (tmp_path / f"cache{n}", data, ["m", f"m{n}"], url)) for n in range(3)]
    with children("tests.store.remote") as started:
        started.succeed(*jobs)
    extract(data, ["m", "m0", "m1", "m2"], tmp_path / "here")
    assert content(url) == content(tmp_path / "here")
    assert remote_files(url) == files(tmp_path / "here")


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


def test_removed_files_are_removed_here(url: str, local: Path) -> None:
    upload(local, url)
    folder = FeatureStore(url).path
    assert (folder / "models/a").is_dir()
    remove_files(Url(file.url) for file in list_files(Url(url)) if ".lock" not in file.url)
    with pytest.raises(InputError, match=f"no such feature store: '{url}'"):
        FeatureStore(url)
    assert not (folder / "models").exists()


# --- damage -------------------------------------------------------------------------------------


def test_damage_is_found_at_the_remote_side(url: str, data: Path, local: Path) -> None:
    """The cache has the file as it was."""
    extract(data, ["a", "b"], url)
    content(url)
    name = shard(local)
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


def test_a_damaged_copy_is_fetched_again(s3: Bucket, local: Path, tmp_path: Path) -> None:
    url = s3.upload(local, "features")
    content(url)
    for copy in (tmp_path / "object-cache/objects").rglob("*.npy"):
        write_bytes(copy, bytes(copy.stat().st_size))
    assert content(url) == content(local)


@pytest.mark.parametrize("fault", ["fail", "refuse"])
@pytest.mark.parametrize("name", ["npy", r"/00000-0000\d\.json", "manifest"])
def test_a_file_that_cannot_be_read_now_is_not_damaged(
    s3: Bucket, local: Path, fault: str, name: str
) -> None:
    url = s3.upload(local, "features")
    before = s3.keys()
    getattr(s3.proxy, fault)(f"GET .*{name}", times=None)
    with pytest.raises(InputError, match=f"'{url}/"):
        check_store(url, repair=True)
    assert s3.keys() == before


def test_a_model_is_not_dropped_because_its_records_cannot_be_read(
    s3: Bucket, data: Path, local: Path
) -> None:
    url = s3.upload(local, "features")
    before = remote_files(url)
    s3.proxy.fail(r"GET .*/00000-0000\d\.json", times=None)
    with pytest.raises(InputError, match=f"'{url}/models/a/00000"):
        prune_store(url)
    s3.proxy.forget()
    assert remote_files(url) == before


# --- messages -----------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    "name",
    [
        "../x.json",
        "models/../../x.json",
        "models/.x/model.json",
        "a\\..\\x.json",
        "models/a/b/c/d.json",
    ],
)
def test_names_that_lead_out_of_the_mirror(s3: Bucket, local: Path, name: str) -> None:
    url = s3.upload(local, "features")
    s3.put(f"features/{name}", b"{}")
    before = set(store_folder(url).parents[2].rglob("*.json"))
    assert content(url) == content(local)
    after = set(store_folder(url).parents[2].rglob("*.json"))
    inside = {path for path in after if path.is_relative_to(store_folder(url))}
    assert after - before == inside
    assert {path.relative_to(store_folder(url)).as_posix() for path in inside} == {
        path.relative_to(local).as_posix() for path in local.rglob("*.json")
    }


# --- the state of the mirror --------------------------------------------------------------------


def test_changes_of_the_state(tmp_path: Path) -> None:
    """Nothing is changed if an error is raised; changes wait for each other."""
    with changing(tmp_path / "new/state.db") as state:
        assert state.read() == {}
        state.put([("a", Known("1", 5)), ("b", Known("2", None))])

    def fail() -> None:
        with changing(tmp_path / "new/state.db") as state:
            state.drop(["a"])
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    inside, order = threading.Event(), []

    def change() -> None:
        inside.wait()
        with changing(tmp_path / "new/state.db") as state:
            order.append(("second", state.read()))

    thread = threading.Thread(target=change)
    thread.start()
    with changing(tmp_path / "new/state.db") as state:
        inside.set()
        thread.join(0.2)  # it waits
        state.put([("a", Known("3", 6))])
        state.drop(["b", "c"])
        order.append(("first", {}))
    thread.join()
    assert order == [("first", {}), ("second", {"a": Known("3", 6)})]


def test_a_damaged_state(url: str, local: Path) -> None:
    upload(local, url)
    state = FeatureStore(url).path.parent / "state.db"
    state.write_bytes(b"x" * 5000)
    with pytest.raises(DiskError, match=r"state\.db.*delete this folder, or set OODZOO_CACHE"):
        FeatureStore(url)
    shutil.rmtree(state.parent)
    assert content(url) == content(local)

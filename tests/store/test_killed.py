"""Each command that changes a store, killed before every change on disk.

A reader sees the state before or after the command, and running the command again completes it.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.killing import STEP, Children, children, needs_fork
from tests.store import tiny
from tests.store.tiny import content, files

from oodzoo._io import is_temporary
from oodzoo.store.checking import check_store
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.merge import merge_stores
from oodzoo.store.prune import prune_store
from oodzoo.store.removal import remove_models
from oodzoo.store.sync import sync_store

pytestmark = needs_fork


@pytest.fixture(scope="module")
def kill() -> Iterator[Children]:
    commands = ("checking", "merge", "prune", "removal")
    with children("tests.store.tiny", *(f"oodzoo.store.{name}" for name in commands)) as started:
        yield started


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tiny.write_images(tmp_path / "data")


@pytest.fixture
def store(tmp_path: Path, data: Path) -> Path:
    """A store of two models that was extended once: its index has two segments."""
    later = tmp_path / "later"
    shutil.move(data / "night" / "dog", later)
    tiny.extract(data, ["a", "b"], tmp_path / "store")
    shutil.move(later, data / "night" / "dog")
    tiny.extract(data, ["a", "b"], tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def changed(data: Path) -> Path:
    """The images after some were removed, moved and relabelled."""
    (data / "day/bike/1.png").unlink()
    (data / "night/dog/2.png").unlink()
    (data / "day/cat/0.png").rename(data / "day/cat/moved.png")
    (data / "night/cat/0.png").rename(data / "night/bike/relabelled.png")
    return data


def kills(
    kill: Children, function: str, store: Path, *arguments: Any, step: int = 1, **options: Any
) -> Iterator[tuple[int, Path]]:
    """Kill a function before changes of a store; yield the moment and the store, a copy.

    The last copy, in which the function was not killed, is left.
    """
    copy = store.with_name("copy")
    for moment in itertools.count(1, step):
        shutil.copytree(store, copy)
        if not kill.killed(moment, function, copy, *arguments, **options):
            return
        yield moment, copy
        shutil.rmtree(copy)


def temporaries(store: Path) -> list[Path]:
    return [path for path in store.rglob("*") if is_temporary(path.name)]


def test_sync(kill: Children, store: Path, changed: Path, tmp_path: Path) -> None:
    old = content(store)
    done = shutil.copytree(store, tmp_path / "done")
    sync_store(done, changed)
    new, expected = content(done), files(done)
    for moment, s in kills(kill, "oodzoo.store.sync:sync_store", store, changed):
        assert content(s) in (old, new), moment
        sync_store(s, changed)
        assert files(s) == expected, moment
    assert files(s) == expected
    assert moment >= 6
    assert old != new


def test_sync_of_unlabelled_images(kill: Children, store: Path, data: Path, tmp_path: Path) -> None:
    target = tiny.write_target(tmp_path / "target", 100)
    tiny.extract(data, ["a"], store, unlabelled=[str(target)])
    old = content(store)
    (target / "100.png").unlink()
    (data / "day/bike/1.png").unlink()
    done = shutil.copytree(store, tmp_path / "done")
    tiny.sync(done, data, [target])
    new, expected = content(done), files(done)
    for moment, s in kills(kill, "tests.store.tiny:sync", store, data, [target]):
        assert content(s) in (old, new), moment
        tiny.sync(s, data, [target])
        assert files(s) == expected, moment
    assert moment >= 6
    assert old != new


def test_rm(kill: Children, store: Path, tmp_path: Path) -> None:
    old = content(store)
    done = shutil.copytree(store, tmp_path / "done")
    remove_models(done, ["a"])
    new, expected = content(done), files(done)
    for moment, s in kills(kill, "oodzoo.store.removal:remove_models", store, ["a"]):
        assert content(s) in (old, new), moment
        if (s / "models" / "a").exists():
            remove_models(s, ["a"])
        assert files(s) == expected, moment
        assert not (s / "models" / "a").exists(), moment
    assert files(s) == expected
    assert moment >= 12


@pytest.mark.parametrize("garbage", [False, True], ids=["tidy", "with garbage"])
def test_prune(kill: Children, store: Path, changed: Path, tmp_path: Path, garbage: bool) -> None:
    """Segments of the index may have other numbers after a kill, and with them the shards."""
    if garbage:
        sync_store(store, changed)
        (store / "models/a/00007-00000.features.0123456789abcdef.npy").write_bytes(b"left over")
        (store / "samples/0123456789abcdef.json").write_text("{}")
        (store / "models/gone").mkdir()
        (store / "models/gone/00000-00000.json").write_text("{}")
    (store / "cache/oof").mkdir(parents=True)
    (store / "cache/oof/0.npz").write_bytes(b"cached")
    expected = content(store)
    done = shutil.copytree(store, tmp_path / "done")
    assert prune_store(done, cache=True).images == 2 * garbage
    layout = files(done)
    for moment, s in kills(kill, "oodzoo.store.prune:prune_store", store, cache=True):
        assert content(s) == expected, moment
        prune_store(s, cache=True)
        assert content(s) == expected, moment
        assert files(s) == layout, moment
        assert not check_store(s).damage, moment
    assert files(s) == layout
    assert moment >= (25 if garbage else 3)


def test_merge(kill: Children, data: Path, tmp_path: Path) -> None:
    """The new store is not finished before the last change."""
    target = tiny.write_target(tmp_path / "target", 100)
    one, two, done = tmp_path / "one", tmp_path / "two", tmp_path / "done"
    tiny.extract(data, ["a", "b"], one)
    tiny.extract(data, ["b", "c"], two, unlabelled=[str(target)])
    sources = files(one) | files(two)
    merge_stores([one, two], done)
    expected = files(done)
    moment = 1
    while kill.killed(
        moment, "oodzoo.store.merge:merge_stores", [one, two], out := tmp_path / "out"
    ):
        assert files(one) | files(two) == sources, moment
        assert tiny.complaint(FeatureStore, out), moment
        merge_stores([one, two], out)
        assert content(out) == content(done), moment
        assert files(out) == expected, moment
        shutil.rmtree(out, ignore_errors=True)
        moment += STEP
    assert files(out) == expected
    assert moment > 40


def damage_shard(store: Path) -> None:
    path = min((store / "models/a").glob("*.features.*.npy"))
    path.write_bytes(path.read_bytes()[:-1])


def damage_manifest(store: Path) -> None:
    path = store / "manifest.json"
    path.write_bytes(path.read_bytes()[:-20])


def damage_list(store: Path) -> None:
    for path in (store / "models/a").glob("shards.*.json"):
        path.write_bytes(b"{}")


def damage_record(store: Path) -> None:
    min((store / "models/a").glob("0*.json")).write_bytes(b"{}")


@pytest.mark.parametrize("damage", [damage_shard, damage_manifest, damage_list, damage_record])
def test_repair(kill: Children, store: Path, tmp_path: Path, damage: Any) -> None:
    """Model b is not damaged: it is read at every moment, unless the manifest is damaged.

    A damaged shard file without its record may be left, until the store is pruned.
    """
    untouched = rows_of(store, "b")
    damage(store)
    done = shutil.copytree(store, tmp_path / "done")
    assert check_store(done, repair=True).damage
    new = content(done)
    for moment, s in kills(kill, "oodzoo.store.checking:check_store", store, repair=True):
        if damage is not damage_manifest:
            assert rows_of(s, "b") == untouched, moment
        check_store(s, repair=True)
        assert content(s) == new, moment
        assert rows_of(s, "b") == untouched, moment
        assert not check_store(s).damage, moment
        assert not temporaries(s), moment
        prune_store(s)
    assert content(s) == new
    assert moment >= 3


def rows_of(store: Path, model: str) -> Sequence[bytes]:
    opened = FeatureStore(store)
    return [opened.features(model, domain).tobytes() for domain in opened.domains]


def test_maintenance_of_an_unfinished_store(kill: Children, data: Path, tmp_path: Path) -> None:
    """Models with some shards are not finished because other models are removed or repaired."""
    store, fresh = tmp_path / "store", tmp_path / "fresh"
    moment = 10
    while not list(store.glob("models/b/0*.json")):
        shutil.rmtree(store, ignore_errors=True)
        assert kill.killed(moment, "tests.store.tiny:extract", data, ["a", "b"], store)
        moment += 1
    check_store(store, repair=True)
    assert "no finished model" in tiny.complaint(FeatureStore, store)
    remove_models(store, ["a"])
    assert "no finished model" in tiny.complaint(FeatureStore, store)
    tiny.extract(data, ["b"], store)
    tiny.extract(data, ["b"], fresh)
    assert content(store) == content(fresh)

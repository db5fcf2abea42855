"""Each command that changes a store, killed before every change on disk.

A reader sees the state before or after the command, and running the command again completes it.
(For stores at URLs, which are killed at uploads, see test_mirror.)
"""

from __future__ import annotations

import importlib
import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.killing import STEP, Children, children, needs_fork
from tests.store import tiny
from tests.store.tiny import content, files

from oodzoo.core.io import is_temporary
from oodzoo.store.checking import check_store
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.merge import merge_stores
from oodzoo.store.prune import prune_store
from oodzoo.store.removal import remove_models
from oodzoo.store.sync import sync_store

pytestmark = needs_fork


@pytest.fixture(scope="module")
def kill() -> Iterator[Children]:
    commands = ("checking", "merge", "prune", "removal", "sync")
    with children("tests.store.tiny", *(f"oodzoo.store.{name}" for name in commands)) as started:
        yield started


@pytest.fixture
def store(tmp_path: Path, images: Path) -> Path:
    """A store of two models that was extended once: its index has two segments."""
    later = tmp_path / "later"
    shutil.move(images / "night" / "dog", later)
    tiny.extract(images, ["a", "b"], tmp_path / "store")
    shutil.move(later, images / "night" / "dog")
    tiny.extract(images, ["a", "b"], tmp_path / "store")
    return tmp_path / "store"


# --- before a command: a change of the store and its images --------------------------------------


def change(store: Path, images: Path) -> None:
    (images / "day/bike/1.png").unlink()
    (images / "night/dog/2.png").unlink()
    (images / "day/cat/0.png").rename(images / "day/cat/moved.png")
    (images / "night/cat/0.png").rename(images / "night/bike/relabelled.png")


def add_target(store: Path, images: Path) -> None:
    target = tiny.write_target(images.parent / "target", 100)
    tiny.extract(images, ["a"], store, unlabelled=[str(target)])
    (target / "100.png").unlink()
    (images / "day/bike/1.png").unlink()


def add_cache(store: Path, images: Path) -> None:
    (store / "cache/oof").mkdir(parents=True)
    (store / "cache/oof/0.npz").write_bytes(b"cached")


def add_garbage(store: Path, images: Path) -> None:
    change(store, images)
    sync_store(store, images)
    add_cache(store, images)
    (store / "models/a/00007-00000.features.0123456789abcdef.npy").write_bytes(b"left over")
    (store / "samples/0123456789abcdef.json").write_text("{}")
    (store / "models/gone").mkdir()
    (store / "models/gone/00000-00000.json").write_text("{}")


def damage(pattern: str) -> Callable[[Path, Path], None]:
    def damage(store: Path, images: Path) -> None:
        path = min(store.glob(pattern))
        path.write_bytes(path.read_bytes()[:-20])

    return damage


class Case(NamedTuple):
    """A command; how the store is prepared, what is looked at, and how many changes it makes.

    A damaged shard file without its record may be left, until the store is pruned.
    """

    prepare: Callable[[Path, Path], None]
    function: str
    arguments: tuple[Any, ...] = ()
    options: dict[str, bool] = {}  # noqa: RUF012
    of_b: bool = False
    least: int = 3


CHECK = ("oodzoo.store.checking:check_store", (), {"repair": True}, True)
PRUNE = ("oodzoo.store.prune:prune_store", (), {"cache": True}, False)
CASES = {
    "sync": Case(change, "oodzoo.store.sync:sync_store", ("IMAGES",), least=6),
    "sync, unlabelled": Case(add_target, "tests.store.tiny:sync", ("IMAGES", ["TARGET"]), least=6),
    "rm": Case(lambda *_: None, "oodzoo.store.removal:remove_models", (["a"],), least=12),
    "prune": Case(add_cache, *PRUNE),
    "prune, garbage": Case(add_garbage, *PRUNE, 25),
    "repair, shard": Case(damage("models/a/*.features.*.npy"), *CHECK),
    "repair, manifest": Case(damage("manifest.json"), *CHECK),
    "repair, list": Case(damage("models/a/shards.*.json"), *CHECK),
    "repair, record": Case(damage("models/a/0*.json"), *CHECK),
}


@pytest.mark.parametrize("name", CASES)
def test_a_killed_command(
    kill: Children, store: Path, images: Path, tmp_path: Path, name: str
) -> None:
    """Model b is read at every moment of a repair, unless the manifest is damaged."""
    case = CASES[name]
    case.prepare(store, images)
    places = {"IMAGES": str(images), "TARGET": str(images.parent / "target")}
    arguments = [
        [places.get(a, a) for a in each] if isinstance(each, list) else places[each]
        for each in case.arguments
    ]
    module, _, function = case.function.partition(":")
    command = getattr(importlib.import_module(module), function)

    def run(place: Path) -> Any:
        return command(place, *arguments, **case.options)

    def look(place: Path) -> Any:
        if not case.of_b:
            return content(place)
        opened = FeatureStore(place)
        return [opened.features("b", domain).tobytes() for domain in opened.domains]

    done = shutil.copytree(store, tmp_path / "done")
    outcome = run(done)
    states = [look(done)] if name == "repair, manifest" else [look(store), look(done)]
    assert (states[0] == states[-1]) == name.startswith(("prune", "repair"))
    if name.startswith("prune"):
        assert outcome.images == 2 * (name == "prune, garbage")
    expected, new, copy = files(done), content(done), tmp_path / "copy"
    for moment in itertools.count(1):
        shutil.copytree(store, copy)
        if not kill.killed(moment, case.function, copy, *arguments, **case.options):
            break
        if name != "repair, manifest":
            assert look(copy) in states, moment
        if name != "rm" or (copy / "models/a").exists():
            run(copy)
        assert content(copy) == new, moment
        assert not check_store(copy).damage, moment
        assert not [path for path in copy.rglob("*") if is_temporary(path.name)], moment
        assert case.of_b or files(copy) == expected, moment
        prune_store(copy)
        shutil.rmtree(copy)
    assert files(copy) == expected
    assert moment >= case.least


def test_merge(kill: Children, images: Path, tmp_path: Path) -> None:
    """The new store is not finished before the last change."""
    target = tiny.write_target(tmp_path / "target", 100)
    one, two, done = tmp_path / "one", tmp_path / "two", tmp_path / "done"
    tiny.extract(images, ["a", "b"], one)
    tiny.extract(images, ["b", "c"], two, unlabelled=[str(target)])
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


def test_maintenance_of_an_unfinished_store(kill: Children, images: Path, tmp_path: Path) -> None:
    """Models with some shards are not finished because other models are removed or repaired."""
    store, fresh = tmp_path / "store", tmp_path / "fresh"
    moment = 10
    while not list(store.glob("models/b/0*.json")):
        shutil.rmtree(store, ignore_errors=True)
        assert kill.killed(moment, "tests.store.tiny:extract", images, ["a", "b"], store)
        moment += 1
    check_store(store, repair=True)
    assert "no finished model" in tiny.complaint(FeatureStore, store)
    remove_models(store, ["a"])
    assert "no finished model" in tiny.complaint(FeatureStore, store)
    tiny.extract(images, ["b"], store)
    tiny.extract(images, ["b"], fresh)
    assert content(store) == content(fresh)

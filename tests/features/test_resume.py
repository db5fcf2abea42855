"""Resuming after a kill at any moment gives the same store.

Behaviour of the loop, the writer and the command together.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from tests.features.data import Extract, Stamps, Tree, Zoo
from tests.killing import STEP, Children, children, needs_fork

from oodzoo.core import io as _io
from oodzoo.demo.digits import DOMAINS, deal_domains, draw_digit
from oodzoo.extraction.importing import import_features
from oodzoo.store.feature_store import FeatureStore
from oodzoo.zoo import ModelSpec, load_zoo

Process = Callable[..., subprocess.Popen[str]]
ZooFile = Callable[[list[ModelSpec]], Path]

pytestmark = needs_fork


@pytest.fixture(scope="module")
def kill() -> Iterator[Children]:
    with children(
        "oodzoo.extraction.extract", "oodzoo.extraction.importing", "onnxruntime"
    ) as started:
        yield started


@pytest.fixture
def few(data: Path) -> Path:
    """Two domains of a few images each, one of them unreadable."""
    shutil.rmtree(data / "paper")
    for path in data.rglob("*.png"):
        if path.parent.name == "2":
            path.unlink()
    next((data / "marker/0").glob("*.png")).write_bytes(b"no image")
    for folder in data.glob("*/2"):
        folder.rmdir()
    return data


def test_killed_before_any_change(
    few: Path,
    zoo: Zoo,
    zoo_file: ZooFile,
    extract: Extract,
    kill: Children,
    tree: Tree,
    stamps: Stamps,
    tmp_path: Path,
) -> None:
    one = load_zoo(file := zoo_file(zoo("separable_shapes")))
    extract(few, one, tmp_path / "whole")
    expected = tree(tmp_path / "whole")
    moment = 1
    while kill.killed(moment, "oodzoo:extract", few, file, store := tmp_path / f"s{moment}"):
        finished = finished_shards(store, stamps)
        done = extract(few, one, store)
        assert tree(store) == expected, moment
        assert stamps(store).items() >= finished.items(), moment
        assert done.shards == 2 - len(finished) // 2, moment
        moment += STEP
    assert tree(store) == expected
    assert moment > 20


def test_killed_while_growing(
    few: Path,
    zoo: Zoo,
    zoo_file: ZooFile,
    extract: Extract,
    kill: Children,
    tree: Tree,
    stamps: Stamps,
    tmp_path: Path,
) -> None:
    """Readers see the old state or the new one, aligned, at whatever moment the kill comes."""
    old, new = tmp_path / "old", tmp_path / "new"
    extract(few, load_zoo(zoo_file(zoo("separable_shapes"))), old)
    rows = _rows(FeatureStore(old))
    Image.new("RGB", (32, 32), "red").save(few / "chalk/0/a-first.png")
    (few / "tilted/5").mkdir(parents=True)
    Image.new("RGB", (32, 32), "blue").save(few / "tilted/5/new.png")
    both = load_zoo(file := zoo_file(zoo("separable_shapes", "cnn_photos")))
    extract(few, both, shutil.copytree(old, new))
    expected = tree(new)
    moment = 2  # the lock alone changes nothing
    while kill.killed(
        moment,
        "oodzoo:extract",
        few,
        file,
        store := shutil.copytree(old, tmp_path / f"s{moment}"),
    ):
        seen = _rows(FeatureStore(store))
        assert seen.keys() in (
            rows.keys(),
            rows.keys() | {"chalk/0/a-first.png", "tilted/5/new.png"},
        )
        for path, (label, row) in rows.items():
            assert seen[path][0] == label
            np.testing.assert_array_equal(seen[path][1], row)
        finished = finished_shards(store, stamps)
        extract(few, both, store)
        assert tree(store) == expected, moment
        assert stamps(store).items() >= finished.items(), moment
        moment += STEP
    assert moment > 20


def test_an_import_killed_before_any_change(
    kill: Children, tree: Tree, stamps: Stamps, tmp_path: Path
) -> None:
    import_features([file := _write_features(tmp_path / "a.npz")], tmp_path / "whole")
    expected = tree(tmp_path / "whole")
    moment = 1
    while kill.killed(
        moment,
        "oodzoo.extraction.importing:import_features",
        [file],
        store := tmp_path / f"s{moment}",
    ):
        finished = finished_shards(store, stamps)
        import_features([file], store)
        assert tree(store) == expected, moment
        assert stamps(store).items() >= finished.items(), moment
        moment += STEP
    assert tree(store) == expected
    assert moment > 20


def _write_features(file: Path) -> Path:
    features = np.arange(24.0).reshape(6, 4)
    content: dict[str, Any] = {"one": features, "one.logits": features[:, :2], "two": -features}
    content |= {"labels": ["cat", "dog"] * 3, "domains": ["day", "night", "day"] * 2}
    np.savez(file, **content)
    return file


def finished_shards(store: Path, stamps: Stamps) -> dict[str, tuple[int, int]]:
    """The record of a shard is written last: where it is, all files are."""
    return {
        name: stamp
        for name, stamp in stamps(store).items()
        if (store / f"{name.partition('.')[0]}.json").is_file()
    }


def _rows(store: FeatureStore) -> dict[str, tuple[str, Any]]:
    """Label and features of each path, as a reader puts them together."""
    return {
        path: (store.classes[label], row)
        for domain in store.domains
        for path, label, row in zip(
            store.paths(domain),
            store.labels(domain),
            store.features("separable_shapes", domain),
            strict=True,
        )
    }


def test_killed_at_random_many_times(
    zoo: Zoo,
    zoo_file: ZooFile,
    extract: Extract,
    process: Process,
    tree: Tree,
    stamps: Stamps,
    tmp_path: Path,
) -> None:
    """The command itself, killed by the clock: also in the middle of a write or a forward pass."""
    bunch = load_digits()
    domains = deal_domains(bunch.target)
    for index in range(240):
        path = tmp_path / "data" / domains[index] / str(bunch.target[index]) / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw_digit(bunch.images[index] / 16, domains[index], index)).save(path)
    models = zoo("separable_shapes", "cnn_photos", "mlp_glyphs_augmented")
    file = zoo_file(models)
    start = time.monotonic()
    extract(tmp_path / "data", load_zoo(file), tmp_path / "whole")
    span = time.monotonic() - start
    store = tmp_path / "store"
    command = ("extract", tmp_path / "data", "--zoo", file, "--store", store, "--quiet")
    lots = random.Random(7)
    finished: dict[str, tuple[int, int]] = {}
    for _ in range(3 if STEP > 1 else 12):
        child = process("from oodzoo.cli import main; main()", *command)
        _wait_for_lock(child, store)
        time.sleep(lots.uniform(0.0, span))
        child.kill()
        child.wait()
        before, finished = finished, finished_shards(store, stamps)
        assert finished.items() >= before.items()
    last = process("from oodzoo.cli import main; main()", *command)
    out, err = last.communicate()
    assert (last.returncode, err) == (0, "")
    assert "3 models, 240 images, 6 domains" in out
    assert stamps(store).items() >= finished.items()
    assert tree(store) == tree(tmp_path / "whole")
    assert FeatureStore(store).domains == tuple(sorted(DOMAINS))


def _wait_for_lock(child: subprocess.Popen[str], store: Path) -> None:
    """Until the work has begun; importing takes longer than it."""
    lock = store / ".lock"
    while child.poll() is None and not (lock.exists() and str(child.pid) in lock.read_text()):
        time.sleep(0.01)


def test_stale_temporaries_go(
    store: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree
) -> None:
    before = tree(store)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    name = f".tmp-{_io._machine()}-{dead.pid}-0123456789abcdef"
    for folder in (".", "images", "samples", "models/separable_shapes"):
        (store / folder / name).write_bytes(b"half of")
    extract(data, zoo(), store)
    assert tree(store) == before

"""Pruning removes what a store no longer needs, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.features.data import Tree, one_of
from tests.store.contents import contents, rows_by_image, size
from tests.store.data import (
    Begin,
    compute,
    fill,
    image,
    letters,
    literal,
    record,
    require_right,
    unlabelled,
    value,
)

import oodzoo
from oodzoo._io import _machine, file_digest
from oodzoo.errors import InputError
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.prune import Pruned, prune_store
from oodzoo.store.sync import sync_store
from oodzoo.store.usage import disk_usage
from oodzoo.store.writer import writing


def replace_table(store: Path, **domains: str) -> Path:
    """Replace the samples of a store, as `sync` does."""
    with writing(store, exclusive=True) as writer:
        writer.set_table(letters(**domains))
        writer.finish()
    return store


def bytes_of(row: NDArray[np.float32]) -> bytes:
    return row.tobytes()


def test_rows_of_removed_images_leave_the_disk(small: Path) -> None:
    replace_table(small, day="abd", night="fghi")
    before = contents(small)
    gone = [
        bytes_of(value(model, image(letter), output))
        for model in ("m1", "m2")
        for letter in "ce"
        for output in ("features", "logits")
    ]
    assert all(any(row in f.read_bytes() for f in small.rglob("*.npy")) for row in gone)
    total = size(small)
    pruned = prune_store(small)
    assert pruned == Pruned(2, total - size(small))
    assert contents(small) == before
    for file in (f for f in small.rglob("*") if f.is_file()):
        assert not any(row in file.read_bytes() for row in gone), file
        assert not any(image(letter).encode() in file.read_bytes() for letter in "ce"), file
    require_right(small)
    assert literal(small, "m1").keys() == {image(letter) for letter in "abdfghi"}


def test_real_images(store: Path, data: Path, tree: Tree) -> None:
    for cell in ("chalk/0", "paper/2", "paper/1"):
        one_of(data, cell).unlink()
    sync_store(store, data)
    ranking = oodzoo.rank(store)
    before, total = contents(store), size(store)
    pruned = prune_store(store)
    assert pruned == Pruned(3, total - size(store))
    assert contents(store) == before
    assert oodzoo.rank(store).rows == ranking.rows
    assert len(rows_by_image(store, "separable_shapes")) == 42
    again = tree(store)
    assert prune_store(store) == Pruned(0, 0)
    assert tree(store) == again


def test_nothing_to_prune(small: Path, tree: Tree) -> None:
    before = tree(small)
    assert prune_store(small) == Pruned(0, 0)
    assert tree(small) == before


def test_a_removed_image_that_comes_back_is_computed_again(small: Path) -> None:
    replace_table(small, day="abd", night="fghi")
    prune_store(small)
    with writing(small) as writer:
        writer.set_table(letters(day="abcde", night="fghi"))
        writer.add_images()
        assert compute(writer, "m1", "m2") == 2
        writer.finish()
    assert require_right(small).n_images == 9


def test_only_outdated_segments_are_rewritten(small: Path) -> None:
    fill(small, letters(day="abcdexy", night="fghi"), "m1", "m2")
    replace_table(small, day="abcdex", night="fghi")  # y is in the second segment
    kept = {f: f.stat().st_ino for f in small.rglob("00000-*.npy")}
    assert prune_store(small).images == 1
    assert {f: f.stat().st_ino for f in small.rglob("00000-*.npy")} == kept
    assert sorted(f.name for f in (small / "images").iterdir()) == ["00000.json", "00002.json"]
    require_right(small)


def test_an_unfinished_extraction_keeps_its_shards(small: Path) -> None:
    with writing(small) as writer:
        writer.add_model("begun", record())
        planned, _ = writer.plan(["begun"], set(writer.table.images()))
        outputs = {
            output: np.array([value("begun", i, output) for i in planned.images])
            for output in ("features", "logits")
        }
        writer.write_shard("begun", planned.name, outputs, {})
    assert prune_store(small) == Pruned(0, 0)
    replace_table(small, day="abd", night="fghi")  # images of the finished shard
    prune_store(small)
    assert FeatureStore(small).models == ("m1", "m2")
    with writing(small) as writer:
        assert compute(writer, "begun") == 1  # of two
        writer.finish()
    assert require_right(small).models == ("begun", "m1", "m2")


def test_unlabelled_images_are_kept(tmp_path: Path) -> None:
    table = letters(day="abc", night="def").replacing(unlabelled("target", "xyz"))
    store = fill(tmp_path / "s", table, "m")
    replace_table(store, day="ab", night="def")
    assert prune_store(store).images == 1
    opened = require_right(store)
    assert opened.has_features("m", "target")
    assert opened.unlabelled == ("target",)


def test_undecodable_images_stay_so(tmp_path: Path) -> None:
    store = fill(tmp_path / "s", letters(day="abc", night="def"), "m", undecodable={image("b")})
    replace_table(store, day="ab", night="def")
    prune_store(store)
    assert require_right(store).skipped == {"day/b.png": "cannot be decoded"}
    with writing(store) as writer:
        assert compute(writer, "m") == 0


def test_orphans_and_leftovers_go(small: Path, tree: Tree) -> None:
    before = tree(small)
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    leftovers = [
        f"models/m1/.tmp-{_machine()}-{child.pid}-{'0' * 16}",
        f".tmp-{_machine()}-{child.pid}-{'1' * 16}",
        "models/m1/00000-00000.features.0123456789abcdef.npy",
        "models/m1/00009-00000.json",
        "models/m1/shards.0123456789abcdef.json",
        "models/gone/00000-00000.features.0123456789abcdef.npy",
    ]
    for name in leftovers:
        (small / name).parent.mkdir(exist_ok=True)
        (small / name).write_bytes(b"12345")
    assert disk_usage(small).unused == 5 * (len(leftovers) - 2)  # temporaries may be in use
    assert prune_store(small) == Pruned(0, 5 * len(leftovers))
    assert tree(small) == before
    assert not (small / "models/gone").exists()


def test_the_cache_goes_if_asked(store: Path, tree: Tree) -> None:
    before = tree(store)
    oodzoo.rank(store)
    cache = size(store / "cache")
    assert cache > 0
    assert prune_store(store) == Pruned(0, 0)
    assert size(store / "cache") == cache
    assert prune_store(store, cache=True) == Pruned(0, cache)
    assert not (store / "cache").exists()
    assert tree(store) == before


def test_all_images_removed(small: Path) -> None:
    with writing(small, exclusive=True) as writer:
        writer.set_table(letters())
        writer.finish()
    assert prune_store(small).images == 9
    assert list(small.rglob("*.npy")) == []
    with pytest.raises(InputError, match="no finished model"):
        FeatureStore(small)
    fill(small, letters(day="edcba", night="xyz"), "m1")
    require_right(small)


def test_a_store_without_a_finished_model(begin: Begin, tmp_path: Path, tree: Tree) -> None:
    begin(tmp_path / "s")
    before = tree(tmp_path / "s")
    assert prune_store(tmp_path / "s") == Pruned(0, 0)
    assert tree(tmp_path / "s") == before
    with writing(tmp_path / "t") as writer:
        writer.add_model("begun", record())
    before = tree(tmp_path / "t")
    with pytest.raises(InputError, match="has no finished model"):
        prune_store(tmp_path / "t")
    assert tree(tmp_path / "t") == before


def test_links_are_not_followed(small: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    (small / "models/linked").symlink_to(outside)
    prune_store(small)
    assert (outside / "file").read_text() == "kept"
    (small / "cache").symlink_to(outside)
    with pytest.raises(InputError, match="is a symbolic link"):
        prune_store(small, cache=True)
    assert (outside / "file").read_text() == "kept"


def test_a_writer_is_not_disturbed(small: Path) -> None:
    replace_table(small, day="abd", night="fghi")
    with (
        writing(small),
        pytest.raises(InputError, match="is being written by another process"),
    ):
        prune_store(small)
    assert len(literal(small, "m1")) == 9


def test_names_are_the_checksums(small: Path) -> None:
    replace_table(small, day="abd", night="fghi")
    prune_store(small)
    for file in small.rglob("*.npy"):
        assert file.name.split(".")[2] == file_digest(file)[:16]
    assert [file.name for file in (small / "images").iterdir()] == ["00001.json"]


def test_an_unfinished_extension_stays(small: Path) -> None:
    """Features of new images whose extraction was interrupted are not those of removed images."""
    replace_table(small, day="abc", night="efghi")
    with writing(small) as writer:
        writer.set_table(letters(day="abcxy", night="efghi"))
        writer.add_images()
        new = compute(writer, *writer.manifest.models)
    assert new == 2
    assert prune_store(small).images == 1
    with writing(small) as writer:
        writer.set_table(letters(day="abcxy", night="efghi"))
        assert compute(writer, *writer.manifest.models) == 0
    assert prune_store(small, unfinished=True).images == 2
    with writing(small) as writer:
        writer.set_table(letters(day="abcxy", night="efghi"))
        writer.add_images()
        assert compute(writer, *writer.manifest.models) == 2
        writer.finish()
    assert FeatureStore(small).n_images == 10
    require_right(small)


def test_files_of_others_stay(small: Path) -> None:
    (small / "models/m1/notes.txt").write_text("mine")
    (small / "models/m1/folder").mkdir()
    prune_store(small)
    assert (small / "models/m1/notes.txt").read_text() == "mine"

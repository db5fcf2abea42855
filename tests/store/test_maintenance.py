"""Looking at a store, pruning, removing models, proposing domains: nothing else is lost."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.features.data import Tree
from tests.store import tiny
from tests.store.data import (
    compute,
    fill,
    image,
    letters,
    literal,
    record,
    require_right,
    unlabelled,
    value,
    values,
)

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.core.io import _machine, file_digest
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.maintenance import (
    DomainEntry,
    Pruned,
    disk_usage,
    list_contents,
    prune_store,
    remove_models,
)
from oodzoo.store.sync import regroup_store, sync_store
from oodzoo.store.writer import writing

TABLE = letters(day="abcde", night="fghi")


def size(folder: Path) -> int:
    """Add up the sizes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def moments(folder: Path) -> dict[Path, int]:
    """Return when each file and folder was changed."""
    return {path: path.stat().st_mtime_ns for path in (folder, *folder.rglob("*"))}


def replace_table(store: Path, **domains: str) -> Path:
    """Replace the samples of a store, as `sync` does."""
    with writing(store, exclusive=True) as writer:
        writer.set_table(letters(**domains))
        writer.finish()
    return store


def test_rows_of_removed_images_leave_the_disk(small: Path) -> None:
    replace_table(small, day="abd", night="fghi")
    before = tiny.content(small)
    gone = [
        value(model, image(letter), output).tobytes()
        for model in ("m1", "m2")
        for letter in "ce"
        for output in ("features", "logits")
    ]
    assert all(any(row in f.read_bytes() for f in small.rglob("*.npy")) for row in gone)
    total = size(small)
    assert prune_store(small) == Pruned(2, total - size(small))
    assert tiny.content(small) == before
    for file in (f for f in small.rglob("*") if f.is_file()):
        assert not any(row in file.read_bytes() for row in gone), file
        assert not any(image(letter).encode() in file.read_bytes() for letter in "ce"), file
    for file in small.rglob("*.npy"):
        assert file.name.split(".")[2] == file_digest(file)[:16]
    assert [file.name for file in (small / "images").iterdir()] == ["00001.json"]
    assert literal(small, "m1").keys() == {image(letter) for letter in "abdfghi"}
    # one that comes back is computed again
    with writing(small) as writer:
        writer.set_table(TABLE)
        writer.add_images()
        assert compute(writer, "m1", "m2") == 2
        writer.finish()
    assert require_right(small).n_images == 9


def test_an_unfinished_extension_stays(small: Path) -> None:
    """Features of new images whose extraction was interrupted are not those of removed images."""
    replace_table(small, day="abc", night="efghi")
    larger = letters(day="abcxy", night="efghi")

    def extend(*, finish: bool = False) -> int:
        with writing(small) as writer:
            writer.set_table(larger)
            writer.add_images()
            written = compute(writer, *writer.manifest.models)
            if finish:
                writer.finish()
        return written

    assert extend() == 2
    assert prune_store(small).images == 1
    assert extend() == 0
    assert prune_store(small, unfinished=True).images == 2
    assert extend(finish=True) == 2
    assert require_right(small).n_images == 10


def test_orphans_and_leftovers_go_but_not_files_of_others(
    small: Path, tmp_path: Path, tree: Tree
) -> None:
    (small / "models/m1/notes.txt").write_text("mine")
    (small / "models/m1/folder").mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    (small / "models/linked").symlink_to(outside)
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
        "models/gone/class_embeddings.json",
    ]
    for name in leftovers:
        (small / name).parent.mkdir(exist_ok=True)
        (small / name).write_bytes(b"12345")
    assert disk_usage(small).unused == 5 * (len(leftovers) - 2)  # temporaries may be in use
    assert prune_store(small) == Pruned(0, 5 * len(leftovers))
    assert tree(small) == before
    assert not (small / "models/gone").exists()
    (small / "cache").symlink_to(outside)
    with pytest.raises(InputError, match="is a symbolic link"):
        prune_store(small, cache=True)
    assert (outside / "file").read_text() == "kept"


def test_no_image_or_no_model_is_left(
    small: Path, images: Path, tmp_path: Path, tree: Tree
) -> None:
    replace_table(small)
    assert prune_store(small).images == 9
    assert list(small.rglob("*.npy")) == []
    with pytest.raises(InputError, match="no finished model"):
        FeatureStore(small)
    fill(small, letters(day="edcba", night="xyz"), "m1")
    require_right(small)
    with writing(tmp_path / "t") as writer:
        writer.add_model("begun", record())
    before = tree(tmp_path / "t")
    for command in (prune_store, lambda store: sync_store(store, images)):
        with pytest.raises(InputError, match="has no finished model"):
            command(tmp_path / "t")
    assert tree(tmp_path / "t") == before
    remove_models(small, ["m1", "m2"])
    assert list_contents(small).models == ()
    assert disk_usage(small).models == {}


def test_removed_models(tiny_store: Path, images: Path, tree: Tree) -> None:
    whole, folder = tree(tiny_store), size(tiny_store / "models/a")
    tiny.extract(images, ["b"], tiny_store.with_name("only b"))
    begin_and_remove = tiny_store.with_name("begun")
    shutil.copytree(tiny_store, begin_and_remove)
    with writing(begin_and_remove) as writer:
        writer.add_model("begun", record())
    remove_models(begin_and_remove, ["begun"])
    assert tree(begin_and_remove) == whole
    assert remove_models(tiny_store, ["a", "a"]) == folder
    assert not (tiny_store / "models/a").exists()
    assert tiny.content(tiny_store) == tiny.content(tiny_store.with_name("only b"))
    assert tiny.extract(images, ["a", "b"], tiny_store).shards == 2
    assert tree(tiny_store) == whole
    before = tree(tiny_store)
    for names in (["aa"], ["a", "nothing"], [".."], ["../models/a"]):
        with pytest.raises(InputError, match=f"no model '{names[-1]}'"):
            remove_models(tiny_store, names)
    assert tree(tiny_store) == before
    assert remove_models(tiny_store, ["b", "a"]) > 0
    with pytest.raises(InputError, match="no finished model"):
        oodzoo.rank(tiny_store)
    assert tiny.extract(images, ["a", "b"], tiny_store).shards == 4
    assert tree(tiny_store) == whole


def test_models_domains_and_sizes(tiny_store: Path, images: Path, tree: Tree) -> None:
    tiny.write_image(images / "day/cat/new.png", 99, "cat")
    tiny.extract(images, ["a"], tiny_store)
    oodzoo.rank(tiny_store)
    before, times = tree(tiny_store), moments(tiny_store)
    with writing(tiny_store.parent / "other", exclusive=True):
        found, usage = list_contents(tiny_store), disk_usage(tiny_store)
    assert (tree(tiny_store), moments(tiny_store)) == (before, times)
    assert found.classes == 3
    assert found.domains == (
        DomainEntry("day", 10, labelled=True),
        DomainEntry("night", 9, labelled=True),
    )
    assert [(m.name, m.complete, m.images, m.features, m.logits) for m in found.models] == [
        ("a", True, 19, 4, 2),
        ("b", False, 18, 4, 2),
    ]
    for model in found.models:
        folder = tiny_store / "models" / model.name
        local = json.loads((folder / "local.json").read_text())
        assert model.bytes == usage.models[model.name] == size(folder)
        assert model.milliseconds == local["milliseconds_per_image"]
        assert model.measured == local["measured"]
        assert (model.dtype, model.parameters) == ("float32", None)
    folders = [tiny_store / name for name in ("samples", "images")]
    manifest = (tiny_store / "manifest.json").stat().st_size
    assert usage.samples == sum(map(size, folders)) + manifest
    assert usage.cache == size(tiny_store / "cache") > 0
    assert usage.total == sum(usage.models.values()) + usage.samples + usage.cache
    assert usage.total == size(tiny_store)


PATHS = [path for domain in TABLE.domains for path in domain.paths]
PARTS = {path: "xyz"[at % 3] for at, path in enumerate(PATHS)}


def test_features_follow_their_images_into_other_domains(small: Path) -> None:
    before = FeatureStore(small)
    regroup_store(small, PARTS, "camera")
    store = FeatureStore(small)
    assert (store.domains, store.domains_proposed) == (("x", "y", "z"), "camera")
    for domain in store.domains:
        assert store.paths(domain) == sorted(path for path in PATHS if PARTS[path] == domain)
        names = [Path(path).stem for path in store.paths(domain)]
        assert store.images(domain) == [image(name) for name in names]
        expected = values("m1", store.images(domain))
        np.testing.assert_array_equal(store.features("m1", domain), expected)
    assert len(list((small / "samples").iterdir())) == 1  # the old table is removed
    with writing(small) as writer:  # the same data set again keeps proposed domains
        writer.set_table(TABLE)
        assert writer.table.proposed == "camera"
        with pytest.warns(UserWarning, match="were proposed by camera; its samples have changed"):
            writer.set_table(letters(day="abcdez", night="fghi"))
        assert [domain.name for domain in writer.table.domains] == ["day", "night"]
    # samples that are not named join the first domain
    regroup_store(small, {PATHS[0]: "b", PATHS[1]: "a"}, "site")
    store = FeatureStore(small)
    assert (store.paths("b"), store.paths("a")) == (PATHS[:1], PATHS[1:])
    given = store.table.given_domains()
    assert given == {path: path.partition("/")[0] for path in PATHS}
    regroup_store(small, given, None)
    after = FeatureStore(small)
    assert (after.table, after.fingerprint) == (before.table, before.fingerprint)
    with writing(small) as writer:
        writer.table = writer.table.replacing(unlabelled("x", "pq"))
        writer.finish()
    with pytest.raises(InputError, match="'x' has the name of a proposed domain"):
        regroup_store(small, PARTS, "camera")
    assert FeatureStore(small).domains == ("day", "night")

"""Contents and sizes of a store."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import Run
from tests.features.data import Extract, Tree, Zoo, another_digit
from tests.store.contents import moments, size
from tests.store.data import compute, fill, image, letters, record, unlabelled, values

import oodzoo
from oodzoo.errors import InputError
from oodzoo.store.local import update_local
from oodzoo.store.prune import prune_store
from oodzoo.store.removal import remove_models
from oodzoo.store.usage import DomainEntry, disk_usage, list_contents
from oodzoo.store.writer import writing


def test_models_and_domains(store: Path) -> None:
    found = list_contents(store)
    assert found.classes == 3
    assert found.domains == tuple(
        DomainEntry(name, 15, labelled=True) for name in ("chalk", "marker", "paper")
    )
    mlp, shapes = found.models
    assert (mlp.name, mlp.complete, mlp.images, mlp.features, mlp.logits, mlp.dtype) == (
        "mlp_glyphs_augmented",
        True,
        45,
        48,
        47,
        "float32",
    )
    assert (shapes.name, shapes.features, shapes.logits) == ("separable_shapes", 96, 12)
    assert (shapes.parameters, shapes.source) == (27340, "onnx/separable_shapes.onnx")
    for model in found.models:
        folder = store / "models" / model.name
        assert model.bytes == size(folder)
        local = json.loads((folder / "local.json").read_text())
        assert model.milliseconds == local["milliseconds_per_image"]


def test_models_that_are_incomplete(store: Path, data: Path, zoo: Zoo, extract: Extract) -> None:
    another_digit(data, "chalk/1/new.png")
    extract(data, zoo("separable_shapes", "cnn_photos"), store)
    found = {model.name: (model.complete, model.images) for model in list_contents(store).models}
    assert found == {
        "cnn_photos": (True, 46),
        "mlp_glyphs_augmented": (False, 45),
        "separable_shapes": (True, 46),
    }
    assert [domain.images for domain in list_contents(store).domains] == [16, 15, 15]


def test_unlabelled_and_undecodable_images(tmp_path: Path) -> None:
    table = letters(day="abcd", night="ef").replacing(unlabelled("target", "xyz"))
    store = fill(tmp_path / "s", table, "m", undecodable={image("b"), image("y")})
    found = list_contents(store)
    assert found.domains == (
        DomainEntry("day", 3, labelled=True),
        DomainEntry("night", 2, labelled=True),
        DomainEntry("target", 2, labelled=False),
    )
    assert (found.models[0].images, found.classes) == (7, 2)
    assert (found.models[0].milliseconds, found.models[0].parameters) == (None, 7)


def test_a_store_without_models(small: Path) -> None:
    remove_models(small, ["m1", "m2"])
    assert list_contents(small).models == ()
    assert disk_usage(small).models == {}


def test_sizes_are_those_of_the_files(store: Path) -> None:
    oodzoo.rank(store)
    found = disk_usage(store)
    assert found.models == {
        name: size(store / "models" / name) for name in ("mlp_glyphs_augmented", "separable_shapes")
    }
    assert found.samples == (
        size(store / "samples") + size(store / "images") + (store / "manifest.json").stat().st_size
    )
    assert found.cache == size(store / "cache") > 0
    assert found.unused == 0
    assert found.total == size(store)
    assert found.total == sum(found.models.values()) + found.samples + found.cache


def test_what_can_be_pruned(small: Path) -> None:
    """The part of each shard file that belongs to removed images, and unused files."""
    with writing(small, exclusive=True) as writer:
        old = writer.manifest.table
        assert old is not None
        writer.set_table(letters(day="abd", night="fghi"))  # 2 of 5 rows of a shard
        writer.finish()
    shard = sum(file.stat().st_size for file in small.rglob("00000-00000.*.npy"))
    table = (small / "samples" / f"{old[:16]}.json").stat().st_size
    assert disk_usage(small).unused == round(shard * 2 / 5) + table
    prune_store(small)
    assert disk_usage(small).unused == 0


def test_unfinished_shards_are_not_unused(small: Path) -> None:
    with writing(small) as writer:
        writer.add_model("begun", record())
        planned, _ = writer.plan(["begun"], set(writer.table.images()))
        outputs = {o: values("begun", planned.images, o) for o in ("features", "logits")}
        writer.write_shard("begun", planned.name, outputs, {})
        assert compute(writer, "m1") == 0
    found = disk_usage(small)
    assert found.unused == 0
    assert found.models["begun"] == size(small / "models/begun")
    begun = list_contents(small).models[0]
    assert (begun.name, begun.complete, begun.images) == ("begun", False, 5)


def test_nothing_is_written(store: Path, tree: Tree) -> None:
    before, times = tree(store), moments(store)
    list_contents(store)
    disk_usage(store)
    assert (tree(store), moments(store)) == (before, times)


@pytest.fixture
def read_only(store: Path) -> Iterator[Path]:
    """A store that must not be written; the permissions are restored at the end."""
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    paths = [store, *store.rglob("*")]
    for path in paths:
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    yield store
    for path in paths:
        path.chmod(path.stat().st_mode | stat.S_IWUSR)


def test_a_read_only_store(read_only: Path) -> None:
    assert len(list_contents(read_only).models) == 2
    assert disk_usage(read_only).total == size(read_only)


def test_while_another_process_writes(small: Path) -> None:
    with writing(small, exclusive=True):
        assert len(list_contents(small).models) == 2
        assert disk_usage(small).cache == 0


def test_what_is_no_store(tmp_path: Path, photos: Path) -> None:
    for look in (list_contents, disk_usage):
        with pytest.raises(InputError, match="no such feature store"):
            look(tmp_path / "x")
        with pytest.raises(InputError, match="neither empty nor a feature store"):
            look(photos)


def test_float16_is_half_the_size(small: Path) -> None:
    before = sum(file.stat().st_size - 128 for file in small.rglob("models/m1/*.npy"))
    assert before == 9 * (3 + 2) * np.dtype(np.float32).itemsize
    with writing(small) as writer:
        writer.add_model("half", record("half", dtype="float16"))
        compute(writer, "half")
        writer.finish()
    half = sum(file.stat().st_size - 128 for file in small.rglob("models/half/*.npy"))
    assert half == before / 2
    assert list_contents(small).models[0].dtype == "float16"


def test_how_the_times_were_measured(run: Run, store: Path, tmp_path: Path) -> None:
    shown = run("store", "ls", store)
    assert "\nms/image: CPU time of one thread" in shown.out
    other = shutil.copytree(store, tmp_path / "other")
    remove_models(other, ["separable_shapes"])
    remove_models(store, ["mlp_glyphs_augmented"])
    update_local(other, "mlp_glyphs_augmented", {"measured": "wall time"})
    merged = run("store", "merge", other, store, "--out", tmp_path / "merged")
    assert "\nms/image of mlp_glyphs_augmented: wall time\n" in merged.out
    assert "\nms/image of separable_shapes: CPU time of one thread" in merged.out
    assert "not comparable" in merged.err

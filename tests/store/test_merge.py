"""Merging stores of the same images."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.features.data import Tree, write_table
from tests.store import tiny
from tests.store.data import fill, flip, letters, record, unlabelled

from oodzoo.core.errors import InputError
from oodzoo.data.dataset import ImageDomains
from oodzoo.store.checking import check_store
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.maintenance import merge_stores
from oodzoo.store.writer import writing

TABLE = letters(day="abcde", night="fghi")

Store = Callable[..., Path]


@pytest.fixture
def stored(images: Path, tmp_path: Path) -> Store:
    """Extract models, named by letters, into a new store."""

    def stored(name: str, models: str, source: Path = images, *targets: Path) -> Path:
        folders = [str(folder) for folder in targets]
        tiny.extract(source, list(models), tmp_path / name, unlabelled=folders)
        return tmp_path / name

    return stored


def test_models_of_several_stores(stored: Store, images: Path, tmp_path: Path, tree: Tree) -> None:
    stores = [stored(f"part{at}", models) for at, models in enumerate(("a", "ba", "b"))]
    before = [tree(store) for store in stores]
    (tmp_path / "both").mkdir()  # an empty folder will do
    merged = merge_stores(stores, tmp_path / "both")
    assert merged.path == tmp_path / "both"
    assert tree(tmp_path / "both") == tree(stored("whole", "ab"))
    assert [tree(store) for store in stores] == before
    found = check_store(tmp_path / "both")
    assert (found.damage, found.unfinished) == ((), ())
    assert tiny.extract(images, ["a", "b"], tmp_path / "both").shards == 0
    assert merged.local("a") == FeatureStore(stores[0]).local("a")


def test_unlabelled_domains(stored: Store, images: Path, tmp_path: Path) -> None:
    """Rows of a model come from each store that has it."""
    sea, sky = (tiny.write_target(tmp_path / name, at) for name, at in (("sea", 100), ("sky", 200)))
    a, b = stored("a", "a", images, sea), stored("b", "ba", images, sky)
    merged = merge_stores([a, b], tmp_path / "both")
    assert merged.unlabelled == ("sea", "sky")
    assert all(merged.has_features("a", domain) for domain in merged.unlabelled)
    assert merged.has_features("b", "sky")
    assert not merged.has_features("b", "sea")
    expected = tiny.content(stored("whole", "ab", images, sea, sky))
    for output in ("features", "logits"):
        del expected["sea"][-1][f"b {output}"]
    assert tiny.content(tmp_path / "both") == expected


def test_other_samples(stored: Store, images: Path, tmp_path: Path) -> None:
    a, path = stored("a", "a"), "day/cat/1.png"
    rows = [tuple(sample[:3]) for sample in ImageDomains(images)]
    others = [(path, "day", "dog", ""), (path, "night", "cat", ""), (path, "day", "cat", "g")]
    for at, other in enumerate([None, *others]):
        changed = [(*row, "") if row[0] != path else other for row in rows]
        table = [row for row in changed if row is not None]
        source = write_table(images, table, "path,domain,label,group")
        b = stored(f"b{at}", "b", source)
        for stores in ([a, b], [b, a]) if other is None else ([a, b],):
            expected = rf"in 1 sample, the first is '{path}' \(domain 'day', label 'cat'"
            with pytest.raises(InputError, match=expected):
                merge_stores(stores, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_features(small: Path, tmp_path: Path, photos: Path, tree: Tree) -> None:
    """Of a model, or of a domain without labels; places that are not empty; one store."""
    same = fill(tmp_path / "same", TABLE, "m1")
    flipped = fill(tmp_path / "flipped", TABLE, "m3")
    shutil.rmtree(same / "models/m1")
    with writing(same) as writer:  # equal descriptions, other rows
        writer.add_model("m1", record())
        for shard in writer.plan(["m1"], set(TABLE.images())):
            n = len(shard.images)
            outputs = {"features": np.ones((n, 3)), "logits": np.ones((n, 2))}
            writer.write_shard("m1", shard.name, outputs, {})
        writer.finish()
    assert FeatureStore(small).model("m1").identity == FeatureStore(same).model("m1").identity
    flip(next((flipped / "models/m3").glob("*.features.*.npy")), 8 * 130)
    other = fill(tmp_path / "other", TABLE, "m1", fingerprint="other")
    third = fill(tmp_path / "third", TABLE, "m3")
    sea = [
        fill(tmp_path / name, TABLE.replacing(unlabelled("sea", names)), name)
        for name, names in (("u1", "xy"), ("u2", "xz"))
    ]
    before = tree(small), tree(same), tree(photos)
    out = tmp_path / "out"
    for stores, target, message in (
        ([small, same], out, r"'m1' has other features in .*`oodzoo store rm`"),
        ([small, other], out, "'m1' has other features in"),
        (sea, out, "unlabelled domain 'sea' has other images"),
        ([small], out, "needs two or more stores, got 1"),
        ([small, tmp_path / "x"], out, "no such feature store"),
        ([small, third], small, "exists already; choose another folder"),
        ([small, third], photos, "neither empty nor a feature store"),
    ):
        with pytest.raises(InputError, match=message):
            merge_stores(stores, target)
        assert not out.exists()
    assert (tree(small), tree(same), tree(photos)) == before
    with pytest.raises(InputError, match=r"is damaged .*--repair"):  # it is not copied
        merge_stores([small, flipped], out)

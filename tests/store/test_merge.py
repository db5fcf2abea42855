"""Merging stores of the same images."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.features.data import (
    Extract,
    MakeModel,
    Tree,
    Zoo,
    another_digit,
    one_of,
    rows_of,
    write_table,
)
from tests.store.contents import contents, targets
from tests.store.data import fill, image, letters, record, require_right, unlabelled

from oodzoo.data.dataset import ImageDomains
from oodzoo.data.unlabelled import UnlabelledImages
from oodzoo.errors import InputError
from oodzoo.features.config import ExtractionConfig
from oodzoo.features.extract import run_extraction
from oodzoo.store.checking import check_store
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.merge import merge_stores
from oodzoo.store.sync import sync_store
from oodzoo.store.writer import writing
from oodzoo.zoo import Model

TABLE = letters(day="abcde", night="fghi")

Store = Callable[..., Path]


def pixels(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return some pixels as features."""
    return batch[:, 0, 4:28:4, 12]


@pytest.fixture
def one(make_model: MakeModel) -> Model:
    return make_model(name="one")


@pytest.fixture
def two(make_model: MakeModel) -> Model:
    return make_model(pixels, name="two", feature_dim=6)


@pytest.fixture
def stored(data: Path, extract: Extract, tmp_path: Path) -> Store:
    """Extract models into a new store."""

    def stored(name: str, *models: Model, source: Path = data) -> Path:
        extract(source, list(models), tmp_path / name)
        return tmp_path / name

    return stored


def require_sound(store: Path) -> None:
    found = check_store(store)
    assert (found.damage, found.unfinished) == ((), ())


# --- what can be merged ----------------------------------------------------------------------


def test_disjoint_models(
    data: Path, zoo: Zoo, extract: Extract, made: Path, tmp_path: Path, tree: Tree
) -> None:
    for spec in zoo():
        extract(data, [spec], tmp_path / spec.name)
    parts = [tmp_path / spec.name for spec in zoo()]
    before = [tree(part) for part in parts]
    merged = merge_stores(parts, tmp_path / "both")
    assert merged.path == tmp_path / "both"
    assert tree(tmp_path / "both") == tree(made)
    assert [tree(part) for part in parts] == before
    require_sound(tmp_path / "both")
    assert extract(data, zoo(), tmp_path / "both").shards == 0
    for spec in zoo():
        assert merged.local(spec.name) == FeatureStore(tmp_path / spec.name).local(spec.name)


def test_overlapping_models(stored: Store, one: Model, two: Model, tmp_path: Path) -> None:
    a, b, c = stored("a", one), stored("b", two, one), stored("c", two)
    merge_stores([a, b, c], tmp_path / "all")
    assert contents(tmp_path / "all") == contents(b)
    require_sound(tmp_path / "all")


def test_other_segments_and_paths(
    stored: Store, one: Model, two: Model, data: Path, extract: Extract, tmp_path: Path
) -> None:
    """The same images, extracted bit by bit, with other paths and after a removal."""
    a = stored("a", one)
    other = shutil.copytree(data, tmp_path / "other")
    gone = another_digit(other, "chalk/2/gone.png")
    late = [one_of(other, cell) for cell in ("chalk/0", "paper/1", "marker/1")]
    contents_of = [file.read_bytes() for file in late]
    for file in late:
        file.unlink()
    b = stored("b", two, source=other)
    for file, content in zip(late, contents_of, strict=True):
        file.with_name(f"later-{file.name}").write_bytes(content)
    gone.unlink()
    sync_store(b, other)
    extract(other, [two], b)
    assert len(list((b / "images").iterdir())) == 2
    assert FeatureStore(a).paths("chalk") != FeatureStore(b).paths("chalk")
    merge_stores([a, b], tmp_path / "ab")
    assert contents(tmp_path / "ab") == contents(stored("fresh", one, two))
    merge_stores([b, a], tmp_path / "ba")
    assert contents(tmp_path / "ba") == contents(stored("fresh2", one, two, source=other))


def test_unlabelled_domains(one: Model, two: Model, data: Path, tmp_path: Path) -> None:
    folder = targets(data, tmp_path / "target")

    def extracted(name: str, models: list[Model], *names: str) -> Path:
        images = [UnlabelledImages(folder, name) for name in names]
        path = tmp_path / name
        run_extraction(ImageDomains(data), models, path, ExtractionConfig(), unlabelled=images)
        return path

    a = extracted("a", [one], "sea")
    b = extracted("b", [two], "sky", "sea")
    merged = merge_stores([a, b], tmp_path / "both")
    assert merged.unlabelled == ("sea", "sky")
    assert contents(tmp_path / "both") == contents(extracted("c", [one, two], "sea", "sky"))


def test_rows_of_unlabelled_domains_come_from_each_source(tmp_path: Path) -> None:
    sources = [
        fill(tmp_path / name, TABLE.replacing(unlabelled(name, letter)), "m")
        for name, letter in (("sea", "xy"), ("sky", "z"))
    ]
    merged = merge_stores(sources, tmp_path / "out")
    assert merged.unlabelled == ("sea", "sky")
    assert all(merged.has_features("m", domain) for domain in merged.unlabelled)
    require_right(tmp_path / "out")


def test_an_undecodable_image(tmp_path: Path) -> None:
    broken = {image("c")}
    sources = [fill(tmp_path / name, TABLE, name, undecodable=broken) for name in ("m1", "m2")]
    merge_stores(sources, tmp_path / "out")
    assert require_right(tmp_path / "out").skipped == {"day/c.png": "cannot be decoded"}


def test_float16_and_float32_side_by_side(tmp_path: Path) -> None:
    a = fill(tmp_path / "a", TABLE, "m1")
    with writing(tmp_path / "b") as writer:
        writer.set_table(TABLE)
        writer.add_images()
        writer.add_model("m2", record(dtype="float16", n_logits=None))
        for shard in writer.plan(["m2"], set(TABLE.images())):
            rows = np.ones((len(shard.images), 3))
            writer.write_shard("m2", shard.name, {"features": rows}, {})
        writer.finish()
    merged = merge_stores([a, tmp_path / "b"], tmp_path / "out")
    assert merged.features("m2", "day").dtype == np.float16
    assert merged.features("m1", "day").dtype == np.float32


# --- refusals --------------------------------------------------------------------------------


def test_other_images(stored: Store, one: Model, two: Model, data: Path, tmp_path: Path) -> None:
    a = stored("a", one)
    file = one_of(data, "chalk/1")
    file.unlink()
    b = stored("b", two)
    for stores in ([a, b], [b, a]):
        with pytest.raises(InputError, match=rf"in 1 sample, the first is 'chalk/1/{file.name}'"):
            merge_stores(stores, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_labels_domains_and_groups(
    stored: Store, one: Model, two: Model, data: Path, tmp_path: Path
) -> None:
    rows = [(*row, "") for row in rows_of(data)]
    header = "path,domain,label,group"
    a = stored("a", one, source=write_table(data, rows, header))
    path = rows[3][0]
    for number, changed in enumerate(
        [(path, "chalk", "2", ""), (path, "paper", "0", ""), (path, "chalk", "0", "g")]
    ):
        table = write_table(data, [*rows[:3], changed, *rows[4:]], header)
        b = stored(f"b{number}", two, source=table)
        expected = (
            rf"differs from .* in 1 sample, the first is '{path}' \(domain 'chalk', label '0'"
        )
        with pytest.raises(InputError, match=expected):
            merge_stores([a, b], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_image_more_often(tmp_path: Path) -> None:
    """The number of samples of an image counts, not only the image."""
    a = fill(tmp_path / "a", TABLE, "m1")
    twice = letters(day="abcde", night="fghi")
    day = twice.domains[0]
    day.paths.append("day/z.png")
    day.images.append(day.images[0])
    assert day.labels is not None
    day.labels.append(day.labels[0])
    day.groups.append(None)
    b = fill(tmp_path / "b", twice, "m2")
    with pytest.raises(InputError, match="in 1 sample"):
        merge_stores([a, b], tmp_path / "out")


def test_other_features(
    stored: Store, one: Model, make_model: MakeModel, tmp_path: Path, tree: Tree
) -> None:
    a = stored("a", one)
    b = stored("b", make_model(lambda batch: batch.max(axis=(2, 3)), name="one"))
    assert FeatureStore(a).model("one").identity == FeatureStore(b).model("one").identity
    before = tree(a), tree(b)
    with pytest.raises(InputError, match=r"'one' has other features in .*`oodzoo store rm`"):
        merge_stores([a, b], tmp_path / "out")
    assert (tree(a), tree(b)) == before
    assert not (tmp_path / "out").exists()


def test_another_model_of_the_same_name(tmp_path: Path) -> None:
    a = fill(tmp_path / "a", TABLE, "m")
    b = fill(tmp_path / "b", TABLE, "m", fingerprint="other")
    with pytest.raises(InputError, match="'m' has other features in"):
        merge_stores([a, b], tmp_path / "out")


def test_unlabelled_domains_of_the_same_name(tmp_path: Path) -> None:
    a = fill(tmp_path / "a", TABLE.replacing(unlabelled("sea", "xy")), "m1")
    b = fill(tmp_path / "b", TABLE.replacing(unlabelled("sea", "xz")), "m2")
    with pytest.raises(InputError, match="unlabelled domain 'sea' has other images"):
        merge_stores([a, b], tmp_path / "out")


def test_the_target_is_not_empty(small: Path, tmp_path: Path, photos: Path, tree: Tree) -> None:
    other = fill(tmp_path / "other", TABLE, "m3")
    for out, message in (
        (small, "exists already; choose another folder"),
        (photos, "neither empty nor a feature store"),
    ):
        before = tree(out)
        with pytest.raises(InputError, match=message):
            merge_stores([small, other], out)
        assert tree(out) == before


def test_an_empty_folder_will_do(small: Path, tmp_path: Path) -> None:
    other = fill(tmp_path / "other", TABLE, "m3")
    (tmp_path / "out").mkdir()
    assert merge_stores([small, other], tmp_path / "out").models == ("m1", "m2", "m3")


def test_one_store_or_none(small: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs two or more stores, got 1"):
        merge_stores([small], tmp_path / "out")
    with pytest.raises(InputError, match="no such feature store"):
        merge_stores([small, tmp_path / "x"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_damaged_features_are_not_copied(small: Path, tmp_path: Path) -> None:
    other = fill(tmp_path / "other", TABLE, "m3")
    file = next((small / "models/m2").glob("*.features.*.npy"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"is damaged .*--repair"):
        merge_stores([small, other], tmp_path / "out")

"""Synchronising the samples of a store with a changed data set."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
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
from tests.store.contents import contents, rows_by_image, targets
from tests.store.data import Begin, fill, flip, letters

import oodzoo
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.unlabelled import UnlabelledImages
from oodzoo.errors import InputError
from oodzoo.features.config import ExtractionConfig
from oodzoo.features.extract import run_extraction
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.sync import Changes, sync_store
from oodzoo.store.usage import list_contents
from oodzoo.zoo import Model


def corners(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return some pixels of the first channel as features."""
    return batch[:, 0, 4:28:4, 8:24:4].reshape(len(batch), -1)


@pytest.fixture
def models(make_model: MakeModel) -> list[Model]:
    """Two models whose rows do not depend on the batch."""
    return [make_model(), make_model(corners, name="corners", feature_dim=24)]


@pytest.fixture
def plain(data: Path, models: list[Model], extract: Extract, tmp_path: Path) -> Path:
    """A store of the digits with function models."""
    extract(data, models, tmp_path / "plain")
    return tmp_path / "plain"


Fresh = Callable[..., Path]


@pytest.fixture
def fresh(data: Path, models: list[Model], extract: Extract, tmp_path: Path) -> Fresh:
    """Extract the current data into a new store."""

    def fresh(source: Path = data) -> Path:
        path = tmp_path / "fresh"
        shutil.rmtree(path, ignore_errors=True)
        extract(source, models, path)
        return path

    return fresh


def counts(changes: Changes) -> dict[str, int]:
    """Return the numbers that are not zero."""
    found = dataclasses.asdict(changes)
    return {key: n for key, n in found.items() if isinstance(n, int) and n}


def features(store: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in store.rglob("*.npy")}


# --- what may change -------------------------------------------------------------------------


def test_nothing_changed(plain: Path, data: Path, tree: Tree) -> None:
    before = tree(plain)
    manifest = (plain / "manifest.json").read_bytes()
    assert sync_store(plain, data) == Changes()
    assert (plain / "manifest.json").read_bytes() == manifest
    assert tree(plain) == before


def test_removed(plain: Path, data: Path, fresh: Fresh) -> None:
    files = features(plain)
    one_of(data, "chalk/0").unlink()
    one_of(data, "paper/2").unlink()
    assert sync_store(plain, data) == Changes(removed=2)
    assert contents(plain) == contents(fresh())
    assert features(plain) == files  # kept until the store is pruned


def test_a_removed_class_and_a_removed_domain(plain: Path, data: Path, fresh: Fresh) -> None:
    for domain in ("chalk", "marker", "paper"):
        shutil.rmtree(data / domain / "1")
    assert sync_store(plain, data) == Changes(removed=15)
    assert contents(plain) == contents(fresh())
    assert FeatureStore(plain).classes == ("0", "2")
    shutil.rmtree(data / "marker")
    assert sync_store(plain, data) == Changes(removed=10)
    assert contents(plain) == contents(fresh())
    assert FeatureStore(plain).domains == ("chalk", "paper")


def test_moved_within_a_domain_and_to_another(plain: Path, data: Path, fresh: Fresh) -> None:
    one_of(data, "chalk/0").rename(data / "chalk/0/another-name.png")
    one_of(data, "chalk/1").rename(data / "paper/1/from-chalk.png")
    assert counts(sync_store(plain, data)) == {"moved": 2}
    assert contents(plain) == contents(fresh())


def test_two_images_change_places(plain: Path, data: Path, fresh: Fresh) -> None:
    one, two = one_of(data, "chalk/0"), one_of(data, "paper/2")
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    assert counts(sync_store(plain, data)) == {"moved": 2, "relabelled": 2}
    assert contents(plain) == contents(fresh())


def test_relabelled(plain: Path, data: Path, fresh: Fresh) -> None:
    one_of(data, "chalk/0").rename(data / "chalk/1/relabelled.png")
    assert counts(sync_store(plain, data)) == {"moved": 1, "relabelled": 1}
    assert contents(plain) == contents(fresh())


def test_a_table_relabels_and_groups_in_place(plain: Path, data: Path, fresh: Fresh) -> None:
    rows = [(*row, f"g{number // 4}") for number, row in enumerate(rows_of(data))]
    rows[7] = (rows[7][0], rows[7][1], "2", rows[7][3])
    table = write_table(data, rows, "path,domain,label,group")
    assert counts(sync_store(plain, table)) == {"relabelled": 1, "regrouped": 45}
    assert contents(plain) == contents(fresh(table))
    assert FeatureStore(plain).groups("chalk")[:5] == ["g0"] * 4 + ["g1"]
    rows[0] = (*rows[0][:3], "other")
    table = write_table(data, rows, "path,domain,label,group")
    assert sync_store(plain, table) == Changes(regrouped=1)
    assert contents(plain) == contents(fresh(table))


def test_a_renamed_class(plain: Path, data: Path, fresh: Fresh) -> None:
    for domain in ("chalk", "marker", "paper"):
        (data / domain / "0").rename(data / domain / "zero")
    changes = sync_store(plain, data)
    assert changes == Changes(moved=15, relabelled=15, classes={"0": "zero"})
    assert contents(plain) == contents(fresh())


@pytest.mark.parametrize("name", ["blackboard", "Chalk", "..", "CON", "x" * 200, "kre\u0301ta"])
def test_a_renamed_domain(plain: Path, data: Path, fresh: Fresh, name: str) -> None:
    rows = [(p, name if d == "chalk" else d, label) for p, d, label in rows_of(data)]
    table = write_table(data, rows)
    changes = sync_store(plain, table)
    assert changes.domains == {"chalk": name}
    assert counts(changes) == {"moved": 15}
    assert contents(plain) == contents(fresh(table))


def test_a_domain_split_into_two_that_differ_in_case(plain: Path, data: Path, fresh: Fresh) -> None:
    rows = rows_of(data)
    some = [(p, "Chalk" if d == "chalk" and n % 2 else d, c) for n, (p, d, c) in enumerate(rows)]
    changes = sync_store(plain, write_table(data, some))
    assert changes.domains == {}
    assert counts(changes) == {"moved": 7}
    assert contents(plain) == contents(fresh(data / "table.csv"))


def test_an_image_that_comes_back_needs_no_extraction(
    plain: Path, data: Path, models: list[Model], extract: Extract
) -> None:
    before = contents(plain)
    file = one_of(data, "chalk/0")
    content = file.read_bytes()
    file.unlink()
    sync_store(plain, data)
    assert contents(plain) != before
    file.write_bytes(content)
    assert sync_store(plain, data) == Changes(added=1)
    assert contents(plain) == before
    assert extract(data, models, plain).shards == 0


def test_new_images_are_counted_and_extracted_later(
    plain: Path, data: Path, models: list[Model], extract: Extract, fresh: Fresh, tree: Tree
) -> None:
    before = tree(plain)
    another_digit(data, "chalk/1/new.png")
    assert sync_store(plain, data) == Changes(new=1)
    assert tree(plain) == before
    one_of(data, "paper/0").unlink()
    assert sync_store(plain, data) == Changes(new=1, removed=1)
    done = extract(data, models, plain)
    assert (done.decoded, done.shards) == (1, 2)
    assert contents(plain) == contents(fresh())


def test_images_that_only_some_models_have(
    plain: Path, data: Path, make_model: MakeModel, models: list[Model], extract: Extract
) -> None:
    """An image is in the table if all complete models have it; others become complete again."""
    before = contents(plain)
    file = another_digit(data, "chalk/1/new.png")
    assert extract(data, models[:1], plain).outdated == ["corners"]
    assert FeatureStore(plain).models == ("function",)
    assert sync_store(plain, data) == Changes()  # the table follows the complete model
    file.unlink()
    assert sync_store(plain, data) == Changes(removed=1)
    assert contents(plain) == before


def test_an_image_repeated_in_a_domain(plain: Path, data: Path, fresh: Fresh) -> None:
    file = one_of(data, "chalk/0")
    shutil.copy(file, data / "chalk/0/again.png")
    assert sync_store(plain, data) == Changes(added=1)
    assert contents(plain) == contents(fresh())
    file.unlink()
    assert sync_store(plain, data) == Changes(removed=1)
    assert contents(plain) == contents(fresh())


def test_a_file_that_cannot_be_read_counts_as_removed(plain: Path, data: Path) -> None:
    dataset = ImageDomains(data)
    file = one_of(data, "chalk/0")
    file.unlink()  # after it was listed
    changes = sync_store(plain, dataset)
    assert (changes.removed, list(changes.unreadable)) == (1, [f"chalk/0/{file.name}"])
    assert FeatureStore(plain).n_images == 44


def test_an_undecodable_image_may_move(
    data: Path, models: list[Model], extract: Extract, tmp_path: Path, fresh: Fresh
) -> None:
    broken = one_of(data, "chalk/0")
    broken.write_bytes(broken.read_bytes()[:60])
    extract(data, models, tmp_path / "s")
    broken.rename(data / "chalk/0/moved.png")
    assert counts(sync_store(tmp_path / "s", data)) == {"moved": 1}
    assert list(FeatureStore(tmp_path / "s").skipped) == ["chalk/0/moved.png"]
    assert contents(tmp_path / "s") == contents(fresh())


# --- rankings --------------------------------------------------------------------------------


def test_the_ranking_is_that_of_a_fresh_store(plain: Path, data: Path, fresh: Fresh) -> None:
    before = oodzoo.rank(plain)
    assert _timeless(before) == _timeless(oodzoo.rank(fresh()))
    for cell in ("chalk/0", "chalk/1", "paper/2"):
        one_of(data, cell).unlink()
    sync_store(plain, data)
    after = oodzoo.rank(plain)
    assert _timeless(after) != _timeless(before)
    assert _timeless(after) == _timeless(oodzoo.rank(fresh()))


def _timeless(ranking: oodzoo.Ranking) -> list[dict[str, object]]:
    """Return the rows without what depends on the duration of the extraction."""
    rows = [dataclasses.asdict(row) for row in ranking.rows]
    for row in rows:
        del row["milliseconds"], row["pareto_optimal"]
    return rows


def test_the_ranking_of_onnx_models(
    store: Path, data: Path, zoo: Zoo, extract: Extract, tmp_path: Path
) -> None:
    """Other batches change the last digits of ONNX features."""
    for cell in ("chalk/0", "chalk/1", "paper/2"):
        one_of(data, cell).unlink()
    sync_store(store, data)
    extract(data, zoo(), tmp_path / "fresh")
    ours, theirs = oodzoo.rank(store), oodzoo.rank(tmp_path / "fresh")
    assert [row.model for row in ours.rows] == [row.model for row in theirs.rows]
    for key in ("score", "discriminability", "stability", "expected_accuracy"):
        found = [getattr(row, key) for row in ours.rows]
        assert found == pytest.approx([getattr(row, key) for row in theirs.rows], rel=1e-6)


# --- domains without labels ------------------------------------------------------------------


@pytest.fixture
def with_targets(data: Path, models: list[Model], tmp_path: Path) -> tuple[Path, Path]:
    """A store with a domain without labels, and the folder of that."""
    folder = targets(data, tmp_path / "target")
    _extract(data, models, tmp_path / "s", folder)
    return tmp_path / "s", folder


def _extract(data: Path, models: list[Model], store: Path, folder: Path) -> None:
    images = [UnlabelledImages(folder)]
    run_extraction(ImageDomains(data), models, store, ExtractionConfig(), unlabelled=images)


def test_unlabelled_domains_are_kept(with_targets: tuple[Path, Path], data: Path) -> None:
    store, _ = with_targets
    before = contents(store)["target"]
    one_of(data, "chalk/0").unlink()
    assert sync_store(store, data) == Changes(removed=1)
    assert FeatureStore(store).unlabelled == ("target",)
    assert contents(store)["target"] == before
    assert sync_store(store, data) == Changes()


def test_unlabelled_domains_are_replaced(
    with_targets: tuple[Path, Path], data: Path, models: list[Model], tmp_path: Path
) -> None:
    store, folder = with_targets
    first, second, _ = sorted(folder.iterdir())
    first.unlink()
    second.rename(folder / "another-name.png")
    changes = sync_store(store, data, unlabelled=[UnlabelledImages(folder)])
    assert changes == Changes(unlabelled=("target",))
    assert FeatureStore(store).paths("target")[0] == "another-name.png"
    _extract(data, models, tmp_path / "fresh", folder)
    assert contents(store) == contents(tmp_path / "fresh")


# --- refusals --------------------------------------------------------------------------------


def test_an_empty_folder(plain: Path, tmp_path: Path, tree: Tree) -> None:
    before = tree(plain)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"has no images: all samples .* confirm with --yes"):
        sync_store(plain, tmp_path / "empty")
    assert tree(plain) == before
    assert sync_store(plain, tmp_path / "empty", yes=True) == Changes(removed=45)
    assert FeatureStore(plain).domains == ()


def test_most_images_gone(plain: Path, data: Path, tree: Tree, fresh: Fresh) -> None:
    before = tree(plain)
    for number, file in enumerate(sorted(data.rglob("*.png"))):
        if number % 2 == 0:
            file.unlink()
    with pytest.raises(InputError, match=r"23 of the 45 images .* confirm with --yes"):
        sync_store(plain, data)
    assert tree(plain) == before
    assert sync_store(plain, data, yes=True) == Changes(removed=23)
    assert contents(plain) == contents(fresh())


def test_half_of_the_images_may_go(tmp_path: Path) -> None:
    """22 of 45 need no confirmation; see the test above for 23."""
    store = fill(tmp_path / "s", letters(day="ab", night="cd"), "m")
    root = tmp_path / "d"
    for name, folder in (("a", "day/odd"), ("c", "night/odd")):
        (root / folder).mkdir(parents=True)
        (root / folder / f"{name}.png").write_bytes(name.encode())
    rows = [("day/odd/a.png", "day", "even"), ("night/odd/c.png", "night", "odd")]
    changes = sync_store(store, write_table(root, rows), root=root)
    assert (changes.removed, changes.relabelled) == (2, 1)


def test_another_data_set(plain: Path, photos: Path, tree: Tree) -> None:
    before = tree(plain)
    for yes in (False, True):
        with pytest.raises(InputError, match=r"none of the 8 images .* another data set\?"):
            sync_store(plain, photos, yes=yes)
    assert tree(plain) == before


def test_an_image_in_two_domains(plain: Path, data: Path, tree: Tree, fresh: Fresh) -> None:
    before = tree(plain)
    shutil.copy(one_of(data, "chalk/0"), data / "paper/0/copy.png")
    with pytest.raises(InputError, match=r"chalk/0/.*'paper/0/copy.png' .*same image in two"):
        sync_store(plain, data)
    assert tree(plain) == before
    assert sync_store(plain, data, yes=True) == Changes(added=1)
    assert contents(plain) == contents(fresh())
    # it was so before: no question
    one_of(data, "marker/0").unlink()
    assert sync_store(plain, data) == Changes(removed=1)
    # a third domain is new
    shutil.copy(one_of(data, "chalk/0"), data / "marker/0/copy.png")
    with pytest.raises(InputError, match="same image in two"):
        sync_store(plain, data)


def test_a_label_for_a_missing_image(plain: Path, data: Path, tree: Tree) -> None:
    before = tree(plain)
    table = write_table(data, [*rows_of(data), ("chalk/0/none.png", "chalk", "0")])
    with pytest.raises(InputError, match=r"table.csv', line 47: no such file .*chalk/0/none.png"):
        sync_store(plain, table)
    assert tree(plain) == before


def test_a_store_without_a_finished_model(
    data: Path, begin: Begin, tmp_path: Path, tree: Tree
) -> None:
    begin(tmp_path / "s")
    before = tree(tmp_path / "s")
    with pytest.raises(InputError, match="has no finished model"):
        sync_store(tmp_path / "s", data)
    assert tree(tmp_path / "s") == before


def test_what_is_no_store(tmp_path: Path, photos: Path) -> None:
    with pytest.raises(InputError, match="no such feature store"):
        sync_store(tmp_path / "x", photos)
    assert not (tmp_path / "x").exists()
    with pytest.raises(InputError, match="neither empty nor a feature store"):
        sync_store(photos, photos)


# --- repair ----------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["flipped", "missing"])
def test_a_damaged_table_is_restored(plain: Path, data: Path, damage: str) -> None:
    whole = contents(plain)
    (table,) = (plain / "samples").iterdir()
    if damage == "flipped":
        flip(table, 8 * 40)
    else:
        table.unlink()
    with pytest.raises(InputError, match=r"table of samples .*`oodzoo store sync"):
        FeatureStore(plain)
    assert sync_store(plain, data) == Changes(added=45, table_lost=True)
    assert contents(plain) == whole


def test_old_tables_are_removed(plain: Path, data: Path) -> None:
    for cell in ("chalk/0", "chalk/1"):
        one_of(data, cell).unlink()
        sync_store(plain, data)
        assert len(list((plain / "samples").iterdir())) == 1


def test_rows_of_removed_images_are_kept(plain: Path, data: Path) -> None:
    before = rows_by_image(plain, "corners")
    one_of(data, "chalk/0").unlink()
    sync_store(plain, data)
    assert rows_by_image(plain, "corners") == before
    assert list_contents(plain).models[0].images == 45


def test_unlabelled_images_that_some_models_lack(
    plain: Path, data: Path, models: list[Model], extract: Extract, tmp_path: Path
) -> None:
    target = shutil.copytree(data / "paper/0", tmp_path / "target")
    for path in sorted(target.iterdir())[3:]:
        path.unlink()
    for path in target.iterdir():
        with Image.open(path) as image:
            image.transpose(Image.Transpose.ROTATE_180).save(path)
    extract(data, models[:1], plain, unlabelled=[UnlabelledImages(target)])
    sorted(target.iterdir())[0].unlink()
    changes = sync_store(plain, data, unlabelled=[UnlabelledImages(target)])
    assert changes == Changes(unlabelled=("target",))
    opened = FeatureStore(plain)
    assert len(opened.paths("target")) == 2
    assert opened.models == tuple(sorted(model.info.name for model in models))
    with pytest.raises(InputError, match="has no unlabelled domain 'x'; it has 'target'"):
        sync_store(plain, data, drop=["x"])
    assert sync_store(plain, data, drop=["target"]) == Changes(unlabelled=("target",))
    assert FeatureStore(plain).unlabelled == ()


def test_new_unlabelled_images_are_counted(plain: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    Image.new("RGB", (32, 32), "red").save(tmp_path / "target/a.png")
    changes = sync_store(plain, data, unlabelled=[UnlabelledImages(tmp_path / "target")])
    assert changes == Changes(new=1)
    assert FeatureStore(plain).unlabelled == ()


def test_empty_files_in_two_domains_are_no_leak(
    plain: Path, data: Path, extract: Extract, models: list[Model]
) -> None:
    (data / "paper/0/empty.png").touch()
    extract(data, models, plain)
    (data / "chalk/0/empty.png").touch()
    assert sync_store(plain, data).added == 1


def test_a_lost_shard_does_not_remove_images(plain: Path, data: Path) -> None:
    next((plain / "models/corners").glob("*.npy")).unlink()
    assert sync_store(plain, data) == Changes()
    assert FeatureStore(plain).n_images == 45

"""Damage is found by checksum, named, and repaired by the next extraction."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.features.data import Extract, Tree, Zoo, one_of
from tests.store.contents import contents
from tests.store.data import Begin, compute, fill, letters, require_right

import oodzoo
from oodzoo._io import locked
from oodzoo.errors import InputError
from oodzoo.store.checking import check_store
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.prune import prune_store
from oodzoo.store.sync import sync_store
from oodzoo.store.writer import writing

FILES = 19
"""The manifest, the table, a segment, two descriptions of models and two lists of shards;
features and logits of two models in three domains."""


def flip(path: Path) -> None:
    """Change one bit near the end: an array still opens."""
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


Damaging = Callable[[Path], None]

DAMAGES = pytest.mark.parametrize("damage", [flip, truncate, remove, empty])

KINDS = {
    "manifest": "manifest.json",
    "table": "samples/*.json",
    "segment": "images/00000.json",
    "list": "models/separable_shapes/shards.*.json",
    "record": "models/separable_shapes/00000-00001.json",
    "features": "models/separable_shapes/00000-00001.features.*.npy",
    "logits": "models/separable_shapes/00000-00001.logits.*.npy",
}


def file_of(store: Path, kind: str) -> Path:
    (file,) = store.glob(KINDS[kind])
    return file


def require_sound(store: Path) -> None:
    found = check_store(store)
    assert (found.damage, found.unfinished) == ((), ())


def test_a_sound_store(store: Path, tree: Tree) -> None:
    before = tree(store)
    seen: list[tuple[int, int]] = []
    found = check_store(store, progress=lambda done, total: seen.append((done, total)))
    assert (found.files, found.damage, found.unfinished) == (FILES, (), ())
    assert seen == [(n, FILES) for n in range(1, FILES + 1)]
    assert check_store(store, repair=True) == found
    assert tree(store) == before


@DAMAGES
@pytest.mark.parametrize("kind", ["features", "logits"])
def test_a_damaged_shard(
    store: Path,
    data: Path,
    zoo: Zoo,
    extract: Extract,
    tree: Tree,
    damage: Damaging,
    kind: str,
) -> None:
    whole = tree(store)
    times = {file: file.stat().st_mtime_ns for file in store.rglob("*.npy")}
    file = file_of(store, kind)
    damage(file)
    (found,) = check_store(store).damage
    assert found.path == file.relative_to(store).as_posix()
    assert ("is missing" in found.problem) == (damage is remove)
    assert check_store(store, repair=True).damage == (found,)
    assert not file.exists()
    assert FeatureStore(store).models == ("mlp_glyphs_augmented",)
    assert len(oodzoo.rank(store).rows) == 1
    assert check_store(store).unfinished == ("separable_shapes",)
    done = extract(data, zoo(), store)
    assert (done.decoded, done.shards) == (15, 1)
    prune_store(store, cache=True)
    assert tree(store) == whole
    require_sound(store)
    kept = {f: t for f, t in times.items() if not f.name.startswith("00000-00001")}
    assert {f: f.stat().st_mtime_ns for f in kept} == kept


@DAMAGES
@pytest.mark.parametrize("kind", ["segment", "list", "record"])
def test_a_damaged_document(
    store: Path,
    data: Path,
    zoo: Zoo,
    extract: Extract,
    damage: Damaging,
    kind: str,
) -> None:
    before = contents(store)
    file = file_of(store, kind)
    damage(file)
    if (kind, damage) != ("record", remove):  # the record is in the list, too
        damaged = [found.path for found in check_store(store, repair=True).damage]
        assert file.relative_to(store).as_posix() in damaged
    assert check_store(store).damage == ()
    assert extract(data, zoo(), store).failed == {}
    assert contents(store) == before
    require_sound(store)


@pytest.mark.parametrize("damage", [flip, truncate, empty])
def test_a_damaged_manifest(store: Path, tree: Tree, damage: Damaging) -> None:
    """It is derived from the other files."""
    whole = tree(store)
    damage(store / "manifest.json")
    found = check_store(store, repair=True)
    assert [entry.path for entry in found.damage] == ["manifest.json"]
    assert tree(store) == whole
    require_sound(store)


def test_a_changed_manifest(store: Path, tree: Tree) -> None:
    """It is still JSON, but its checksum differs."""
    whole = tree(store)
    manifest = store / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"table": "00000"', '"table": "00001"'))
    with pytest.raises(InputError, match="does not match its checksum; restore it with"):
        FeatureStore(store)
    (found,) = check_store(store, repair=True).damage
    assert found.path == "manifest.json"
    assert tree(store) == whole


@DAMAGES
def test_a_damaged_table(store: Path, data: Path, tree: Tree, damage: Damaging) -> None:
    """It is restored by `sync`, not by a repair."""
    whole = contents(store)
    file = file_of(store, "table")
    damage(file)
    (found,) = check_store(store, repair=True).damage
    assert found.path == file.relative_to(store).as_posix()
    assert "oodzoo store sync" in found.problem
    sync_store(store, data)
    assert contents(store) == whole
    require_sound(store)


def test_a_table_and_features_are_damaged(
    store: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree
) -> None:
    whole = contents(store)
    flip(file_of(store, "table"))
    flip(file_of(store, "features"))
    assert len(check_store(store, repair=True).damage) == 2
    sync_store(store, data)
    assert extract(data, zoo(), store).shards == 1
    prune_store(store)
    assert contents(store) == whole


def test_everything_lost_is_computed_again(
    store: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree
) -> None:
    whole = tree(store)
    for path in store.rglob("*.npy"):
        flip(path)
    assert len(check_store(store, repair=True).damage) == 12
    assert extract(data, zoo(), store).shards == 6
    assert tree(store) == whole


def test_a_lost_segment_after_images_have_moved(tmp_path: Path) -> None:
    """Rows must not be assigned to the images of a new segment of the same name."""
    store = fill(tmp_path / "s", letters(day="abc", night="def"), "m")
    with writing(store, exclusive=True) as writer:
        writer.set_table(letters(day="def", night="abc"))
        writer.finish()
    flip(store / "images/00000.json")
    check_store(store, repair=True)
    with writing(store) as writer:
        writer.add_images()
        compute(writer, "m")
        writer.finish()
    require_right(store)


@pytest.mark.parametrize("damage", [flip, truncate, empty])
def test_a_damaged_cache(store: Path, damage: Damaging) -> None:
    before = oodzoo.rank(store).to_dict()
    files = sorted((store / "cache").rglob("*.npz"))
    assert check_store(store).files == FILES + len(files)
    damage(files[0])
    (found,) = check_store(store).damage
    assert found.path == files[0].relative_to(store).as_posix()
    assert "does not match its checksum" in found.problem
    assert oodzoo.rank(store).to_dict() == before
    require_sound(store)
    damage(files[0])
    check_store(store, repair=True)
    assert not files[0].exists()
    require_sound(store)


@pytest.mark.parametrize("damage", [flip, truncate, empty])
def test_a_damaged_description_of_a_model(
    store: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree, damage: Damaging
) -> None:
    """The next extraction describes the model again; its features are kept."""
    whole = tree(store)
    damage(store / "models/separable_shapes/model.json")
    (found,) = check_store(store, repair=True).damage
    assert found.path == "models/separable_shapes/model.json"
    assert FeatureStore(store).models == ("mlp_glyphs_augmented",)
    assert extract(data, zoo(), store).shards == 0
    assert tree(store) == whole


def test_what_is_missing_is_computed_again_without_a_repair(
    store: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree
) -> None:
    whole = tree(store)
    file_of(store, "features").unlink()
    assert extract(data, zoo(), store).shards == 1
    assert tree(store) == whole


def test_a_reader_names_what_is_damaged(store: Path) -> None:
    file = file_of(store, "features")
    content = file.read_bytes()
    for damage, message in ((flip, "is damaged"), (truncate, "is damaged"), (remove, "is missing")):
        file.write_bytes(content)
        damage(file)
        with pytest.raises(InputError, match=rf"{file.name}' {message}.*`oodzoo store check .*"):
            FeatureStore(store).features("separable_shapes", "marker")
    # the other model is not concerned
    assert FeatureStore(store).features("mlp_glyphs_augmented", "marker").shape[0] == 15


def test_an_extraction_does_not_hide_damage(
    store: Path, data: Path, zoo: Zoo, extract: Extract
) -> None:
    """A flipped bit does not get a checksum of its own when a model is added."""
    file = file_of(store, "features")
    flip(file)
    extract(data, zoo("cnn_photos"), store)
    assert [d.path for d in check_store(store).damage] == [file.relative_to(store).as_posix()]


def test_a_sync_does_not_hide_damage(store: Path, data: Path) -> None:
    file = file_of(store, "features")
    flip(file)
    one_of(data, "marker/0").unlink()
    sync_store(store, data)
    assert [d.path for d in check_store(store).damage] == [file.relative_to(store).as_posix()]
    with pytest.raises(InputError, match="is damaged"):  # its rows are not copied
        prune_store(store)


def test_a_model_that_is_not_finished(store: Path, begin: Begin) -> None:
    begin(store)
    found = check_store(store)
    assert (found.files, found.damage, found.unfinished) == (FILES + 1, (), ("begun",))


def test_repair_does_not_disturb_a_writer(store: Path) -> None:
    file = file_of(store, "features")
    flip(file)
    with locked(store, shared=True):
        assert len(check_store(store).damage) == 1
        with pytest.raises(InputError, match="is being written by another process"):
            check_store(store, repair=True)
    assert file.exists()


def test_links_are_damage(store: Path, tmp_path: Path) -> None:
    file = file_of(store, "features")
    outside = tmp_path / "outside.npy"
    file.rename(outside)
    file.symlink_to(outside)
    (found,) = check_store(store, repair=True).damage
    assert "is a symbolic link" in found.problem
    assert outside.is_file()
    assert not file.is_symlink()


def test_what_is_no_store(tmp_path: Path, photos: Path) -> None:
    with pytest.raises(InputError, match="no such feature store"):
        check_store(tmp_path / "x")
    with pytest.raises(InputError, match="neither empty nor a feature store"):
        check_store(photos, repair=True)


def test_a_lost_manifest(store: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree) -> None:
    whole = tree(store)
    (store / "manifest.json").unlink()
    advice = r"has lost its manifest.json; .*`oodzoo store check .* --repair`"
    with pytest.raises(InputError, match=advice):
        FeatureStore(store)
    with pytest.raises(InputError, match=advice):
        extract(data, zoo(), store)
    check_store(store, repair=True)
    assert tree(store) == whole


def test_a_store_of_a_newer_version_is_left_alone(store: Path, tree: Tree) -> None:
    manifest = store / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"schema": 2', '"schema": 99'))
    before = tree(store)
    with pytest.raises(InputError, match="upgrade oodzoo"):
        check_store(store, repair=True)
    assert tree(store) == before


def test_table_and_manifest_are_lost(store: Path, data: Path, zoo: Zoo, extract: Extract) -> None:
    whole = contents(store)
    flip(file_of(store, "table"))
    (store / "manifest.json").unlink()
    check_store(store, repair=True)
    sync_store(store, data)
    assert contents(store) == whole
    assert extract(data, zoo(), store).shards == 0


def test_files_that_cannot_be_read_now_are_not_removed(
    store: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing rights, or a disk that does not answer, are no damage."""
    file = file_of(store, "features")
    before = tree(store)
    open_file = Path.open

    def refuse(self: Path, *arguments: Any, **options: Any) -> Any:
        if self == file:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return open_file(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        with pytest.raises(InputError, match="Permission denied; nothing was repaired"):
            check_store(store, repair=True)
    assert tree(store) == before

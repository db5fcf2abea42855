"""Damage is found by checksum, named, and mended by the same extraction."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.features.data import Extract, Stamps, Tree, Zoo

from oodzoo._io import locked
from oodzoo.errors import InputError
from oodzoo.features.checking import check_store
from oodzoo.features.store import FeatureStore
from oodzoo.zoo import Model

SHARD = "separable_shapes/marker/shard-00000.features.npy"
LOGITS = "mlp_glyphs_augmented/paper/shard-00000.logits.npy"


def flip(path: Path) -> None:
    """Change one bit of the last value: the file still opens."""
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES = pytest.mark.parametrize("damage", [flip, truncate, remove, empty])


def test_a_sound_store(store: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = check_store(store, progress=lambda done, total: seen.append((done, total)))
    assert (found.files, found.damage, found.unfinished) == (12, (), ())
    assert seen == [(n, 12) for n in range(1, 13)]


@DAMAGES
@pytest.mark.parametrize("file", [SHARD, LOGITS])
def test_damage_is_named_and_mended(
    store: Path,
    data: Path,
    zoo: Zoo,
    extract: Extract,
    tree: Tree,
    stamps: Stamps,
    damage: Callable[[Path], None],
    file: str,
) -> None:
    whole, times = tree(store), stamps(store)
    damage(store / file)
    (found,) = check_store(store).damage
    assert found.path == file
    assert ("is missing" in found.problem) == (damage is remove)
    assert check_store(store, repair=True).damage == (found,)
    assert not (store / file).exists()
    done = extract(data, zoo(), store)
    assert (done.decoded, done.shards) == (15, 1)
    assert tree(store) == whole
    assert check_store(store).damage == ()
    # the others were left alone
    folder = Path(file).parent.as_posix()
    kept = {name: time for name, time in times.items() if not name.startswith(folder)}
    assert stamps(store).items() > kept.items()


@pytest.mark.parametrize("damage", [truncate, remove, empty])
def test_what_does_not_open_is_made_again_unasked(
    store: Path,
    data: Path,
    zoo: Zoo,
    extract: Extract,
    tree: Tree,
    damage: Callable[[Path], None],
) -> None:
    whole = tree(store)
    damage(store / SHARD)
    assert extract(data, zoo(), store).shards == 1
    assert tree(store) == whole


def test_a_reader_names_what_is_missing(store: Path) -> None:
    truncate(store / SHARD)
    with pytest.raises(
        InputError,
        match=r"marker/shard-00000\S* is damaged; remove damaged files with `oodzoo store check",
    ):
        FeatureStore(store).features("separable_shapes", "marker")
    remove(store / SHARD)
    with pytest.raises(
        InputError, match=r"marker/shard-00000\S* is missing; remove damaged files with"
    ):
        FeatureStore(store).features("separable_shapes", "marker")
    shutil.copy(store / LOGITS, store / SHARD)
    with pytest.raises(
        InputError, match=r"contains float32 \(15, \d+\) instead of float32 \(15, \d+"
    ):
        FeatureStore(store).features("separable_shapes", "marker")
    # the other model is not concerned
    assert FeatureStore(store).features("mlp_glyphs_augmented", "marker").shape[0] == 15


def test_an_extraction_does_not_hide_damage(
    store: Path, data: Path, zoo: Zoo, extract: Extract
) -> None:
    """A flipped bit must not get a checksum of its own when a model comes."""
    flip(store / SHARD)
    extract(data, zoo("cnn_photos"), store)
    assert [d.path for d in check_store(store).damage] == [SHARD]


def test_everything_lost_is_made_again(
    store: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree
) -> None:
    whole = tree(store)
    for path in store.rglob("*.npy"):
        flip(path)
    assert len(check_store(store, repair=True).damage) == 12
    assert extract(data, zoo(), store).shards == 6
    assert tree(store) == whole


def test_a_model_that_is_not_finished(
    store: Path, data: Path, make_model: Callable[..., Model], extract: Extract
) -> None:
    def fail(batch: Any) -> Any:
        raise RuntimeError("broken")

    with pytest.raises(InputError, match="no model could be used"):
        extract(data, [make_model(fail, name="begun")], store)
    found = check_store(store)
    assert (found.files, found.damage, found.unfinished) == (12, (), ("begun",))


def test_repair_waits_for_no_writer(store: Path) -> None:
    flip(store / SHARD)
    with locked(store):
        assert len(check_store(store).damage) == 1
        with pytest.raises(InputError, match="is being written by another process"):
            check_store(store, repair=True)
    assert (store / SHARD).exists()

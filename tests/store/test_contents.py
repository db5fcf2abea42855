"""What a folder contains: a store or not, its newest table, its models."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.data import fill, flip, letters, nested, require_right

from oodzoo.errors import InputError
from oodzoo.store.contents import newest_table, read_model, registered_models, require_store
from oodzoo.store.manifest import read_manifest
from oodzoo.store.table import SampleTable
from oodzoo.store.writer import writing


def test_a_store_that_lost_its_manifest_is_not_begun_anew(small: Path) -> None:
    (small / "manifest.json").unlink()
    for attempt in (lambda: fill(small, letters(day="ab"), "m1"), lambda: require_store(small)):
        with pytest.raises(InputError) as caught:
            attempt()
        assert str(caught.value) == (
            f"the store '{small}' has lost its manifest.json; remove damaged files with "
            f"`oodzoo store check {small} --repair`, then rerun `oodzoo extract`"
        )
    require_store(small, without_manifest=True)
    assert not (small / "manifest.json").exists()


def test_a_store_is_required(small: Path, tmp_path: Path, photos: Path) -> None:
    require_store(small)
    with pytest.raises(InputError, match="no such feature store"):
        require_store(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is neither empty nor a feature store"):
        require_store(photos)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"is not a feature store: it has no manifest\.json"):
        require_store(tmp_path / "empty")


@pytest.mark.parametrize("damage", ["flip", "nested", "missing"])
def test_a_damaged_table(small: Path, damage: str) -> None:
    path = small / "samples/00000.json"
    if damage == "flip":  # of a letter in a path: only the checksum shows it
        flip(path, 8 * path.read_bytes().index(b"a.png"))
    elif damage == "nested":
        path.write_text(nested())
    else:
        path.unlink()
    manifest = read_manifest(small)
    for attempt in (lambda: newest_table(small, manifest), lambda: fill(small, letters(day="a"))):
        with pytest.raises(InputError, match=rf"`oodzoo store sync {small} DATA`") as caught:
            attempt()
        assert "\n" not in str(caught.value)
    assert newest_table(small, manifest, lost=True) == ("00000", None)
    with writing(small, without_table=True) as writer:
        assert writer.table_lost
        assert writer.table == SampleTable([])
        writer.set_table(letters(day="abcde", night="fghi"))
        writer.finish()
    assert read_manifest(small).table == "00001"
    assert require_right(small).models == ("m1", "m2")


def test_a_model_is_registered_before_it_is_finished(small: Path) -> None:
    for file in (small / "models/m2").glob("0*"):
        file.unlink()
    assert registered_models(small) == ["m1", "m2"]
    assert read_model(small, "m2").feature_dim == read_manifest(small).models["m2"].feature_dim

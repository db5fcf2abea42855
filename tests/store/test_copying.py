"""Copying rows of images from one store to another."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.data import fill, image, letters, literal, record, require_right

from oodzoo.errors import InputError
from oodzoo.store.copying import copy_rows
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.writer import writing

TABLE = letters(day="abcde", night="fghi")


def copied(source: Path, target: Path, images: str) -> None:
    """Copy the rows of some images of the table with model m1."""
    with writing(target) as writer:
        writer.set_table(TABLE)
        writer.add_images()
        writer.add_model("m1", record())
        copy_rows(writer, FeatureStore(source), "m1", {image(letter) for letter in images})
        writer.finish()


def test_all_rows(small: Path, tmp_path: Path) -> None:
    copied(small, tmp_path / "t", "abcdefghi")
    assert require_right(tmp_path / "t").models == ("m1",)
    assert literal(tmp_path / "t", "m1").keys() == literal(small, "m1").keys()


def test_rows_in_several_steps(small: Path, tmp_path: Path) -> None:
    """A shard is copied whole, once."""
    target = tmp_path / "t"
    copied(small, target, "gi")
    assert sorted(file.name[:11] for file in target.rglob("*.npy")) == ["00000-00001"] * 2
    with pytest.raises(InputError, match="no finished model"):
        FeatureStore(target)
    written = {file: file.stat().st_mtime_ns for file in target.rglob("*.npy")}
    copied(small, target, "abcdefghi")
    assert {file: file.stat().st_mtime_ns for file in written} == written
    assert require_right(target).n_images == 9


def test_rows_that_the_source_lacks(tmp_path: Path) -> None:
    source = fill(tmp_path / "s", letters(day="abc", night="fg"), "m1")
    copied(source, tmp_path / "t", "abcdefghi")
    with writing(tmp_path / "t") as writer:
        coverage = writer.coverage("m1")
        assert coverage.rows.keys() == {image(letter) for letter in "abcfg"}
        assert coverage.unreadable == {}


def test_why_an_image_has_no_row_is_copied(tmp_path: Path) -> None:
    source = fill(tmp_path / "s", TABLE, "m1", undecodable={image("b"), image("f")})
    copied(source, tmp_path / "t", "abcdefghi")
    opened = require_right(tmp_path / "t")
    assert opened.skipped == FeatureStore(source).skipped
    assert set(opened.skipped) == {"day/b.png", "night/f.png"}

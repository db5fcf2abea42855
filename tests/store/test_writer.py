"""Writing a store: it grows, has many writers, and loses nothing on a full disk."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.features.data import Stamps, Tree
from tests.store import tiny
from tests.store.data import (
    compute,
    fill,
    image,
    letters,
    nested,
    record,
    require_right,
    unlabelled,
)

from oodzoo.core.errors import InputError
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.format import read_manifest
from oodzoo.store.table import read_model, table_numbers
from oodzoo.store.writer import writing


def test_a_store_grows(
    tiny_store: Path, images: Path, stamps: Stamps, tree: Tree, tmp_path: Path
) -> None:
    """By a model, images and a domain: no shard is written again."""
    whole, times = tree(tiny_store), stamps(tiny_store)
    done = tiny.extract(images, ["a", "b"], tiny_store)
    assert (done.decoded, done.shards, done.failed) == (0, 0, {})
    assert (tree(tiny_store), stamps(tiny_store)) == (whole, times)
    done = tiny.extract(images, ["c"], tiny_store)
    assert (done.decoded, done.shards, done.outdated) == (18, 2, [])
    tiny.extract(images, ["c", "b", "a"], tmp_path / "at once")
    assert tree(tiny_store) == tree(tmp_path / "at once")
    tiny.write_image(images / "day/bike/-first.png", 98, "bike")
    tiny.write_image(images / "fog/cat/new.png", 99, "cat")
    done = tiny.extract(images, ["a", "b"], tiny_store)
    assert (done.decoded, done.shards, done.outdated) == (2, 4, ["c"])
    assert done.warnings()[0].startswith("c: left out")
    done = tiny.extract(images, ["c"], tiny_store)
    assert (done.decoded, done.shards, done.outdated) == (2, 2, [])
    tiny.extract(images, ["a", "b", "c"], tmp_path / "fresh")
    assert tiny.content(tiny_store) == tiny.content(tmp_path / "fresh")
    assert FeatureStore(tiny_store).paths("day")[0] == "day/bike/-first.png"
    assert stamps(tiny_store).items() > times.items()


def test_another_model_of_the_same_name(small: Path) -> None:
    others: dict[str, Any] = {"dtype": "float16", "preprocessing": {"mean": [0.4]}}
    with writing(small) as writer:
        for key, new in others.items():
            with pytest.raises(InputError, match=rf"another model under the name 'm1' \({key} "):
                writer.add_model("m1", record(**{key: new}))
        with pytest.raises(InputError) as caught:
            writer.add_model("m1", record("g" * 64))
        # a name is not taken by features that are not there
        writer.add_model("m3", record())
        writer.add_model("m3", record("g", dtype="float16"))
        assert read_model(small, "m3").dtype == "float16"
    assert str(caught.value) == (
        "the store contains features of another model under the name 'm1' (fingerprint f, now "
        f"{'g' * 12}…); rename the model, or remove the old one with `oodzoo store rm {small} m1`"
    )


@pytest.mark.parametrize(
    ("first", "second"), [("Model", "model"), ("h\u00f6hle", "ho\u0308hle"), ("STRASSE", "straße")]
)
def test_names_that_a_file_system_may_confuse(small: Path, first: str, second: str) -> None:
    with writing(small) as writer:
        for one, other in ((first, second), (second, first)):
            writer.add_model(one, record())
            writer.add_model(one, record())
            with pytest.raises(InputError, match="differs only in case or in the form") as caught:
                writer.add_model(other, record())
            assert repr(one) in str(caught.value)
            shutil.rmtree(small / "models" / one)
        for name in ("../x", "a/b", ".hidden", "", "x" * 300):
            with pytest.raises(InputError, match="cannot be the name of a folder"):
                writer.add_model(name, record())
    names = ("skipped", "images", "manifest.json", "local.json", "cache")
    fill(small, letters(day="abcde", night="fghi"), *names)
    assert require_right(small).models == tuple(sorted(("m1", "m2", *names)))


@pytest.mark.parametrize(
    "content", ["", '{"source": NaN}', nested()], ids=["empty", "NaN", "nested"]
)
@pytest.mark.parametrize("grown", [False, True])
def test_a_damaged_description_does_not_block_other_models(
    small: Path, content: str, grown: bool
) -> None:
    (small / "models/m2/model.json").write_text(content)
    with writing(small) as writer:
        with pytest.raises(InputError, match="the record of a model") as bad:
            writer.add_model("m2", record())
        assert "\n" not in str(bad.value)
        writer.set_table(letters(day="abcdej" if grown else "abcde", night="fghi"))
        writer.add_images()
        for name in ("m1", "m3"):
            writer.add_model(name, record())
        compute(writer, "m1", "m3")
        # a manifest of the same samples has all that is needed of the other model
        assert writer.finish() == (["m2"] if grown else [])
        assert require_right(small).models == (("m1", "m3") if grown else ("m1", "m2", "m3"))
        assert writer.finish(all_models=True) == ([] if grown else ["m2"])
    assert require_right(small).models == ("m1", "m3")


def test_an_unreadable_image_is_retried_only_on_request(tmp_path: Path) -> None:
    fill(tmp_path, letters(day="abc"), "m1", "m2", undecodable=[image("b")])
    with writing(tmp_path) as writer:
        everything = set(writer.table.images())
        assert writer.plan(["m1", "m2"], everything) == []
        # an image that has a row is not computed again
        assert writer.plan(["m1"], everything, again=[image("a")]) == []
        (planned,) = writer.plan(["m1"], everything, again=[image("b")])
        assert planned == ("00001-00000", [image("b")], ["m1"])
        compute(writer, "m1", "m2", again=[image("b")])
        assert writer.plan(["m1", "m2"], everything, again=[image("b")]) == []
        writer.finish()
    store = require_right(tmp_path)
    assert store.skipped == {}
    assert store.paths("day") == ["day/a.png", "day/b.png", "day/c.png"]


def test_what_another_writer_finished_is_in_the_manifest(small: Path) -> None:
    table = letters(day="abcde", night="fghi")
    with writing(small) as writer:
        writer.set_table(table)
        writer.add_model("m3", record())
        compute(writer, "m3")
        fill(small, table, "m4")  # meanwhile
        fill(small, table.replacing(unlabelled("u", "xy")), "m4")
        writer.finish()
    store = require_right(small)
    assert store.models == ("m1", "m2", "m3", "m4")
    assert store.unlabelled == ("u",)
    assert store.has_features("m4", "u")


@pytest.mark.parametrize("given", ["abcdex", "abcde"])
def test_a_table_changed_by_another_writer_is_not_overwritten(small: Path, given: str) -> None:
    """Also if this one has left its samples as they were."""
    with writing(small) as writer:
        writer.set_table(letters(day=given, night="fghi"))
        writer.add_images()
        writer.add_model("m3", record())
        compute(writer, "m3")
        fill(small, letters(day="abcdey", night="fghi"), "m1")  # meanwhile
        before = read_manifest(small)
        with pytest.raises(InputError, match="were changed by another process; rerun the command"):
            writer.finish()
        assert read_manifest(small) == before
        assert table_numbers(small) == ["00000", "00001"]
    # what it computed is used by the next one
    with writing(small) as writer:
        assert writer.table == letters(day="abcdey", night="fghi")
        writer.add_model("m3", record())
        assert compute(writer, "m3") == 1
        writer.finish()
    assert require_right(small).models == ("m1", "m3")


def test_other_files_and_folders_are_left_as_they_were(
    images: Path, tmp_path: Path, tree: Tree
) -> None:
    """Web pages have a file of the name manifest.json, too."""
    (tmp_path / "empty").mkdir()
    tiny.extract(images, ["a"], tmp_path / "empty")
    assert FeatureStore(tmp_path / "empty").n_images == 18
    for name, content in (
        *(("mine/thesis.tex", ""), ("mine/.tmp-notes", ""), ("deep/.tmp-dir/x", "")),
        *(("site/manifest.json", '{"name": "my page", "icons": []}'), ("site/.tmp-page", "")),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    for place, message in (
        ("mine", r"neither empty nor a feature store \(it contains '.tmp-notes'"),
        ("deep", r"it contains '\.tmp-dir'"),
        ("site", r"site/manifest.json' is not the manifest of a feature"),
        ("mine/thesis.tex", "a file where a folder is needed"),
        ("mine/thesis.tex/store", "a part of the path is a file"),
    ):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(InputError, match=message):
            tiny.extract(images, ["a"], tmp_path / place)
        assert {path.name for path in {*tmp_path.rglob("*")} - {*before}} <= {".lock"}


@pytest.mark.parametrize(
    "name",
    [
        *("models", "models/m1", "samples", "images", "manifest.json", ".lock", "models/m1/.lock"),
        *("models/m1/model.json", "images/00000.json"),
    ],
)
def test_links_are_not_followed(small: Path, tmp_path: Path, tree: Tree, name: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (small / name).rename(outside / "x")
    (small / name).symlink_to(outside / "x")
    before = tree(outside)
    with pytest.raises(InputError, match="is a symbolic link"):
        fill(small, letters(day="abcdej", night="fghi"), "m1", "m2", "m3")
    assert tree(outside) == before

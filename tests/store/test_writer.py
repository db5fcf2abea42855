"""Writing a store: it grows, has many writers, and loses nothing on a full disk."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.features.data import (
    Extract,
    Stamps,
    Tree,
    Zoo,
    rows_of,
    write_table,
)
from tests.store import tiny
from tests.store.data import (
    compute,
    fill,
    flip,
    image,
    letters,
    literal,
    nested,
    record,
    require_right,
    rewrite,
    unlabelled,
)

from oodzoo.core.errors import InputError
from oodzoo.store.contents import newest_table, old_tables, read_model
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.index import ImageIndex
from oodzoo.store.manifest import Manifest, read_manifest
from oodzoo.store.shards import record_files
from oodzoo.store.table import SampleTable, add_table, table_numbers
from oodzoo.store.writer import as_stored, writing
from oodzoo.tasks import Task

# --- growing ---------------------------------------------------------------------------------


def test_a_store_grows(
    tiny_store: Path, images: Path, stamps: Stamps, tree: Tree, tmp_path: Path
) -> None:
    """By a model, images and a domain, and other labels: no shard is written again."""
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
    done = tiny.extract(images, ["c"], tiny_store)
    assert (done.decoded, done.shards, done.outdated) == (2, 2, [])
    tiny.extract(images, ["a", "b", "c"], tmp_path / "fresh")
    assert tiny.content(tiny_store) == tiny.content(tmp_path / "fresh")
    assert FeatureStore(tiny_store).paths("day")[0] == "day/bike/-first.png"
    assert stamps(tiny_store).items() > times.items()
    rows = [
        (path, domain, "zebra" if label == "cat" else label, f"g{at}")
        for at, (path, domain, label) in enumerate(rows_of(images))
    ]
    table, times = write_table(images, rows, "path,domain,label,group"), stamps(tiny_store)
    done = tiny.extract(table, ["a", "b", "c"], tiny_store)
    assert (done.decoded, done.shards) == (0, 0)
    assert stamps(tiny_store) == times
    opened = FeatureStore(tiny_store)
    assert opened.classes == ("bike", "dog", "zebra")
    for domain in opened.domains:
        found = zip(opened.paths(domain), opened.labels(domain), opened.groups(domain), strict=True)
        assert [(p, domain, opened.classes[c], g) for p, c, g in found] == [
            row for row in rows if row[1] == domain
        ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("remove", r"1 of the 18 .* '{name}' \(removed\); drop them with `oodzoo store sync"),
        ("change", r"1 of the 18 .* '{name}' \(changed\)"),
        ("move away", "contains features of another data set: none of its 18 images"),
    ],
)
def test_images_that_are_gone_are_an_error(
    tiny_store: Path, images: Path, tree: Tree, change: str, message: str
) -> None:
    before, path = tree(tiny_store), images / "day/cat/1.png"
    if change == "remove":
        path.unlink()
    elif change == "change":
        tiny.write_image(path, 99, "cat")
    else:
        for number, each in enumerate(images.rglob("*.png"), start=100):
            tiny.write_image(each, number, "cat")
    message = message.format(name=path.relative_to(images).as_posix())
    with pytest.raises(InputError, match=message):
        tiny.extract(images, ["a"], tiny_store)
    assert tree(tiny_store) == before


def test_images_that_cannot_be_read_or_decoded(tmp_path: Path) -> None:
    fill(tmp_path, letters(day="abc"), "m", undecodable=[image("b")])
    with writing(tmp_path) as writer:
        writer.require_all_images(letters(day="ac"))
        with pytest.raises(InputError, match="1 of the 2 images"):
            writer.require_all_images(letters(day="ab"))
        with pytest.raises(InputError, match=r"cannot read 'day/a\.png' any more \(denied\)"):
            writer.require_all_images(letters(day="c"), {"day/a.png": "denied"})
        writer.require_task(writer.table)
        numbers = replace(writer.table, task=Task("regression", ("age",)))
        with pytest.raises(InputError, match=r"has labels for classification, the data for regre"):
            writer.require_task(numbers)


# --- models ----------------------------------------------------------------------------------


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


DAMAGED = ["", "{", "[]", "{}", '{"source": 1}', '{"source": NaN}', nested()]


@pytest.mark.parametrize("content", DAMAGED, ids=lambda content: content[:20])
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


@pytest.mark.parametrize(
    "change", [{"feature_dim": 10**15}, {"feature_dim": -1}, {"n_logits": 0}, {"dtype": "garbage"}]
)
def test_a_description_out_of_bounds(small: Path, change: dict[str, Any]) -> None:
    with writing(small) as writer:
        with pytest.raises(InputError, match="the record of a model is damaged: "):
            writer.add_model("m3", record(**change))
        rewrite(small / "models/m1/model.json", lambda model: model.update(change))
        with pytest.raises(InputError, match=r"the record of a model '.*model\.json' is damaged"):
            writer.record("m1")


def test_a_model_without_a_spec_gets_one(small: Path) -> None:
    """It was passed loaded before, or is now."""
    spec = {"input_size": 8, "sha256": None}
    with writing(small) as writer:
        for given in (spec, None):
            writer.add_model("m1", record(spec=given))
            assert writer.record("m1").spec == read_model(small, "m1").spec == spec


DAMAGED = ["", "{", "[]", "{}", '{"source": 1}', '{"source": NaN}', nested()]


def test_values_out_of_range_are_refused() -> None:
    array = np.array([[1.0, 7e4]], np.float32)
    assert as_stored(array, "float32", "m") is array
    with pytest.raises(InputError, match=r"model 'm': values up to 7e\+04 do not fit float16"):
        as_stored(array, "float16", "m")
    assert as_stored(array[:, :1], "float16", "m").dtype == np.float16


# --- planning --------------------------------------------------------------------------------


def test_a_plan_has_what_models_lack(small: Path) -> None:
    with writing(small) as writer:
        everything = set(writer.table.images())
        assert writer.plan(["m1", "m2"], everything) == []
        # images are added once, those that are not there are not planned
        writer.set_table(letters(day="abcdejk", night="fghil").replacing(unlabelled("u", "az")))
        for _ in range(2):
            writer.add_images()
        new = [[image("j"), image("k")], [image("l")], [image("z")]]
        assert [writer.index.shards[name] for name in sorted(writer.index.shards)[2:]] == new
        assert writer.plan(["m1"], [image("a")]) == []
        assert [shard.images for shard in writer.plan(["m1"], [image("j")])] == new[:1]
        writer.add_model("m3", record())
        names = [(shard.name, shard.models) for shard in writer.plan(["m1", "m3"], everything)]
        assert names == [("00000-00000", ["m3"]), ("00000-00001", ["m3"])]
        next((small / "models/m1").glob("00000-00001.logits.*")).unlink()
        (small / "models/m2/00000-00000.json").unlink()
        plan = writer.plan(["m1", "m2", "m3"], everything)
        assert [(s.name, s.images, s.models) for s in plan] == [
            ("00000-00000", [image(name) for name in "abcde"], ["m2", "m3"]),
            ("00000-00001", [image(name) for name in "fghi"], ["m1", "m3"]),
        ]


def test_an_image_that_a_finished_shard_lacks_is_laid_again(tmp_path: Path) -> None:
    """Its file was not in the data when the shard was computed."""
    with writing(tmp_path) as writer:
        writer.set_table(letters(day="abcd"))
        writer.add_images()
        for name in ("m1", "m2"):
            writer.add_model(name, record())
        compute(writer, "m1", available=[image(name) for name in "abc"])
        compute(writer, "m2")
        writer.finish()
        assert list(writer.manifest.models) == ["m2"]
        everything = set(writer.table.images())
        assert writer.coverage("m1").missing(everything) == [image("d")]
        (planned,) = writer.plan(["m1", "m2"], everything)
        assert planned == ("00001-00000", [image("d")], ["m1"])
        # once is enough
        assert writer.plan(["m1", "m2"], everything) == [planned]
        assert list(ImageIndex.read(tmp_path).segments) == ["00000", "00001"]
        compute(writer, "m1", "m2")
        writer.finish()
    assert require_right(tmp_path).models == ("m1", "m2")
    assert not list((tmp_path / "models/m2").glob("00001-*"))


def test_a_sample_is_planned_in_shards_without_other_images(small: Path) -> None:
    few = {image(name) for name in "abf"}
    with writing(small) as writer:
        writer.add_model("m3", record())
        assert writer.plan(["m1"], few, only=True) == []
        plan = writer.plan(["m1", "m3"], few, only=True)
        assert [(shard.images, shard.models) for shard in plan] == [
            ([image("a"), image("b")], ["m3"]),
            ([image("f")], ["m3"]),
        ]
        compute(writer, "m3", available=few, only=True)
        assert set(writer.coverage("m3").rows) == few
        # The rest has shards of its own, too.
        rest = writer.plan(["m1", "m3"], set(writer.table.images()), only=True)
        assert [shard.images for shard in rest] == [
            [image(name) for name in "cde"],
            [image(name) for name in "ghi"],
        ]
        compute(writer, "m3", only=True)
        writer.finish()
    assert require_right(small).models == ("m1", "m2", "m3")


def test_models_that_have_different_images_of_a_sample(tmp_path: Path) -> None:
    """One shard for both would have an image that one of them has."""
    with writing(tmp_path) as writer:
        writer.set_table(letters(day="abcdef"))
        writer.add_images()
        for name, letters_of in {"m1": "ab", "m2": "bc"}.items():
            writer.add_model(name, record())
            compute(writer, name, available={image(letter) for letter in letters_of}, only=True)
        everything = set(writer.table.images())
        plan = writer.plan(["m1", "m2"], everything, only=True)
        for name, letters_of in {"m1": "cdef", "m2": "adef"}.items():
            planned = [i for shard in plan if name in shard.models for i in shard.images]
            assert sorted(planned) == sorted(image(letter) for letter in letters_of)
        compute(writer, "m1", "m2", only=True)
        writer.finish()
    assert require_right(tmp_path).models == ("m1", "m2")


def test_models_of_other_processes_are_finished_by_this_one(tmp_path: Path) -> None:
    with writing(tmp_path) as driver:
        driver.set_table(letters(day="ab"))
        driver.add_images()
        with writing(tmp_path) as worker:
            assert not driver.is_registered("m1")
            worker.add_model("m1", record())
            assert driver.is_registered("m1")
            worker.set_table(driver.table)
            compute(worker, "m1")
        driver.finish()  # the first manifest has every model
        assert list(driver.manifest.models) == ["m1"]
        (tmp_path / "models/m1/00000-00000.json").unlink()
        driver.finish()  # it is of another writer, whose word is taken
        assert list(driver.manifest.models) == ["m1"]
        driver.adopt(["m1"])
        driver.finish()
        assert not driver.manifest.models


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


@pytest.mark.parametrize("images", ["abcdefghi", "gi", "abcfg"])
def test_rows_are_copied_instead_of_computed(small: Path, tmp_path: Path, images: str) -> None:
    """A shard is copied whole, once; why an image has no row is copied, too."""
    source = fill(tmp_path / "s", letters(day="abc", night="fgh"), "m1", undecodable={image("b")})
    for names in (images, "abcdefghi"):
        with writing(tmp_path / "t") as writer:
            writer.set_table(letters(day="abcde", night="fghi"))
            writer.add_images()
            writer.add_model("m1", record())
            writer.copy_rows(FeatureStore(source), "m1", {image(name) for name in names})
            written = {f: f.stat().st_mtime_ns for f in (tmp_path / "t").rglob("*.npy")}
            coverage = writer.coverage("m1")
            if names == images:
                known = {"abcdefghi": "acfgh", "gi": "fgh", "abcfg": "acfgh"}[images]
                assert coverage.rows.keys() == {image(name) for name in known}
                first = written
    assert first.items() <= written.items()
    assert set(coverage.unreadable) == {image("b")}
    with writing(tmp_path / "t") as writer:
        writer.set_table(letters(day="abcde", night="fghi"))
        writer.add_model("m1", record())
        writer.copy_rows(FeatureStore(small), "m1", {image(name) for name in "dei"})
        writer.finish()
    assert require_right(tmp_path / "t").skipped == {"day/b.png": "cannot be decoded"}
    assert len(literal(tmp_path / "t", "m1")) == 8


# --- resuming --------------------------------------------------------------------------------


def _unfinished(path: Path) -> Path:
    """Make a store with all shards of a model, some images undecodable, and no manifest of it."""
    with writing(path) as writer:
        writer.set_table(letters(day="abcde", night="fghi"))
        writer.add_images()
        writer.add_model("m", record())
        compute(writer, "m", undecodable=[image("b")])
    return path


def _resumed(path: Path) -> FeatureStore:
    fill(path, letters(day="abcde", night="fghi"), "m", undecodable=[image("b")])
    return FeatureStore(path)


@pytest.mark.parametrize("pattern", ["00000-00000.features*", "00000-00001.logits*", "0*-0*.json"])
def test_missing_files_are_computed_again(
    tmp_path: Path, pattern: str, tree: Tree, stamps: Stamps
) -> None:
    store = _unfinished(tmp_path / "store")
    shutil.copytree(store, tmp_path / "whole")
    times = stamps(tmp_path / "whole")
    _resumed(tmp_path / "whole")
    assert stamps(tmp_path / "whole") == times  # finished shards are kept
    for path in (store / "models/m").glob(pattern):
        path.unlink()
    _resumed(store)
    require_right(store)
    assert tree(store) == tree(tmp_path / "whole")


def test_any_flipped_bit_of_a_record_gives_no_wrong_row(tmp_path: Path) -> None:
    """The shard is computed again."""
    store = _unfinished(tmp_path / "store")
    path = store / "models/m/00000-00000.json"
    content, manifest = path.read_bytes(), (store / "manifest.json").read_bytes()
    absent = range(content.index(b'"absent"'), content.index(b"}"))
    bits = [bit for bit in range(8 * len(content)) if bit % (3 if bit // 8 in absent else 97) == 0]
    for bit in bits:
        path.write_bytes(content)
        (store / "manifest.json").write_bytes(manifest)
        flip(path, bit)
        _resumed(store)
        require_right(store)


# --- finishing -------------------------------------------------------------------------------


def test_which_models_are_in_the_manifest(small: Path, tree: Tree) -> None:
    before = tree(small)
    with writing(small) as writer:
        writer.finish()
        assert tree(small) == before
        writer.set_table(writer.table.replacing(unlabelled("u", "xy")))
        writer.add_images()
        assert writer.finish() == []  # images without labels do not make a model incomplete
        writer.set_table(letters(day="abcdej", night="fghi"))
        writer.add_images()
        compute(writer, "m1")
        assert writer.finish() == ["m2"]
    assert require_right(small).models == ("m1",)
    fill(small, letters(day="abcdej", night="fghi"), "m2")
    assert require_right(small).models == ("m1", "m2")
    record_files(small / "models/m1")[0].unlink()
    with writing(small) as writer:
        writer.add_model("m1", record())  # an own model is read again
        assert writer.finish() == ["m1"]
    assert require_right(small).models == ("m2",)


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


def test_new_samples_and_a_domain_without_labels_of_another_writer(small: Path) -> None:
    """The other one has left the samples with labels as they were: both changes are kept."""
    busy = pytest.raises(InputError, match="is being written by another process")
    with writing(small), writing(small), busy, writing(small, exclusive=True):
        pass
    with writing(small) as writer:
        writer.set_table(letters(day="abcdej", night="fghi"))
        writer.add_images()
        with writing(small) as other:
            other.set_table(other.table.replacing(unlabelled("u", "xy")))
            other.finish()
        for name in ("m1", "m2"):
            writer.add_model(name, record())
        compute(writer, "m1", "m2")
        writer.finish()
    store = require_right(small)
    assert (store.unlabelled, store.n_images) == (("u",), 10)


def test_models_of_other_writers_are_not_read_again(small: Path) -> None:
    before = read_manifest(small).models["m2"]
    for path in record_files(small / "models/m2"):
        path.unlink()
    with writing(small) as writer:
        writer.add_model("m3", record())
        compute(writer, "m3")
        assert writer.finish() == []
    found = read_manifest(small)
    assert list(found.models) == ["m1", "m2", "m3"]
    assert found.models["m2"] == before
    require_right(small)
    with writing(small) as writer:
        assert writer.finish(all_models=True) == ["m2"]
    assert require_right(small).models == ("m1", "m3")


def test_segments_of_the_models_of_other_writers_stay_in_the_manifest(small: Path) -> None:
    fill(small, letters(day="abcdej", night="fghi"), "m1", "m2")
    with writing(small) as writer:
        writer.index = writer.index.without(["00000", "00001"])
        writer.add_images()
        writer.add_model("m3", record())
        compute(writer, "m3")
        writer.finish()
    manifest = read_manifest(small)
    assert list(manifest.segments) == ["00000", "00001", "00002"]
    assert require_right(small).models == ("m1", "m2", "m3")


# --- tables ----------------------------------------------------------------------------------


def test_a_table_is_written_only_if_it_differs(small: Path, tmp_path: Path) -> None:
    with writing(tmp_path / "new") as writer:
        assert writer.table == SampleTable([])
        assert not writer.table_lost
        writer.finish()
    assert table_numbers(tmp_path / "new") == []
    assert read_manifest(tmp_path / "new") == Manifest()
    fill(small, letters(day="abcde", night="fghi"), "m1", "m3")
    assert table_numbers(small) == ["00000"]
    fill(small, letters(day="abcdej", night="fghi"), "m1")
    fill(small, letters(day="abcde", night="fghi"), "m1")
    assert table_numbers(small) == ["00000", "00001", "00002"]
    manifest = read_manifest(small)
    content = (small / "samples/00002.json").read_bytes()
    assert (manifest.table, manifest.samples) == ("00002", hashlib.sha256(content).hexdigest())
    assert content == (small / "samples/00000.json").read_bytes()
    assert old_tables(small, manifest) == [
        small / "samples/00000.json",
        small / "samples/00001.json",
    ]
    assert old_tables(small, Manifest()) == []


def test_a_table_newer_than_the_manifest_is_used(small: Path) -> None:
    """Its writer was killed before it wrote the manifest."""
    table = letters(day="abcd", night="fghi")
    assert add_table(small, "00000", table) == "00001"
    assert FeatureStore(small).n_images == 9
    assert newest_table(small, read_manifest(small)) == ("00001", table)
    with writing(small) as writer:
        assert writer.table == table
        assert writer.finish() == []
    assert require_right(small).n_images == 8
    assert read_manifest(small).table == "00001"


# --- writers and readers ---------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="signals are other on Windows")
def test_ctrl_c_says_one_line_and_loses_nothing(
    digits: Path, tmp_path: Path, process: Callable[..., subprocess.Popen[str]]
) -> None:
    # Tests may run where SIGINT is ignored, as in a background job of a shell.
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "from oodzoo.cli import main; main()"
    store = tmp_path / "store"
    child = process(program, "extract", digits, "--zoo", "demo", "--store", store, "--quiet")
    deadline = time.monotonic() + 60
    while not list(store.glob("models/*/*.npy")) and time.monotonic() < deadline:
        time.sleep(0.001)
    child.send_signal(signal.SIGINT)
    _, messages = child.communicate(timeout=60)
    assert child.returncode == 130
    (line,) = [line for line in messages.splitlines() if line.strip()]
    assert "interrupted" in line
    assert not list(store.rglob(".tmp-*"))
    for shard in store.rglob("*.npy"):
        assert np.isfinite(np.load(shard)).all()


# --- other folders ---------------------------------------------------------------------------


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


LINKS = ["models", "models/m1", "samples", "images", "manifest.json", ".lock", "models/m1/.lock"]


@pytest.mark.parametrize("name", [*LINKS, "models/m1/model.json", "images/00000.json"])
def test_links_are_not_followed(small: Path, tmp_path: Path, tree: Tree, name: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (small / name).rename(outside / "x")
    (small / name).symlink_to(outside / "x")
    before = tree(outside)
    with pytest.raises(InputError, match="is a symbolic link"):
        fill(small, letters(day="abcdej", night="fghi"), "m1", "m2", "m3")
    assert tree(outside) == before


# --- the disk --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", ["72k", "96k", "112k", "124k"])
def test_a_full_disk_loses_nothing(
    size: str,
    small_disk: Callable[[str], Path],
    data: Path,
    made: Path,
    zoo: Zoo,
    extract: Extract,
    tree: Tree,
    stamps: Stamps,
) -> None:
    """Full at a shard, at the record of one, at the list of shards, and at the manifest."""
    disk = small_disk(f"size={size}")
    with pytest.raises(InputError, match=r"the disk is full; .* finished work is kept"):
        extract(data, zoo(), disk / "store")
    finished = {
        name: stamp
        for name, stamp in stamps(disk / "store").items()
        if (disk / "store" / f"{name.partition('.')[0]}.json").exists()  # its record
    }
    assert 0 < len(finished) <= 12
    assert not list(disk.rglob(".tmp-*"))
    subprocess.run(["mount", "-o", "remount,size=1m", disk], check=True)
    extract(data, zoo(), disk / "store")
    assert tree(disk / "store") == tree(made)
    assert stamps(disk / "store").items() >= finished.items()


def test_a_read_only_store(
    small_disk: Callable[[str], Path], data: Path, made: Path, zoo: Zoo, extract: Extract
) -> None:
    disk = small_disk("size=1m")
    shutil.copytree(made, disk / "store")
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    for path in (disk / "store", disk / "new"):
        with pytest.raises(InputError, match="the disk is read-only"):
            extract(data, zoo(), path)
    assert FeatureStore(disk / "store").features("separable_shapes", "chalk").shape[0] == 15

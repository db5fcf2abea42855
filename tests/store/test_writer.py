"""Writing a store: it grows, has many writers, and loses nothing on a full disk."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.features.data import (
    Extract,
    MakeModel,
    Stamps,
    Tree,
    Zoo,
    another_digit,
    rows_of,
    write_table,
)
from tests.store import tiny
from tests.store.data import (
    Race,
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
    values,
)

import oodzoo
from oodzoo._io import locked
from oodzoo.errors import InputError
from oodzoo.features.importing import import_features
from oodzoo.store.contents import newest_table, old_tables, read_model, registered_models
from oodzoo.store.documents import sealed
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.index import ImageIndex
from oodzoo.store.manifest import Manifest, read_manifest
from oodzoo.store.shards import record_files
from oodzoo.store.table import SampleTable, add_table, read_table, table_numbers
from oodzoo.store.writer import as_stored, writing
from oodzoo.task import Task
from oodzoo.zoo import ModelSpec

# --- growing ---------------------------------------------------------------------------------


def test_the_same_command_again_does_nothing(
    store: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree, stamps: Stamps
) -> None:
    content, times = tree(store), stamps(store)
    done = extract(data, zoo(), store)
    assert (done.decoded, done.shards, done.failed) == (0, 0, {})
    assert (tree(store), stamps(store)) == (content, times)


def test_a_model_comes(
    store: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree, stamps: Stamps, tmp_path: Path
) -> None:
    times = stamps(store)
    third = zoo("cnn_photos")
    done = extract(data, third, store)
    assert (done.decoded, done.shards, done.outdated) == (45, 3, [])
    assert stamps(store).items() > times.items()
    assert FeatureStore(store).models == ("cnn_photos", "mlp_glyphs_augmented", "separable_shapes")
    extract(data, [*zoo(), *third], tmp_path / "at once")
    assert tree(store) == tree(tmp_path / "at once")


def test_images_and_a_domain_come(
    store: Path, data: Path, zoo: Zoo, extract: Extract, stamps: Stamps
) -> None:
    old = FeatureStore(store)
    rows = {path: row for d in old.domains for path, row in _rows(old, d)}
    times = stamps(store)
    another_digit(data, "chalk/0/a-first.png")
    Image.new("RGB", (32, 32), "red").save(another_digit(data, "pencil/1/new.png"))
    done = extract(data, zoo(), store)
    assert (done.decoded, done.shards) == (2, 4)
    assert stamps(store).items() > times.items()
    new = FeatureStore(store)
    assert new.domains == ("chalk", "marker", "paper", "pencil")
    assert new.n_images == 47
    for domain in new.domains:
        for path, row in _rows(new, domain):
            if path in rows:
                np.testing.assert_array_equal(row, rows[path])
    assert new.paths("chalk")[0] == "chalk/0/a-first.png"
    assert new.classes[new.labels("chalk")[0]] == "0"


def _rows(store: FeatureStore, domain: str) -> Iterator[tuple[str, Any]]:
    return zip(store.paths(domain), store.features("separable_shapes", domain), strict=True)


def test_models_that_lack_new_images_are_named_and_left_out(
    store: Path, data: Path, zoo: Zoo, extract: Extract, stamps: Stamps
) -> None:
    another_digit(data, "chalk/0/new.png")
    with pytest.warns(UserWarning, match="mlp_glyphs_augmented: left out, without features of"):
        grown = oodzoo.extract(data, zoo("separable_shapes"), store)
    assert grown.models == ("separable_shapes",)
    times = stamps(store)
    done = extract(data, zoo(), store)
    assert (done.shards, done.outdated) == (1, [])
    assert stamps(store).items() > times.items()
    assert len(FeatureStore(store).models) == 2


def test_other_labels_in_a_table_change_labels_alone(
    store: Path, data: Path, zoo: Zoo, extract: Extract, stamps: Stamps
) -> None:
    times = stamps(store)
    rows = rows_of(data)
    changed = [(p, d, "zero" if c == "0" else c, f"g{at}") for at, (p, d, c) in enumerate(rows)]
    table = write_table(data, changed, "path,domain,label,group")
    done = extract(table, zoo(), store)
    assert (done.decoded, done.shards) == (0, 0)
    assert stamps(store) == times
    opened = FeatureStore(store)
    assert opened.classes == ("1", "2", "zero")
    for domain in opened.domains:
        found = zip(opened.paths(domain), opened.labels(domain), opened.groups(domain), strict=True)
        assert [(p, domain, opened.classes[c], g) for p, c, g in found] == [
            row for row in changed if row[1] == domain
        ]


def test_a_removed_image_is_an_error(
    store: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree
) -> None:
    before = tree(store)
    gone = sorted((data / "marker/1").glob("*.png"))[0]
    gone.unlink()
    with pytest.raises(InputError, match=rf"1 of the 45 .*{gone.name}' \(removed\)") as caught:
        extract(data, zoo(), store)
    assert f"oodzoo store sync {store}" in str(caught.value)
    assert tree(store) == before


def test_a_changed_image_is_an_error(
    store: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree
) -> None:
    before = tree(store)
    path = sorted((data / "marker/1").glob("*.png"))[0]
    Image.new("RGB", (32, 32)).save(path)
    with pytest.raises(InputError, match=rf"1 of the 45 .*{path.name}' \(changed\)"):
        extract(data, zoo(), store)
    assert tree(store) == before


def test_another_data_set_is_an_error(
    store: Path, photos: Path, zoo: Zoo, extract: Extract, tree: Tree
) -> None:
    before = tree(store)
    with pytest.raises(InputError, match="another data set"):
        extract(photos, zoo(), store)
    assert tree(store) == before


def test_a_file_that_cannot_be_read_any_more(small: Path) -> None:
    with writing(small) as writer, pytest.raises(InputError, match=r"cannot read .*b\.png' any"):
        writer.require_all_images(letters(day="acde", night="fghi"), {"day/b.png": "denied"})


def test_an_image_that_could_not_be_decoded_may_go(tmp_path: Path) -> None:
    fill(tmp_path, letters(day="abc"), "m", undecodable=[image("b")])
    with writing(tmp_path) as writer:
        writer.require_all_images(letters(day="ac"))
        with pytest.raises(InputError, match="1 of the 2 images"):
            writer.require_all_images(letters(day="ab"))


# --- models ----------------------------------------------------------------------------------


def test_another_model_of_the_same_name_is_refused(
    store: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree
) -> None:
    before = tree(store)
    (mlp,) = zoo("mlp_glyphs_augmented")
    file = str(mlp.file)
    for other, why in (
        (ModelSpec("separable_shapes", f"onnx/{file}", mean=mlp.mean, std=mlp.std), "fingerprint"),
        (
            ModelSpec(mlp.name, f"onnx/{file}", mean=(0.4, 0.5, 0.5), std=mlp.std),
            "fingerprint|prep",
        ),
    ):
        with pytest.raises(InputError, match=f"another model under the name .*({why})"):
            extract(data, [other], store)
    assert tree(store) == before
    with pytest.raises(InputError, match="dtype float32, now float16"):
        extract(data, [mlp], store, dtype="float16")


def test_another_model_of_the_same_name_is_named_with_a_remedy(small: Path) -> None:
    with writing(small) as writer, pytest.raises(InputError) as caught:
        writer.add_model("m1", record("g" * 64))
    assert str(caught.value) == (
        "the store contains features of another model under the name 'm1' (fingerprint f, now "
        f"{'g' * 12}…); rename the model, or remove the old one with `oodzoo store rm {small} m1`"
    )


def test_a_model_of_which_nothing_was_stored_may_change(
    data: Path, tmp_path: Path, make_model: MakeModel, extract: Extract
) -> None:
    """Its name is not taken by features that are not there."""

    def fail(batch: Any) -> Any:
        raise RuntimeError("not ready")

    with pytest.raises(InputError, match="not ready"):
        extract(data, [make_model(fail, feature_dim=7)], tmp_path / "s")
    assert extract(data, [make_model()], tmp_path / "s", dtype="float16").failed == {}
    assert FeatureStore(tmp_path / "s").model("function").dtype == "float16"


def test_a_model_without_a_spec_gets_one(small: Path) -> None:
    """It was passed loaded before, or is now."""
    spec = {"input_size": 8, "sha256": None}
    with writing(small) as writer:
        for given in (spec, None):
            writer.add_model("m1", record(spec=given))
            assert writer.record("m1").spec == read_model(small, "m1").spec == spec


@pytest.mark.parametrize(
    ("first", "second"), [("Model", "model"), ("h\u00f6hle", "ho\u0308hle"), ("STRASSE", "straße")]
)
def test_names_that_a_file_system_may_confuse_are_refused(
    small: Path, first: str, second: str
) -> None:
    with writing(small) as writer:
        for one, other in ((first, second), (second, first)):
            writer.add_model(one, record())
            writer.add_model(one, record())
            with pytest.raises(InputError, match="differs only in case or in the form") as caught:
                writer.add_model(other, record())
            assert "\n" not in str(caught.value)
            assert repr(one) in str(caught.value)
            shutil.rmtree(small / "models" / one)


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "", "x" * 300, "..", "a\nb"])
def test_no_name_leads_out_of_the_store(
    data: Path, tmp_path: Path, make_model: MakeModel, extract: Extract, name: str
) -> None:
    before = set(tmp_path.iterdir())
    with pytest.raises(InputError, match="no model could be used") as caught:
        extract(data, [make_model(name=name)], tmp_path / "store")
    assert "\n" not in str(caught.value)
    assert set(tmp_path.iterdir()) - before <= {tmp_path / "store"}
    assert registered_models(tmp_path / "store") == []


@pytest.mark.parametrize("name", ["skipped", "images", "manifest.json", "local.json", "cache"])
def test_a_model_may_have_the_name_of_another_file_of_the_store(small: Path, name: str) -> None:
    fill(small, letters(day="abcde", night="fghi"), name)
    assert require_right(small).models == tuple(sorted(("m1", "m2", name)))


DAMAGED = ["", "{", "[]", "{}", '{"source": 1}', '{"source": NaN}', nested()]


@pytest.mark.parametrize("content", DAMAGED, ids=lambda content: content[:20])
def test_a_damaged_description_of_a_model(small: Path, content: str) -> None:
    (small / "models/m1/model.json").write_text(content)
    with writing(small) as writer, pytest.raises(InputError, match="the record of a model") as bad:
        writer.add_model("m1", record())
    assert "\n" not in str(bad.value)
    require_right(small)


@pytest.mark.parametrize(
    "change", [{"feature_dim": 10**15}, {"feature_dim": -1}, {"n_logits": 0}, {"dtype": "garbage"}]
)
def test_a_description_out_of_bounds(small: Path, change: dict[str, Any]) -> None:
    with writing(small) as writer:
        with pytest.raises(InputError, match="the record of a model is damaged: ") as refused:
            writer.add_model("m3", record(**change))
        rewrite(small / "models/m1/model.json", lambda model: model.update(change))
        with pytest.raises(
            InputError, match=r"the record of a model '.*model\.json' is dam"
        ) as bad:
            writer.record("m1")
    assert "\n" not in str(refused.value) + str(bad.value)


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


def test_an_image_that_is_not_there_is_not_planned(small: Path) -> None:
    with writing(small) as writer:
        writer.set_table(letters(day="abcdej", night="fghi"))
        writer.add_images()
        assert writer.plan(["m1"], [image("a")]) == []
        assert [shard.images for shard in writer.plan(["m1"], [image("j")])] == [[image("j")]]


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
        for name in ("m1", "m2"):
            writer.add_model(name, record())
        compute(writer, "m1", "m2", again=[image("b")])
        assert writer.plan(["m1", "m2"], everything, again=[image("b")]) == []
        writer.finish()
    store = require_right(tmp_path)
    assert store.skipped == {}
    assert store.paths("day") == ["day/a.png", "day/b.png", "day/c.png"]


def test_images_are_added_once(small: Path) -> None:
    with writing(small) as writer:
        writer.add_images()
        assert list(writer.index.segments) == ["00000"]
        writer.set_table(letters(day="abcdejk", night="fghil").replacing(unlabelled("u", "az")))
        writer.add_images()
        writer.add_images()
        assert [writer.index.shards[name] for name in sorted(writer.index.shards)[2:]] == [
            [image("j"), image("k")],
            [image("l")],
            [image("z")],
        ]


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


def test_finished_shards_are_kept(tmp_path: Path, stamps: Stamps) -> None:
    _unfinished(tmp_path)
    times = stamps(tmp_path)
    _resumed(tmp_path)
    assert stamps(tmp_path) == times
    require_right(tmp_path)


@pytest.mark.parametrize("pattern", ["00000-00000.features*", "00000-00001.logits*", "0*-0*.json"])
def test_missing_files_are_computed_again(tmp_path: Path, pattern: str, tree: Tree) -> None:
    store = _unfinished(tmp_path / "store")
    shutil.copytree(store, tmp_path / "whole")
    _resumed(tmp_path / "whole")
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
    bits = [bit for bit in range(8 * len(content)) if bit // 8 in absent or bit % 29 == 0]
    for bit in bits:
        path.write_bytes(content)
        (store / "manifest.json").write_bytes(manifest)
        flip(path, bit)
        _resumed(store)
        require_right(store)


@pytest.mark.parametrize("bit", [0, 8 * 6, 8 * 60, 8 * 128, -1])
def test_a_flipped_bit_of_a_shard_is_not_hidden_by_resuming(tmp_path: Path, bit: int) -> None:
    store = _unfinished(tmp_path / "store")
    (path,) = (store / "models/m").glob("00000-00000.features*")
    flip(path, bit % (8 * path.stat().st_size))
    with pytest.raises(InputError, match=r"is damaged .*--repair"):
        _resumed(store).features("m", "day")


def test_a_record_of_files_elsewhere_is_not_used(tmp_path: Path) -> None:
    store = _unfinished(tmp_path / "store")
    path = store / "models/m/00000-00000.json"
    document = json.loads(path.read_text())
    shutil.move(store / "models/m" / document["features"]["file"], tmp_path / "x.npy")
    for name in ("../../../x.npy", str(tmp_path / "x.npy")):
        document["features"]["file"] = name
        path.write_bytes(sealed({key: document[key] for key in document if key != "sha256"}))
        with writing(store) as writer:
            assert "00000-00000" not in writer.records("m")
    _resumed(store)
    require_right(store)


def test_shards_of_another_model_are_not_used(tmp_path: Path) -> None:
    """Two processes may have registered models of one name at the same time."""
    store = _unfinished(tmp_path / "store")
    rewrite(store / "models/m/model.json", lambda model: model.update(fingerprint="g"))
    with writing(store) as writer:
        assert writer.records("m") == {}
        assert len(writer.plan(["m"], [image(name) for name in "abcdefghi"])) == 2


@pytest.mark.parametrize("field", ["images", "model", "sha256"])
def test_a_record_of_something_else_does_not_count(tmp_path: Path, field: str) -> None:
    store = _unfinished(tmp_path / "store")
    path = store / "models/m/00000-00000.json"
    if field == "sha256":
        path.write_text(path.read_text().replace('"sha256": "', '"sha256": "0'))
    else:
        rewrite(path, lambda document: document.update({field: "0" * 16}))
    with writing(store) as writer:
        assert list(writer.records("m")) == ["00000-00001"]
        assert [shard.name for shard in writer.plan(["m"], writer.index.images())] == [
            "00000-00000"
        ]
        assert writer.finish() == []
    _resumed(store)
    require_right(store)


# --- a lost segment of the index -------------------------------------------------------------


@pytest.mark.parametrize("others", ["xy", "f", "fgx", "fx", "gx", "wxyz"])
def test_the_number_of_a_lost_segment_may_be_used_again(tmp_path: Path, others: str) -> None:
    """The records of the old one have rows of other images, often as many: they do not count."""
    store = tmp_path / "store"
    fill(store, letters(day="abcde"), "m1", "m2")
    fill(store, letters(day="abcdefg"), "m1", "m2")
    (store / "images/00001.json").unlink()
    with writing(store) as writer:
        writer.set_table(letters(day="abcde" + others))
        writer.add_images()
        assert writer.index.shards["00001-00000"] == [image(name) for name in others]
        assert list(writer.records("m1")) == list(writer.records("m2")) == ["00000-00000"]
        writer.add_model("m1", record())
        assert compute(writer, "m1") == 1
        assert writer.finish() == ["m2"]
    assert require_right(store).models == ("m1",)
    fill(store, letters(day="abcde" + others), "m2")
    found = require_right(store)
    assert found.models == ("m1", "m2")
    expected = {image(name) for name in "abcde" + others}
    assert set(literal(store, "m1")) == set(literal(store, "m2")) == expected


@pytest.mark.parametrize("order", ["same", "other"])
def test_the_images_of_a_lost_segment_come_again(tmp_path: Path, order: str) -> None:
    """In the same order the old records count; in another one they do not."""
    store = tmp_path / "store"
    fill(store, letters(day="abcde"), "m1", "m2")
    fill(store, letters(day="abcde", night="fg"), "m1", "m2")
    (store / "images/00001.json").unlink()
    if order == "other":
        ImageIndex.read(store).add(store, [[image("g"), image("f")]])
    with writing(store) as writer:
        writer.add_images()
        writer.add_model("m1", record())
        assert compute(writer, "m1") == (order == "other")
        writer.finish()
    # m2 is in the manifest of its own writer: right, or refused
    opened = FeatureStore(store)
    assert opened.models == ("m1", "m2")
    expected = {model: values(model, map(image, "fg")) for model in ("m1", "m2")}
    np.testing.assert_array_equal(opened.features("m1", "night"), expected["m1"])
    if order == "same":
        np.testing.assert_array_equal(opened.features("m2", "night"), expected["m2"])
    else:
        with pytest.raises(InputError, match=r"of model 'm2' does not match the index; .*--repair"):
            opened.features("m2", "night")
    fill(store, letters(day="abcde", night="fg"), "m1", "m2")
    assert require_right(store).models == ("m1", "m2")


def test_an_extraction_after_a_lost_segment_equals_a_fresh_one(tmp_path: Path) -> None:
    data, store = tiny.write_images(tmp_path / "data"), tmp_path / "store"
    tiny.extract(data, ["m1", "m2"], store)
    for number in (91, 92, 93):
        tiny.write_image(data / f"day/cat/{number}.png", number, "cat")
    tiny.extract(data, ["m1", "m2"], store)
    (store / "images/00001.json").unlink()
    for number in (91, 92, 93):
        (data / f"day/cat/{number}.png").unlink()
        tiny.write_image(data / f"day/cat/{number}.png", number + 100, "cat")
    assert tiny.extract(data, ["m1", "m2"], store).shards == 2
    tiny.extract(data, ["m1", "m2"], tmp_path / "fresh")
    assert tiny.content(store) == tiny.content(tmp_path / "fresh")


def test_a_lost_index_is_no_reason_to_guess(small: Path) -> None:
    (small / "images/00000.json").unlink()
    with pytest.raises(InputError, match="cannot read the index of images"):
        FeatureStore(small)
    fill(small, letters(day="abcde", night="fghi"), "m1", "m2")
    require_right(small)


def test_a_damaged_index_is_refused(small: Path) -> None:
    (small / "images/00000.json").write_text("{")
    with pytest.raises(InputError, match=r"is damaged: .*--repair"), writing(small):
        pass


# --- finishing -------------------------------------------------------------------------------


def test_models_that_are_no_longer_complete_are_returned(small: Path) -> None:
    with writing(small) as writer:
        writer.set_table(letters(day="abcdej", night="fghi"))
        writer.add_images()
        compute(writer, "m1")
        assert writer.finish() == ["m2"]
    assert require_right(small).models == ("m1",)
    fill(small, letters(day="abcdej", night="fghi"), "m2")
    assert require_right(small).models == ("m1", "m2")


def test_images_without_labels_do_not_make_a_model_incomplete(small: Path) -> None:
    with writing(small) as writer:
        writer.set_table(writer.table.replacing(unlabelled("u", "xy")))
        writer.add_images()
        assert writer.finish() == []
    assert FeatureStore(small).models == ("m1", "m2")


def test_finishing_again_changes_nothing(small: Path, tree: Tree) -> None:
    before = tree(small)
    with writing(small) as writer:
        writer.finish()
    assert tree(small) == before


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


def test_domains_without_labels_of_two_writers_are_both_kept(small: Path) -> None:
    table = letters(day="abcde", night="fghi")
    with writing(small) as first, writing(small) as second:
        for writer, name, images in ((first, "u", "xy"), (second, "v", "yz")):
            writer.set_table(table.replacing(unlabelled(name, images)))
            writer.add_images()
            writer.add_model(f"with {name}", record())
            compute(writer, f"with {name}")
        second.finish()
        first.finish()
        assert first.table == table.replacing(unlabelled("u", "xy")).replacing(
            unlabelled("v", "yz")
        )
    manifest = read_manifest(small)
    assert manifest.table == table_numbers(small)[-1] == "00002"
    assert read_table(small, "00002", manifest.samples) == first.table
    store = require_right(small)
    assert store.models == ("m1", "m2", "with u", "with v")
    assert store.unlabelled == ("u", "v")
    assert store.has_features("with u", "u")
    assert store.has_features("with v", "v")


def test_new_samples_and_a_domain_without_labels_of_another_writer(small: Path) -> None:
    """The other one has left the samples with labels as they were: both changes are kept."""
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


_TARGETS = """
import sys
from pathlib import Path
from tests.store.data import compute, letters, record, unlabelled
from oodzoo.store.writer import writing

with writing(Path(sys.argv[1])) as writer:
    print("ready", flush=True)
    sys.stdin.readline()
    table = letters(day="abcde", night="fghi")
    writer.set_table(table.replacing(unlabelled("u" + sys.argv[2], "xy" + sys.argv[2])))
    writer.add_images()
    writer.add_model("m" + sys.argv[2], record())
    compute(writer, "m" + sys.argv[2])
    writer.finish()
"""


def test_domains_without_labels_of_many_processes_are_all_kept(small: Path, race: Race) -> None:
    names = "klmnopqr"
    race(_TARGETS, *([small, name] for name in names))
    store = require_right(small)
    assert store.unlabelled == tuple(f"u{name}" for name in names)
    assert store.models == tuple(sorted(["m1", "m2", *(f"m{name}" for name in names)]))
    assert all(store.has_features(f"m{name}", f"u{name}") for name in names)
    assert store.manifest.table == table_numbers(small)[-1]
    assert old_tables(small, store.manifest) == [
        small / f"samples/{number}.json" for number in table_numbers(small)[:-1]
    ]


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


def test_an_own_model_is_read_again(small: Path) -> None:
    record_files(small / "models/m1")[0].unlink()
    with writing(small) as writer:
        writer.add_model("m1", record())
        assert writer.finish() == ["m1"]
    assert require_right(small).models == ("m2",)


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


@pytest.mark.parametrize("content", DAMAGED, ids=lambda content: content[:20])
@pytest.mark.parametrize("grown", [False, True])
def test_a_damaged_description_does_not_block_other_models(
    small: Path, content: str, grown: bool
) -> None:
    (small / "models/m2/model.json").write_text(content)
    with writing(small) as writer:
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


# --- tables ----------------------------------------------------------------------------------


def test_the_table_of_a_new_store(tmp_path: Path) -> None:
    assert newest_table(tmp_path, Manifest()) == (None, SampleTable([]))
    with writing(tmp_path) as writer:
        assert writer.table == SampleTable([])
        assert not writer.table_lost
        writer.finish()
    # nothing was given: there is no table to write
    assert table_numbers(tmp_path) == []
    assert read_manifest(tmp_path) == Manifest()


def test_a_table_is_written_only_if_it_differs(small: Path) -> None:
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


def test_a_manifest_is_written_without_a_new_table(small: Path) -> None:
    with writing(small) as writer:
        record_files(small / "models/m2")[0].unlink()
        written = writer.write_manifest()
    assert list(written.models) == ["m1"]
    assert written == read_manifest(small)
    assert table_numbers(small) == ["00000"]


# --- writers and readers ---------------------------------------------------------------------


def test_maintenance_keeps_writers_out(
    store: Path, data: Path, process: Callable[..., subprocess.Popen[str]], tree: Tree
) -> None:
    before = tree(store)
    program = "from oodzoo.cli import main; main()"
    arguments = ("extract", data, "--zoo", "demo", "--store", store, "--quiet")
    with locked(store):
        second = process(program, *arguments)
        out, err = second.communicate()
    assert (second.returncode, out) == (2, "")
    (line,) = err.splitlines()
    assert "is being written by another process (process " in line
    assert tree(store) == before


def test_writers_keep_maintenance_out(small: Path) -> None:
    busy = pytest.raises(InputError, match="is being written by another process")
    with writing(small), writing(small), busy, writing(small, exclusive=True):
        pass
    with writing(small, exclusive=True):
        pass


class Stop(BaseException):
    """Ends a run as Ctrl-C does, at a moment of our choice."""


def test_readers_see_the_old_state_while_a_store_grows(
    store: Path, data: Path, make_model: MakeModel, extract: Extract, zoo: Zoo
) -> None:
    before = {
        d: (FeatureStore(store).paths(d), FeatureStore(store).labels(d).tolist())
        for d in ("chalk", "marker", "paper")
    }

    def stop(batch: Any) -> Any:
        raise Stop

    another_digit(data, "chalk/0/a-first.png")
    new = another_digit(data, "pencil/9/new.png")
    Image.new("RGB", (32, 32), "red").save(new)
    with pytest.raises(Stop):
        extract(data, [make_model(stop)], store)
    seen = FeatureStore(store)
    assert seen.classes == ("0", "1", "2")
    assert {d: (seen.paths(d), seen.labels(d).tolist()) for d in seen.domains} == before
    for name in seen.models:
        for domain in seen.domains:
            assert len(seen.features(name, domain)) == len(seen.labels(domain)) == 15
    # and the images that no model has seen may still change, or go
    new.unlink()
    Image.new("RGB", (32, 32), "blue").save(data / "marker/0/other.png")
    assert extract(data, zoo(), store).decoded == 2
    assert FeatureStore(store).domains == ("chalk", "marker", "paper")
    assert FeatureStore(store).n_images == 47


def test_readers_see_labels_of_known_classes_while_a_store_grows(
    store: Path, data: Path, make_model: MakeModel, extract: Extract
) -> None:
    """The new labels of old images may name a class that the last finished run did not know."""

    def stop(batch: Any) -> Any:
        raise Stop

    table = write_table(data, [(p, d, c.replace("0", "zero")) for p, d, c in rows_of(data)])
    with pytest.raises(Stop):
        extract(table, [make_model(stop)], store)
    seen = FeatureStore(store)
    named = {seen.classes[at] for domain in seen.domains for at in seen.labels(domain)}
    assert named == set(seen.classes) == {"0", "1", "2"}
    assert [len(seen.labels(d)) for d in seen.domains] == [15, 15, 15]


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


def test_a_foreign_folder_is_left_as_it_was(
    data: Path, zoo: Zoo, extract: Extract, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    for name in ("thesis.tex", ".tmp-notes", "deep/.tmp-draft"):
        (mine / name).parent.mkdir(parents=True, exist_ok=True)
        (mine / name).write_text("years of work")
    before = sorted(mine.rglob("*"))
    with pytest.raises(
        InputError, match=r"neither empty nor a feature store \(it contains '.tmp-notes'"
    ):
        extract(data, zoo(), mine)
    (mine / ".tmp-notes").unlink()
    with pytest.raises(InputError, match=r"it contains 'deep'"):
        extract(data, zoo(), mine)
    before.remove(mine / ".tmp-notes")
    assert sorted(mine.rglob("*")) == before


def test_a_foreign_manifest_is_no_manifest(
    data: Path, zoo: Zoo, extract: Extract, tmp_path: Path
) -> None:
    """Web pages have a file of this name too."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/manifest.json").write_text('{"name": "my page", "icons": []}')
    (tmp_path / "site/.tmp-page").touch()
    with pytest.raises(InputError, match=r"site/manifest.json' is not the manifest of a feature"):
        extract(data, zoo(), tmp_path / "site")
    assert (tmp_path / "site/.tmp-page").exists()
    assert not list((tmp_path / "site").glob("*/*"))


def test_an_empty_folder_is_taken(
    data: Path, make_model: MakeModel, extract: Extract, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    extract(data, [make_model()], tmp_path / "empty")
    assert FeatureStore(tmp_path / "empty").n_images == 45


def test_a_file_where_the_store_is_due(
    data: Path, zoo: Zoo, extract: Extract, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="a file where a folder is needed"):
        extract(data, zoo(), tmp_path / "file")
    with pytest.raises(InputError, match="a part of the path is a file"):
        extract(data, zoo(), tmp_path / "file" / "store")
    assert (tmp_path / "file").read_text() == "mine"


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


@pytest.mark.parametrize("name", ["00000-00000.json", "00000-00000.features.{}.npy"])
def test_a_link_where_a_shard_is_due(small: Path, tmp_path: Path, name: str) -> None:
    (features,) = (small / "models/m1").glob("00000-00000.features*")
    link = small / "models/m1" / name.format(features.name.split(".")[2])
    link.unlink()
    (tmp_path / "outside").write_text("mine")
    with writing(small) as writer:
        link.symlink_to(tmp_path / "outside")
        with pytest.raises(InputError, match="is a symbolic link"):
            compute(writer, "m1")
    assert (tmp_path / "outside").read_text() == "mine"


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


def test_labels_of_another_kind_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    domains, net = np.repeat(["a", "b"], 5), rng.normal(size=(10, 3))
    np.savez(tmp_path / "f.npz", labels=np.tile([0, 1], 5), domains=domains, net=net)
    store = import_features([tmp_path / "f.npz"], tmp_path / "store")
    table = SampleTable(store.table.domains, task=Task("regression", ("age",)))
    with writing(store.path) as writer:
        writer.require_task(store.table)
        with pytest.raises(InputError, match=r"has labels for classification, the data for regres"):
            writer.require_task(table)

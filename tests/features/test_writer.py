"""Writing a store: it grows, has one writer, and loses nothing on a full disk."""

from __future__ import annotations

import json
import shutil
import subprocess
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

import oodzoo
from oodzoo._io import locked
from oodzoo.errors import InputError
from oodzoo.features.store import FeatureStore
from oodzoo.zoo import ModelSpec

# --- growing ----------------------------------------------------------------------------------


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
    another_digit(data, "pencil/1/new.png")
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
    assert new.paths("chalk")[-1] == "chalk/0/a-first.png"
    assert new.classes[new.labels("chalk")[-1]] == "0"


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
    with pytest.raises(InputError, match=rf"1 of the 45 .*{gone.name}' \(removed\)"):
        extract(data, zoo(), store)
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


def test_another_model_of_the_same_name_is_refused(
    store: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree, tmp_path: Path
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


def test_a_store_written_without_specs_opens_and_gets_them_from_the_next_extraction(
    store: Path, data: Path, zoo: Zoo, extract: Extract, tree: Tree
) -> None:
    whole = tree(store)
    manifest = json.loads((store / "manifest.json").read_text())
    for name, record in manifest["models"].items():
        del record["spec"]
        path = store / name / "model.json"
        path.write_text(json.dumps({k: v for k, v in record.items() if k != "shards"}))
    (store / "manifest.json").write_text(json.dumps(manifest))
    assert FeatureStore(store).model("separable_shapes").spec is None
    assert extract(data, zoo(), store).shards == 0
    assert tree(store) == whole


# --- one writer, many readers -----------------------------------------------------------------


def test_two_writers_at_once(
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


class Stop(BaseException):
    """Ends a run as Ctrl-C does, at a moment of our choice."""


def test_readers_see_the_old_state_while_a_store_grows(
    store: Path, data: Path, make_model: MakeModel, extract: Extract, zoo: Zoo, tree: Tree
) -> None:
    before = {
        d: (FeatureStore(store).paths(d), FeatureStore(store).labels(d).tolist())
        for d in ("chalk", "marker", "paper")
    }

    def stop(batch: Any) -> Any:
        raise Stop

    another_digit(data, "chalk/0/a-first.png")
    another_digit(data, "pencil/9/new.png")
    with pytest.raises(Stop):
        extract(data, [make_model(stop)], store)
    seen = FeatureStore(store)
    assert seen.classes == ("0", "1", "2")
    assert {d: (seen.paths(d), seen.labels(d).tolist()) for d in seen.domains} == before
    for name in seen.models:
        for domain in seen.domains:
            assert len(seen.features(name, domain)) == len(seen.labels(domain)) == 15
    # and the images that no model has seen may still change, or go
    another_digit(data, "pencil/9/new.png").unlink()
    another_digit(data, "marker/0/other.png")
    done = extract(data, zoo(), store)
    assert (done.decoded, done.shards) == (2, 4)
    assert FeatureStore(store).domains == ("chalk", "marker", "paper")


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
    assert named == set(seen.classes)
    assert [len(seen.labels(d)) for d in seen.domains] == [15, 15, 15]


# --- other folders and names ------------------------------------------------------------------


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
    with pytest.raises(InputError, match="has the schema None"):
        extract(data, zoo(), tmp_path / "site")
    assert (tmp_path / "site/.tmp-page").exists()


def test_an_empty_folder_is_taken(
    data: Path, make_model: MakeModel, extract: Extract, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    extract(data, [make_model()], tmp_path / "empty")
    assert FeatureStore(tmp_path / "empty").n_images == 45


@pytest.mark.parametrize("name", ["skipped", "images.json", "manifest.json", "local.json", ".lock"])
def test_names_that_the_store_needs_itself(
    data: Path, make_model: MakeModel, extract: Extract, tmp_path: Path, name: str
) -> None:
    done = extract(data, [make_model(), make_model(name=name)], tmp_path / "s")
    assert done.failed == {name: f"a model cannot be named {name!r}: the store uses that name"}
    assert FeatureStore(tmp_path / "s").models == ("function",)


def test_a_file_where_the_store_is_due(
    data: Path, zoo: Zoo, extract: Extract, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="a file where a folder is needed"):
        extract(data, zoo(), tmp_path / "file")
    with pytest.raises(InputError, match="a part of the path is a file"):
        extract(data, zoo(), tmp_path / "file" / "store")
    assert (tmp_path / "file").read_text() == "mine"


# --- the disk ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", ["68k", "80k"])  # full among the shards, and at the manifest
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
    disk = small_disk(f"size={size}")
    with pytest.raises(InputError, match=r"the disk is full; .* finished work is kept"):
        extract(data, zoo(), disk / "store")
    finished = stamps(disk / "store")
    assert 0 < len(finished) < (12 if size == "68k" else 13)
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

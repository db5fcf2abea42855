"""`oodzoo store …`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.features import conftest as fixtures
from tests.features.data import Tree, another_digit, one_of, rows_of, write_table
from tests.store.contents import contents, size, targets
from tests.store.data import fill, letters

# The digits, models and stores that the tests of features use.
digits, data, zoo, extract = fixtures.digits, fixtures.data, fixtures.zoo, fixtures.extract
made, store, tree = fixtures.made, fixtures.store, fixtures.tree

COMMANDS = ("ls", "du", "rm", "prune", "sync", "check", "merge")

MODELS = ["mlp_glyphs_augmented", "separable_shapes"]


def arguments(command: str, store: Path, tmp_path: Path) -> list[str | Path]:
    """Return valid arguments of a command besides the store."""
    others: dict[str, list[str | Path]] = {
        "rm": [store, "separable_shapes"],
        "sync": [store, tmp_path],
        "merge": [store, store, "--out", tmp_path / "merged"],
    }
    return others.get(command, [store])


# --- all commands ----------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_bad_paths_give_one_line(
    run: Run, tmp_path: Path, photos: Path, tree: Tree, command: str
) -> None:
    missing = tmp_path / "x"
    complaint = run("store", command, *arguments(command, missing, photos)).complaint
    assert f"no such feature store: {str(missing)!r}" in complaint
    assert not missing.exists()
    before = tree(photos)
    complaint = run("store", command, *arguments(command, photos, tmp_path)).complaint
    assert "not a feature store" in complaint or "nor a feature store" in complaint
    assert tree(photos) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_newer_schema(run: Run, store: Path, digits: Path, tree: Tree, command: str) -> None:
    document = json.loads((store / "manifest.json").read_text())
    (store / "manifest.json").write_text(json.dumps(document | {"schema": 99}))
    before = tree(store)
    outcome = run("store", command, "-q", *arguments(command, store, digits))
    assert outcome.code == 2
    assert "upgrade oodzoo" in outcome.err
    assert tree(store) == before


# --- each command ----------------------------------------------------------------------------


def test_ls(run: Run, store: Path) -> None:
    outcome = run("store", "ls", store)
    assert (outcome.code, outcome.err) == (0, "")
    for text in (*MODELS, "chalk", "marker", "paper", "2 models, 3 domains, 3 classes"):
        assert text in outcome.out
    document = run("store", "ls", store, "--json").document
    assert [model["name"] for model in document["models"]] == MODELS
    assert document["domains"][0] == {"name": "chalk", "images": 15, "labelled": True}
    assert document["classes"] == 3


def test_du(run: Run, store: Path, data: Path) -> None:
    outcome = run("store", "du", store)
    assert outcome.code == 0
    assert "prune" not in outcome.out
    document = run("store", "du", store, "--json").document
    assert list(document["models"]) == MODELS
    assert document["total"] == size(store)
    one_of(data, "chalk/0").unlink()
    run("store", "sync", store, data)
    assert f"can be freed with `oodzoo store prune {store}`" in run("store", "du", store).out


def test_rm(run: Run, store: Path, tree: Tree) -> None:
    before = tree(store)
    complaint = run("store", "rm", store, "separable_shape").complaint
    assert "did you mean separable_shapes?" in complaint
    assert tree(store) == before
    bytes_of_model = size(store / "models/separable_shapes")
    outcome = run("store", "rm", store, "separable_shapes", "--json")
    assert (outcome.code, outcome.document) == (
        0,
        {"removed": ["separable_shapes"], "bytes": bytes_of_model},
    )
    assert "1 model removed" in run("store", "rm", store, MODELS[0], MODELS[0]).out
    assert "MODEL" in run("store", "rm", store).complaint


def test_prune(run: Run, store: Path, data: Path) -> None:
    assert "features of 0 images removed, 0 B freed" in run("store", "prune", store).out
    one_of(data, "chalk/0").unlink()
    run("store", "sync", store, data)
    run("rank", store)
    before = size(store)
    outcome = run("store", "prune", store, "--json")
    assert outcome.document == {"images": 1, "bytes": before - size(store)}
    assert (store / "cache").is_dir()
    assert run("store", "prune", store, "--cache").code == 0
    assert not (store / "cache").exists()


def test_sync(run: Run, store: Path, data: Path) -> None:
    assert run("store", "sync", store, data).out.strip() == "no changes"
    one_of(data, "chalk/0").unlink()
    one_of(data, "chalk/1").rename(data / "chalk/1/moved.png")
    another_digit(data, "paper/2/new.png")
    (data / "marker").rename(data / "felt pen")
    outcome = run("store", "sync", store, data)
    assert outcome.code == 0
    assert "domain 'marker' renamed to 'felt pen'" in outcome.out
    assert "1 removed, 16 moved" in outcome.out
    assert "1 image without features; compute them with `oodzoo extract" in outcome.err
    document = run("store", "sync", store, data, "--json").document
    assert document == {
        "added": 0,
        "new": 1,
        "removed": 0,
        "moved": 0,
        "relabelled": 0,
        "regrouped": 0,
        "classes": {},
        "domains": {},
        "unlabelled": [],
        "unreadable": {},
        "table_lost": False,
        "task": None,
    }


def test_sync_with_a_table(run: Run, store: Path, data: Path, tmp_path: Path, tree: Tree) -> None:
    table = write_table(data, rows_of(data)).rename(tmp_path / "elsewhere.csv")
    before = tree(store)
    assert "no such file" in run("store", "sync", store, table).complaint
    assert tree(store) == before
    assert run("store", "sync", store, table, "--root", data).out.strip() == "no changes"


def test_sync_asks_for_confirmation(
    run: Run, store: Path, data: Path, tmp_path: Path, tree: Tree
) -> None:
    before = tree(store)
    (tmp_path / "empty").mkdir()
    assert "confirm with --yes" in run("store", "sync", store, tmp_path / "empty").complaint
    copy = data / "paper/0/copy.png"
    shutil.copy(one_of(data, "chalk/0"), copy)
    assert "same image in two domains" in run("store", "sync", store, data).complaint
    copy.unlink()
    shutil.rmtree(data / "paper")
    shutil.rmtree(data / "marker/2")
    shutil.rmtree(data / "chalk/2")
    assert "25 of the 45 images in the store" in run("store", "sync", store, data).complaint
    assert tree(store) == before
    assert run("store", "sync", store, data, "--yes").out.strip() == "25 removed"


def test_sync_with_unlabelled_images(run: Run, store: Path, data: Path, tmp_path: Path) -> None:
    folder = targets(data, tmp_path / "target")
    outcome = run("store", "sync", store, data, "--unlabelled", folder, "--unlabelled", folder)
    assert "two folders of unlabelled images are named 'target'" in outcome.complaint
    outcome = run("store", "sync", store, data, "--unlabelled", f"chalk={folder}")
    assert "are named 'chalk', as a domain with labels" in outcome.complaint


def test_check(run: Run, store: Path) -> None:
    outcome = run("store", "check", store, "--json")
    document = outcome.document
    assert document.pop("near_duplicates")["images"] == 45
    assert (outcome.code, document) == (
        0,
        {"files": 19, "damaged": [], "unfinished": [], "repaired": False},
    )
    (file,) = store.glob("models/separable_shapes/00000-00001.features.*.npy")
    name = file.relative_to(store).as_posix()
    file.write_bytes(b"")
    outcome = run("store", "check", store, "--json")
    assert outcome.code == 2
    assert [entry["path"] for entry in outcome.document["damaged"]] == [name]
    *named, last = outcome.err.splitlines()
    assert any(name in line for line in named)
    assert "has 1 damaged file" in last
    assert "--repair" in last
    outcome = run("store", "check", store, "--json", "--repair")
    assert (outcome.code, outcome.document["repaired"]) == (0, True)
    assert outcome.document["unfinished"] == ["separable_shapes"]
    ranked = run("rank", store, "--json").out
    assert MODELS[0] in ranked
    assert MODELS[1] not in ranked


def test_a_damaged_table_is_not_called_repaired(run: Run, store: Path, data: Path) -> None:
    (store / "samples/00000.json").write_bytes(b"")
    outcome = run("store", "check", store, "--json", "--repair")
    assert (outcome.code, outcome.document["repaired"]) == (2, False)
    assert "cannot be repaired; restore it with `oodzoo store sync" in outcome.err
    outcome = run("store", "sync", store, data)
    assert (outcome.code, "give domains without labels again" in outcome.err) == (0, True)


def test_merge(run: Run, tmp_path: Path) -> None:
    table = letters(day="abc", night="de")
    a, b = fill(tmp_path / "a", table, "m1"), fill(tmp_path / "b", table, "m2")
    outcome = run("store", "merge", a, b, "--out", tmp_path / "both", "--json")
    assert (outcome.code, outcome.document) == (
        0,
        {"store": str(tmp_path / "both"), "models": ["m1", "m2"], "images": 5},
    )
    outcome = run("store", "merge", a, b, "--out", tmp_path / "again")
    assert "2 models, 5 images, 2 domains in" in outcome.out
    assert contents(tmp_path / "again") == contents(tmp_path / "both")
    assert "exists already" in run("store", "merge", a, b, "--out", a).complaint
    assert (
        "two or more stores, got 1" in run("store", "merge", a, "--out", tmp_path / "c").complaint
    )
    assert "--out" in run("store", "merge", a, b).complaint
    other = fill(tmp_path / "other", letters(day="abc", night="dx"), "m3")
    complaint = run("store", "merge", a, other, "--out", tmp_path / "c").complaint
    assert "differs from" in complaint
    assert "'night/e.png'" in complaint

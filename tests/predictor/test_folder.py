"""A predictor on disk."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.store.data import rewrite

import oodzoo
from oodzoo import InputError
from oodzoo._io import locked
from oodzoo.predictor.card import model_card
from oodzoo.zoo import ModelSpec


def _edit(folder: Path, change: Any) -> None:
    """Change predictor.json."""
    rewrite(folder / "predictor.json", change)


def _replace(folder: Path, name: str, **tensors: Any) -> None:
    """Replace tensors, and correct the checksum."""
    path = folder / name
    save_file({**load_file(path), **tensors}, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    _edit(folder, lambda document: document["files"].__setitem__(name, digest))


def test_a_loaded_predictor_predicts_the_same(
    predictor: oodzoo.Predictor, saved: Path, unseen: list[Path]
) -> None:
    loaded = oodzoo.load(saved, device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(unseen), predictor.predict_proba(unseen))
    distances = predictor.domain_distance(unseen)
    np.testing.assert_array_equal(loaded.domain_distance(unseen), distances)
    assert loaded.provenance == predictor.provenance
    assert loaded.classes_.tolist() == predictor.classes_.tolist()
    assert loaded.gaussian.scalars() == predictor.gaussian.scalars()


def test_it_needs_neither_store_nor_zoo_and_can_be_moved(
    digits: Path, unseen: list[Path], zoo: list[ModelSpec], extract: Any, tmp_path: Path
) -> None:
    folder = shutil.copytree(zoo[0].folder, tmp_path / "zoo")
    specs = [ModelSpec(**{**vars(spec), "folder": folder}) for spec in zoo[:2]]
    fitted = oodzoo.fit(extract(digits, specs, tmp_path / "store"), top_k=2)
    expected = fitted.predict(unseen).tolist()
    fitted.save(tmp_path / "here" / "model")
    shutil.move(tmp_path / "here", tmp_path / "there")
    shutil.rmtree(tmp_path / "store")
    shutil.rmtree(folder)
    program = "import sys, oodzoo; print(*oodzoo.load(sys.argv[1]).predict(sys.argv[2:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, "there/model", *map(str, unseen)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == expected


def test_no_file_is_a_pickle_or_names_a_location(saved: Path, zoo: list[ModelSpec]) -> None:
    names = {path.relative_to(saved).as_posix() for path in saved.rglob("*") if path.is_file()}
    models = {name for name in names if name.startswith("models/")}
    assert names - models == {
        *("predictor.json", "head.safetensors", "gaussian.safetensors", "README.md")
    }
    assert all(name.endswith(".onnx") for name in models)
    assert str(zoo[0].folder) not in (saved / "predictor.json").read_text()


def test_saving_again_replaces_a_predictor_and_nothing_else(
    predictor: oodzoo.Predictor, folder: Path, unseen: list[Path], tmp_path: Path
) -> None:
    (folder / "head.safetensors").write_bytes(b"")
    predictor.save(folder)
    assert (
        oodzoo.load(folder).predict(unseen[:1]).tolist() == predictor.predict(unseen[:1]).tolist()
    )
    own = oodzoo.load(folder)
    own.save(folder)  # into the folder that its models come from
    assert own.predict(unseen[:1]).tolist() == predictor.predict(unseen[:1]).tolist()
    (tmp_path / "empty").mkdir()
    predictor.save(tmp_path / "empty")
    for name in ("notes", "file"):
        (tmp_path / "notes").mkdir(exist_ok=True)
        (tmp_path / "notes" / "mine.txt").write_text("mine")
        (tmp_path / "file").write_text("mine")
        with pytest.raises(InputError, match="exists and is not a predictor"):
            predictor.save(tmp_path / name)
    assert (tmp_path / "notes" / "mine.txt").read_text() == "mine"
    assert not list(tmp_path.glob(".tmp*"))


def test_disk_errors(predictor: oodzoo.Predictor, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="a part of the path is a file"):
        predictor.save(tmp_path / "file" / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "name",
    [
        "head.safetensors",
        "gaussian.safetensors",
        "models/resnet_glyphs_augmented.onnx",
    ],
)
def test_a_missing_or_changed_file(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match=rf"{name}' has the sha256 .* was saved with"):
        oodzoo.load(folder)
    (folder / name).unlink()
    with pytest.raises(InputError, match=rf"lacks '{name}'; copy the whole folder"):
        oodzoo.load(folder)


def test_a_folder_that_is_not_a_predictor(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such predictor: .*nowhere"):
        oodzoo.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"is not a predictor: it has no predictor.json"):
        oodzoo.load(tmp_path)
    (tmp_path / "predictor.json").write_text("{}")
    with pytest.raises(InputError, match=r"its predictor.json was not written by oodzoo"):
        oodzoo.load(tmp_path)
    (tmp_path / "predictor.json").write_text("{")
    with pytest.raises(InputError, match=r"predictor.json' is damaged"):
        oodzoo.load(tmp_path)


@pytest.mark.parametrize(("schema", "advice"), [(2, "upgrade oodzoo"), (0, "fit it again")])
def test_another_schema(folder: Path, schema: int, advice: str) -> None:
    _edit(folder, lambda document: document.update(schema=schema))
    with pytest.raises(
        InputError, match=rf"has the schema {schema}, this version of oodzoo reads 1; {advice}"
    ):
        oodzoo.load(folder)


@pytest.mark.parametrize(
    "key", ["classes", "models", "head", "out_of_domain", "provenance", "files"]
)
def test_a_missing_key(folder: Path, key: str) -> None:
    _edit(folder, lambda document: document.pop(key))
    with pytest.raises(InputError, match=rf"is damaged: .*missing.*`{key}`; fit again"):
        oodzoo.load(folder)


def test_a_flipped_bit_in_the_document(folder: Path) -> None:
    path = folder / "predictor.json"
    content = path.read_text()
    path.write_text(content.replace('"classes": [\n  "0"', '"classes": [\n  "8"'))
    with pytest.raises(InputError, match="does not match its checksum; copy the folder again, or"):
        oodzoo.load(folder)


def test_invalid_values(folder: Path) -> None:
    whole = (folder / "predictor.json").read_text()
    changes: dict[str, Callable[[Any], Any]] = {
        r"checksums of head.safetensors .*, got none": lambda d: d.update(files={}),
        "rest and limit must be positive": lambda d: d["out_of_domain"].update(rest=0),
        "the source 'weird/thing'": lambda d: d["models"][0].update(source="weird/thing"),
        "cannot be the name of a folder": lambda d: d["models"][0].update(name="../up"),
        "of length 3": lambda d: d["models"][0]["stated"].update(mean=[0.5]),
        r"at `\$.classes\[0\]`": lambda d: d.update(classes=[["0"], *d["classes"][1:]]),
        "Expected `int`": lambda d: d["models"][0].update(feature_dim="many"),
    }
    for message, change in changes.items():
        (folder / "predictor.json").write_text(whole)
        _edit(folder, change)
        with pytest.raises(InputError, match=rf"is damaged: .*{message}.*; fit again"):
            oodzoo.load(folder)


def test_the_folder_of_a_run_stands_for_its_predictor(folder: Path) -> None:
    job = folder.parent / "job"
    job.mkdir()
    shutil.move(folder, job / "model")
    with pytest.raises(InputError, match=r"job' is not a predictor: it has no predictor\.json"):
        oodzoo.load(job)
    (job / "run.json").touch()
    assert oodzoo.load(job).classes_.tolist() == oodzoo.load(job / "model").classes_.tolist()


def test_tensors_of_a_wrong_shape(folder: Path) -> None:
    weights = load_file(folder / "head.safetensors")["weights"]
    _replace(folder, "head.safetensors", weights=weights[:, 1:].copy())
    d = weights.shape[1]
    with pytest.raises(InputError, match=rf"'weights' must be \(3, {d}\), got \(3, {d - 1}\)"):
        oodzoo.load(folder)
    _replace(folder, "head.safetensors", weights=np.full_like(weights, np.nan))
    with pytest.raises(InputError, match=r"'weights' contains NaN"):
        oodzoo.load(folder)
    columns = load_file(folder / "head.safetensors")["columns.resnet_glyphs_augmented"]
    _replace(
        folder,
        "head.safetensors",
        weights=weights,
        **{"columns.resnet_glyphs_augmented": columns + 56},
    )
    with pytest.raises(InputError, match=r"'resnet_glyphs_augmented' are not among its 56"):
        oodzoo.load(folder)


def test_a_gaussian_of_a_wrong_shape(folder: Path) -> None:
    (d,) = load_file(folder / "gaussian.safetensors")["mean"].shape
    _replace(folder, "gaussian.safetensors", mean=np.zeros(3))
    with pytest.raises(InputError, match=rf"'mean' must be \({d},\), got \(3,\)"):
        oodzoo.load(folder)
    tensors = load_file(folder / "gaussian.safetensors")
    del tensors["centres"]
    save_file(tensors, folder / "gaussian.safetensors")
    _replace(folder, "gaussian.safetensors", mean=np.zeros(d))
    with pytest.raises(InputError, match=r"it has no 'centres'; fit again"):
        oodzoo.load(folder)


def test_the_choice_is_saved(predictor: oodzoo.Predictor, tmp_path: Path) -> None:
    parts = predictor._parts()
    weights = {model.name: 0.5 for model in parts.models}
    facts = replace(
        parts.provenance,
        choice="pool",
        pool=weights,
        accuracy=81.5,
        accuracy_interval=(78.0, 85.0),
        accuracy_by_domain={"chalk": 80.0, "paper": 83.0},
        choice_by_domain={"chalk": "pool", "paper": "single"},
        target="photos",
    )
    pool = oodzoo.Predictor(**{**vars(parts), "provenance": facts})
    loaded = oodzoo.load(pool.save(tmp_path / "model"))
    assert loaded.provenance == facts
    assert loaded.to_dict() == pool.to_dict()
    assert repr(loaded).startswith("Predictor(pool: 3 classes")


def test_only_its_own_files_are_removed_when_a_predictor_is_replaced(
    predictor: oodzoo.Predictor, folder: Path
) -> None:
    for name in ("notes.txt", "models-of-mine/a", "version-2/b", "version-01234567/left"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")
    for _ in range(2):
        predictor.save(folder)
        names = {path.name for path in folder.iterdir()}
        (version,) = (name for name in names if len(name) == len("version-01234567"))
        assert names - {version} == {
            *("predictor.json", "README.md", ".lock", "notes.txt", "models-of-mine", "version-2")
        }
        assert version != "version-01234567"
        assert {path.name for path in (folder / version).iterdir()} == {
            *("head.safetensors", "gaussian.safetensors", "models")
        }


def test_the_model_card_is_replaced_unless_it_was_edited(
    predictor: oodzoo.Predictor, store: oodzoo.FeatureStore, folder: Path
) -> None:
    card = folder / "README.md"
    assert card.read_text() == model_card(predictor._parts())
    other = oodzoo.fit(store, models=["mlp_glyphs_augmented"])
    other.save(folder)
    assert card.read_text() == model_card(other._parts()) != model_card(predictor._parts())
    for edited in (card.read_text() + "Mine.\n", ""):
        card.write_text(edited)
        with pytest.warns(UserWarning, match=r"README.md' was edited.* and is kept"):
            predictor.save(folder)
        assert card.read_text() == edited
        assert [m.name for m in oodzoo.load(folder).models] == [m.name for m in predictor.models]
    card.unlink()
    assert oodzoo.load(folder).provenance == predictor.provenance
    predictor.save(folder)
    assert card.read_text() == model_card(predictor._parts())


def test_there_is_never_the_card_of_another_predictor(
    predictor: oodzoo.Predictor, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("oodzoo.predictor.folder.sealed", fail)
    with pytest.raises(InputError, match="the disk is full"):
        predictor.save(folder)
    assert not (folder / "README.md").exists()
    assert oodzoo.load(folder).provenance == predictor.provenance


def test_a_predictor_is_not_replaced_by_two_processes(
    predictor: oodzoo.Predictor, folder: Path, unseen: list[Path]
) -> None:
    with locked(folder), pytest.raises(InputError, match="is being written by another process"):
        predictor.save(folder)
    assert oodzoo.load(folder).predict(unseen[:1]).tolist() == ["0"]
    predictor.save(folder)


def test_a_failed_replacement_leaves_the_old_predictor(
    predictor: oodzoo.Predictor, folder: Path, unseen: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = replace(predictor.loadable_models[0].spec, source="onnx/nowhere.onnx")
    first, *others = predictor.loadable_models
    models = [replace(first, spec=broken), *others]
    monkeypatch.setattr(predictor, "models", tuple(models))
    before = {path.relative_to(folder) for path in folder.rglob("*")}
    with pytest.raises(InputError, match=r"cannot read '.*nowhere.onnx'"):
        predictor.save(folder)
    after = {path.relative_to(folder) for path in folder.rglob("*")}
    assert after - before == {Path(".lock")}
    assert oodzoo.load(folder).predict(unseen[:1]).tolist() == ["0"]


# --- files outside the folder -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["absolute", "above", "link"])
@pytest.mark.parametrize("name", ["head.safetensors", "models/resnet_glyphs_augmented.onnx"])
def test_a_file_outside_the_folder(folder: Path, kind: str, name: str) -> None:
    """The document names it with the right checksum, or it is a symbolic link."""
    outside = folder.parent / "outside" / Path(name).name
    outside.parent.mkdir()
    shutil.move(folder / name, outside)
    given = {"absolute": str(outside), "above": f"../outside/{outside.name}", "link": name}[kind]
    if kind == "link":
        (folder / name).symlink_to(outside)

    def change(document: dict[str, Any]) -> None:
        for entry in (document, *document["models"]):
            entry["files"] = {given if n == name else n: d for n, d in entry["files"].items()}
        for model in document["models"]:
            model["source"] = model["source"].replace(name, given)

    _edit(folder, change)
    with pytest.raises(InputError, match=r"which is not inside its folder; fit again") as caught:
        oodzoo.load(folder)
    assert repr(given) in str(caught.value)


@pytest.mark.parametrize(
    "source", ["onnx/../model.onnx", "onnx/models/other.onnx", "hf/./..", "timm/local-dir:/"]
)
def test_a_model_that_is_not_among_the_files(folder: Path, source: str) -> None:
    for path in (folder.parent / "model.onnx", folder / "models" / "other.onnx"):
        shutil.copy(folder / "models" / "resnet_glyphs_augmented.onnx", path)
    _edit(folder, lambda document: document["models"][0].update(source=source))
    with pytest.raises(InputError, match="which is not among its files; fit again") as caught:
        oodzoo.load(folder)
    assert source in str(caught.value)


def test_a_model_that_is_swapped_after_loading(folder: Path, unseen: list[Path]) -> None:
    _edit(folder, lambda document: [m["stated"].pop("sha256") for m in document["models"]])
    loaded = oodzoo.load(folder)
    first, second = sorted((folder / "models").iterdir())
    shutil.copy(second, first)
    with pytest.raises(InputError, match=r"is not the file that the predictor was saved with"):
        loaded.predict(unseen[:1])
    first.unlink()
    with pytest.raises(InputError, match=rf"cannot read '.*{first.name}': No such file"):
        loaded.predict(unseen[:1])

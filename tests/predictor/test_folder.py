"""A predictor on disk: self-contained, checked, replaced as a whole; the files of its models."""

from __future__ import annotations

import hashlib
import json
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
from tests.predictor.data import changed
from tests.store.data import rewrite
from tests.zoo.data import SQUASH, VIT, save_checkpoint

import oodzoo
from oodzoo import InputError
from oodzoo.core.io import locked
from oodzoo.predictor.card import model_card
from oodzoo.predictor.parts import Cost
from oodzoo.zoo import ModelSpec

HEAD, GAUSSIAN = "head.safetensors", "gaussian.safetensors"
RESNET = "resnet_glyphs_augmented"


def edit(folder: Path, change: Any) -> None:
    """Change predictor.json."""
    rewrite(folder / "predictor.json", change)


def put(folder: Path, name: str, **tensors: Any) -> None:
    """Replace tensors, or remove those that are None, and correct the checksum."""
    path = folder / name
    content = {**load_file(path), **tensors}
    save_file({key: value for key, value in content.items() if value is not None}, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    edit(folder, lambda document: document["files"].__setitem__(name, digest))


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


# --- complete and self-contained -----------------------------------------------------------------


def test_a_loaded_predictor_is_the_same(
    predictor: oodzoo.Predictor, saved: Path, unseen: list[Path], zoo: list[ModelSpec]
) -> None:
    loaded = oodzoo.load(saved, device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(unseen), predictor.predict_proba(unseen))
    distances = predictor.domain_distance(unseen)
    np.testing.assert_array_equal(loaded.domain_distance(unseen), distances)
    assert loaded.predict_sets(unseen) == predictor.predict_sets(unseen, 0.9)
    assert loaded.provenance == predictor.provenance
    assert loaded.provenance.domains == ("chalk", "marker", "paper")
    assert loaded.provenance.n_images == 108
    assert loaded.classes_.tolist() == predictor.classes_.tolist()
    assert loaded.gaussian.scalars() == predictor.gaussian.scalars()
    assert loaded.head.C == predictor.head.C
    assert loaded.left_out == predictor.left_out
    models = {name for name in names(saved) if name.startswith("models/")}
    assert names(saved) - models == {"predictor.json", HEAD, GAUSSIAN, "README.md"}
    assert all(name.endswith(".onnx") for name in models)
    assert str(zoo[0].folder) not in (saved / "predictor.json").read_text()


def test_the_facts_are_saved(predictor: oodzoo.Predictor, tmp_path: Path) -> None:
    one, two = predictor.loadable_models
    facts = replace(
        predictor.provenance,
        choice="pool",
        pool={one.name: 0.75, two.name: 0.25},
        accuracy=81.5,
        accuracy_interval=(78.0, 85.0),
        accuracy_by_domain={"chalk": 80.0, "paper": 83.0},
        choice_by_domain={"chalk": "pool", "paper": "single"},
        target="photos",
    )
    pool = changed(predictor, provenance=facts)
    loaded = oodzoo.load(pool.save(tmp_path / "model"))
    assert loaded.provenance == facts
    assert repr(loaded).startswith("Predictor(pool: 3 classes")
    document = json.loads(json.dumps(loaded.to_dict()))
    assert document == json.loads(json.dumps(pool.to_dict()))
    assert (document["choice"], document["accuracy"]) == ("pool", 81.5)
    assert document["accuracy_interval"] == [78, 85]
    assert document["classes"] == ["0", "1", "2"]
    rows = document["models"]
    assert [(each["name"], each["weight"]) for each in rows] == list(facts.pool.items())
    kept = [len(columns) for columns in predictor.columns.by_model.values()]
    assert [each["kept"] for each in rows] == kept
    assert [each["features"] for each in rows] == [one.feature_dim, two.feature_dim]
    assert [each["licence"] for each in rows] == ["Apache-2.0"] * 2
    assert all(each["pretraining"].startswith("glyphs") for each in rows)
    about = document["provenance"]
    assert (about["score"], about["target"], about["n_images"]) == ("unseen", "photos", 108)
    assert "pool" not in about
    sizes = [model.spec.file.stat().st_size for model in (one, two)]
    total = Cost(
        (one.milliseconds or 0) + (two.milliseconds or 0),
        (one.parameters or 0) + (two.parameters or 0),
        sum(sizes),
    )
    assert loaded.cost == predictor.cost == total
    assert min(total.milliseconds or 0, total.parameters or 0) > 0
    unknown = changed(predictor, models=(one, replace(two, milliseconds=None)))
    assert unknown.cost == replace(total, milliseconds=None)


def test_it_needs_neither_store_nor_zoo_and_can_be_moved(
    unseen: list[Path], zoo: list[ModelSpec], fit_models: Any, tmp_path: Path
) -> None:
    folder = shutil.copytree(zoo[0].folder, tmp_path / "zoo")
    specs = [ModelSpec(**{**vars(spec), "folder": folder}) for spec in zoo[:2]]
    fitted = fit_models(specs)
    expected = fitted.predict(unseen).tolist()
    fitted.save(tmp_path / "here" / "model")
    shutil.move(tmp_path / "here", tmp_path / "there")
    shutil.rmtree(tmp_path / "store of models")
    shutil.rmtree(folder)
    program = "import sys, oodzoo; print(*oodzoo.load(sys.argv[1]).predict(sys.argv[2:]))"
    command = [sys.executable, "-c", program, "there/model", *map(str, unseen)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == expected


def test_the_folder_of_a_run_stands_for_its_predictor(folder: Path) -> None:
    job = folder.parent / "job"
    job.mkdir()
    shutil.move(folder, job / "model")
    with pytest.raises(InputError, match=r"job' is not a predictor: it has no predictor\.json"):
        oodzoo.load(job)
    (job / "run.json").touch()
    assert oodzoo.load(job).classes_.tolist() == oodzoo.load(job / "model").classes_.tolist()


# --- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [HEAD, GAUSSIAN, f"models/{RESNET}.onnx"])
def test_a_missing_or_changed_file(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match=rf"{name}' has the sha256 .* was saved with"):
        oodzoo.load(folder)
    (folder / name).unlink()
    with pytest.raises(InputError, match=rf"lacks '{name}'; copy the whole folder"):
        oodzoo.load(folder)


def test_a_folder_that_is_not_a_predictor(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such predictor: .*nowhere"):
        oodzoo.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"is not a predictor: it has no predictor.json"):
        oodzoo.load(tmp_path)
    for content, words in (
        ("{}", "its predictor.json was not written by oodzoo"),
        ('{"kind": "other predictor"}', "its predictor.json was not written by oodzoo"),
        ("{", "predictor.json' is damaged"),
    ):
        (tmp_path / "predictor.json").write_text(content)
        with pytest.raises(InputError, match=words):
            oodzoo.load(tmp_path)
    path = folder / "predictor.json"
    path.write_text(path.read_text().replace('"classes": [\n  "0"', '"classes": [\n  "8"'))
    with pytest.raises(InputError, match="does not match its checksum; copy the folder again, or"):
        oodzoo.load(folder)


def test_a_damaged_document(folder: Path) -> None:
    whole = (folder / "predictor.json").read_text()
    changes: list[tuple[str, Callable[[Any], Any]]] = [
        ("schema 2, this version of oodzoo reads 1; upgrade", lambda d: d.update(schema=2)),
        ("schema 0, this version of oodzoo reads 1; fit it again", lambda d: d.update(schema=0)),
        (r"checksums of head.safetensors .*, got none", lambda d: d.update(files={})),
        ("rest and limit must be positive", lambda d: d["out_of_domain"].update(rest=0)),
        ("the source 'weird/thing'", lambda d: d["models"][0].update(source="weird/thing")),
        ("cannot be the name of a folder", lambda d: d["models"][0].update(name="../up")),
        ("of length 3", lambda d: d["models"][0]["stated"].update(mean=[0.5])),
        (r"`\$.classes\[0\]`", lambda d: d.update(classes=[["0"], *d["classes"][1:]])),
        ("Expected `int`", lambda d: d["models"][0].update(feature_dim="many")),
        ("it has no model 'another'", lambda d: d.update(normalised=["another"])),
        ("must have either models or models that only have", lambda d: d.update(models=[])),
        ("must have 1 threshold and", lambda d: d["left_out"]["sets"][0].update(thresholds=[])),
    ]
    keys = ("classes", "models", "head", "out_of_domain", "provenance", "files", "task")
    changes += [(f"missing.*`{key}`", lambda d, key=key: d.pop(key)) for key in keys]  # type: ignore[misc]
    for message, change in changes:
        (folder / "predictor.json").write_text(whole)
        edit(folder, change)
        with pytest.raises(InputError, match=rf"predictor .*{message}"):
            oodzoo.load(folder)


def test_damaged_arrays(folder: Path) -> None:
    head, gaussian = load_file(folder / HEAD), load_file(folder / GAUSSIAN)
    weights, columns = head["weights"], f"columns.{RESNET}"
    d = weights.shape[1]
    for name, tensors, message in (
        (HEAD, {"weights": weights[:, 1:].copy()}, rf"\(3, {d}\), got \(3, {d - 1}\); fit again"),
        (HEAD, {"weights": np.full_like(weights, np.nan)}, "'weights' contains NaN; fit again"),
        (HEAD, {columns: head[columns] + 56}, rf"'{RESNET}' are not among its 56"),
        (GAUSSIAN, {"mean": np.zeros(3)}, rf"'mean' must be \({d},\), got \(3,\)"),
        (GAUSSIAN, {"centres": None}, "it has no 'centres'; fit again"),
    ):
        put(folder, name, **tensors)
        with pytest.raises(InputError, match=message):
            oodzoo.load(folder)
        put(folder, HEAD, **head)
        put(folder, GAUSSIAN, **gaussian)
    assert oodzoo.load(folder)


@pytest.mark.parametrize("kind", ["absolute", "above", "link"])
@pytest.mark.parametrize("name", [HEAD, f"models/{RESNET}.onnx"])
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

    edit(folder, change)
    with pytest.raises(InputError, match=r"which is not inside its folder; fit again") as caught:
        oodzoo.load(folder)
    assert repr(given) in str(caught.value)


@pytest.mark.parametrize(
    "source", ["onnx/../model.onnx", "onnx/models/other.onnx", "hf/./..", "timm/local-dir:/"]
)
def test_a_model_that_is_not_among_the_files(folder: Path, source: str) -> None:
    for path in (folder.parent / "model.onnx", folder / "models" / "other.onnx"):
        shutil.copy(folder / "models" / f"{RESNET}.onnx", path)
    edit(folder, lambda document: document["models"][0].update(source=source))
    with pytest.raises(InputError, match="which is not among its files; fit again") as caught:
        oodzoo.load(folder)
    assert source in str(caught.value)


def test_a_model_that_is_swapped_after_loading(folder: Path, unseen: list[Path]) -> None:
    edit(folder, lambda document: [m["stated"].pop("sha256") for m in document["models"]])
    loaded = oodzoo.load(folder)
    first, second = sorted((folder / "models").iterdir())
    shutil.copy(second, first)
    with pytest.raises(InputError, match=r"is not the file that the predictor was saved with"):
        loaded.predict(unseen[:1])
    first.unlink()
    with pytest.raises(InputError, match=rf"cannot read '.*{first.name}': No such file"):
        loaded.predict(unseen[:1])


# --- replaced ------------------------------------------------------------------------------------


def test_saving_again_replaces_a_predictor_and_nothing_else(
    predictor: oodzoo.Predictor, folder: Path, unseen: list[Path], tmp_path: Path
) -> None:
    (folder / HEAD).write_bytes(b"")
    for name in ("notes.txt", "models-of-mine/a", "version-2/b", "version-01234567/left"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")
    for _ in range(2):
        predictor.save(folder)
        own = oodzoo.load(folder)
        own.save(folder)  # into the folder that its models come from
        assert own.predict(unseen[:1]).tolist() == predictor.predict(unseen[:1]).tolist()
        found = {path.name for path in folder.iterdir()}
        (version,) = (name for name in found if len(name) == len("version-01234567"))
        mine = {"notes.txt", "models-of-mine", "version-2"}
        assert found - {version} == {"predictor.json", "README.md", ".lock"} | mine
        assert version != "version-01234567"
        assert {path.name for path in (folder / version).iterdir()} == {HEAD, GAUSSIAN, "models"}
    (tmp_path / "empty").mkdir()
    predictor.save(tmp_path / "empty")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("notes", "file"):
        with pytest.raises(InputError, match="exists and is not a predictor"):
            predictor.save(tmp_path / name)
    with pytest.raises(InputError, match="a part of the path is a file"):
        predictor.save(tmp_path / "file" / "model")
    assert (tmp_path / "notes" / "mine.txt").read_text() == "mine"
    assert not list(tmp_path.glob(".tmp*"))


def test_the_model_card_is_replaced_unless_it_was_edited(
    predictor: oodzoo.Predictor,
    other: oodzoo.Predictor,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card = folder / "README.md"
    assert card.read_text() == model_card(predictor._parts())
    other.save(folder)
    assert card.read_text() == model_card(other._parts()) != model_card(predictor._parts())
    for edited in (card.read_text() + "Mine.\n", ""):
        card.write_text(edited)
        with pytest.warns(UserWarning, match=r"README.md' was edited.* and is kept"):
            predictor.save(folder)
        assert card.read_text() == edited
        assert oodzoo.load(folder).provenance == predictor.provenance
    card.unlink()
    predictor.save(folder)
    assert card.read_text() == model_card(predictor._parts())

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("oodzoo.predictor.folder.sealed", fail)
    with pytest.raises(InputError, match="the disk is full"):
        other.save(folder)
    assert not card.exists()  # there is never the card of another predictor
    assert oodzoo.load(folder).provenance == predictor.provenance


def test_a_replacement_that_fails_leaves_the_old_predictor(
    predictor: oodzoo.Predictor, folder: Path
) -> None:
    with locked(folder), pytest.raises(InputError, match="is being written by another process"):
        predictor.save(folder)
    before = names(folder)
    first, *others = predictor.loadable_models
    missing = replace(first, spec=replace(first.spec, source="onnx/nowhere.onnx"))
    with pytest.raises(InputError, match=r"cannot read '.*nowhere.onnx'"):
        changed(predictor, models=[missing, *others]).save(folder)
    assert names(folder) - before <= {".lock"}
    assert oodzoo.load(folder).provenance == predictor.provenance
    predictor.save(folder)


# --- files of the models -------------------------------------------------------------------------


def test_external_weights_are_copied(
    unseen: list[Path], zoo: list[ModelSpec], fit_models: Any, tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx", reason="writing external weights needs onnx")
    (tmp_path / "zoo").mkdir()
    file, apart = tmp_path / "zoo" / "apart.onnx", {"location": "weights.bin", "size_threshold": 0}
    onnx.save(onnx.load(zoo[0].file), file, save_as_external_data=True, **apart)
    spec = replace(zoo[0], folder=file.parent, source="onnx/apart.onnx", sha256=None)
    fitted = fit_models([spec])
    files = (spec.file, spec.folder / "weights.bin")
    assert fitted.cost.bytes == sum(each.stat().st_size for each in files)
    expected = fitted.predict_proba(unseen[:3])
    folder = fitted.save(tmp_path / "model")
    shutil.rmtree(spec.folder)
    np.testing.assert_array_equal(oodzoo.load(folder).predict_proba(unseen[:3]), expected)
    (folder / "models" / spec.name / "weights.bin").unlink()
    with pytest.raises(InputError, match=r"lacks 'models/.*/weights.bin'"):
        oodzoo.load(folder)


def test_a_file_that_changes_during_the_copy(
    predictor: oodzoo.Predictor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("oodzoo.predictor.bundle.file_digest", lambda path: "0" * 64)
    with pytest.raises(InputError, match="changed while it was copied"):
        predictor.save(tmp_path / "model")


def test_a_timm_model_is_copied_or_recorded(
    unseen: list[Path], timm_spec: Callable[..., ModelSpec], fit_models: Any, tmp_path: Path
) -> None:
    spec = timm_spec()
    fitted = fit_models([spec])
    expected = fitted.predict_proba(unseen[:3])
    folder = fitted.save(tmp_path / "model")
    assert not list(folder.rglob("*.bin"))
    (spec.folder / "tiny" / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"has no .safetensors file, and pickled weights"):
        fitted.save(tmp_path / "pickled")
    assert not list(tmp_path.glob(".tmp*"))
    shutil.rmtree(spec.folder)
    np.testing.assert_array_equal(oodzoo.load(folder).predict_proba(unseen[:3]), expected)
    # a model from a hub has no files to check, only its fingerprint
    edit(folder, lambda document: document["models"][0].update(fingerprint="0" * 64))
    with pytest.raises(InputError, match=r"computed with 000000000000…: its weights have changed"):
        oodzoo.load(folder).predict(unseen[:1])
    hub = ModelSpec(name="tiny", source="timm/hf-hub:owner/tiny")
    recorded = changed(fitted, models=(replace(fitted.loadable_models[0], spec=hub),))
    recorded.save(tmp_path / "hub")
    (entry,) = json.loads((tmp_path / "hub" / "predictor.json").read_text())["models"]
    assert (entry["source"], entry["files"]) == ("timm/hf-hub:owner/tiny", {})
    assert entry["fingerprint"] == fitted.models[0].fingerprint


def _hf_folder(folder: Path) -> str:
    import torch

    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    network = transformers.ViTModel(transformers.ViTConfig(**VIT))
    save_checkpoint(transformers, network, folder / "vit", SQUASH)
    return 'source = "hf/./vit"'


def _untrained(folder: Path) -> str:
    arguments = "{ img_size = 64, num_classes = 0 }"
    return f'source = "timm/test_vit"\npretrained = false\narguments = {arguments}'


@pytest.mark.parametrize("make", [_hf_folder, _untrained])
def test_local_models_are_copied(
    make: Callable[[Path], str], timm: Any, unseen: list[Path], fit_models: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "zoo"
    folder.mkdir()
    (folder / "zoo.toml").write_text('[[model]]\nname = "net"\n' + make(folder))
    fitted = fit_models(oodzoo.load_zoo(folder / "zoo.toml"))
    expected = fitted.predict_proba(unseen[:3])
    fitted.save(tmp_path / "model")
    shutil.rmtree(folder)
    found = oodzoo.load(tmp_path / "model").predict_proba(unseen[:3])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert str(tmp_path) not in (tmp_path / "model" / "predictor.json").read_text()


def test_code_is_not_saved(timm: Any, unseen: list[Path], fit_models: Any, tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "hubconf.py").write_text(
        "import torch\n\n\ndef net(width):\n"
        "    return torch.nn.Sequential(torch.nn.Conv2d(3, width, 4, stride=4), torch.nn.ReLU())\n"
    )
    (tmp_path / "zoo.toml").write_text(
        '[[model]]\nname = "net"\nsource = "torch_hub/hub:net"\ninput_size = 32\n'
        "arguments = { width = 12 }\n"
    )
    fitted = fit_models(oodzoo.load_zoo(tmp_path / "zoo.toml"))
    assert len(fitted.predict(unseen[:3])) == 3
    with pytest.raises(InputError, match="a saved predictor has no code, and 'torch_hub/hub:net'"):
        fitted.save(tmp_path / "model")
    assert not list(tmp_path.glob(".tmp*"))

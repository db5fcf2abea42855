"""A predictor on disk: whole, checked, and independent of where it came from."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import oodzoo
from oodzoo import InputError
from oodzoo.zoo import ModelSpec


def _edit(model: Path, change: Any) -> None:
    """Change predictor.json."""
    path = model / "predictor.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def _replace(model: Path, name: str, **tensors: Any) -> None:
    """Other tensors under a checksum that fits, as a faulty writer would leave them."""
    path = model / name
    save_file({**load_file(path), **tensors}, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    _edit(model, lambda document: document["files"].__setitem__(name, digest))


def test_what_is_loaded_predicts_the_same(
    predictor: oodzoo.Predictor, saved: Path, unseen: list[Path]
) -> None:
    loaded = oodzoo.load(saved, device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(unseen), predictor.predict_proba(unseen))
    distances = predictor.domain_distance(unseen)
    np.testing.assert_array_equal(loaded.domain_distance(unseen), distances)
    assert loaded.origin == predictor.origin
    assert loaded.classes_.tolist() == predictor.classes_.tolist()
    assert loaded.gaussian.facts() == predictor.gaussian.facts()


def test_it_works_when_store_and_zoo_are_gone_and_it_has_moved(
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


def test_nothing_in_it_is_a_pickle_or_names_a_place(saved: Path, zoo: list[ModelSpec]) -> None:
    names = {path.relative_to(saved).as_posix() for path in saved.rglob("*") if path.is_file()}
    kept = {name for name in names if name.startswith("models/")}
    assert names - kept == {"predictor.json", "head.safetensors", "gaussian.safetensors"}
    assert all(name.endswith(".onnx") for name in kept)
    assert str(zoo[0].folder) not in (saved / "predictor.json").read_text()


def test_saving_again_replaces_a_predictor_and_nothing_else(
    predictor: oodzoo.Predictor, model: Path, unseen: list[Path], tmp_path: Path
) -> None:
    (model / "head.safetensors").write_bytes(b"")
    predictor.save(model)
    assert oodzoo.load(model).predict(unseen[:1]).tolist() == predictor.predict(unseen[:1]).tolist()
    own = oodzoo.load(model)
    own.save(model)  # into the folder that its models come from
    assert own.predict(unseen[:1]).tolist() == predictor.predict(unseen[:1]).tolist()
    (tmp_path / "empty").mkdir()
    predictor.save(tmp_path / "empty")
    for name in ("notes", "file"):
        (tmp_path / "notes").mkdir(exist_ok=True)
        (tmp_path / "notes" / "mine.txt").write_text("mine")
        (tmp_path / "file").write_text("mine")
        with pytest.raises(InputError, match="is there already and is no predictor"):
            predictor.save(tmp_path / name)
    assert (tmp_path / "notes" / "mine.txt").read_text() == "mine"
    assert not list(tmp_path.glob(".tmp*"))


def test_a_disk_that_refuses_leaves_what_was_there(
    predictor: oodzoo.Predictor, tmp_path: Path
) -> None:
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
def test_a_file_that_is_missing_or_changed(model: Path, name: str) -> None:
    content = (model / name).read_bytes()
    (model / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match=rf"{name}' has the sha256 .* was saved with"):
        oodzoo.load(model)
    (model / name).unlink()
    with pytest.raises(InputError, match=rf"lacks '{name}'; copy the whole folder"):
        oodzoo.load(model)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no predictor .*nowhere"):
        oodzoo.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"is no predictor: it has no predictor.json"):
        oodzoo.load(tmp_path)
    (tmp_path / "predictor.json").write_text("{}")
    with pytest.raises(InputError, match=r"its predictor.json is another thing's"):
        oodzoo.load(tmp_path)
    (tmp_path / "predictor.json").write_text("{")
    with pytest.raises(InputError, match=r"predictor.json' is damaged"):
        oodzoo.load(tmp_path)


@pytest.mark.parametrize(("schema", "advice"), [(2, "upgrade oodzoo"), (0, "fit it again")])
def test_another_schema(model: Path, schema: int, advice: str) -> None:
    _edit(model, lambda document: document.update(schema=schema))
    with pytest.raises(
        InputError, match=rf"has the schema {schema}, this oodzoo reads 1; {advice}"
    ):
        oodzoo.load(model)


@pytest.mark.parametrize("key", ["classes", "networks", "head", "out_of_domain", "origin", "files"])
def test_a_document_that_lacks_something(model: Path, key: str) -> None:
    _edit(model, lambda document: document.pop(key))
    with pytest.raises(InputError, match=rf"is damaged: it lacks what .*{key}.*fit again"):
        oodzoo.load(model)


def test_a_document_that_was_tampered_with(model: Path) -> None:
    whole = (model / "predictor.json").read_text()
    changes: list[Callable[[Any], Any]] = [
        lambda document: document.update(files={}),
        lambda document: document["out_of_domain"].update(rest=0),
        lambda document: document["networks"][0].update(source="weird/thing"),
    ]
    for change in changes:
        (model / "predictor.json").write_text(whole)
        _edit(model, change)
        with pytest.raises(InputError, match=r"is damaged: it lacks what it should hold"):
            oodzoo.load(model)


def test_the_folder_of_a_run_is_not_its_predictor(model: Path) -> None:
    (model.parent / "job").mkdir()
    shutil.move(model, model.parent / "job" / "model")
    with pytest.raises(InputError, match=r"did you mean '.*job/model'"):
        oodzoo.load(model.parent / "job")


def test_tensors_that_do_not_fit(model: Path) -> None:
    weights = load_file(model / "head.safetensors")["weights"]
    _replace(model, "head.safetensors", weights=weights[:, 1:].copy())
    with pytest.raises(InputError, match=r"'weights' should be \(3, 54\) and is \(3, 53\)"):
        oodzoo.load(model)
    _replace(model, "head.safetensors", weights=np.full_like(weights, np.nan))
    with pytest.raises(InputError, match=r"'weights' holds NaN"):
        oodzoo.load(model)
    columns = load_file(model / "head.safetensors")["columns.resnet_glyphs_augmented"]
    _replace(
        model,
        "head.safetensors",
        weights=weights,
        **{"columns.resnet_glyphs_augmented": columns + 56},
    )
    with pytest.raises(InputError, match=r"'resnet_glyphs_augmented' are not among its 56"):
        oodzoo.load(model)


def test_a_gaussian_that_does_not_fit(model: Path) -> None:
    _replace(model, "gaussian.safetensors", mean=np.zeros(3))
    with pytest.raises(InputError, match=r"'mean' should be \(54,\) and is \(3,\)"):
        oodzoo.load(model)


def test_weights_beside_an_onnx_file_come_along(
    digits: Path, unseen: list[Path], zoo: list[ModelSpec], extract: Any, tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx", reason="writing weights beside an ONNX file needs onnx")
    (tmp_path / "zoo").mkdir()
    file = tmp_path / "zoo" / "apart.onnx"
    onnx.save(
        onnx.load(zoo[0].file),
        file,
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    spec = ModelSpec(
        **{**vars(zoo[0]), "folder": file.parent, "source": "onnx/apart.onnx", "sha256": None}
    )
    fitted = oodzoo.fit(extract(digits, [spec], tmp_path / "store"), top_k=1)
    expected = fitted.predict_proba(unseen[:3])
    model = fitted.save(tmp_path / "model")
    shutil.rmtree(file.parent)
    np.testing.assert_array_equal(oodzoo.load(model).predict_proba(unseen[:3]), expected)
    (model / "networks" / spec.name / "weights.bin").unlink()
    with pytest.raises(InputError, match=r"lacks 'models/.*/weights.bin'"):
        oodzoo.load(model)


# --- models of PyTorch -------------------------------------------------------------------------


@pytest.fixture(scope="session")
def timm_folder(timm: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model of timm with random weights, as timm saves it."""
    network = timm.create_model("test_vit.r160_in1k", pretrained=False)
    folder = tmp_path_factory.mktemp("timm") / "tiny"
    timm.models._hub.save_for_hf(network, folder, safe_serialization=True)
    return folder


def _timm_spec(folder: Path) -> ModelSpec:
    return ModelSpec(name="tiny", source=f"timm/local-dir:{folder.name}", folder=folder.parent)


def test_a_model_of_timm_comes_along(
    digits: Path, unseen: list[Path], timm_folder: Path, extract: Any, tmp_path: Path
) -> None:
    folder = shutil.copytree(timm_folder, tmp_path / "tiny")
    store = extract(digits, [_timm_spec(folder)], tmp_path / "store")
    fitted = oodzoo.fit(store, top_k=1)
    expected = fitted.predict_proba(unseen[:3])
    model = fitted.save(tmp_path / "model")
    shutil.rmtree(folder)
    shutil.rmtree(store.path)
    np.testing.assert_array_equal(oodzoo.load(model).predict_proba(unseen[:3]), expected)
    with pytest.raises(InputError, match="comes from timm; only models that are ONNX"):
        oodzoo.load(model).export(tmp_path / "model.onnx")
    # a model of a hub has no files: what is loaded is known by its fingerprint
    _edit(model, lambda document: document["networks"][0].update(fingerprint="0" * 64))
    with pytest.raises(InputError, match=r"fitted with 000000000000…; its weights have changed"):
        oodzoo.load(model).predict(unseen[:1])


def test_a_model_of_a_hub_is_named_by_its_id(
    digits: Path, timm_folder: Path, extract: Any, tmp_path: Path
) -> None:
    store = extract(digits, [_timm_spec(timm_folder)], tmp_path / "store")
    fitted = oodzoo.fit(store, top_k=1)
    (network,) = fitted.models
    hub = ModelSpec(name="tiny", source="timm/hf-hub:owner/tiny")
    fitted.models = (type(network)(**{**vars(network), "spec": hub}),)
    model = fitted.save(tmp_path / "model")
    (entry,) = json.loads((model / "predictor.json").read_text())["networks"]
    assert (entry["source"], entry["files"]) == ("timm/hf-hub:owner/tiny", {})
    assert entry["fingerprint"] == store.model("tiny").fingerprint


def test_another_size_than_the_models_own_is_found_again(
    digits: Path, unseen: list[Path], timm: Any, extract: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "cnn"
    network = timm.create_model("test_resnet.r160_in1k")
    timm.models._hub.save_for_hf(network, folder, safe_serialization="both")
    stated = {"input_size": 64, "mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}
    spec = ModelSpec(**{**vars(_timm_spec(folder)), **stated})
    fitted = oodzoo.fit(extract(digits, [spec], tmp_path / "store"), top_k=1)
    assert fitted.models[0].preprocessing.geometry.crop == (64, 64)
    model = fitted.save(tmp_path / "model")
    assert not list(model.rglob("*.bin"))
    loaded = oodzoo.load(model)
    expected = fitted.predict_proba(unseen[:2])
    np.testing.assert_array_equal(loaded.predict_proba(unseen[:2]), expected)
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"holds no .safetensors file, and a predictor takes no"):
        fitted.save(tmp_path / "other")
    assert not list(tmp_path.glob(".tmp*"))

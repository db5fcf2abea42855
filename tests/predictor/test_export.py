"""Exporting a predictor as one ONNX file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image

import oodzoo
from oodzoo import InputError
from oodzoo.errors import MissingPackageError
from oodzoo.predictor import resizing
from oodzoo.zoo import ModelSpec

onnx = pytest.importorskip("onnx", reason='joining graphs needs onnx: pip install "oodzoo[onnx]"')


def _run(file: Path, predictor: oodzoo.Predictor, images: list[Path]) -> Any:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return session.run(["probabilities"], predictor.preprocess(images))[0]


def _changed(spec: ModelSpec, folder: Path, name: str, change: Callable[[Any], Any]) -> ModelSpec:
    """A changed copy of a model, with its own name."""
    folder.mkdir(exist_ok=True)
    onnx.save(change(onnx.load(spec.file)), folder / f"{name}.onnx")
    fields = {"name": name, "source": f"onnx/{name}.onnx", "folder": folder, "sha256": None}
    return ModelSpec(**{**vars(spec), **fields})


def test_the_file_equals_the_predictor(
    predictor: oodzoo.Predictor, unseen: list[Path], tmp_path: Path
) -> None:
    file = predictor.export(tmp_path / "model.onnx")
    for images in (unseen, unseen[:1]):
        found = _run(file, predictor, images)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, predictor.predict_proba(images), atol=1e-5)
    model = onnx.load(file)
    assert [value.name for value in model.graph.input] == ["pixels"]
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(facts["classes"]) == ["0", "1", "2"]
    assert json.loads(facts["inputs"])["pixels"]["crop"] == [32, 32]
    assert json.loads(facts["predictor"]) == json.loads(json.dumps(predictor.to_dict()))


def test_heads_of_the_models_are_left_out(predictor: oodzoo.Predictor, tmp_path: Path) -> None:
    exported = onnx.load(predictor.export(tmp_path / "model.onnx"))
    whole = [onnx.load(model.spec.file) for model in predictor.loadable_models]
    assert all(len(proto.graph.output) == 2 for proto in whole)  # features and logits
    names = {name for node in exported.graph.node for name in node.output}
    assert not any(name.endswith("_logits") for name in names)


def test_models_of_other_sizes_opsets_types_and_shapes(
    digits: Path, unseen: list[Path], zoo: list[ModelSpec], extract: Any, tmp_path: Path
) -> None:
    def older(model: Any) -> Any:
        model.opset_import[0].version = 15  # its operators are the same there
        return model

    def maps(model: Any) -> Any:
        """The feature map (n, d, height, width) before the pooling as features."""
        (pool,) = [n for n in model.graph.node if list(n.output) == ["features"]]
        del model.graph.output[:]
        value = onnx.helper.make_tensor_value_info(pool.input[0], 1, ["n", None, None, None])
        model.graph.output.append(value)
        return model

    def free(model: Any) -> Any:
        """An input of any size."""
        for axis in (2, 3):
            model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = f"side{axis}"
        return model

    def output(spec: ModelSpec) -> ModelSpec:
        (name,) = (value.name for value in onnx.load(spec.file).graph.output)
        return ModelSpec(**{**vars(spec), "features": name, "logits": None})

    folder = tmp_path / "zoo"
    resnet, separable, mlp = zoo
    specs = [
        _changed(mlp, folder, "older", older),
        output(_changed(separable, folder, "maps", maps)),
        ModelSpec(**{**vars(_changed(resnet, folder, "large", free)), "input_size": 48}),
    ]
    store = extract(digits, specs, tmp_path / "store")
    fitted = oodzoo.fit(store, models=["older", "maps", "large"])
    file = fitted.export(tmp_path / "model.onnx")
    inputs = {value.name for value in onnx.load(file).graph.input}
    assert inputs == set(fitted.preprocess(unseen[:1])) == {"pixels_32x32", "pixels_48x48"}
    np.testing.assert_allclose(_run(file, fitted, unseen), fitted.predict_proba(unseen), atol=1e-5)


def test_a_model_for_one_batch_size(
    digits: Path, unseen: list[Path], zoo: list[ModelSpec], extract: Any, tmp_path: Path
) -> None:
    def fixed(size: int) -> Callable[[Any], Any]:
        def change(model: Any) -> Any:
            for value in (*model.graph.input, *model.graph.output):
                value.type.tensor_type.shape.dim[0].dim_value = size
            return model

        return change

    specs = [
        _changed(zoo[0], tmp_path / "zoo", "four", fixed(4)),
        _changed(zoo[1], tmp_path / "zoo", "two", fixed(2)),
    ]
    store = extract(digits, [*specs, zoo[2]], tmp_path / "store")
    fitted = oodzoo.fit(store, models=["four", zoo[2].name])
    file = fitted.export(tmp_path / "model.onnx")
    np.testing.assert_allclose(
        _run(file, fitted, unseen[:4]), fitted.predict_proba(unseen[:4]), atol=1e-5
    )
    apart = oodzoo.fit(store, models=["four", "two"])
    with pytest.raises(InputError, match="'two' has a fixed batch size of 2, another one of 4"):
        apart.export(tmp_path / "other.onnx")


def _run_raw(file: Path, images: list[Any]) -> Any:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    found = [session.run(None, {"image": np.asarray(image)})[0] for image in images]
    return np.concatenate(found)


def test_the_raw_form(
    digits: Path, unseen: list[Path], zoo: list[ModelSpec], extract: Any, tmp_path: Path
) -> None:
    geometries: list[dict[str, Any]] = [
        {"resize": (36, 36), "crop": (32, 32), "fit": "cover", "interpolation": "bicubic"},
        {"resize": (32, 32), "crop": (32, 32), "fit": "contain", "fill": 128},
    ]
    specs = [
        zoo[0],
        *(replace(each, geometry=g) for each, g in zip(zoo[1:], geometries, strict=True)),
    ]
    store = extract(digits, specs, tmp_path / "store")
    fitted = oodzoo.fit(store, models=[spec.name for spec in specs])
    file = fitted.export(tmp_path / "model.onnx", raw=True)
    images = [Image.open(path).convert("RGB") for path in unseen[:6]]
    sizes = [(32, 32), (70, 41), (45, 130), (20, 20), (33, 90), (64, 64)]
    images = [image.resize(size) for image, size in zip(images, sizes, strict=True)]
    found = _run_raw(file, images)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, fitted.predict_proba(images), atol=0.02)
    model = onnx.load(file)
    assert [value.name for value in model.graph.input] == ["image"]
    assert [d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim] == [1, 3]
    facts = {entry.key: entry.value for entry in model.metadata_props}
    described = json.loads(facts["inputs"])["image"]["geometries"]
    assert [each["fit"] for each in described] == ["squash", "cover", "contain"]
    assert fitted.export_inputs(raw=True) == {"image": ("height", "width", 3)}


def test_errors_of_the_raw_form(
    digits: Path,
    zoo: list[ModelSpec],
    predictor: oodzoo.Predictor,
    extract: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def fixed(model: Any) -> Any:
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.shape.dim[0].dim_value = 4
        return model

    lanczos = {"resize": (32, 32), "crop": (32, 32), "interpolation": "lanczos"}
    specs = [replace(zoo[0], geometry=lanczos), _changed(zoo[1], tmp_path / "zoo", "four", fixed)]
    store = extract(digits, specs, tmp_path / "store")
    for spec, message in zip(
        specs, ("resizes images with 'lanczos'", "batch size of 4, but the raw form"), strict=True
    ):
        with pytest.raises(InputError, match=f"model '{spec.name}' .*{message}.*without --raw"):
            oodzoo.fit(store, models=[spec.name]).export(tmp_path / "model.onnx", raw=True)
    with pytest.raises(InputError, match="the head takes features, not an image"):
        predictor.export(tmp_path / "model.onnx", head_only=True, raw=True)
    monkeypatch.setitem(resizing._MODES, "bilinear", {"mode": "nearest"})
    with pytest.raises(
        InputError, match=r"pixels that the ONNX file resizes differ by .* 1\.0; no"
    ):
        predictor.export(tmp_path / "model.onnx", raw=True)
    assert not (tmp_path / "model.onnx").exists()


def test_export_errors(
    predictor: oodzoo.Predictor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="is a folder; name a file"):
        predictor.export(tmp_path)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackageError, match=r'needs the package onnx.*"oodzoo\[onnx\]"'):
        predictor.export(tmp_path / "model.onnx")


def test_a_file_that_differs_is_not_changed(folder: Path, tmp_path: Path) -> None:
    other = oodzoo.load(folder, device="cpu")
    other.loaded()
    other.head = replace(other.head, weights=1000 * other.head.weights)  # extreme probabilities
    # change the file of a model after it was loaded
    one = other.loadable_models[0].spec.file
    changed = onnx.load(one)
    for tensor in changed.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.ndim == 4:  # a convolution
            flipped = np.ascontiguousarray(array[..., ::-1])
            tensor.CopyFrom(onnx.numpy_helper.from_array(flipped, tensor.name))
    onnx.save(changed, one)
    with pytest.raises(InputError, match=r"outputs of the ONNX file differ by .*no file was"):
        other.export(tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()

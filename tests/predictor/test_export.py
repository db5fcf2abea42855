"""Exporting a predictor as one ONNX file: from pixels, from an image, and its head alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from tests.predictor.data import DOMAINS, Y, changed

import oodzoo
from oodzoo import InputError
from oodzoo.predictor import resizing
from oodzoo.zoo import ModelSpec

onnx = pytest.importorskip("onnx", reason='joining graphs needs onnx: pip install "oodzoo[onnx]"')

PAGE = Path(__file__).parents[2] / "docs" / "predictor.md"
GUARD = """
import sys
for name in ("oodzoo", "torch", "onnx"):
    sys.modules[name] = None  # importing it is an error
"""


def outputs(file: Path, given: dict[str, Any]) -> Any:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return session.run(["probabilities"], given)[0]


def facts(file: Path) -> dict[str, Any]:
    found = {entry.key: entry.value for entry in onnx.load(file).metadata_props}
    return {key: json.loads(found[key]) for key in ("classes", "inputs", "predictor")}


def copied(spec: ModelSpec, folder: Path, name: str, change: Callable[[Any], Any]) -> ModelSpec:
    """A changed copy of a model, with its own name."""
    folder.mkdir(exist_ok=True)
    onnx.save(change(onnx.load(spec.file)), folder / f"{name}.onnx")
    fields = {"name": name, "source": f"onnx/{name}.onnx", "folder": folder, "sha256": None}
    return ModelSpec(**{**vars(spec), **fields})


def fixed(size: int) -> Callable[[Any], Any]:
    """Of one batch size."""

    def change(model: Any) -> Any:
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.shape.dim[0].dim_value = size
        return model

    return change


def test_the_file_equals_the_predictor(
    predictor: oodzoo.Predictor, unseen: list[Path], tmp_path: Path
) -> None:
    file = predictor.export(tmp_path / "model.onnx")
    for images in (unseen, unseen[:1]):
        pixels = predictor.preprocess(images)
        shapes = {name: each.shape[1:] for name, each in pixels.items()}
        assert shapes == predictor.export_inputs() == {"pixels": (32, 32, 3)}
        found = outputs(file, pixels)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, predictor.predict_proba(images), atol=1e-5)
    model = onnx.load(file)
    assert [value.name for value in model.graph.input] == ["pixels"]
    assert facts(file)["classes"] == ["0", "1", "2"]
    assert facts(file)["inputs"]["pixels"]["crop"] == [32, 32]
    assert facts(file)["predictor"] == json.loads(json.dumps(predictor.to_dict()))
    names = {name for node in model.graph.node for name in node.output}
    assert not any(name.endswith("_logits") for name in names)  # heads of models are left out


def test_large_photos_are_decoded_as_for_predictions(
    predictor: oodzoo.Predictor, unseen: list[Path], tmp_path: Path
) -> None:
    photo = tmp_path / "photo.jpg"
    with Image.open(unseen[0]) as image:
        noise = np.random.default_rng(0).integers(0, 60, (400, 400, 3), np.uint8)
        Image.fromarray(np.asarray(image.convert("RGB").resize((400, 400))) // 2 + noise).save(
            photo
        )
    file = predictor.export(tmp_path / "model.onnx")
    reduced = predictor.preprocess([photo])
    found = outputs(file, reduced)
    np.testing.assert_allclose(found, predictor.predict_proba([photo]), atol=1e-5)
    with Image.open(photo) as image:
        whole = predictor.preprocess([image.convert("RGB")])  # as it is given
    assert not np.array_equal(reduced["pixels"], whole["pixels"])
    exact = [
        replace(model, preprocessing=model.preprocessing.decoding("full"))
        for model in predictor.loadable_models
    ]
    pixels = changed(predictor, models=exact).preprocess([photo])
    np.testing.assert_array_equal(pixels["pixels"], whole["pixels"])


def test_models_of_other_sizes_opsets_types_and_shapes(
    unseen: list[Path], zoo: list[ModelSpec], fit_models: Any, tmp_path: Path
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

    folder = tmp_path / "zoo"
    resnet, separable, mlp = zoo
    mapped = copied(separable, folder, "maps", maps)
    (name,) = (value.name for value in onnx.load(mapped.file).graph.output)
    specs = [
        copied(mlp, folder, "older", older),
        replace(mapped, features=name, logits=None),
        replace(copied(resnet, folder, "large", free), input_size=48),
    ]
    fitted = fit_models(specs)
    file = fitted.export(tmp_path / "model.onnx")
    inputs = {value.name for value in onnx.load(file).graph.input}
    pixels = fitted.preprocess(unseen)
    assert inputs == set(pixels) == {"pixels_32x32", "pixels_48x48"}
    np.testing.assert_allclose(outputs(file, pixels), fitted.predict_proba(unseen), atol=1e-5)


def test_fixed_batch_sizes_and_what_is_not_written(
    predictor: oodzoo.Predictor,
    folder: Path,
    unseen: list[Path],
    zoo: list[ModelSpec],
    fit_models: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    file = tmp_path / "out" / "model.onnx"
    file.parent.mkdir()
    sizes = [copied(zoo[at], tmp_path / "zoo", f"n{n}", fixed(n)) for at, n in ((0, 4), (1, 2))]
    lanczos = {"resize": (32, 32), "crop": (32, 32), "interpolation": "lanczos"}
    odd = replace(zoo[0], geometry=lanczos)
    fitted = fit_models([*sizes, zoo[2], odd], "n4", zoo[2].name)
    found = outputs(fitted.export(tmp_path / "model.onnx"), fitted.preprocess(unseen[:4]))
    np.testing.assert_allclose(found, fitted.predict_proba(unseen[:4]), atol=1e-5)

    def refused(says: str, exported: oodzoo.Predictor, **options: Any) -> None:
        with pytest.raises(InputError, match=says):
            exported.export(options.pop("to", file), **options)

    store = tmp_path / "store of models"
    for models, options, says in (
        (["n4", "n2"], {}, "'n2' has a fixed batch size of 2, another one of 4"),
        (["n4"], {"raw": True}, "model 'n4' .*batch size of 4, but the raw form.*without --raw"),
        ([odd.name], {"raw": True}, "model .*resizes images with 'lanczos'.*without --raw"),
    ):
        refused(says, oodzoo.fit(store, models=models), **options)
    refused("head takes features, not an image", predictor, head_only=True, raw=True)
    for head_only in (False, True):
        refused("is a folder; name a file, such", predictor, to=tmp_path, head_only=head_only)
    with monkeypatch.context() as patch:
        patch.setitem(resizing._MODES, "bilinear", {"mode": "nearest"})
        refused(r"pixels that the ONNX file resizes differ by .* 1\.0; n", predictor, raw=True)
    other = oodzoo.load(folder, device="cpu")
    other.loaded()
    other.head = replace(other.head, weights=1000 * other.head.weights)  # extreme probabilities
    one = other.loadable_models[0].spec.file  # which changes after it was loaded
    proto = onnx.load(one)
    for tensor in proto.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.ndim == 4:  # a convolution
            flipped = np.ascontiguousarray(array[..., ::-1])
            tensor.CopyFrom(onnx.numpy_helper.from_array(flipped, tensor.name))
    onnx.save(proto, one)
    refused("outputs of the ONNX file differ by .*no file was", other)
    assert not list(file.parent.iterdir())
    monkeypatch.setitem(sys.modules, "onnx", None)
    refused(r'needs the package onnx.*"oodzoo\[onnx\]"', predictor)


def test_the_raw_form(
    unseen: list[Path], zoo: list[ModelSpec], fit_models: Any, tmp_path: Path
) -> None:
    geometries: list[dict[str, Any]] = [
        {"resize": (36, 36), "crop": (32, 32), "fit": "cover", "interpolation": "bicubic"},
        {"resize": (32, 32), "crop": (32, 32), "fit": "contain", "fill": 128},
    ]
    pairs = zip(zoo[1:], geometries, strict=True)
    specs = [zoo[0], *(replace(each, geometry=geometry) for each, geometry in pairs)]
    fitted = fit_models(specs)
    file = fitted.export(tmp_path / "model.onnx", raw=True)
    sizes = [(32, 32), (70, 41), (45, 130), (20, 20), (33, 90), (64, 64)]
    images = [Image.open(path).convert("RGB") for path in unseen[:6]]
    images = [image.resize(size) for image, size in zip(images, sizes, strict=True)]
    found = [outputs(file, {"image": np.asarray(image)}) for image in images]
    assert [each.shape for each in found] == [(1, 3)] * 6
    np.testing.assert_allclose(np.concatenate(found), fitted.predict_proba(images), atol=0.02)
    described = facts(file)["inputs"]["image"]["geometries"]
    assert [each["fit"] for each in described] == ["squash", "cover", "contain"]
    assert fitted.export_inputs(raw=True) == {"image": ("height", "width", 3)}


@pytest.mark.filterwarnings("ignore:.*the mean of the features is")
@pytest.mark.parametrize(("choose", "offset"), [("pool", 1e4), ("selection", 0), ("ensemble", 1e4)])
def test_heads_of_any_choice_and_offset(choose: str, offset: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = 10.0 ** np.arange(-3, 4) * (rng.normal(size=(90, 7)) + (Y == "yes")[:, None] + offset)
    features = {"probabilities": X, "oodzoo_concatenated": X[:, ::2] ** 2 / 1e4, "a/b: c": -X}
    predictor = oodzoo.fit(features, Y, DOMAINS, choose=choose)
    file = predictor.export(tmp_path / "head.onnx")
    reserved = {name: f"features_{name}" for name in ("probabilities", "oodzoo_concatenated")}
    names = {model.name: reserved.get(model.name, model.name) for model in predictor.models}
    given = {names[name]: np.float32(features[name]) for name in names}
    assert set(predictor.export_inputs()) == set(given)
    np.testing.assert_allclose(outputs(file, given), predictor.predict_proba(features), atol=1e-5)


def test_examples_of_the_documentation_need_no_oodzoo(
    predictor: oodzoo.Predictor, unseen: list[Path], tmp_path: Path
) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("### Without oodzoo")[2]
    examples = re.findall(r"```python\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    assert len(examples) == 1  # tests/docs runs that of the raw form
    predictor.export(tmp_path / "model.onnx")
    with Image.open(unseen[0]) as image:
        image.convert("RGB").resize((70, 50)).save(tmp_path / "photo.jpg")
    expected = predictor.predict([tmp_path / "photo.jpg"]).tolist()
    for example in examples:
        command = [sys.executable, "-c", GUARD + example]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == expected

"""A predictor as one PyTorch module: the same logits, ready to train."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from tests.small_clip import small_clip
from tests.zoo.small_onnx import require_converter

import oodzoo
from oodzoo.errors import InputError
from oodzoo.task import Kind
from oodzoo.zoo import ModelSpec

onnx = require_converter()
TOLERANCE = 1e-4


def tensors(predictor: oodzoo.Predictor, images: list[Path]) -> dict[str, Any]:
    torch: Any = import_module("torch")
    return {name: torch.from_numpy(array) for name, array in predictor.preprocess(images).items()}


def probabilities(module: Any, inputs: Any) -> Any:
    torch: Any = import_module("torch")
    with torch.no_grad():
        return module(inputs).softmax(1).numpy()


def require_gradients(module: Any, inputs: Any) -> None:
    (module(inputs) ** 2).nan_to_num(posinf=0).sum().backward()
    for name, weight in module.named_parameters():
        assert weight.grad is not None or not weight.requires_grad, name
    assert module.head.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("choose", ["single", "pool", "ensemble", "selection"])
def test_the_module_equals_the_predictor(
    choose: Any, store: oodzoo.FeatureStore, unseen: list[Path]
) -> None:
    predictor = oodzoo.fit(store, choose=choose)
    module = predictor.to_torch()
    inputs = tensors(predictor, unseen)
    expected = predictor.predict_proba(unseen)
    np.testing.assert_allclose(probabilities(module, inputs), expected, atol=TOLERANCE)
    (pixels,) = inputs.values()
    for other in (pixels, pixels.float()):
        np.testing.assert_allclose(probabilities(module, other), expected, atol=TOLERANCE)
    require_gradients(module, pixels)
    assert all(weight.requires_grad for weight in module.parameters())
    np.testing.assert_array_equal(predictor.predict_proba(unseen), expected)


def test_selected_columns_of_a_loaded_predictor(saved: Path, unseen: list[Path]) -> None:
    predictor = oodzoo.load(saved, device="cpu")
    kept = sum(len(columns) for columns in predictor.columns.by_model.values())
    assert kept < sum(model.feature_dim for model in predictor.models)
    module = predictor.to_torch()
    assert module.head.in_features == kept
    found = probabilities(module, tensors(predictor, unseen))
    np.testing.assert_allclose(found, predictor.predict_proba(unseen), atol=TOLERANCE)


def test_several_sizes_and_layers_of_one_network(
    digits: Path, unseen: list[Path], zoo: list[ModelSpec], extract: Any, tmp_path: Path
) -> None:
    torch: Any = import_module("torch")
    proto = onnx.load(zoo[0].file)
    for axis in (2, 3):
        proto.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = f"side{axis}"
    onnx.save(proto, tmp_path / "large.onnx")
    fields = {"name": "large", "source": "onnx/large.onnx", "folder": tmp_path, "sha256": None}
    large = ModelSpec(**{**vars(zoo[0]), **fields, "input_size": 48})
    (layer,) = oodzoo.load_zoo("demo/separable_glyphs_colour@t53")
    specs = [replace(layer, folder=zoo[1].folder), large, zoo[1]]
    store = extract(digits, specs, tmp_path / "store")
    predictor = oodzoo.fit(store, models=[spec.name for spec in specs])
    module = predictor.to_torch()
    assert len(module.networks) == 2
    inputs = tensors(predictor, unseen)
    assert set(inputs) == {"pixels_32x32", "pixels_48x48"}
    expected = predictor.predict_proba(unseen)
    np.testing.assert_allclose(probabilities(module, inputs), expected, atol=TOLERANCE)
    require_gradients(module, inputs)
    for wrong in (inputs["pixels_32x32"], {"pixels_32x32": torch.zeros(1, 32, 32, 3)}):
        with pytest.raises(InputError, match=r"takes a dict of pixels_.*; got pixels"):
            module(wrong)


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_other_tasks(kind: Kind, folder: Path, unseen: list[Path]) -> None:
    torch: Any = import_module("torch")
    predictor = oodzoo.load(folder, device="cpu")
    predictor.head = replace(predictor.head, kind=kind)
    with torch.no_grad():
        outputs = predictor.to_torch()(tensors(predictor, unseen)).numpy()
    if kind == "regression":
        expected = predictor.predict(unseen)
        np.testing.assert_allclose(outputs, expected, atol=TOLERANCE * np.abs(expected).max())
    else:
        np.testing.assert_allclose(expit(outputs), predictor.predict_proba(unseen), atol=TOLERANCE)


def test_a_class_without_samples_keeps_probability_zero(folder: Path, unseen: list[Path]) -> None:
    torch: Any = import_module("torch")
    predictor = oodzoo.load(folder, device="cpu")
    bias = predictor.head.bias.copy()
    bias[1] = -np.inf
    predictor.head = replace(predictor.head, bias=bias)
    module = predictor.to_torch()
    inputs = tensors(predictor, unseen)
    expected = predictor.predict_proba(unseen)
    np.testing.assert_allclose(probabilities(module, inputs), expected, atol=TOLERANCE)
    optimiser = torch.optim.AdamW(module.parameters(), lr=1e-3)
    for _ in range(2):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(inputs), torch.zeros(len(unseen)).long())
        loss.backward()
        optimiser.step()
    found = probabilities(module, inputs)
    assert (found[:, 1] == 0).all()
    assert np.isfinite(found).all()


def test_features_of_unit_length(digits: Path, unseen: list[Path], tmp_path: Path) -> None:
    spec = small_clip(tmp_path)
    names = {"0": "zero", "1": "one", "2": "two"}
    store = oodzoo.extract(digits, [spec], tmp_path / "store", device="cpu", class_names=names)
    predictor = oodzoo.fit(store, choose="pool")
    assert predictor.columns.normalised == {"clip"}
    found = probabilities(predictor.to_torch(), tensors(predictor, unseen))
    np.testing.assert_allclose(found, predictor.predict_proba(unseen), atol=TOLERANCE)


def test_a_timm_model_and_its_batch_norms(
    digits: Path,
    unseen: list[Path],
    timm_spec: Callable[..., ModelSpec],
    extract: Any,
    tmp_path: Path,
) -> None:
    torch: Any = import_module("torch")
    spec = timm_spec("test_resnet.r160_in1k", input_size=32)
    predictor = oodzoo.fit(extract(digits, [spec], tmp_path / "store"), choose="single")
    predictor.set_params(device="cpu")
    module = predictor.to_torch()
    inputs = tensors(predictor, unseen)
    expected = predictor.predict_proba(unseen)
    module.train()
    assert module.training
    np.testing.assert_allclose(probabilities(module, inputs), expected, atol=TOLERANCE)
    norms = [part for part in module.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    assert norms
    assert not any(norm.training for norm in norms)
    require_gradients(module, inputs)


def test_training_lowers_the_loss(predictor: oodzoo.Predictor, unseen: list[Path]) -> None:
    torch: Any = import_module("torch")
    module = predictor.to_torch().train()
    classes = predictor.classes_.tolist()
    # other labels than those that it predicts already
    labels = torch.tensor([(classes.index(path.parent.name) + 1) % 3 for path in unseen])
    inputs = tensors(predictor, unseen)
    optimiser = torch.optim.AdamW(module.parameters(), lr=1e-3)
    losses = []
    for _ in range(5):
        loss = torch.nn.functional.cross_entropy(module(inputs), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_the_module_can_be_traced_and_exported(
    predictor: oodzoo.Predictor, unseen: list[Path]
) -> None:
    torch: Any = import_module("torch")
    module = predictor.to_torch()
    (pixels,) = tensors(predictor, unseen).values()
    shapes = ({0: torch.export.Dim("n")},)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(module, (pixels[:2],))
    exported = torch.export.export(module, (pixels[:2],), dynamic_shapes=shapes).module()
    for form in (traced, exported):
        np.testing.assert_allclose(
            probabilities(form, pixels), predictor.predict_proba(unseen), atol=TOLERANCE
        )


def test_wrong_inputs(predictor: oodzoo.Predictor, unseen: list[Path]) -> None:
    module = predictor.to_torch()
    (pixels,) = tensors(predictor, unseen).values()
    with pytest.raises(InputError, match=r"pixels must be a tensor, .*; got ndarray"):
        module(predictor.preprocess(unseen))
    for wrong in (pixels.permute(0, 3, 1, 2), pixels[0]):
        with pytest.raises(InputError, match=r"pixels must be \(n, height, width, 3\), .*; got \("):
            module(wrong)
    with pytest.raises(InputError, match=r"the module takes a dict of pixels, .*; got image"):
        module({"image": pixels})


def test_predictors_without_a_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features = np.random.default_rng(0).normal(size=(40, 3))
    labels, domains = np.arange(40) % 2, np.repeat(["a", "b"], 20)
    with pytest.raises(InputError, match="have features only, and cannot be loaded: x"):
        oodzoo.fit({"x": features}, labels, domains).to_torch()
    predictor = oodzoo.load(folder, device="cpu")
    monkeypatch.setattr("oodzoo.predictor.torch_module.TOLERANCE", 0.0)
    with pytest.raises(InputError, match="the logits of the PyTorch module differ by"):
        predictor.to_torch()

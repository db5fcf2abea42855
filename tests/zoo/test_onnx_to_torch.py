"""ONNX files as modules: equal outputs, every weight a parameter, written back where it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.zoo.data import noise
from tests.zoo.small_onnx import PLAIN, SIZE, Writer, convolutions, require_converter

from oodzoo.errors import InputError
from oodzoo.zoo import ModelSpec, load_model, load_zoo
from oodzoo.zoo.layers import with_layer
from oodzoo.zoo.model import Trainable
from oodzoo.zoo.sources import load_trainable, load_trainable_network

onnx = require_converter()
PIXELS = noise(3, SIZE)


def trainable(spec: ModelSpec) -> Trainable:
    return load_trainable(spec, load_model(spec).info.preprocessing)


def outputs(made: Trainable, pixels: Any = PIXELS) -> Any:
    import torch

    with torch.no_grad():
        return made.module(torch.from_numpy(made.preprocessing.normalise(pixels))).numpy()


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def change(made: Trainable) -> None:
    """Change every weight, and every statistic of a batch norm."""
    import torch

    with torch.no_grad():
        for number, tensor in enumerate([*made.module.parameters(), *made.module.buffers()]):
            if tensor.is_floating_point() and tensor.numel() > 1:
                noise = torch.Generator().manual_seed(number)
                tensor.add_(0.1 * torch.rand(tensor.shape, generator=noise))


def require_round_trip(spec: ModelSpec, folder: Path) -> Trainable:
    """Equal outputs; changed weights are in the file that is written; gradients for all."""
    made = trainable(spec)
    assert not made.module.training
    close(outputs(made), load_model(spec)(PIXELS).features)
    before = outputs(made)
    change(made)
    changed = outputs(made)
    assert np.abs(changed - before).max() > 1e-3
    made.write_onnx(folder / "written.onnx")
    written = ModelSpec("written", "onnx/written.onnx", folder=folder, **PLAIN)
    model = load_model(written)
    close(model(PIXELS).features, changed)
    assert model.info.outputs == ("features",)
    assert made.feature_dim == model.info.feature_dim
    close(outputs(trainable(written)), changed)
    import torch

    batch = torch.from_numpy(made.preprocessing.normalise(PIXELS))
    (made.module(batch) ** 2).sum().backward()
    for name, weight in made.module.named_parameters():
        assert weight.grad is not None, name
    return made


def _gemm(writer: Writer, **attributes: Any) -> None:
    shape = (6, 6)
    writer.weight("matrix", *shape)
    writer.weight("offset", 6)
    writer.add("Gemm", "flat matrix offset", "features", **attributes)


def _plain(writer: Writer) -> None:
    _gemm(writer)


def _transposed(writer: Writer) -> None:
    _gemm(writer, transB=1)


def _scaled(writer: Writer) -> None:
    _gemm(writer, alpha=0.5, beta=2.0)


def _symmetric(writer: Writer) -> None:
    """A matrix that equals its transpose: where it goes must not depend on its values."""
    _gemm(writer)
    writer.constant("matrix", np.eye(6, dtype=np.float32))


def _products(writer: Writer) -> None:
    writer.weight("matrix", 6, 5)
    writer.weight("factor", 5)
    writer.add("MatMul", "flat matrix", "hidden")
    writer.add("Sigmoid", "hidden", "active2")
    writer.add("Mul", "active2 factor", "scaled")
    writer.weight("shift2", 1, 5)
    writer.add("Tanh", "scaled", "bent")
    writer.add("Sub", "bent shift2", "features")


def _shared(writer: Writer) -> None:
    """Two layers with the same weight, which are trained apart."""
    writer.weight("matrix", 6, 6)
    writer.add("MatMul", "flat matrix", "hidden")
    writer.add("Relu", "hidden", "active2")
    writer.add("MatMul", "active2 matrix", "features")


def _stored(writer: Writer) -> None:
    """Weights as uint8 and float16, with a cast."""
    writer.constant("codes", np.arange(36, dtype=np.uint8).reshape(6, 6))
    writer.constant("step", np.float32(0.02))
    writer.add("Cast", "codes", "numbers", to=1)
    writer.add("Mul", "numbers step", "matrix")
    writer.add("MatMul", "flat matrix", "hidden")
    writer.constant("half", np.linspace(-1, 1, 6).astype(np.float16))
    writer.add("Cast", "half", "single", to=1)
    writer.add("Add", "hidden single", "features")


def _shapes(writer: Writer) -> None:
    """A shape that is computed from the batch size, and a slice."""
    writer.add("Shape", "flat", "shape")
    writer.constant("first", np.array([0]))
    writer.constant("one", np.array([1]))
    writer.add("Slice", "shape first one", "n")
    writer.constant("sides", np.array([2, 3]))
    writer.add("Concat", "n sides", "wanted", axis=0)
    writer.add("Reshape", "flat wanted", "cube")
    writer.constant("start", np.array([-2]))
    writer.constant("stop", np.array([2**31]))
    writer.constant("axis", np.array([2]))
    writer.add("Slice", "cube start stop axis", "part")
    writer.constant("rows", np.array([0, -1]))
    writer.add("Reshape", "part rows", "features")


KINDS = (_plain, _transposed, _scaled, _symmetric, _products, _shared, _stored, _shapes)


@pytest.mark.parametrize("add", KINDS, ids=lambda kind: kind.__name__)
def test_weights_are_trained_and_written_back(
    add: Callable[[Writer], None], tmp_path: Path
) -> None:
    writer = Writer(onnx)
    convolutions(writer)
    add(writer)
    made = require_round_trip(writer.write(tmp_path / "net.onnx"), tmp_path)
    others: dict[Any, int] = {_shared: 2 * 36, _products: 30 + 5 + 5, _shapes: 0}
    n_weights = others.get(add, 36 + 6)
    # a convolution with its bias, and the scale and shift of a batch norm
    expected = 6 * 27 + 6 + 12 + n_weights
    assert sum(weight.numel() for weight in made.module.parameters()) == expected


def test_axes_as_inputs_of_a_newer_opset(tmp_path: Path) -> None:
    writer = Writer(onnx)
    convolutions(writer)
    writer.constant("axes", np.array([2, 3]))
    writer.add("ReduceMean", "normal axes", "features", keepdims=0)
    require_round_trip(writer.write(tmp_path / "net.onnx", opset=18), tmp_path)


def test_feature_maps_are_pooled(tmp_path: Path) -> None:
    writer = Writer(onnx)
    convolutions(writer)
    made = require_round_trip(writer.write(tmp_path / "net.onnx", ("normal",)), tmp_path)
    assert made.feature_dim == 6


def test_logits_are_left_out(tmp_path: Path) -> None:
    writer = Writer(onnx)
    convolutions(writer)
    writer.add("Identity", "flat", "features")
    writer.weight("matrix", 6, 9)
    writer.add("MatMul", "flat matrix", "logits")
    spec = writer.write(tmp_path / "net.onnx", ("features", "logits"))
    assert all(weight.shape != (6, 9) for weight in trainable(spec).module.parameters())


def test_a_fixed_batch_size_becomes_free(tmp_path: Path) -> None:
    writer = Writer(onnx)
    convolutions(writer)
    _plain(writer)
    require_round_trip(writer.write(tmp_path / "net.onnx", batch=2), tmp_path)


def test_names_that_are_reserved(tmp_path: Path) -> None:
    writer = Writer(onnx)
    convolutions(writer)
    writer.weight("input", 6)
    writer.add("Mul", "flat input", "features")
    writer.add("Sigmoid", "features", "other")
    require_round_trip(writer.write(tmp_path / "net.onnx", ("other",)), tmp_path)


def test_half_precision_becomes_single(tmp_path: Path) -> None:
    writer = Writer(onnx)
    convolutions(writer)
    _plain(writer)
    writer.weights = {name: array.astype(np.float16) for name, array in writer.weights.items()}
    spec = writer.write(tmp_path / "net.onnx", dtype=10)
    made = trainable(spec)
    assert {str(weight.dtype) for weight in made.module.parameters()} == {"torch.float32"}
    np.testing.assert_allclose(outputs(made), load_model(spec)(PIXELS).features, atol=0.02)


def test_layers_of_one_network(tmp_path: Path) -> None:
    import torch

    writer = Writer(onnx)
    convolutions(writer)
    _plain(writer)
    spec = writer.write(tmp_path / "net.onnx")
    specs = [with_layer(spec, "active", None), spec, replace(spec, name="again")]
    models = [load_model(each) for each in specs]
    preprocessing = models[0].info.preprocessing
    network = load_trainable_network(specs, preprocessing)
    found = network(torch.from_numpy(preprocessing.normalise(PIXELS)))
    assert len(found) == 3
    for features, model in zip(found, models, strict=True):
        close(features.detach().numpy(), model(PIXELS).features)
    require_round_trip(specs[0], tmp_path)


def test_every_model_of_the_embedded_zoo(tmp_path: Path) -> None:
    pixels = noise(2, 32)
    for spec in load_zoo("demo"):
        made = trainable(spec)
        close(outputs(made, pixels), load_model(spec)(pixels).features)


def test_an_operator_that_cannot_be_converted_is_named(tmp_path: Path) -> None:
    writer = Writer(onnx)
    convolutions(writer)
    writer.add("Hardmax", "flat", "features", axis=1)
    spec = writer.write(tmp_path / "net.onnx")
    with pytest.raises(InputError) as caught:
        trainable(spec)
    message = str(caught.value)
    assert "model 'net' cannot be trained: onnx2torch " in message
    assert "cannot convert the ONNX operator Hardmax (opset 13) to PyTorch" in message
    assert "\n" not in message


def test_a_graph_for_one_image_only(tmp_path: Path) -> None:
    writer = Writer(onnx)
    convolutions(writer)
    writer.constant("wanted", np.array([1, 6]))
    writer.add("Reshape", "flat wanted", "features")
    spec = writer.write(tmp_path / "net.onnx", batch=1)
    with pytest.raises(InputError, match="fails for a batch of two images"):
        trainable(spec)

"""ONNX files as modules: folded, converted with equal outputs, trained, written back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.zoo.data import noise
from tests.zoo.small_onnx import PLAIN, SIZE, Writer, convolutions, require_converter

from oodzoo.core.errors import InputError
from oodzoo.zoo import ModelSpec, load_model, load_zoo
from oodzoo.zoo.model import Trainable
from oodzoo.zoo.onnx_to_torch import computes_in_half, node_inputs
from oodzoo.zoo.sources import load_trainable

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
    writer.weight("matrix", 6, 6)
    writer.weight("offset", 6)
    writer.add("Gemm", "flat matrix offset", "features", **attributes)


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


def _axes(writer: Writer) -> None:
    writer.constant("axes", np.array([2, 3]))
    writer.add("ReduceMean", "normal axes", "features", keepdims=0)


KINDS: dict[str, tuple[Callable[[Writer], None], int, dict[str, Any]]] = {
    "transposed": (partial(_gemm, transB=1), 36 + 6, {}),
    "scaled": (partial(_gemm, alpha=0.5, beta=2.0), 36 + 6, {}),
    "a fixed batch size becomes free": (_gemm, 36 + 6, {"batch": 2}),
    "shared": (_shared, 2 * 36, {}),
    "stored": (_stored, 36 + 6, {}),
    "shapes": (_shapes, 0, {}),
    "axes as inputs of a newer opset": (_axes, 0, {"opset": 18}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_trained_and_written_back(kind: str, tmp_path: Path) -> None:
    add, n_weights, options = KINDS[kind]
    writer = Writer(onnx)
    convolutions(writer)
    add(writer)
    made = require_round_trip(writer.write(tmp_path / "net.onnx", **options), tmp_path)
    # a convolution with its bias, and the scale and shift of a batch norm
    expected = 6 * 27 + 6 + 12 + n_weights
    assert sum(weight.numel() for weight in made.module.parameters()) == expected


def test_every_model_of_the_embedded_zoo(tmp_path: Path) -> None:
    pixels = noise(2, 32)
    for spec in load_zoo("demo"):
        made = trainable(spec)
        close(outputs(made, pixels), load_model(spec)(pixels).features)


def test_what_cannot_be_converted(tmp_path: Path) -> None:
    operator, one = Writer(onnx), Writer(onnx)
    convolutions(operator)
    operator.add("Hardmax", "flat", "features", axis=1)
    convolutions(one)
    one.constant("wanted", np.array([1, 6]))
    one.add("Reshape", "flat wanted", "features")
    for spec, words in (
        (operator.write(tmp_path / "net.onnx"), (
            "model 'net' cannot be trained: onnx2torch .* cannot convert the ONNX operator Hardmax "
            r"\(opset 13\) to PyTorch")),
        (one.write(tmp_path / "one.onnx", batch=1), "fails for a batch of two images"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words) as caught:
            trainable(spec)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("limits", [[[-5], [-1], [1]], [[4], [0], [-1], [-2]]])
def test_slices(limits: list[list[int]], tmp_path: Path) -> None:
    writer = Writer(onnx)
    convolutions(writer)
    names = ["starts", "ends", "axes", "steps"][: len(limits)]
    for name, numbers in zip(names, limits, strict=True):
        writer.constant(name, np.array(numbers))
    writer.add("Slice", f"flat {' '.join(names)}", "features")
    spec = writer.write(tmp_path / "net.onnx")
    close(outputs(trainable(spec)), load_model(spec)(PIXELS).features)


def test_inputs_of_subgraphs_count() -> None:
    make = onnx.helper.make_node
    inner = onnx.helper.make_graph(
        [make("Add", ["outer", "outer"], ["sum"])], "then", [],
        [onnx.helper.make_tensor_value_info("sum", 1, None)],
    )  # fmt: skip
    branch = make("If", ["condition"], ["y"], then_branch=inner, else_branch=inner)
    assert set(node_inputs(branch)) == {"condition", "outer", "sum"}


@pytest.mark.parametrize(("dtype", "cast", "half"), [(1, 1, False), (10, 1, True), (1, 10, True)])
def test_graphs_that_compute_in_half_precision(
    dtype: int, cast: int, half: bool, tmp_path: Path
) -> None:
    writer = Writer(onnx)
    writer.add("Cast", "x", "features", to=cast)
    assert computes_in_half(writer.write(tmp_path / "g.onnx", dtype=dtype).file) is half

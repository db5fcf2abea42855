"""ONNX files as modules: folded, converted with equal outputs, trained, written back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.zoo.data import noise
from tests.zoo.small_onnx import PLAIN, SIZE, Writer, convolutions, require_converter

from oodzoo.core.errors import InputError
from oodzoo.zoo import ModelSpec, load_model, load_zoo
from oodzoo.zoo.model import Trainable
from oodzoo.zoo.onnx_folding import NEWEST_OPSET, folded_graph
from oodzoo.zoo.onnx_graph import computes_in_half, node_inputs, opset, pruned
from oodzoo.zoo.preprocessing import square
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


# --- constant shapes and slices, which are no tensors in the module -------------------------------


@pytest.mark.parametrize(
    "limits",
    [
        [[0], [4]],
        [[-5], [-1], [1]],
        [[0], [2**31], [-1], [2]],
        [[-1], [-(2**31)], [1], [-1]],
        [[4], [0], [-1], [-2]],
    ],
    ids=["first axis", "negative", "steps", "backwards", "backwards with steps"],
)
def test_slices(limits: list[list[int]], tmp_path: Path) -> None:
    import torch

    writer = Writer(onnx)
    convolutions(writer)
    names = ["starts", "ends", "axes", "steps"][: len(limits)]
    for name, numbers in zip(names, limits, strict=True):
        writer.constant(name, np.array(numbers))
    # the batch comes last, so that slices of the first axis keep it
    writer.add("Transpose", "flat", "turned", perm=[1, 0])
    data = "turned" if len(limits) == 2 else "flat"
    writer.add("Slice", f"{data} {' '.join(names)}", "part")
    if data == "turned":
        writer.add("Transpose", "part", "features", perm=[1, 0])
    else:
        writer.add("Identity", "part", "features")
    spec = writer.write(tmp_path / "net.onnx")
    model = load_model(spec)
    made = load_trainable(spec, model.info.preprocessing)
    batch = torch.from_numpy(made.preprocessing.normalise(PIXELS))
    expected = model(PIXELS).features
    np.testing.assert_allclose(made.module(batch).detach().numpy(), expected, atol=1e-5)


def test_a_module_with_constant_shapes_can_be_exported(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    writer = Writer(onnx)
    convolutions(writer)
    writer.constant("wanted", np.array([0, 2, 3]))
    writer.add("Reshape", "flat wanted", "cube")
    writer.add("Relu", "cube", "active2")
    writer.constant("rows", np.array([-1, 6]))
    writer.add("Reshape", "active2 rows", "features")
    spec = writer.write(tmp_path / "net.onnx")
    made = load_trainable(spec, load_model(spec).info.preprocessing)
    batch = torch.from_numpy(made.preprocessing.normalise(PIXELS))
    shapes = ({0: torch.export.Dim("n")},)
    exported = torch.export.export(made.module, (batch,), dynamic_shapes=shapes).module()
    with torch.no_grad():
        torch.testing.assert_close(exported(batch[:2]), made.module(batch[:2]))


# --- folding --------------------------------------------------------------------------------------


PREPROCESSING = square(SIZE, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def test_a_folded_graph(tmp_path: Path) -> None:
    writer = Writer(onnx)
    convolutions(writer)
    writer.constant("codes", np.arange(36, dtype=np.uint8).reshape(6, 6))
    writer.add("Cast", "codes", "matrix", to=1)
    writer.add("MatMul", "flat matrix", "hidden")
    writer.add("Shape", "hidden", "shape")
    writer.add("Reshape", "hidden shape", "again")
    writer.add("MatMul", "again matrix", "features")
    spec = writer.write(tmp_path / "net.onnx", opset=18)
    proto, outputs, reference = folded_graph(onnx, [spec, spec], PREPROCESSING)
    graph = proto.graph
    operators = [node.op_type for node in graph.node]
    assert not {"Cast", "Shape"} & set(operators)
    assert outputs == [0, 0]
    assert opset(proto) == NEWEST_OPSET
    assert opset(onnx.load_model_from_string(reference)) == 18
    assert len({node.name for node in graph.node}) == len(graph.node)
    assert [value.name for value in (*graph.input, *graph.output)] == ["input", "features"]
    weights = [name for node in graph.node for name in node.input]
    known = {tensor.name for tensor in graph.initializer}
    used = [name for name in weights if name in known]
    assert len(set(used)) == len(used), "two nodes share a weight"


def test_operators_without_an_older_form_keep_their_opset(tmp_path: Path) -> None:
    writer = Writer(onnx)
    convolutions(writer)
    writer.add("Gelu", "flat", "features")
    spec = writer.write(tmp_path / "net.onnx", opset=20)
    proto, _, _ = folded_graph(onnx, [spec], PREPROCESSING)
    assert opset(proto) == 20


# --- graphs, pruned to some outputs ---------------------------------------------------------------


FLOAT, FLOAT16 = 1, 10


def graph(*nodes: Any, outputs: tuple[str, ...], dtype: int = FLOAT) -> Any:
    """A graph with the input x (n, 3, 4, 4) and the weights w and v."""
    helper = onnx.helper
    weights = [onnx.numpy_helper.from_array(np.ones(3, np.float32), name) for name in "wv"]
    inputs = [helper.make_tensor_value_info("x", dtype, ["n", 3, 4, 4])]
    infos = [helper.make_tensor_value_info(name, dtype, None) for name in outputs]
    made = helper.make_graph(list(nodes), "g", inputs, infos, weights)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 13)])


def nodes() -> list[Any]:
    make = onnx.helper.make_node
    return [
        make("GlobalAveragePool", ["x"], ["map"]),
        make("Flatten", ["map"], ["features"]),
        make("Mul", ["features", "w"], ["hidden"]),
        make("Add", ["hidden", "v"], ["logits"]),
    ]


def test_nodes_and_weights_that_are_not_needed_are_left_out() -> None:
    whole = graph(*nodes(), outputs=("logits", "features"))
    left = pruned(whole, ["features"]).graph
    assert [node.op_type for node in left.node] == ["GlobalAveragePool", "Flatten"]
    assert [value.name for value in left.output] == ["features"]
    assert not left.initializer
    kept = pruned(graph(*nodes(), outputs=("logits", "features")), ["logits", "features"]).graph
    assert len(kept.node) == 4
    assert {tensor.name for tensor in kept.initializer} == {"w", "v"}


def test_inputs_of_subgraphs_count() -> None:
    make = onnx.helper.make_node
    inner = onnx.helper.make_graph(
        [make("Add", ["outer", "outer"], ["sum"])], "then", [],
        [onnx.helper.make_tensor_value_info("sum", FLOAT, None)],
    )  # fmt: skip
    branch = make("If", ["condition"], ["y"], then_branch=inner, else_branch=inner)
    assert set(node_inputs(branch)) == {"condition", "outer", "sum"}


@pytest.mark.parametrize(
    ("dtype", "cast", "half"),
    [(FLOAT, FLOAT, False), (FLOAT16, FLOAT, True), (FLOAT, FLOAT16, True)],
)
def test_graphs_that_compute_in_half_precision(
    dtype: int, cast: int, half: bool, tmp_path: Path
) -> None:
    node = onnx.helper.make_node("Cast", ["x"], ["y"], to=cast)
    onnx.save(graph(node, outputs=("y",), dtype=dtype), tmp_path / "g.onnx")
    assert computes_in_half(tmp_path / "g.onnx") is half

"""ONNX models: valid files run, and every kind of invalid file is rejected in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.zoo.data import noise

from oodzoo.core.errors import InputError
from oodzoo.zoo import ModelSpec, load_model
from oodzoo.zoo.onnx_model import (
    OnnxModel,
    count_parameters,
    encode,
    external_files,
    fields,
    values,
    varints,
)
from oodzoo.zoo.preprocessing import Geometry

onnx = pytest.importorskip("onnx")
helper: Any = onnx.helper
FLOAT, FLOAT16, INT64 = 1, 10, 7
IMAGES = ["n", 3, 8, 8]


def node(operator: str, inputs: str, output: str, **attributes: Any) -> Any:
    """`inputs` are separated by spaces."""
    return helper.make_node(operator, inputs.split(), [output], **attributes)


def tensor(name: str, array: NDArray[Any]) -> Any:
    return onnx.numpy_helper.from_array(array, name)


def proto(
    *nodes: Any,
    inputs: dict[str, Any] | None = None,
    outputs: tuple[str, ...] = ("features",),
    weights: tuple[Any, ...] = (),
    kind: int = FLOAT,
) -> bytes:
    """A model with inputs of these shapes; outputs state only their type."""
    shapes = {"x": IMAGES} if inputs is None else inputs
    given = [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()]
    found = [helper.make_tensor_value_info(name, kind, None) for name in outputs]
    graph = helper.make_graph(nodes, "g", given, found, weights)
    opsets = [helper.make_opsetid("", 13)]
    content: bytes = helper.make_model(
        graph, opset_imports=opsets, ir_version=8
    ).SerializeToString()
    return content


MEAN = (node("GlobalAveragePool", "x", "m"), node("Flatten", "m", "features"))
KERNEL = np.random.default_rng(1).normal(size=(5, 3, 1, 1)).astype(np.float32)
Load = Callable[..., OnnxModel]
PIXELS = noise(5, 8)
COLOURS = PIXELS.mean(axis=(1, 2)) / 255


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write a model and load it."""

    def load(content: bytes, **known: Any) -> OnnxModel:
        (tmp_path / "net.onnx").write_bytes(content)
        plain: dict[str, Any] = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
        model = load_model(ModelSpec("net", "onnx/net.onnx", folder=tmp_path, **(plain | known)))
        assert isinstance(model, OnnxModel)
        return model

    return load


def test_logits(load: Load) -> None:
    content = proto(*MEAN, node("Neg", "features", "head"), outputs=("features", "head"))
    model, other, plain = (
        load(content, logits="head"),
        load(content, features="head"),
        load(content),
    )
    outputs = model(PIXELS)
    assert outputs.logits is not None
    np.testing.assert_allclose(outputs.logits, -COLOURS, atol=1e-6)
    np.testing.assert_allclose(other(PIXELS).features, -COLOURS, atol=1e-6)
    infos = [each.info for each in (model, other, plain)]
    assert [info.outputs for info in infos] == [("features", "head"), ("head",), ("features",)]
    assert [info.n_logits for info in infos] == [3, None, None]
    assert len({info.fingerprint for info in infos}) == 3


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_a_fixed_batch(load: Load, batch: int) -> None:
    model = load(proto(*MEAN, inputs={"x": [batch, 3, 8, 8]}))
    for n in (1, 2, 5):
        np.testing.assert_allclose(model(PIXELS[:n]).features, COLOURS[:n], atol=1e-6)


def test_float16(load: Load) -> None:
    features = load(proto(*MEAN, kind=FLOAT16))(PIXELS).features
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, COLOURS, atol=2e-3)


def test_mean_and_std_of_a_file_are_unknown(load: Load) -> None:
    with pytest.warns(UserWarning, match="do not contain mean and std; using ImageNet's"):
        model = load(proto(*MEAN), mean=None, std=None)
    assert model.info.preprocessing.mean == (0.485, 0.456, 0.406)


GEOMETRY: dict[str, Any] = {"resize": [12, 10], "crop": [8, 8], "fit": "cover"}


def test_a_stated_geometry(load: Load) -> None:
    def geometry(content: bytes, **known: Any) -> Geometry:
        return load(content, **known).info.preprocessing.geometry

    stated = Geometry((12, 10), (8, 8), "cover")
    assert geometry(proto(*MEAN), geometry=GEOMETRY) == stated
    assert geometry(proto(*MEAN), geometry=GEOMETRY, input_size=8) == stated
    free = proto(*MEAN, inputs={"x": ["n", 3, "height", "width"]})
    tall = {"resize": [12, 10], "crop": [12, 10]}
    assert [geometry(free, geometry=tall).crop, geometry(free).crop] == [(12, 10), (224, 224)]


def test_external_weights(tmp_path: Path, load: Load) -> None:
    """External weights are part of the fingerprint; a feature map is averaged."""
    weight = tensor("w", KERNEL)
    inside = load(proto(node("Conv", "x w", "features"), weights=(weight,)))
    np.testing.assert_allclose(inside(PIXELS).features, COLOURS @ KERNEL[:, :, 0, 0].T, atol=1e-5)
    onnx.external_data_helper.set_external_data(weight, "w.bin")
    weight.ClearField("raw_data")
    content = proto(node("Conv", "x w", "features"), weights=(weight,))
    assert external_files(content) == ["w.bin"]
    with pytest.raises(InputError, match="cannot open"):
        load(content)
    prints = {inside.info.fingerprint}
    for factor in (1, 2):
        (tmp_path / "w.bin").write_bytes((factor * KERNEL).tobytes())
        model = load(content)
        expected = COLOURS @ (factor * KERNEL[:, :, 0, 0].T)
        np.testing.assert_allclose(model(PIXELS).features, expected, atol=1e-5)
        assert (model.info.feature_dim, model.info.parameters) == (5, 15)
        prints.add(model.info.fingerprint)
    assert len(prints) == 3


def test_only_weights_are_counted() -> None:
    """Initializers and constants of any float type, but not shapes, axes or scalars."""
    weights = (
        tensor("a", np.zeros((5, 3, 3, 3), np.float32)),
        tensor("b", np.zeros(5, np.float16)),
        tensor("shape", np.array([0, -1])),
        tensor("epsilon", np.array(1e-6, np.float32)),
    )
    constant = node("Constant", "", "c", value=tensor("c", np.zeros((7, 2), np.float32)))
    number = node("Constant", "", "d", value_float=0.5)
    assert count_parameters(proto(*MEAN, constant, number, weights=weights)) == 5 * 27 + 5 + 14
    assert count_parameters(b"") == 0


def reshaped(*shape: int) -> bytes:
    constant = node("Constant", "", "s", value=tensor("s", np.array(shape)))
    return proto(constant, node("Reshape", "x s", "features"))


def taking(inputs: dict[str, Any], *nodes: Any, kind: int = FLOAT) -> bytes:
    return proto(*(nodes or (node("Identity", "x", "features"),)), inputs=inputs, kind=kind)


LARGE_KERNEL = proto(
    node("Conv", "x w", "features"),
    weights=(tensor("w", np.zeros((3, 3, 9, 9), np.float32)),),
    inputs={"x": ["n", 3, "h", "w"]},
)
TWO_OUTPUTS = proto(
    *MEAN, node("Neg", "features", "a"), node("Abs", "features", "b"), outputs=("a", "b")
)
WRONG_INPUT = "must take one float tensor (n, 3, height, width); it takes"
WRONG_SHAPE = "; expected (n, d), or a feature map (n, d, height, width)"


@pytest.mark.parametrize(
    ("content", "known", "words"),
    [
        (b"no model", {}, "onnxruntime cannot open"),
        (taking({"x": IMAGES, "y": IMAGES}, node("Add", "x y", "features")), {}, WRONG_INPUT),
        (taking({"x": ["n", 192]}), {}, WRONG_INPUT),
        (taking({"x": IMAGES}, kind=INT64), {}, WRONG_INPUT),
        (reshaped(0, 3, -1), {}, WRONG_SHAPE),
        (proto(*MEAN), {"features": "pool"}, "has no output 'pool'; it has features"),
        (TWO_OUTPUTS, {}, "has the outputs a, b; name the one with the features in a zoo file"),
        (LARGE_KERNEL, {"input_size": 4}, "cannot run on an image of 4×4 pixels"),
        (proto(*MEAN), {"input_size": 32}, "of 8×8 pixels, but its zoo file sets input_size = 32"),
        (proto(*MEAN), {"geometry": GEOMETRY | {"crop": [8, 7]}},
         "of 8×8 pixels, but its zoo file sets crop = [8, 7] in geometry"),
        (proto(*MEAN), {"geometry": GEOMETRY, "input_size": 9},
         "sets input_size = 9, but crop = [8, 8] in geometry; remove input_size"),
        (proto(*MEAN), {"geometry": GEOMETRY | {"crop": [8]}}, "model 'net': the geometry {"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used(
    load: Load, content: bytes, known: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError) as caught:
        load(content, **known)
    message = str(caught.value)
    assert message.startswith("model 'net'")
    assert words in message
    assert "\n" not in message
    assert len(message) < 500


def test_precision_other_than_float32(tmp_path: Path) -> None:
    spec = ModelSpec("a", "onnx/absent.onnx", folder=tmp_path)
    with pytest.raises(InputError, match="precision 'bfloat16' is not supported"):
        load_model(spec, precision="bfloat16")


keys = st.integers(1, 2**29 - 1)
contents = st.one_of(st.integers(0, 2**64 - 1), st.text(), st.binary())


@given(st.lists(st.tuples(keys, contents)), st.lists(st.integers(0, 2**63 - 1)))
def test_encoded_fields_are_read_back(
    pairs: list[tuple[int, int | str | bytes]], numbers: list[int]
) -> None:
    message = b"".join(encode(number, value) for number, value in pairs)
    expected = [(n, v.encode() if isinstance(v, str) else v) for n, v in pairs]
    assert [(n, v if isinstance(v, int) else bytes(v)) for n, v in fields(message)] == expected
    for number, _ in pairs:
        assert list(values(message, number)) == [v for n, v in expected if n == number]
    ((_, packed),) = fields(encode(1, b"".join(encode(0, number)[1:] for number in numbers)))
    assert list(varints(packed)) == numbers

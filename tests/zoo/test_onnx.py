"""ONNX models: valid files run, and every kind of invalid file is rejected in one line.

The small models are written here field by field as protobuf, without the `onnx` package.
"""

from __future__ import annotations

import struct
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
from oodzoo.zoo.onnx import OnnxModel, count_parameters, external_files
from oodzoo.zoo.preprocessing import Geometry
from oodzoo.zoo.protobuf import encode, fields, values, varints

FLOAT, FLOAT16, INT64 = 1, 10, 7
Shape = list[int | str]
IMAGES: Shape = ["n", 3, 8, 8]

# --- writing ----------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(key: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(key << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(key << 3 | 2) + varint(len(content)) + content


def tensor(name: str, array: NDArray[Any], location: str = "") -> bytes:
    kind = {"f4": FLOAT, "f2": FLOAT16, "i8": INT64}[array.dtype.str[1:]]
    head = b"".join(field(1, dim) for dim in array.shape) + field(2, kind) + field(8, name)
    if location:
        entry = field(13, field(1, "location") + field(2, location))
        return head + entry + field(14, 1)
    return head + field(9, array.tobytes())


def value(name: str, shape: Shape, kind: int = FLOAT) -> bytes:
    dims = b"".join(field(1, field(1 if isinstance(dim, int) else 2, dim)) for dim in shape)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


def node(operator: str, inputs: str, output: str, **attributes: Any) -> bytes:
    """`inputs` separated by spaces; attributes are numbers, lists of them, or tensors."""
    content = b"".join(field(1, name) for name in inputs.split()) + field(2, output)
    content += field(4, operator)
    for name, attribute in attributes.items():
        if isinstance(attribute, bytes):
            body = field(5, attribute) + field(20, 4)
        elif isinstance(attribute, list):
            body = b"".join(field(8, number) for number in attribute) + field(20, 7)
        elif isinstance(attribute, float):
            body = varint(2 << 3 | 5) + struct.pack("<f", attribute) + field(20, 1)
        else:
            body = field(3, attribute) + field(20, 2)
        content += field(5, field(1, name) + body)
    return content


def proto(
    *nodes: bytes,
    inputs: dict[str, bytes] | None = None,
    outputs: tuple[str, ...] = ("features",),
    weights: tuple[bytes, ...] = (),
    kind: int = FLOAT,
) -> bytes:
    given = {"x": value("x", IMAGES)} if inputs is None else inputs
    graph = b"".join(field(1, n) for n in nodes) + field(2, "g")
    graph += b"".join(field(5, w) for w in weights)
    graph += b"".join(field(11, i) for i in given.values())
    # outputs state only their type; the shape is inferred
    graph += b"".join(field(12, field(1, o) + field(2, field(1, field(1, kind)))) for o in outputs)
    return field(1, 8) + field(8, field(1, "") + field(2, 13)) + field(7, graph)


MEAN = (node("GlobalAveragePool", "x", "m"), node("Flatten", "m", "features"))


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., OnnxModel]:
    """Write a model and load it."""

    def load(content: bytes, **known: Any) -> OnnxModel:
        (tmp_path / "net.onnx").write_bytes(content)
        plain: dict[str, Any] = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
        spec = ModelSpec("net", "onnx/net.onnx", folder=tmp_path, **(plain | known))
        model = load_model(spec)
        assert isinstance(model, OnnxModel)
        return model

    return load


Load = Callable[..., OnnxModel]
PIXELS = noise(5, 8)
COLOURS = PIXELS.mean(axis=(1, 2)) / 255


# --- valid files ------------------------------------------------------------------------------


def test_feature_map_is_averaged(load: Load) -> None:
    weight = np.random.default_rng(1).normal(size=(5, 3, 1, 1)).astype(np.float32)
    model = load(proto(node("Conv", "x w", "features"), weights=(tensor("w", weight),)))
    assert (model.info.feature_dim, model.info.parameters) == (5, 15)
    expected = COLOURS @ weight[:, :, 0, 0].T
    np.testing.assert_allclose(model(PIXELS).features, expected, atol=1e-5)


def test_logits(load: Load) -> None:
    content = proto(*MEAN, node("Neg", "features", "head"), outputs=("features", "head"))
    model = load(content, logits="head")
    outputs = model(PIXELS)
    assert outputs.logits is not None
    np.testing.assert_allclose(outputs.logits, -COLOURS, atol=1e-6)
    assert model.info.n_logits == 3
    # the head can be used as features too, with a different fingerprint
    other = load(content, features="head")
    np.testing.assert_allclose(other(PIXELS).features, -COLOURS, atol=1e-6)
    assert len({n.info.fingerprint for n in (model, other, load(content))}) == 3
    assert [n.info.outputs for n in (model, other, load(content))] == [
        ("features", "head"),
        ("head",),
        ("features",),
    ]


@pytest.mark.parametrize("batch", [1, 2, 5, 7])
def test_a_fixed_batch(load: Load, batch: int) -> None:
    model = load(proto(*MEAN, inputs={"x": value("x", [batch, 3, 8, 8])}))
    for n in (1, 2, 5):
        features = model(PIXELS[:n]).features
        np.testing.assert_allclose(features, COLOURS[:n], atol=1e-6)


def test_float16(load: Load) -> None:
    model = load(proto(*MEAN, inputs={"x": value("x", IMAGES, FLOAT16)}, kind=FLOAT16))
    features = model(PIXELS).features
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, COLOURS, atol=2e-3)


def test_mean_and_std_of_a_file_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(proto(*MEAN))
    with pytest.warns(UserWarning, match="do not contain mean and std; using ImageNet's"):
        model = load_model(ModelSpec("net", "onnx/net.onnx", folder=tmp_path))
    assert model.info.preprocessing.mean == (0.485, 0.456, 0.406)


# --- geometry -----------------------------------------------------------------------------------

GEOMETRY: dict[str, Any] = {"resize": [12, 10], "crop": [8, 8], "fit": "cover"}


def test_a_stated_geometry(load: Load) -> None:
    found = load(proto(*MEAN), geometry=GEOMETRY).info.preprocessing.geometry
    assert found == Geometry((12, 10), (8, 8), "cover")
    assert load(proto(*MEAN), geometry=GEOMETRY, input_size=8).info.preprocessing.geometry == found
    free = value("x", ["n", 3, "height", "width"])
    tall = {"resize": [12, 10], "crop": [12, 10]}
    model = load(proto(*MEAN, inputs={"x": free}), geometry=tall)
    assert model.info.preprocessing.geometry.crop == (12, 10)
    assert load(proto(*MEAN, inputs={"x": free})).info.preprocessing.geometry.crop == (224, 224)


# --- invalid files ------------------------------------------------------------------------------


def reshaped(*shape: int) -> bytes:
    constant = tensor("s", np.array(shape))
    return proto(node("Constant", "", "s", value=constant), node("Reshape", "x s", "features"))


def taking(inputs: dict[str, bytes], *nodes: bytes, kind: int = FLOAT) -> bytes:
    return proto(*(nodes or (node("Identity", "x", "features"),)), inputs=inputs, kind=kind)


LARGE_KERNEL = proto(
    node("Conv", "x w", "features"),
    weights=(tensor("w", np.zeros((3, 3, 9, 9), np.float32)),),
    inputs={"x": value("x", ["n", 3, "h", "w"])},
)
TWO_OUTPUTS = proto(
    *MEAN, node("Neg", "features", "a"), node("Abs", "features", "b"), outputs=("a", "b")
)
TWO_INPUTS = {"x": value("x", IMAGES), "y": value("y", IMAGES)}
CONSTANT = node("Constant", "", "features", value=tensor("c", np.ones((1, 3), np.float32)))
WRONG_INPUT = "must take one float tensor (n, 3, height, width); it takes"
WRONG_SHAPE = "; expected (n, d), or a feature map (n, d, height, width)"


@pytest.mark.parametrize(
    ("content", "known", "words"),
    [
        (b"", {}, "onnxruntime cannot open"),
        (b"no model", {}, "onnxruntime cannot open"),
        (proto(*MEAN)[:-20], {}, "onnxruntime cannot open"),
        (proto(node("NoSuchOperator", "x", "features")), {}, "onnxruntime cannot open"),
        (taking(TWO_INPUTS, node("Add", "x y", "features")), {}, WRONG_INPUT),
        (taking({"x": value("x", ["n", 1, 8, 8])}, *MEAN), {}, WRONG_INPUT),
        (taking({"x": value("x", ["n", 8, 8, 3])}, *MEAN), {}, WRONG_INPUT),
        (taking({"x": value("x", ["n", 192])}), {}, WRONG_INPUT),
        (taking({"x": value("x", IMAGES, INT64)}, kind=INT64), {}, WRONG_INPUT),
        (taking({}, CONSTANT), {}, WRONG_INPUT),
        (reshaped(0, 3, -1), {}, WRONG_SHAPE),
        (reshaped(-1), {}, WRONG_SHAPE),
        (reshaped(0, 3, 2, 2, -1), {}, WRONG_SHAPE),
        (proto(*MEAN), {"features": "pool"}, "has no output 'pool'; it has features"),
        (proto(*MEAN), {"logits": "fc"}, "has no output 'fc'"),
        (TWO_OUTPUTS, {}, "has the outputs a, b; name the one with the features in a zoo file"),
        (LARGE_KERNEL, {"input_size": 4}, "cannot run on an image of 4×4 pixels"),
        (proto(*MEAN), {"input_size": 32}, "of 8×8 pixels, but its zoo file sets input_size = 32"),
        (
            proto(*MEAN),
            {"geometry": GEOMETRY | {"crop": [8, 7]}},
            "of 8×8 pixels, but its zoo file sets crop = [8, 7] in geometry",
        ),
        (
            proto(*MEAN),
            {"geometry": GEOMETRY, "input_size": 9},
            "sets input_size = 9, but crop = [8, 8] in geometry; remove input_size",
        ),
        (proto(*MEAN), {"geometry": GEOMETRY | {"crop": [8]}}, "model 'net': the geometry {"),
    ],
)
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


# --- weights ----------------------------------------------------------------------------------


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
    content = proto(*MEAN, constant, number, weights=weights)
    assert count_parameters(content) == 5 * 27 + 5 + 14
    assert count_parameters(b"") == 0


def test_external_weights(tmp_path: Path, load: Load) -> None:
    """External weights are part of the fingerprint."""
    weight = np.random.default_rng(1).normal(size=(5, 3, 1, 1)).astype(np.float32)
    content = proto(node("Conv", "x w", "features"), weights=(tensor("w", weight, "w.bin"),))
    assert external_files(content) == ["w.bin"]
    with pytest.raises(InputError, match="cannot open"):
        load(content)
    prints = []
    for factor in (1, 2):
        (tmp_path / "w.bin").write_bytes((factor * weight).tobytes())
        model = load(content)
        expected = COLOURS @ (factor * weight[:, :, 0, 0].T)
        np.testing.assert_allclose(model(PIXELS).features, expected, atol=1e-5)
        assert model.info.parameters == 15
        prints.append(model.info.fingerprint)
    assert prints[0] != prints[1]


# --- the wire format ------------------------------------------------------------------------------


numbers = st.integers(1, 2**29 - 1)
contents = st.one_of(st.integers(0, 2**64 - 1), st.text(), st.binary())


@given(st.lists(st.tuples(numbers, contents)))
def test_encoded_fields_are_read_back(pairs: list[tuple[int, int | str | bytes]]) -> None:
    message = b"".join(encode(number, value) for number, value in pairs)
    expected = [(n, v.encode() if isinstance(v, str) else v) for n, v in pairs]
    assert [(n, v if isinstance(v, int) else bytes(v)) for n, v in fields(message)] == expected
    for number, _ in pairs:
        assert list(values(message, number)) == [v for n, v in expected if n == number]


@given(st.lists(st.integers(0, 2**63 - 1)))
def test_packed_numbers(found: list[int]) -> None:
    ((_, packed),) = fields(encode(1, b"".join(encode(0, number)[1:] for number in found)))
    assert list(varints(packed)) == found

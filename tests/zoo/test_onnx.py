"""ONNX models: valid files run, and every kind of invalid file is rejected in one line.

The small models are written here field by field as protobuf, without the `onnx` package.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from tests.zoo.data import noise

import oodzoo
from oodzoo.errors import InputError
from oodzoo.zoo import ModelSpec, load_model, load_zoo
from oodzoo.zoo.onnx import OnnxModel, count_parameters, external_files
from oodzoo.zoo.preprocessing import Geometry

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
    for name, given in attributes.items():
        if isinstance(given, bytes):
            body = field(5, given) + field(20, 4)
        elif isinstance(given, list):
            body = b"".join(field(8, number) for number in given) + field(20, 7)
        elif isinstance(given, float):
            body = varint(2 << 3 | 5) + struct.pack("<f", given) + field(20, 1)
        else:
            body = field(3, given) + field(20, 2)
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


def complaint(load: Load, content: bytes, **known: Any) -> str:
    with pytest.raises(InputError) as caught:
        load(content, **known)
    message = str(caught.value)
    assert message.startswith("model 'net'")
    assert "\n" not in message
    return message


# --- valid files ------------------------------------------------------------------------------


def test_features(load: Load) -> None:
    model = load(proto(*MEAN))
    outputs = model(PIXELS)
    np.testing.assert_allclose(outputs.features, COLOURS, atol=1e-6)
    assert outputs.features.dtype == np.float32
    assert outputs.logits is None
    info = model.info
    assert (info.name, info.feature_dim, info.n_logits, info.parameters) == ("net", 3, None, 0)
    assert info.preprocessing.geometry.crop == (8, 8)


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


def test_info_names_outputs_found_by_convention(load: Load) -> None:
    content = proto(*MEAN, node("Neg", "features", "logits"), outputs=("features", "logits"))
    info = load(content).info
    assert info.outputs == ("features", "logits")
    again = load(content, features=info.outputs[0], logits=info.outputs[1]).info
    assert again == info


def test_the_only_output_is_the_features(load: Load) -> None:
    content = proto(MEAN[0], node("Flatten", "m", "pooled"), outputs=("pooled",))
    np.testing.assert_allclose(load(content)(PIXELS).features, COLOURS, atol=1e-6)


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


def test_any_input_size(load: Load) -> None:
    content = proto(*MEAN, inputs={"x": value("x", ["n", 3, "h", "w"])})
    assert load(content).info.preprocessing.geometry.crop == (224, 224)
    assert load(content, input_size=8).info.preprocessing.geometry.crop == (8, 8)


def test_mean_and_std_of_a_file_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(proto(*MEAN))
    with pytest.warns(UserWarning, match="do not contain mean and std; using ImageNet's"):
        model = load_model(ModelSpec("net", "onnx/net.onnx", folder=tmp_path))
    assert model.info.preprocessing.mean == (0.485, 0.456, 0.406)


def test_fingerprint_depends_on_content_not_location(tmp_path: Path, load: Load) -> None:
    first = load(proto(*MEAN)).info.fingerprint
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/other.onnx").write_bytes(proto(*MEAN))
    spec = ModelSpec("b", "onnx/elsewhere/other.onnx", mean=(0, 0, 0), std=(1, 1, 1))
    moved = load_model(dataclasses.replace(spec, folder=tmp_path))
    assert moved.info.fingerprint == first
    assert load(proto(*MEAN, node("Neg", "m", "unused"))).info.fingerprint != first


def test_embedded_models_equal_onnxruntime() -> None:
    pixels = noise(3, 32)
    for spec in load_zoo("demo")[::6]:
        model = load_model(spec)
        session = onnxruntime.InferenceSession(str(spec.file), providers=["CPUExecutionProvider"])
        (given,) = session.get_inputs()
        x = ((pixels / 255 - np.array(spec.mean)) / np.array(spec.std)).transpose(0, 3, 1, 2)
        x = x.astype(np.float16 if given.type == "tensor(float16)" else np.float32)
        (features,) = session.run([spec.features], {given.name: x})
        np.testing.assert_allclose(model(pixels).features, features, rtol=1e-5, atol=1e-5)


# --- invalid files ----------------------------------------------------------------------------


def reshaped(*shape: int) -> bytes:
    constant = tensor("s", np.array(shape))
    return proto(node("Constant", "", "s", value=constant), node("Reshape", "x s", "features"))


@pytest.mark.parametrize("shape", [(0, 3, -1), (-1,), (0, 3, 2, 2, -1)])
def test_output_of_wrong_shape(load: Load, shape: tuple[int, ...]) -> None:
    message = complaint(load, reshaped(*shape))
    assert "returns an output of shape" in message
    assert "expected (n, d), or a feature map (n, d, height, width)" in message


def test_missing_output(load: Load) -> None:
    message = complaint(load, proto(*MEAN), features="pool")
    assert "has no output 'pool'; it has features" in message
    assert "has no output 'fc'" in complaint(load, proto(*MEAN), logits="fc")


def test_ambiguous_outputs(load: Load) -> None:
    nodes = (*MEAN, node("Neg", "features", "a"), node("Abs", "features", "b"))
    message = complaint(load, proto(*nodes, outputs=("a", "b")))
    assert "has the outputs a, b; name the one with the features in a zoo file" in message


def test_wrong_feature_dim(load: Load) -> None:
    message = complaint(load, proto(*MEAN), feature_dim=4)
    assert "returns 3 features, but its zoo file sets feature_dim = 4" in message


def test_wrong_input_size(load: Load) -> None:
    message = complaint(load, proto(*MEAN), input_size=32)
    assert "takes images of 8×8 pixels, but its zoo file sets input_size = 32" in message


GEOMETRY: dict[str, Any] = {"resize": [12, 10], "crop": [8, 8], "fit": "cover"}


def test_a_stated_geometry(load: Load) -> None:
    found = load(proto(*MEAN), geometry=GEOMETRY).info.preprocessing.geometry
    assert found == Geometry((12, 10), (8, 8), "cover")
    assert load(proto(*MEAN), geometry=GEOMETRY, input_size=8).info.preprocessing.geometry == found
    free = value("x", ["n", 3, "height", "width"])
    tall = {"resize": [12, 10], "crop": [12, 10]}
    model = load(proto(*MEAN, inputs={"x": free}), geometry=tall)
    assert model.info.preprocessing.geometry.crop == (12, 10)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"crop": [8, 7]},
            "of 8×8 pixels, but its zoo file sets crop = [8, 7] in geometry",
        ),
        ({"crop": [8]}, "model 'net': the geometry {"),
        ({"fill": -1}, "fill of geometry must be from 0 to 255, got -1"),
    ],
)
def test_a_wrong_geometry(load: Load, change: dict[str, Any], words: str) -> None:
    assert words in complaint(load, proto(*MEAN), geometry=GEOMETRY | change)


def test_a_geometry_of_another_input_size(load: Load) -> None:
    message = complaint(load, proto(*MEAN), geometry=GEOMETRY, input_size=9)
    assert "sets input_size = 9, but crop = [8, 8] in geometry; remove input_size" in message


def test_input_size_too_small_to_run(load: Load) -> None:
    weight = tensor("w", np.zeros((3, 3, 9, 9), np.float32))
    anything = {"x": value("x", ["n", 3, "h", "w"])}
    content = proto(node("Conv", "x w", "features"), weights=(weight,), inputs=anything)
    assert "cannot run on an image of 4×4 pixels" in complaint(load, content, input_size=4)


TWO = {"x": value("x", IMAGES), "y": value("y", IMAGES)}


@pytest.mark.parametrize(
    "content",
    [
        proto(node("Add", "x y", "features"), inputs=TWO),
        proto(*MEAN, inputs={"x": value("x", ["n", 1, 8, 8])}),
        proto(*MEAN, inputs={"x": value("x", ["n", 8, 8, 3])}),
        proto(node("Identity", "x", "features"), inputs={"x": value("x", ["n", 192])}),
        proto(
            node("Identity", "x", "features"), inputs={"x": value("x", IMAGES, INT64)}, kind=INT64
        ),
        proto(
            node("Constant", "", "features", value=tensor("c", np.ones((1, 3), np.float32))),
            inputs={},
        ),
    ],
    ids=["two inputs", "grey", "channels last", "flat", "integers", "no input"],
)
def test_wrong_input(load: Load, content: bytes) -> None:
    assert "must take one float tensor (n, 3, height, width); it takes" in complaint(load, content)


@pytest.mark.parametrize(
    "content",
    [b"", b"no model", proto(*MEAN)[:-20], proto(node("NoSuchOperator", "x", "features"))],
    ids=["empty", "text", "cut off", "unknown operator"],
)
def test_a_corrupt_file(load: Load, content: bytes) -> None:
    message = complaint(load, content)
    assert "onnxruntime cannot open" in message
    assert len(message) < 500


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"model 'a': cannot read .*absent\.onnx"):
        load_model(ModelSpec("a", "onnx/absent.onnx", folder=tmp_path))


def test_a_wrong_sha256(load: Load) -> None:
    assert "its zoo file sets 00000000" in complaint(load, proto(*MEAN), sha256="0" * 64)


def test_precision_other_than_float32(tmp_path: Path) -> None:
    spec = ModelSpec("a", "onnx/absent.onnx", folder=tmp_path)
    with pytest.raises(InputError, match="precision 'bfloat16' is not supported"):
        load_model(spec, precision="bfloat16")


# --- models that load, but fail when they run -------------------------------------------------


def extract(tmp_path: Path, content: bytes, photos: Path) -> str:
    """Return the error message of an extraction with this model."""
    (tmp_path / "net.onnx").write_bytes(content)
    spec = ModelSpec("net", "onnx/net.onnx", mean=(0, 0, 0), std=(1, 1, 1), folder=tmp_path)
    with pytest.raises(InputError, match="no model could be used") as caught:
        oodzoo.extract(photos, [spec], tmp_path / "store")
    return str(caught.value)


def test_nan_in_the_outputs(tmp_path: Path, photos: Path) -> None:
    """The logarithm of a negative mean; the error names the first such image."""
    shift = tensor("s", np.array([-0.001, -0.001, -0.001], np.float32))
    nodes = (
        *MEAN[:1],
        node("Flatten", "m", "f"),
        node("Add", "f s", "g"),
        node("Log", "g", "features"),
    )
    message = extract(tmp_path, proto(*nodes, weights=(shift,)), photos)
    assert "returned NaN or infinite features for 'day/cat/1.png'" in message


def test_output_without_batch_dimension(tmp_path: Path, photos: Path) -> None:
    """A batch of one image passes; a larger batch returns one row."""
    nodes = (node("ReduceMean", "x", "o", axes=[0]), node("GlobalAveragePool", "o", "m"), MEAN[1])
    message = extract(tmp_path, proto(*nodes), photos)
    assert "returned features of shape (1, 3) for 4 images; expected (4, 3)" in message


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


def test_weights_of_the_embedded_zoo() -> None:
    """Exact for models whose export does not fold batch norms."""
    known = {spec.name: spec for spec in load_zoo("demo")}
    for name in ("vit_letters", "mixer_glyphs", "convnext_letters_augmented"):
        assert count_parameters(known[name].file.read_bytes()) == known[name].parameters


def test_external_weights(tmp_path: Path, load: Load) -> None:
    """External weights are part of the fingerprint."""
    weight = np.random.default_rng(1).normal(size=(5, 3, 1, 1)).astype(np.float32)
    content = proto(node("Conv", "x w", "features"), weights=(tensor("w", weight, "w.bin"),))
    assert external_files(content) == ["w.bin"]
    assert "cannot open" in complaint(load, content)
    prints = []
    for factor in (1, 2):
        (tmp_path / "w.bin").write_bytes((factor * weight).tobytes())
        model = load(content)
        expected = COLOURS @ (factor * weight[:, :, 0, 0].T)
        np.testing.assert_allclose(model(PIXELS).features, expected, atol=1e-5)
        assert model.info.parameters == 15
        prints.append(model.info.fingerprint)
    assert prints[0] != prints[1]

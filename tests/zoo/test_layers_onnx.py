"""Layers of ONNX files, against the onnx package and onnxruntime by hand."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracles.pooling import pool_map, pool_tokens
from tests.zoo.data import noise

from oodzoo.core.errors import InputError
from oodzoo.zoo import Model, ModelSpec, load_zoo
from oodzoo.zoo.model import collect_together, launch_together
from oodzoo.zoo.sources import load_network

onnx = pytest.importorskip("onnx")
close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
ZOO = Path(os.environ.get("OODZOO_SHARED", Path(__file__).parents[3] / "shared")) / "zoo"


def network(
    tmp_path: Path, *, opset: int = 17, batch: int | str = "n", external: bool = False
) -> Path:
    """Write a small network with a feature map, tokens, integers and a head."""
    helper, types = onnx.helper, onnx.TensorProto
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.normal(size=(6, 3, 2, 2)),
        "w2": rng.normal(size=(8, 6, 1, 1)),
        "cls": rng.normal(size=(1, 1, 8)),
        "w3": rng.normal(size=(8, 5)),
    }
    constants = [
        onnx.numpy_helper.from_array(value.astype(np.float32), name)
        for name, value in weights.items()
    ]
    if external:
        (tmp_path / "w1.bin").write_bytes(constants[0].raw_data)
        onnx.external_data_helper.set_external_data(constants[0], "w1.bin")
        constants[0].ClearField("raw_data")
    shapes = {"tokens_shape": [0, 8, 16], "expanded": [1, 1, 8]}
    constants += [
        onnx.numpy_helper.from_array(np.array(value, np.int64), name)
        for name, value in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], "first", strides=[2, 2]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"]),
        helper.make_node("Relu", ["c2"], ["maps/2:0"]),
        helper.make_node("Reshape", ["maps/2:0", "tokens_shape"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["patches"], perm=[0, 2, 1]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "rest"], ["target"], axis=0),
        helper.make_node("Expand", ["cls", "target"], ["first_token"]),
        helper.make_node("Concat", ["first_token", "patches"], ["tokens"], axis=1),
        helper.make_node("ArgMax", ["c2"], ["indices"], axis=1),
        helper.make_node("GlobalAveragePool", ["maps/2:0"], ["p"]),
        helper.make_node("Flatten", ["p"], ["features"]),
        helper.make_node("MatMul", ["features", "w3"], ["logits"]),
    ]
    constants += [
        onnx.numpy_helper.from_array(np.array([0], np.int64), "zero"),
        onnx.numpy_helper.from_array(np.array([1, 8], np.int64), "rest"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", types.FLOAT, [batch, 3, 8, 8])],
        [
            helper.make_tensor_value_info("features", types.FLOAT, [batch, 8]),
            helper.make_tensor_value_info("logits", types.FLOAT, [batch, 5]),
        ],
        constants,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path = tmp_path / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def load(path: Path, *layers: tuple[str, Any], plain: bool = True) -> list[Model | InputError]:
    base = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0), "folder": path.parent}
    specs = [ModelSpec("net", f"onnx/{path.name}", **base)] if plain else []  # type: ignore[arg-type]
    for number, (layer, pooling) in enumerate(layers):
        spec = ModelSpec(f"net@{number}", f"onnx/{path.name}", layer=layer, pooling=pooling, **base)  # type: ignore[arg-type]
        specs.append(spec)
    return load_network(specs, device="cpu", precision="float32")


def run(models: list[Model | InputError], pixels: NDArray[np.uint8]) -> list[NDArray[np.float32]]:
    loaded = [model for model in models if isinstance(model, Model)]
    assert len(loaded) == len(models), models
    together = collect_together(loaded, launch_together(loaded, loaded[0].prepare(pixels)))
    return [outputs.features for outputs in together.outputs]


def reference(path: Path, names: list[str], pixels: NDArray[np.uint8]) -> list[NDArray[Any]]:
    """Tensors by the reference implementation of the onnx package."""
    from onnx.reference import ReferenceEvaluator

    proto = onnx.load(path)
    proto.graph.output.extend([onnx.ValueInfoProto(name=name) for name in names])
    batch = (pixels.transpose(0, 3, 1, 2) / 255).astype(np.float32)
    found: Any = ReferenceEvaluator(proto).run(names, {"x": batch})
    return list(found)


LAYERS: list[tuple[str, Any]] = [
    ("r1", None),
    ("first", None),  # a node
    ("maps/2:0", "mean"),
    ("tokens", None),
    ("tokens", "mean"),
    ("tokens", "both"),
    ("patches", None),
    ("p", None),
]


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
@pytest.mark.parametrize("batch", ["n", 2])
def test_layers_equal_the_reference(tmp_path: Path, opset: int, batch: int | str) -> None:
    path, pixels = network(tmp_path, opset=opset, batch=batch), noise(4, 8)
    before = path.read_bytes()
    models = load(path, *LAYERS)
    features, *found = run(models, pixels)
    if batch == 2:  # the reference follows the graph, too
        parts = [reference(path, ["c1", "r1", "maps/2:0", "tokens", "p"], part)
                 for part in (pixels[:2], pixels[2:])]  # fmt: skip
        c1, r1, maps, tokens, p = (np.concatenate(each) for each in zip(*parts, strict=True))
    else:
        c1, r1, maps, tokens, p = reference(path, ["c1", "r1", "maps/2:0", "tokens", "p"], pixels)
    expected = [
        pool_map(r1),
        pool_map(c1),
        pool_map(maps),
        pool_tokens(tokens, "cls", 1),
        pool_tokens(tokens, "mean", 1),
        pool_tokens(tokens, "both", 1),
        tokens[:, 1:].mean(axis=1),
        p[:, :, 0, 0],
    ]
    for one, other in zip(found, expected, strict=True):
        close(one, other)
    (alone,) = load(path)
    np.testing.assert_allclose(features, run([alone], pixels)[0], rtol=1e-6)
    assert path.read_bytes() == before  # the file is not changed


def test_external_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    path = network(tmp_path, external=True)
    assert (tmp_path / "w1.bin").exists()
    (model,) = load(path, ("r1", None), plain=False)
    close(run([model], noise(3, 8))[0], pool_map(reference(path, ["r1"], noise(3, 8))[0]))


@pytest.mark.parametrize(
    ("layer", "pooling", "words"),
    [
        ("r2", None, r"there is no layer 'r2'; did you mean r1"),
        ("zzzzzzzz", None, r"there is no layer 'zzzzzzzz'; it has "),
        ("x", None, "there is no layer 'x'"),
        ("maps/2:0:max", None, "there is no layer"),
        ("indices", None, r"layer 'indices' gives tensor\(int64\), not features"),
        ("shape", None, r"gives tensor\(int64\)"),
        ("r1", "cls", "a feature map without a class token; use ':mean'"),
        ("patches", "cls", "tokens without a class token"),
        ("features", "mean", "needs no pooling; remove ':mean'"),
        ("cls", None, "there is no layer 'cls'"),
    ],
)
def test_a_layer_that_cannot_be_used_leaves_the_others(
    tmp_path: Path, layer: str, pooling: Any, words: str
) -> None:
    models = load(network(tmp_path), ("r1", None), (layer, pooling))
    assert [isinstance(model, Model) for model in models] == [True, True, False]
    with pytest.raises(InputError, match=words) as caught:
        raise models[2]  # type: ignore[misc]
    assert str(caught.value).startswith("model 'net@1': ")
    assert "\n" not in str(caught.value)


def test_a_layer_needs_no_output_with_features(tmp_path: Path) -> None:
    path = network(tmp_path)
    proto = onnx.load(path)
    proto.graph.output[0].name, proto.graph.node[-2].output[0] = "a", "a"
    proto.graph.node[-1].input[0] = "a"
    path.write_bytes(proto.SerializeToString())
    plain, layer = load(path, ("r1", None))
    assert "name the one with the features in a zoo file" in str(plain)
    assert isinstance(layer, Model)


def test_the_blocks_of_a_real_network() -> None:
    path = ZOO / "resnet20_cifar10.onnx"
    if not path.exists():
        pytest.skip("the real networks are not here")
    layers = [spec.layer for spec in load_zoo(f"onnx/{path}@all")]
    blocks = [f"/f/layer{s}/layer{s}.{b}/Relu_1_output_0" for s in (1, 2, 3) for b in (0, 1, 2)]
    assert layers == [None, "/f/Relu_output_0", *blocks[:-1]]  # the last block is pooled: features

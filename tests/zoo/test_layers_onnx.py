"""Layers of ONNX files, against the onnx package and onnxruntime by hand."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracles.pooling import pool_map, pool_tokens
from tests.zoo.data import noise
from tests.zoo.small_onnx import Writer

from oodzoo.core.errors import InputError
from oodzoo.zoo import Model, ModelSpec
from oodzoo.zoo.model import collect_together, launch_together
from oodzoo.zoo.sources import load_network

onnx = pytest.importorskip("onnx")
close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)


def network(folder: Path, *, opset: int = 17, batch: int | str = "n") -> Path:
    """Write a small network with a feature map, tokens, integers and a head."""
    writer = Writer(onnx)
    for name, shape in {
        "w1": (6, 3, 2, 2),
        "w2": (8, 6, 1, 1),
        "cls": (1, 1, 8),
        "w3": (8, 5),
    }.items():
        writer.weight(name, *shape)
    for name, numbers in {"tokens_shape": [0, 8, 16], "zero": [0], "rest": [1, 8]}.items():
        writer.constant(name, np.array(numbers))
    writer.add("Conv", "x w1", "c1", name="first", strides=[2, 2])
    writer.add("Relu", "c1", "r1", name="relu")
    writer.add("Conv", "r1 w2", "c2")
    writer.add("Relu", "c2", "maps/2:0")
    writer.add("Reshape", "maps/2:0 tokens_shape", "flat")
    writer.add("Transpose", "flat", "patches", perm=[0, 2, 1])
    writer.add("Shape", "x", "shape")
    writer.add("Gather", "shape zero", "n", axis=0)
    writer.add("Concat", "n rest", "target", axis=0)
    writer.add("Expand", "cls target", "first_token")
    writer.add("Concat", "first_token patches", "tokens", axis=1)
    writer.add("ArgMax", "c2", "indices", axis=1)
    writer.add("GlobalAveragePool", "maps/2:0", "p")
    writer.add("Flatten", "p", "features")
    writer.add("MatMul", "features w3", "logits")
    writer.write(folder / "net.onnx", ("features", "logits"), opset=opset, batch=batch)
    return folder / "net.onnx"


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


@pytest.mark.parametrize(("opset", "batch"), [(13, "n"), (18, 2), (21, "n")])
def test_layers_equal_the_reference(tmp_path: Path, opset: int, batch: int | str) -> None:
    path, pixels = network(tmp_path, opset=opset, batch=batch), noise(4, 8)
    before = path.read_bytes()
    models = load(path, *LAYERS)
    features, *found = run(models, pixels)
    size = 2 if batch == 2 else 4  # the reference follows the graph, too
    names = ["c1", "r1", "maps/2:0", "tokens", "p"]
    parts = [reference(path, names, pixels[at : at + size]) for at in range(0, 4, size)]
    c1, r1, maps, tokens, p = (np.concatenate(each) for each in zip(*parts, strict=True))
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


@pytest.mark.parametrize(
    ("layer", "pooling", "words"),
    [
        ("r2", None, r"there is no layer 'r2'; did you mean r1"),
        ("maps/2:0:max", None, "there is no layer"),
        ("indices", None, r"layer 'indices' gives tensor\(int64\), not features"),
        ("r1", "cls", "a feature map without a class token; use ':mean'"),
        ("patches", "cls", "tokens without a class token"),
        ("features", "mean", "needs no pooling; remove ':mean'"),
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

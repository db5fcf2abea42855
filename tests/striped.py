"""Striped images, and tiny random networks as ONNX files: quick to fine-tune."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import oodzoo
from oodzoo.zoo import ModelSpec

SIZE = 16


def require_tuning() -> None:
    """Skip the tests of a module unless the extra `tune` is installed; imports nothing."""
    for package in ("torch", "torchvision", "onnx", "onnx2torch"):
        if find_spec(package) is None:
            pytest.skip(f"fine-tuning needs {package}", allow_module_level=True)


def write_stripes(
    root: Path, domains: tuple[str, ...] = ("blue", "green", "red"), per_cell: int = 8
) -> Path:
    """Write images with horizontal or vertical stripes; a domain has a colour of its own."""
    rng = np.random.default_rng(0)
    for number, domain in enumerate(domains):
        for label in ("across", "down"):
            folder = root / domain / label
            folder.mkdir(parents=True)
            for at in range(per_cell):
                bright = 90 * ((np.arange(SIZE) + rng.integers(4)) // 2 % 2)
                stripes = bright[:, None] if label == "across" else bright
                image = rng.normal(60, 25, (SIZE, SIZE, 3)) + np.atleast_2d(stripes)[..., None]
                image[..., number % 3] += 40
                pixels = image.clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{at}.png")
    return root


def tiny_network(folder: Path, name: str = "tiny", width: int = 2, seed: int = 0) -> ModelSpec:
    """Write a network of two convolutions with random weights; `width` features."""
    from onnx import TensorProto, helper, numpy_helper, save

    rng = np.random.default_rng(seed)

    def weights(name: str, *shape: int) -> TensorProto:
        scale = math.sqrt(2 / math.prod(shape[1:]))
        return numpy_helper.from_array((scale * rng.normal(size=shape)).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["input", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("GlobalAveragePool", ["r2"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["features"]),
    ]
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", width])],
        [
            weights("w1", 6, 3, 3, 3),
            numpy_helper.from_array(np.zeros(6, np.float32), "b1"),
            weights("w2", width, 6, 3, 3),
            numpy_helper.from_array(np.zeros(width, np.float32), "b2"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder.mkdir(parents=True, exist_ok=True)
    save(model, folder / f"{name}.onnx")
    return ModelSpec(
        name=name,
        source=f"onnx/{name}.onnx",
        input_size=SIZE,
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        features="features",
        pretraining="random",
        licence="MIT",
        folder=folder,
    )


def striped_predictor(
    folder: Path, data: Path, models: dict[str, int], choose: str = "single"
) -> oodzoo.Predictor:
    """Fit a predictor of tiny networks, given by name and seed."""
    zoo = [tiny_network(folder / "zoo", name, seed=seed) for name, seed in models.items()]
    store = oodzoo.extract(data, zoo, folder / "store", device="cpu")
    return oodzoo.fit(store, choose=choose)

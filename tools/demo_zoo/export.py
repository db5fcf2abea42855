"""From a trained model to an ONNX file, and from the files to ``zoo.toml``.

The file carries its own history in the metadata of the model: ``zoo.toml`` and the model card
are written from the files, so neither can say anything else than they do.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from tools.demo_zoo.catalogue import RECIPES, Recipe
from tools.demo_zoo.models import Model

__all__ = ["export", "read_history", "write_listing"]

OPSET = 17
_KEEP = 32  # a tensor of fewer elements gains nothing from being halved


def export(network: Model, path: Path, history: Mapping[str, Any]) -> None:
    """Write ``model`` as ONNX with half-precision weights and check what was written."""
    network = network.eval().cpu()
    names = ["features"] if network.head is None else ["features", "logits"]
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        # the older exporter folds the batch norms and needs no further package
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            network,
            (torch.zeros(2, 3, 32, 32),),
            str(path),
            dynamo=False,
            opset_version=OPSET,
            input_names=["input"],
            output_names=names,
            dynamic_axes={name: {0: "batch"} for name in ["input", *names]},
        )
    model = onnx.load(path)
    _halve(model.graph)
    _shorten(model.graph)
    model.doc_string = ""
    helper.set_model_props(model, {"history": json.dumps(dict(history), sort_keys=True)})
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    _check(network, path)


def _halve(graph: onnx.GraphProto) -> None:
    """Store the large weights as float16 and cast them back when the model is loaded."""
    casts = []
    for tensor in graph.initializer:
        if tensor.data_type != TensorProto.FLOAT or np.prod(tensor.dims) < _KEEP:
            continue
        name, stored = tensor.name, f"{tensor.name}.half"
        values = numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(numpy_helper.from_array(values, stored))
        casts.append(helper.make_node("Cast", [stored], [name], to=TensorProto.FLOAT))
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def _shorten(graph: onnx.GraphProto) -> None:
    """Drop the names of nodes and number the tensors: in files this small, names weigh."""
    kept = {value.name for value in [*graph.input, *graph.output]} | {""}
    short: dict[str, str] = {}

    def rename(name: str) -> str:
        return name if name in kept else short.setdefault(name, f"t{len(short)}")

    for tensor in graph.initializer:
        tensor.name = rename(tensor.name)
    for node in graph.node:
        node.ClearField("doc_string")
        node.ClearField("name")
        node.input[:] = [rename(name) for name in node.input]
        node.output[:] = [rename(name) for name in node.output]
    del graph.value_info[:]


def _check(network: Model, path: Path) -> None:
    """ONNX Runtime must agree with PyTorch up to the halved weights, at any batch size."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for batch in (1, 7):
        images = torch.randn(batch, 3, 32, 32, generator=torch.Generator().manual_seed(batch))
        with torch.no_grad():
            expected = [output.numpy() for output in network(images)]
        measured = session.run(None, {"input": images.numpy()})
        for ours, theirs in zip(expected, measured, strict=True):
            scale = float(np.abs(ours).max())
            if not np.allclose(ours, theirs, rtol=0.0, atol=0.01 * scale + 1e-4):
                worst = float(np.abs(ours - theirs).max())
                raise RuntimeError(f"{path.name}: off by {worst:g} at a scale of {scale:g}")


def read_history(path: Path) -> dict[str, Any]:
    """What the file says of its own making."""
    props = {prop.key: prop.value for prop in onnx.load(path).metadata_props}
    history: dict[str, Any] = json.loads(props["history"])
    return history


def write_listing(folder: Path) -> list[Recipe]:
    """Write ``folder/zoo.toml`` for the models in ``folder``; return those listed."""
    listed = [recipe for recipe in RECIPES if _file(folder, recipe).exists()]
    text = "# Written by tools.demo_zoo.pretrain from the files beside it; do not edit.\n"
    for recipe in listed:
        text += "\n[[model]]\n"
        for key, value in _entry(folder, recipe).items():
            text += f"{key} = {json.dumps(value)}\n"
    (folder / "zoo.toml").write_text(text, encoding="utf-8")
    return listed


def _file(folder: Path, recipe: Recipe) -> Path:
    return folder / f"{recipe.name}.onnx"


def _entry(folder: Path, recipe: Recipe) -> dict[str, Any]:
    path = _file(folder, recipe)
    history = read_history(path)
    outputs = [output.name for output in onnx.load(path).graph.output]
    return {
        "name": recipe.name,
        "source": f"onnx/{path.name}",
        "input_size": 32,
        "mean": history["mean"],
        "std": history["std"],
        "features": "features",
        **({"logits": "logits"} if "logits" in outputs else {}),
        "feature_dim": history["feature_dim"],
        "parameters": history["parameters"],
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "pretraining": history["pretraining"],
        "architecture": history["architecture"],
        "licence": "Apache-2.0",
        "origin": f"tools.demo_zoo.pretrain, seed {history['seed']}",
    }

"""The head of a predictor as an ONNX file, from features to probabilities or numbers.

The file has one input per model, with its name: all of its features, float32 (n, d). The graph does
the rest: the selected columns, the head, the softmax. The output and the metadata are those of
:mod:`oodzoo.predictor.export`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from oodzoo._io import write_tidily
from oodzoo.predictor.graph import (
    IR_VERSION,
    OPSET,
    GraphBuilder,
    open_session,
    output_name,
    require_close,
    require_file_name,
)
from oodzoo.predictor.parts import PredictorParts


def export_head(parts: PredictorParts, file: Path) -> Path:
    """Write the head of a predictor as an ONNX file, after verifying its outputs."""
    require_file_name(file)
    content: bytes = _build(parts).SerializeToString()
    _require_equal(content, parts)
    write_tidily(file, content)
    return file


def feature_inputs(parts: PredictorParts) -> dict[str, str]:
    """Name the input of each model: as the model, unless the graph uses its name."""
    reserved = {output_name(parts)} | {
        model.name for model in parts.models if model.name.startswith("oodzoo_")
    }
    return {
        model.name: f"features_{model.name}" if model.name in reserved else model.name
        for model in parts.models
    }


def _build(parts: PredictorParts) -> Any:
    graph = GraphBuilder(parts)
    inputs = feature_inputs(parts)
    widths = {inputs[model.name]: model.feature_dim for model in parts.models}
    graph.add_head(
        [
            graph.add_columns(model, name, f"oodzoo_{number}_")
            for number, (model, name) in enumerate(inputs.items())
        ]
    )
    float32 = graph.onnx.TensorProto.FLOAT
    return graph.finish(
        [graph.value_info(name, float32, (width,)) for name, width in widths.items()],
        {name: {"features": width} for name, width in widths.items()},
        opset_imports=[graph.onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )


def _require_equal(content: bytes, parts: PredictorParts) -> None:
    """Raise InputError if the file and the predictor differ on noise like the training features."""
    rng = np.random.default_rng(0)
    gaussian = parts.gaussian
    scale = np.where(np.isfinite(gaussian.scale), gaussian.scale, 0)
    selected = (gaussian.mean + scale * rng.normal(size=(4, len(scale)))).astype(np.float32)
    features, left = dict[str, Any](), 0
    inputs = feature_inputs(parts)
    for model in parts.models:
        name, columns = inputs[model.name], parts.columns.by_model[model.name]
        features[name] = np.zeros((len(selected), model.feature_dim), np.float32)
        features[name][:, columns] = selected[:, left : left + len(columns)]
        left += len(columns)
    found = open_session(content).run(None, features)[0]
    taken = [parts.columns.of(model.name, features[inputs[model.name]]) for model in parts.models]
    require_close(found, parts.head.values(np.concatenate(taken, axis=1)))

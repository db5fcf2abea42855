"""A predictor as one ONNX file, from pixels to probabilities.

The file has one input per image size of its models (`pixels`, or `pixels_224x224` and so on if
there are several): uint8 (n, height, width, 3), resized and cropped by
:meth:`Predictor.preprocess <oodzoo.Predictor.preprocess>`. The graph does the rest: normalisation,
the models up to their features, the selected columns, the head, the softmax. Resizing is not part
of it, because no ONNX operator reproduces Pillow's filters.

The output is `probabilities`, float32 (n, n_classes), of classes or of labels; or `numbers`,
float64 (n, outputs), for regression. The metadata of the file has the classes, the
geometries, the version of oodzoo, and the facts about the predictor that
:meth:`Predictor.to_dict <oodzoo.Predictor.to_dict>` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from oodzoo._io import write_tidily
from oodzoo._text import one_line
from oodzoo.errors import InputError
from oodzoo.predictor.graph import (
    IR_VERSION,
    OPSET,
    GraphBuilder,
    open_session,
    require_close,
    require_file_name,
)
from oodzoo.predictor.images import compute_features
from oodzoo.predictor.models import PredictorModel
from oodzoo.predictor.parts import PredictorParts
from oodzoo.zoo import Geometry, Model
from oodzoo.zoo.layers import by_network, network_key
from oodzoo.zoo.onnx_graph import features_graph, opset, output_rank

_MAX_BYTES = 2_000_000_000  # limit of a protobuf


def export_onnx(
    parts: PredictorParts,
    models: Sequence[PredictorModel],
    load_models: Callable[[], Mapping[str, Model]],
    file: Path,
) -> Path:
    """Write a predictor as one ONNX file, after verifying its probabilities.

    `load_models` returns the models by name; they compute the expected probabilities.
    """
    for model in models:
        if model.spec.kind != "onnx":
            raise InputError(
                f"model {model.name!r} comes from {model.spec.kind}; only models that are ONNX "
                "files can be exported (fit with such models: models=). The head of any predictor "
                "can: --head-only (head_only=True)"
            )
    require_file_name(file)
    proto = _PixelGraph(parts, models).build()
    if proto.ByteSize() > _MAX_BYTES:
        raise InputError(
            f"the models together are {proto.ByteSize() / 1e9:.1f} GB; an ONNX file is limited to "
            "2 GB"
        )
    content: bytes = proto.SerializeToString()
    _require_equal(content, parts, models, load_models())
    write_tidily(file, content)
    return file


def input_names(models: Sequence[PredictorModel]) -> dict[str, Geometry]:
    """Name the inputs of the file, with the geometry of each."""
    geometries = list(dict.fromkeys(model.preprocessing.geometry for model in models))
    if len(geometries) == 1:
        return {"pixels": geometries[0]}
    names: dict[str, Geometry] = {}
    for geometry in geometries:
        name = "pixels_{}x{}".format(*geometry.crop)
        names[name if name not in names else f"{name}_{len(names)}"] = geometry
    return names


class _PixelGraph(GraphBuilder):
    """Merges the graphs of the models, and adds normalisation and head."""

    def __init__(self, parts: PredictorParts, models: Sequence[PredictorModel]) -> None:
        super().__init__(parts)
        self.models = models
        self.networks = by_network(models, lambda model: network_key(model.spec))
        self.inputs = input_names(models)

    def build(self) -> Any:
        """Return the checked ModelProto."""
        helper, types = self.onnx.helper, self.onnx.TensorProto
        protos = self._network_protos()
        features: dict[str, str] = {}
        for number, (models, proto) in enumerate(zip(self.networks, protos, strict=True)):
            features |= self._add_network(models, proto, f"oodzoo{number}_")
        self.add_head([features[model.name] for model in self.models])
        return self.finish(
            [
                self.value_info(name, types.UINT8, (*geometry.crop, 3))
                for name, geometry in self.inputs.items()
            ],
            {name: vars(geometry) for name, geometry in self.inputs.items()},
            opset_imports=_merged_opsets(helper, protos),
            functions=[function for proto in protos for function in proto.functions],
            ir_version=max(IR_VERSION, *(proto.ir_version for proto in protos)),
        )

    def _network_protos(self) -> list[Any]:
        """Each network up to the features, all with one opset and with unique names."""
        protos = [
            features_graph(self.onnx, [each.spec for each in models], models[0].preprocessing)
            for models in self.networks
        ]
        newest = max(OPSET, *(opset(proto) for proto in protos))
        for number, proto in enumerate(protos):
            model = self.networks[number][0]
            if opset(proto) != newest:
                try:
                    proto = self.onnx.version_converter.convert_version(proto, newest)
                except Exception as error:
                    raise InputError(
                        f"model {model.name!r} cannot be converted from opset {opset(proto)} to "
                        f"{newest}, which the others need: {one_line(error)}"
                    ) from error
            protos[number] = self.onnx.compose.add_prefix(proto, f"model{number}_")
            self._set_batch_size(model, proto)
        return protos

    def _set_batch_size(self, model: PredictorModel, proto: Any) -> None:
        """Adopt the batch size of a model that has a fixed one."""
        size = proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value
        if not size:
            return
        if self.batch not in ("n", size):
            raise InputError(
                f"model {model.name!r} has a fixed batch size of {size}, another one of "
                f"{self.batch}; they cannot be merged into one file"
            )
        self.batch = size

    def _add_network(
        self, models: Sequence[PredictorModel], proto: Any, prefix: str
    ) -> dict[str, str]:
        """Add normalisation and a network; return the names of the models' selected features."""
        float32 = self.onnx.TensorProto.FLOAT
        graph = proto.graph
        preprocessing = models[0].preprocessing
        (pixels,) = (n for n, g in self.inputs.items() if g == preprocessing.geometry)
        mean, std = np.array(preprocessing.mean), np.array(preprocessing.std)
        dtype = graph.input[0].type.tensor_type.elem_type
        model_input = graph.input[0].name
        # the same constants and order as in Preprocessing.normalise
        factor = self.constant(f"{prefix}factor", (1 / (255 * std)).reshape(1, 3, 1, 1))
        offset = self.constant(f"{prefix}offset", (mean / std).reshape(1, 3, 1, 1))
        self.add("Cast", [pixels], f"{prefix}float", to=float32)
        self.add("Transpose", [f"{prefix}float"], f"{prefix}planes", perm=[0, 3, 1, 2])
        self.add("Mul", [f"{prefix}planes", factor], f"{prefix}scaled")
        normalised = model_input if dtype == float32 else f"{prefix}normalised"
        self.add("Sub", [f"{prefix}scaled", offset], normalised)
        if dtype != float32:
            self.add("Cast", [normalised], model_input, to=dtype)
        self.nodes += graph.node
        self.constants += graph.initializer
        self.sparse += graph.sparse_initializer
        return {
            model.name: self._add_features(model, proto, at, f"{prefix}{at}_")
            for at, model in enumerate(models)
        }

    def _add_features(self, model: PredictorModel, proto: Any, at: int, prefix: str) -> str:
        """Add pooling and column selection of an output; return the name of the result."""
        float32 = self.onnx.TensorProto.FLOAT
        output = proto.graph.output[at]
        name = output.name
        if output.type.tensor_type.elem_type != float32:
            name = self.add("Cast", [name], f"{prefix}features32", to=float32)
        if output_rank(self.onnx, proto, at) == 4:
            pooled = self.add("GlobalAveragePool", [name], f"{prefix}pooled")
            name = self.add("Flatten", [pooled], f"{prefix}flat", axis=1)
        return self.add_columns(model.name, name, prefix)


def _require_equal(
    content: bytes,
    parts: PredictorParts,
    models: Sequence[PredictorModel],
    loaded: Mapping[str, Model],
) -> None:
    """Raise InputError if the file and the predictor differ on images of noise."""
    session = open_session(content)
    batch = session.get_inputs()[0].shape[0]
    n = batch if isinstance(batch, int) else 4
    inputs = input_names(models)
    rng = np.random.default_rng(0)
    pixels = {
        name: rng.integers(0, 256, (n, *geometry.crop, 3), np.uint8)
        for name, geometry in inputs.items()
    }
    found = session.run(None, pixels)[0]
    by_geometry = {geometry: pixels[name] for name, geometry in inputs.items()}
    features = compute_features(by_geometry, loaded, parts.columns)
    require_close(found, parts.head.values(features))


def _merged_opsets(helper: Any, protos: Iterable[Any]) -> list[Any]:
    """The newest opset of each domain."""
    versions: dict[str, int] = {}
    for proto in protos:
        for entry in proto.opset_import:
            domain = "" if entry.domain == "ai.onnx" else entry.domain
            versions[domain] = max(versions.get(domain, 0), entry.version)
    return [helper.make_opsetid(domain, version) for domain, version in versions.items()]

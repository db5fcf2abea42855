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
from oodzoo.zoo.onnx import add_layers

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
        protos = [self._pruned(models) for models in self.networks]
        opset = max(OPSET, *(_opset(proto) for proto in protos))
        for number, proto in enumerate(protos):
            model = self.networks[number][0]
            if _opset(proto) != opset:
                try:
                    proto = self.onnx.version_converter.convert_version(proto, opset)
                except Exception as error:
                    raise InputError(
                        f"model {model.name!r} cannot be converted from opset {_opset(proto)} to "
                        f"{opset}, which the others need: {one_line(error)}"
                    ) from error
            protos[number] = self.onnx.compose.add_prefix(proto, f"model{number}_")
            self._set_batch_size(model, proto)
        return protos

    def _pruned(self, models: Sequence[PredictorModel]) -> Any:
        """Load a network, without the nodes that the features of its models do not depend on.

        Its outputs are the features of the models.
        """
        proto, outputs = self._with_layers(models)
        graph = proto.graph
        producers = {name: node for node in graph.node for name in node.output}
        needed: set[str] = set()
        pending = list(outputs)
        while pending:
            name = pending.pop()
            if name in needed:
                continue
            needed.add(name)
            if name in producers:
                pending += _node_inputs(producers[name])
        nodes = [node for node in graph.node if needed & set(node.output)]
        by_name = {value.name: value for value in graph.output}
        constants = [tensor for tensor in graph.initializer if tensor.name in needed]
        sparse = [t for t in graph.sparse_initializer if t.values.name in needed]
        known = {tensor.name for tensor in constants}
        # before IR version 4, the weights are among the inputs
        inputs = [value for value in graph.input if value.name not in known]
        for field, values in (
            (graph.node, nodes),
            (graph.initializer, constants),
            (graph.sparse_initializer, sparse),
            (graph.input, inputs),
            (graph.output, [by_name[name] for name in outputs]),
        ):
            copies = [type(value).FromString(value.SerializeToString()) for value in values]
            del field[:]
            field.extend(copies)
        del graph.value_info[:]
        return proto

    def _with_layers(self, models: Sequence[PredictorModel]) -> tuple[Any, list[str]]:
        """Load a file, with its layers in use among its outputs; name the output of each model."""
        layers = [model.spec for model in models if model.spec.layer is not None]
        file = models[0].spec.file
        if not layers:
            return self.onnx.load(file), [model.spec.features or "" for model in models]
        content, taps = add_layers(layers, file, file.read_bytes(), models[0].preprocessing)
        names = {model.spec: model.spec.features or "" for model in models}
        for spec, tap in taps.items():
            if isinstance(tap, InputError):
                raise InputError(f"model {spec.name!r}: {tap}")
            names[spec] = tap.output
        proto = self.onnx.load_model_from_string(content)
        self.onnx.external_data_helper.load_external_data_for_model(proto, str(file.parent))
        return proto, list(names.values())

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
        if _output_rank(self.onnx, proto, at) == 4:
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


def _opset(proto: Any) -> int:
    return int(next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")))


def _merged_opsets(helper: Any, protos: Iterable[Any]) -> list[Any]:
    """The newest opset of each domain."""
    versions: dict[str, int] = {}
    for proto in protos:
        for opset in proto.opset_import:
            domain = "" if opset.domain == "ai.onnx" else opset.domain
            versions[domain] = max(versions.get(domain, 0), opset.version)
    return [helper.make_opsetid(domain, version) for domain, version in versions.items()]


def _node_inputs(node: Any) -> list[str]:
    """The inputs of a node, including those of its subgraphs."""
    names = list(node.input)
    for attribute in node.attribute:
        for graph in [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]:
            names += [name for inner in graph.node for name in _node_inputs(inner)]
            names += [value.name for value in graph.output]
    return names


def _output_rank(onnx: Any, proto: Any, at: int) -> int:
    """Number of dimensions of the features; inferred if the file does not state them."""
    output = proto.graph.output[at].type.tensor_type
    if not output.HasField("shape"):
        output = onnx.shape_inference.infer_shapes(proto).graph.output[at].type.tensor_type
    return len(output.shape.dim)

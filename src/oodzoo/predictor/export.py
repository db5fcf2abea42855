"""A predictor as one ONNX file, from pixels to probabilities.

The file has one input for each size in which models want their images (`pixels`, or
`pixels_224x224` and so on where there are several): bytes (n, height, width, 3), resized and cut
as :meth:`Predictor.preprocess <oodzoo.Predictor.preprocess>` does. Everything after that is in the
graph: normalisation, the models up to their features, the kept columns, the head, the softmax.
Resizing is not: Pillow's filters have no equal among the operators of ONNX.

The output is `probabilities`, float32 (n, n_classes). Classes, geometries and the version of oodzoo
are in the metadata of the file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import oodzoo
from oodzoo._io import write_bytes
from oodzoo._text import one_line
from oodzoo.errors import InputError
from oodzoo.predictor.images import features_of_pixels
from oodzoo.predictor.models import PredictorModel
from oodzoo.zoo import Geometry
from oodzoo.zoo.packages import optional_package

if TYPE_CHECKING:
    from oodzoo.predictor.predictor import Predictor

TOLERANCE = 1e-5
"""Between the probabilities of the file and those of the predictor."""

_OLDEST = 13  # opset in which a softmax is over one axis
_LARGEST = 2_000_000_000  # bytes that a protobuf may have


def export(predictor: Predictor, file: Path) -> Path:
    """Write one ONNX file, after its probabilities were seen to equal the predictor's.

    Raises
    ------
    InputError
        If a model is no ONNX file, or cannot be joined with the others.
    MissingPackageError
        If the package `onnx` is not installed.
    """
    for network in predictor.models:
        if network.spec.kind != "onnx":
            raise InputError(
                f"model {network.name!r} comes from {network.spec.kind}; only models that are "
                "ONNX files can be exported (fit with models= that are)"
            )
    if file.is_dir():
        raise InputError(f"{str(file)!r} is a folder; name a file, such as model.onnx")
    onnx = optional_package("onnx", extra="onnx", purpose="exporting to ONNX")
    model = _Graph(onnx, predictor).model()
    if model.ByteSize() > _LARGEST:
        raise InputError(
            f"the models together are {model.ByteSize() / 1e9:.1f} GB; one ONNX file holds 2"
        )
    content: bytes = model.SerializeToString()
    _require_equal(content, predictor)
    write_bytes(file, content)
    return file


def input_names(models: Sequence[PredictorModel]) -> dict[str, Geometry]:
    """The inputs of the file, and how an image becomes each of them."""
    geometries = list(dict.fromkeys(network.preprocessing.geometry for network in models))
    if len(geometries) == 1:
        return {"pixels": geometries[0]}
    names: dict[str, Geometry] = {}
    for geometry in geometries:
        name = "pixels_{}x{}".format(*geometry.crop)
        names[name if name not in names else f"{name}_{len(names)}"] = geometry
    return names


class _Graph:
    """The parts of the file as they come together."""

    def __init__(self, onnx: Any, predictor: Predictor) -> None:
        self.onnx = onnx
        self.predictor = predictor
        self.inputs = input_names(predictor.models)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.sparse: list[Any] = []
        self.batch: int | str = "n"

    def model(self) -> Any:
        helper = self.onnx.helper
        parts = self._parts()
        features = [
            self._features(network, part, f"oodzoo{at}_")
            for at, (network, part) in enumerate(parts.items())
        ]
        self._head(features)
        graph = helper.make_graph(
            self.nodes,
            "oodzoo",
            [
                self._value(name, self.onnx.TensorProto.UINT8, (*geometry.crop, 3))
                for name, geometry in self.inputs.items()
            ],
            [
                self._value(
                    "probabilities",
                    self.onnx.TensorProto.FLOAT,
                    (len(self.predictor.classes_),),
                )
            ],
            self.constants,
            sparse_initializer=self.sparse,
        )
        model = helper.make_model(
            graph,
            producer_name="oodzoo",
            producer_version=oodzoo.__version__,
            opset_imports=_opsets(helper, parts.values()),
            functions=[function for part in parts.values() for function in part.functions],
            ir_version=max(8, *(part.ir_version for part in parts.values())),
        )
        helper.set_model_props(
            model,
            {
                "oodzoo": oodzoo.__version__,
                "classes": json.dumps(self.predictor.classes_.tolist()),
                "inputs": json.dumps({name: vars(g) for name, g in self.inputs.items()}),
            },
        )
        try:
            self.onnx.checker.check_model(model)
        except Exception as error:
            raise InputError(f"the models cannot be joined: {one_line(error)}") from error
        return model

    def _parts(self) -> dict[PredictorModel, Any]:
        """Each model up to its features, all of one opset, with names of its own."""
        parts = {network: self._cut(network) for network in self.predictor.models}
        newest = max(_OLDEST, *(_opset(part) for part in parts.values()))
        for at, (network, part) in enumerate(parts.items()):
            if _opset(part) != newest:
                try:
                    part = self.onnx.version_converter.convert_version(part, newest)
                except Exception as error:
                    raise InputError(
                        f"model {network.name!r} cannot be brought from opset {_opset(part)} to "
                        f"{newest}, which the others need: {one_line(error)}"
                    ) from error
            parts[network] = self.onnx.compose.add_prefix(part, f"model{at}_")
            self._keep_batch(network, part)
        return parts

    def _cut(self, network: PredictorModel) -> Any:
        """A model without what its features do not need."""
        model = self.onnx.load(network.spec.file)
        graph = model.graph
        makers = {name: node for node in graph.node for name in node.output}
        needed: set[str] = set()
        waiting = [network.spec.features or ""]
        while waiting:
            name = waiting.pop()
            if name in needed:
                continue
            needed.add(name)
            if name in makers:
                waiting += _read(makers[name])
        nodes = [node for node in graph.node if needed & set(node.output)]
        output = next(value for value in graph.output if value.name == network.spec.features)
        constants = [tensor for tensor in graph.initializer if tensor.name in needed]
        sparse = [t for t in graph.sparse_initializer if t.values.name in needed]
        known = {tensor.name for tensor in constants}
        # files of before IR 4 list their weights among the inputs
        inputs = [value for value in graph.input if value.name not in known]
        for field, values in (
            (graph.node, nodes),
            (graph.initializer, constants),
            (graph.sparse_initializer, sparse),
            (graph.input, inputs),
            (graph.output, [output]),
        ):
            copies = [type(value).FromString(value.SerializeToString()) for value in values]
            del field[:]
            field.extend(copies)
        del graph.value_info[:]
        return model

    def _keep_batch(self, network: PredictorModel, part: Any) -> None:
        """A model for batches of one size makes the whole file one for that size."""
        size = part.graph.input[0].type.tensor_type.shape.dim[0].dim_value
        if not size:
            return
        if self.batch not in ("n", size):
            raise InputError(
                f"model {network.name!r} takes {size} images at a time and another one "
                f"{self.batch}; they cannot be in one file"
            )
        self.batch = size

    def _features(self, network: PredictorModel, part: Any, prefix: str) -> str:
        """Pixels to the kept features of a model; gives the name of the result."""
        float32 = self.onnx.TensorProto.FLOAT
        graph = part.graph
        (pixels,) = (n for n, g in self.inputs.items() if g == network.preprocessing.geometry)
        kind = graph.input[0].type.tensor_type.elem_type
        mean, std = (np.array(v) for v in (network.preprocessing.mean, network.preprocessing.std))
        last = graph.input[0].name
        # the numbers and the order of Preprocessing.normalise
        factor = self._constant(f"{prefix}factor", (1 / (255 * std)).reshape(1, 3, 1, 1))
        offset = self._constant(f"{prefix}offset", (mean / std).reshape(1, 3, 1, 1))
        self._add("Cast", [pixels], f"{prefix}float", to=float32)
        self._add("Transpose", [f"{prefix}float"], f"{prefix}planes", perm=[0, 3, 1, 2])
        self._add("Mul", [f"{prefix}planes", factor], f"{prefix}scaled")
        normalised = last if kind == float32 else f"{prefix}normalised"
        self._add("Sub", [f"{prefix}scaled", offset], normalised)
        if kind != float32:
            self._add("Cast", [normalised], last, to=kind)
        self.nodes += graph.node
        self.constants += graph.initializer
        self.sparse += graph.sparse_initializer
        output = graph.output[0]
        name = output.name
        if output.type.tensor_type.elem_type != float32:
            name = self._add("Cast", [name], f"{prefix}features32", to=float32)
        if len(_known_shape(self.onnx, part)) == 4:
            pooled = self._add("GlobalAveragePool", [name], f"{prefix}pooled")
            name = self._add("Flatten", [pooled], f"{prefix}flat", axis=1)
        columns = self.predictor.columns.by_model[network.name]
        tensor = self.onnx.numpy_helper.from_array(columns, f"{prefix}columns")
        self.constants.append(tensor)
        return self._add("Gather", [name, tensor.name], f"{prefix}kept", axis=1)

    def _head(self, features: list[str]) -> None:
        head = self.predictor.head
        weights = self._constant("head_weights", head.weights.T)
        bias = self._constant("head_bias", head.bias)
        together = self._add("Concat", features, "kept", axis=1)
        logits = self._add("Gemm", [together, weights, bias], "logits")
        self._add("Softmax", [logits], "probabilities", axis=1)

    def _add(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, [output], **attributes))
        return output

    def _constant(self, name: str, values: NDArray[Any]) -> str:
        array = np.ascontiguousarray(values, np.float32)
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def _value(self, name: str, kind: int, shape: tuple[int, ...]) -> Any:
        return self.onnx.helper.make_tensor_value_info(name, kind, [self.batch, *shape])


def _require_equal(content: bytes, predictor: Predictor) -> None:
    """Refuse a file that says something else than the predictor, of images of noise."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    batch = session.get_inputs()[0].shape[0]
    rng = np.random.default_rng(0)
    pixels = {
        name: rng.integers(
            0, 256, (batch if isinstance(batch, int) else 4, *geometry.crop, 3), np.uint8
        )
        for name, geometry in input_names(predictor.models).items()
    }
    found = session.run(["probabilities"], pixels)[0]
    by_geometry = {g: pixels[n] for n, g in input_names(predictor.models).items()}
    expected = predictor.head.probabilities(
        features_of_pixels(by_geometry, predictor.loaded(), predictor.columns.by_model)
    )
    difference = float(np.abs(found - expected).max())
    if not difference <= TOLERANCE:
        raise InputError(
            f"the models in one ONNX file give probabilities that differ by {difference:.1g} "
            f"from the predictor's, more than {TOLERANCE:.0e}; no file was written"
        )


def _opset(model: Any) -> int:
    return int(next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx")))


def _opsets(helper: Any, parts: Any) -> list[Any]:
    """The operators that all models need together."""
    versions: dict[str, int] = {}
    for part in parts:
        for opset in part.opset_import:
            domain = "" if opset.domain == "ai.onnx" else opset.domain
            versions[domain] = max(versions.get(domain, 0), opset.version)
    return [helper.make_opsetid(domain, version) for domain, version in versions.items()]


def _read(node: Any) -> list[str]:
    """What a node reads, in the graphs inside it too."""
    names = list(node.input)
    for attribute in node.attribute:
        for graph in [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]:
            names += [name for inner in graph.node for name in _read(inner)]
            names += [value.name for value in graph.output]
    return names


def _known_shape(onnx: Any, part: Any) -> list[Any]:
    """The dimensions of a model's features; inferred where the file does not state them."""
    kind = part.graph.output[0].type.tensor_type
    if not kind.HasField("shape"):
        kind = onnx.shape_inference.infer_shapes(part).graph.output[0].type.tensor_type
    return list(kind.shape.dim)

"""A predictor as one ONNX file, from pixels or from an image to probabilities.

The file has one input per image size of its models (`pixels`, or `pixels_224x224` and so on if
there are several): uint8 (n, height, width, 3), resized and cropped by
:meth:`Predictor.preprocess <oodzoo.Predictor.preprocess>`. The graph does the rest: normalisation,
the models up to their features, the selected columns, the head, the softmax.

In the raw form, the input is `image`, uint8 (height, width, 3), one RGB image of any size. The
graph resizes and crops it for each of its models; see :mod:`oodzoo.predictor.resizing`.

The output is `probabilities`, float32 (n, n_classes), of classes or of labels; or `numbers`,
float64 (n, outputs), for regression. The metadata of the file has the classes, the
geometries, the version of oodzoo, and the facts about the predictor that
:meth:`Predictor.to_dict <oodzoo.Predictor.to_dict>` returns.

The file of the head alone has one input per model, with its name: all of its features, float32
(n, d). The graph does the rest: the selected columns, the head, the softmax.

PyTorch models are written with torch.onnx, in float32; see :mod:`oodzoo.zoo.torch_to_onnx`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.core.io import write_tidily
from oodzoo.core.packages import optional_package
from oodzoo.core.text import one_line
from oodzoo.predictor.models import PredictorModel, in_one_pass
from oodzoo.predictor.models import load_models as load_again
from oodzoo.predictor.parts import PredictorParts
from oodzoo.predictor.resizing import IMAGE, build_resizing, require_resizable
from oodzoo.zoo import Geometry, Model
from oodzoo.zoo.model import Pixels
from oodzoo.zoo.onnx_to_torch import features_graph, opset, output_rank
from oodzoo.zoo.sources import get_source, load_trainable_network
from oodzoo.zoo.sources.torch import TorchSource
from oodzoo.zoo.torch_to_onnx import write_outputs

TOLERANCE = 1e-5
"""Largest accepted difference between the outputs of the file and of the predictor."""

OPSET = 13
"""The first opset whose Softmax is over one axis."""

IR_VERSION = 8


class GraphBuilder:
    """Collects the nodes and constants of a graph.

    Attributes
    ----------
    onnx : module
    parts : PredictorParts
    nodes, constants, sparse : list
    batch : int or str
        Size of the first dimension of inputs and outputs, or its name.
    """

    def __init__(self, parts: PredictorParts) -> None:
        self.onnx = optional_package("onnx", extra="onnx", purpose="exporting to ONNX")
        self.parts = parts
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.sparse: list[Any] = []
        self.batch: int | str = "n"

    def add(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Add a node; return the name of its output."""
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, [output], **attributes))
        return output

    def constant(self, name: str, values: NDArray[Any], dtype: Any = np.float32) -> str:
        """Add a constant; return its name."""
        array = np.ascontiguousarray(values, dtype)
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def add_columns(self, model: str, features: str, prefix: str) -> str:
        """Take the selected columns of the features of a model."""
        columns = self.parts.columns.by_model[model]
        if model in self.parts.columns.normalised:
            features = self._add_normalisation(features, prefix)
        kept = self.constant(f"{prefix}columns", columns, np.int64)
        return self.add("Gather", [features, kept], f"{prefix}selected", axis=1)

    def _add_normalisation(self, features: str, prefix: str) -> str:
        """Divide features by their norm, as :func:`oodzoo.extraction.columns.normalise` does."""
        axes = self.constant(f"{prefix}axes", np.array([1]), np.int64)
        least = self.constant(f"{prefix}least", np.array(np.finfo(np.float32).tiny))
        squares = self.add("Mul", [features, features], f"{prefix}squares")
        total = self.add("ReduceSum", [squares, axes], f"{prefix}total", keepdims=1)
        norm = self.add("Sqrt", [total], f"{prefix}norm")
        positive = self.add("Max", [norm, least], f"{prefix}positive")
        return self.add("Div", [features, positive], f"{prefix}unit")

    def add_head(self, features: list[str]) -> None:
        """Add the head on the selected columns of all models."""
        head, mean = self.parts.head, self.parts.gaussian.mean.astype(np.float32)
        numbers = not head.task.has_probabilities  # may be too large for float32
        dtype = np.float64 if numbers else np.float32
        weights = self.constant("oodzoo_head_weights", head.weights.T, dtype)
        # centred: the product of a large mean and a weight would be rounded to float32
        centre = self.constant("oodzoo_head_mean", mean)
        bias = self.constant("oodzoo_head_bias", head.bias + head.weights @ mean, dtype)
        together = self.add("Concat", features, "oodzoo_concatenated", axis=1)
        centred = self.add("Sub", [together, centre], "oodzoo_centred")
        if numbers:
            double = self.onnx.TensorProto.DOUBLE
            exact = self.add("Cast", [centred], "oodzoo_centred64", to=double)
            self.add("Gemm", [exact, weights, bias], self.output)
            return
        outputs = self.add("Gemm", [centred, weights, bias], "oodzoo_head_outputs")
        options = {"axis": 1} if head.task.one_class else {}
        self.add(head.task.link.capitalize(), [outputs], self.output, **options)

    @property
    def output(self) -> str:
        """Name of the output."""
        return output_name(self.parts)

    def value_info(self, name: str, dtype: int, shape: tuple[int, ...]) -> Any:
        """Describe an input or output."""
        return self.onnx.helper.make_tensor_value_info(name, dtype, [self.batch, *shape])

    def finish(self, inputs: Sequence[Any], described: dict[str, Any], **options: Any) -> Any:
        """Return the checked ModelProto; `described` has the inputs, for its metadata."""
        helper, types = self.onnx.helper, self.onnx.TensorProto
        dtype = types.FLOAT if self.parts.task.has_probabilities else types.DOUBLE
        output = self.value_info(self.output, dtype, (len(self.parts.classes),))
        graph = helper.make_graph(
            self.nodes, "oodzoo", inputs, [output], self.constants, sparse_initializer=self.sparse
        )
        model = helper.make_model(
            graph, producer_name="oodzoo", producer_version=oodzoo.__version__, **options
        )
        helper.set_model_props(
            model,
            {
                "oodzoo": oodzoo.__version__,
                "classes": json.dumps(self.parts.classes),
                "task": self.parts.task.kind,
                "inputs": json.dumps(described),
                "predictor": json.dumps(self.parts.to_dict()),
            },
        )
        try:
            self.onnx.checker.check_model(model)
        except Exception as error:
            raise InputError(f"the models cannot be merged: {one_line(error)}") from error
        return model


def output_name(parts: PredictorParts) -> str:
    """Name of the output: `probabilities` of classes or labels, or `numbers`."""
    return "probabilities" if parts.task.has_probabilities else "numbers"


def require_file_name(file: Path) -> None:
    """Raise InputError if the file to write is a folder."""
    if file.is_dir():
        raise InputError(f"{str(file)!r} is a folder; name a file, such as model.onnx")


def open_session(content: bytes) -> Any:
    """Open a model with ONNX Runtime, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def require_close(
    found: NDArray[Any], expected: NDArray[Any], tolerance: float = TOLERANCE
) -> None:
    """Raise InputError if the outputs of the file and of the predictor differ.

    The difference is absolute up to 1, and relative to larger numbers.
    """
    scale = max(1.0, float(np.abs(expected).max()))
    difference = float(np.abs(found - expected).max()) / scale
    if not difference <= tolerance:
        raise InputError(
            f"the outputs of the ONNX file differ by {difference:.1g} from the predictor's, "
            f"more than {tolerance:.0e}; no file was written"
        )


TORCH_TOLERANCE = 1e-4
"""As `TOLERANCE`, with PyTorch models: PyTorch and ONNX Runtime add up in different orders."""

PIXEL_TOLERANCE = 1.0
"""Largest accepted mean difference between the pixels of the raw form and Pillow's, of 255."""

_MAX_BYTES = 2_000_000_000  # limit of a protobuf


def export_onnx(
    parts: PredictorParts,
    load_models: Callable[[], Mapping[str, Model]],
    file: Path,
    *,
    raw: bool = False,
) -> Path:
    """Write a predictor as one ONNX file, after verifying its probabilities.

    `load_models` returns the models by name; they compute the expected probabilities.
    """
    models = parts.loadable_models
    for model in models:
        if not _is_onnx(model) and not isinstance(get_source(model.spec.kind), TorchSource):
            raise InputError(
                f"model {model.name!r} comes from {model.spec.kind}; only ONNX files and image "
                "models of PyTorch can be exported (fit with such models: models=). The head of "
                "any predictor can: --head-only (head_only=True)"
            )
        if raw:
            require_resizable(model.preprocessing.geometry, model.name)
    require_file_name(file)
    graph = _PixelGraph(parts, raw=raw)
    proto = graph.build()
    if proto.ByteSize() > _MAX_BYTES:
        raise InputError(
            f"the models together are {proto.ByteSize() / 1e9:.1f} GB; an ONNX file is limited to "
            "2 GB"
        )
    content: bytes = proto.SerializeToString()
    if all(map(_is_onnx, models)):
        loaded, tolerance = load_models(), TOLERANCE
    else:  # a half precision or another device would differ
        exact = [m if _is_onnx(m) else replace(m, precision="float32") for m in models]
        loaded, tolerance = load_again(exact, "cpu"), TORCH_TOLERANCE
    session = open_session(content)
    if graph.resizing is None:
        batch = session.get_inputs()[0].shape[0]
        pixels = noise(models, batch if isinstance(batch, int) else 4)
        examples = iter([(pixels, pixels)])
    else:
        examples = _resized(models, graph.resizing.SerializeToString())
    for given, pixels in examples:
        expected = parts.head.values(features_of(parts, loaded, pixels))
        require_close(session.run(None, given)[0], expected, tolerance)
    write_tidily(file, content)
    return file


def _is_onnx(model: PredictorModel) -> bool:
    return model.spec.kind == "onnx"


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
    """Merges the graphs of the models, and adds normalisation and head.

    In the raw form, the pixels are not inputs, but come from the graph `resizing`.
    """

    def __init__(self, parts: PredictorParts, *, raw: bool) -> None:
        super().__init__(parts)
        models = parts.loadable_models
        self.networks = in_one_pass(models)
        self.inputs = input_names(models)
        self.resizing = build_resizing(self.onnx, self.inputs) if raw else None
        if raw:
            self.batch = 1

    def build(self) -> Any:
        """Return the checked ModelProto."""
        helper, types = self.onnx.helper, self.onnx.TensorProto
        protos = self._network_protos()
        if self.resizing is not None:
            self.nodes += self.resizing.graph.node
            self.constants += self.resizing.graph.initializer
        features: dict[str, str] = {}
        for number, (models, proto) in enumerate(zip(self.networks, protos, strict=True)):
            features |= self._add_network(models, proto, f"oodzoo{number}_")
        self.add_head([features[model.name] for model in self.parts.models])
        if self.resizing is None:
            inputs = [
                self.value_info(name, types.UINT8, (*geometry.crop, 3))
                for name, geometry in self.inputs.items()
            ]
            described = {name: vars(geometry) for name, geometry in self.inputs.items()}
        else:
            inputs = list(self.resizing.graph.input)
            described = {IMAGE: {"geometries": [vars(each) for each in self.inputs.values()]}}
        return self.finish(
            inputs,
            described,
            opset_imports=_merged_opsets(helper, protos),
            functions=[function for proto in protos for function in proto.functions],
            ir_version=max(IR_VERSION, *(proto.ir_version for proto in protos)),
        )

    def _network_protos(self) -> list[Any]:
        """Each network up to the features, all with one opset and with unique names."""
        protos = [self._network_proto(models) for models in self.networks]
        least = OPSET if self.resizing is None else opset(self.resizing)
        newest = max(least, *(opset(proto) for proto in protos))
        for number, proto in enumerate(protos):
            model = self.networks[number][0]
            if opset(proto) != newest:
                try:
                    proto = self.onnx.version_converter.convert_version(proto, newest)
                except Exception as error:
                    raise InputError(
                        f"model {model.name!r} cannot be converted from opset {opset(proto)} to "
                        f"{newest}, which other parts of the file need: {one_line(error)}"
                    ) from error
            protos[number] = self.onnx.compose.add_prefix(proto, f"model{number}_")
            self._set_batch_size(model, proto)
        return protos

    def _network_proto(self, models: Sequence[PredictorModel]) -> Any:
        """Read a network, or export it from PyTorch, with an output for each model."""
        specs, preprocessing = [model.spec for model in models], models[0].preprocessing
        if _is_onnx(models[0]):
            return features_graph(self.onnx, specs, preprocessing)
        module = load_trainable_network(specs, preprocessing)
        outputs = [f"features{at}" for at in range(len(models))]
        with TemporaryDirectory() as folder:
            file = Path(folder) / "network.onnx"
            write_outputs(module, preprocessing.geometry.crop, file, outputs, name=specs[0].name)
            return self.onnx.load(file)

    def _set_batch_size(self, model: PredictorModel, proto: Any) -> None:
        """Adopt the batch size of a model that has a fixed one."""
        size = proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value
        if not size:
            return
        if self.resizing is not None and size != 1:
            raise InputError(
                f"model {model.name!r} has a fixed batch size of {size}, but the raw form takes "
                "one image; export without --raw (raw=)"
            )
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


# --- what the file must return -------------------------------------------------------------------


def noise(models: Sequence[PredictorModel], n: int) -> dict[str, Pixels]:
    """Images of noise for each input of the file."""
    rng = np.random.default_rng(0)
    return {
        name: rng.integers(0, 256, (n, *geometry.crop, 3), np.uint8)
        for name, geometry in input_names(models).items()
    }


def features_of(
    parts: PredictorParts, loaded: Mapping[str, Model], pixels: Mapping[str, Pixels]
) -> NDArray[np.float32]:
    """Compute the selected features of all models for the inputs of the file."""
    inputs = {geometry: name for name, geometry in input_names(parts.loadable_models).items()}
    kept = [
        parts.columns.of(name, model(pixels[inputs[model.info.preprocessing.geometry]]).features)
        for name, model in loaded.items()
    ]
    return np.concatenate(kept, axis=1)


def _resized(
    models: Sequence[PredictorModel], resizing: bytes
) -> Iterator[tuple[dict[str, Pixels], dict[str, Pixels]]]:
    """Images of several sizes for the raw form, and their pixels as the file resizes them.

    Raises InputError if these differ from Pillow's.
    """
    session, inputs = open_session(resizing), input_names(models)
    for image in _images(next(iter(inputs.values()))):
        pixels = dict(zip(inputs, session.run(None, {IMAGE: image}), strict=True))
        for name, geometry in inputs.items():
            expected = geometry.apply(Image.fromarray(image)).astype(float)
            difference = float(np.abs(pixels[name][0] - expected).mean())
            if not difference <= PIXEL_TOLERANCE:
                raise InputError(
                    f"the pixels that the ONNX file resizes differ by {difference:.1f} of 255 "
                    f"from Pillow's, more than {PIXEL_TOLERANCE}; no file was written: export "
                    "without --raw (raw=)"
                )
        yield {IMAGE: image}, pixels


def _images(geometry: Geometry) -> Iterator[NDArray[np.uint8]]:
    """Images of waves in three sizes: a wide, a tall and a small one."""
    height, width = geometry.crop
    for shape in (
        (height * 3 // 2, width * 2 + 1),
        (height * 2 + 1, width),
        (height // 2 + 1,) * 2,
    ):
        y, x = np.indices(shape)
        waves = [np.sin(x / a + y / b) for a, b in ((3, 7), (8, -5), (-4, 2))]
        yield (127.5 + 127 * np.stack(waves, axis=2)).astype(np.uint8)


def _merged_opsets(helper: Any, protos: Iterable[Any]) -> list[Any]:
    """The newest opset of each domain."""
    versions: dict[str, int] = {}
    for proto in protos:
        for entry in proto.opset_import:
            domain = "" if entry.domain == "ai.onnx" else entry.domain
            versions[domain] = max(versions.get(domain, 0), entry.version)
    return [helper.make_opsetid(domain, version) for domain, version in versions.items()]


# --- the head alone ------------------------------------------------------------------------------


def feature_inputs(parts: PredictorParts) -> dict[str, str]:
    """Name the input of each model: as the model, unless the graph uses its name."""
    reserved = {output_name(parts)} | {
        model.name for model in parts.models if model.name.startswith("oodzoo_")
    }
    return {
        model.name: f"features_{model.name}" if model.name in reserved else model.name
        for model in parts.models
    }


def export_head(parts: PredictorParts, file: Path) -> Path:
    """Write the head of a predictor as an ONNX file, after verifying its outputs.

    They are compared with those of the predictor for noise like the training features.
    """
    require_file_name(file)
    graph, inputs = GraphBuilder(parts), feature_inputs(parts)
    widths = {inputs[model.name]: model.feature_dim for model in parts.models}
    graph.add_head(
        [
            graph.add_columns(model, name, f"oodzoo_{number}_")
            for number, (model, name) in enumerate(inputs.items())
        ]
    )
    float32 = graph.onnx.TensorProto.FLOAT
    proto = graph.finish(
        [graph.value_info(name, float32, (width,)) for name, width in widths.items()],
        {name: {"features": width} for name, width in widths.items()},
        opset_imports=[graph.onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    content: bytes = proto.SerializeToString()
    mean, scale = parts.gaussian.mean, parts.gaussian.scale
    spread = np.where(np.isfinite(scale), scale, 0)
    normal = np.random.default_rng(0).normal(size=(4, len(scale)))
    selected = (mean + spread * normal).astype(np.float32)
    features, taken, left = dict[str, Any](), [], 0
    for name, columns in parts.columns.by_model.items():
        whole = np.zeros((len(selected), widths[inputs[name]]), np.float32)
        whole[:, columns] = selected[:, left : left + len(columns)]
        left += len(columns)
        features[inputs[name]] = whole
        taken.append(parts.columns.of(name, whole))
    found = open_session(content).run(None, features)[0]
    require_close(found, parts.head.values(np.concatenate(taken, axis=1)))
    write_tidily(file, content)
    return file

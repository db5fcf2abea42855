"""A predictor as a JSON document and arrays, with or without the files of its models.

A model from a hub has no files to copy: its identifier and its fingerprint are recorded.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.core.io import file_digest, require_schema, structured
from oodzoo.core.text import count
from oodzoo.extraction.columns import Columns
from oodzoo.linear.heads.adaptive import AdaptiveHead, Confusion
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.predictor.gaussian import GaussianScalars, TrainingGaussian
from oodzoo.predictor.left_out import LeftOut
from oodzoo.predictor.models import (
    AnyModel,
    FeatureModel,
    PredictorModel,
    as_preprocessing,
    file_digests,
    local_files,
    onnx_files,
)
from oodzoo.predictor.parts import PredictorParts, Provenance
from oodzoo.tasks import Kind
from oodzoo.zoo import ModelSpec
from oodzoo.zoo.layers import by_network, network_key
from oodzoo.zoo.sources import get_source
from oodzoo.zoo.spec import check_spec, local_path

FOLDER = "models"


@dataclass(frozen=True)
class BundledModel:
    """Entry of a model in predictor.json; paths are relative to the folder of the predictor."""

    name: str
    source: str
    stated: dict[str, Any]
    """The fields of its :class:`ModelSpec`, besides name and source."""
    preprocessing: dict[str, Any]
    feature_dim: int
    precision: str
    fingerprint: str
    files: dict[str, str]
    """SHA-256 of each copied file, by path."""
    parameters: int | None = None
    milliseconds: float | None = None

    def __post_init__(self) -> None:
        check_spec(self.spec, "predictor.json")
        as_preprocessing(self.preprocessing, f"the preprocessing of model {self.name!r}")

    @property
    def spec(self) -> ModelSpec:
        fields = {**self.stated, "name": self.name, "source": self.source}
        return structured(fields, ModelSpec, f"the spec of model {self.name!r}")

    def model(self, folder: Path) -> PredictorModel:
        """Return the model, with its files in the folder of the predictor."""
        return PredictorModel(
            replace(self.spec, folder=folder),
            as_preprocessing(self.preprocessing, f"the preprocessing of model {self.name!r}"),
            self.feature_dim,
            self.precision,
            self.fingerprint,
            self.files,
            self.parameters,
            self.milliseconds,
        )


def bundle_models(
    models: Sequence[PredictorModel], folder: Path, within: str = FOLDER
) -> list[BundledModel]:
    """Copy the files of models into a folder within the folder of a predictor.

    Models of one network share its files.
    """
    bundled: dict[str, BundledModel] = {}
    for together in by_network(models, lambda model: network_key(model.spec)):
        first = bundle_model(together[0], folder, within)
        for model in together:
            bundled[model.name] = bundle_entry(model, first.source, first.files)
    return [bundled[model.name] for model in models]


def bundle_model(model: PredictorModel, folder: Path, within: str = FOLDER) -> BundledModel:
    """Copy the files of a model into a folder within the folder of a predictor."""
    spec = model.spec
    source, copies = _plan_copies(spec, within)
    files = {}
    for path, file in copies.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with file.open("rb") as reader, target.open("wb") as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)
            writer.flush()
            os.fsync(writer.fileno())
        files[path] = file_digest(target)
    if spec.kind == "onnx" and list(files.values()) != list(file_digests(spec).values()):
        raise InputError(f"model {spec.name!r}: {str(spec.file)!r} changed while it was copied")
    return bundle_entry(model, source, files)


def bundle_entry(model: PredictorModel, source: str, files: dict[str, str]) -> BundledModel:
    """The entry of a model whose files are at `files`, with their SHA-256."""
    spec = model.spec
    return BundledModel(
        spec.name,
        source,
        {k: v for k, v in spec.to_dict().items() if k not in ("name", "source")},
        asdict(model.preprocessing),
        model.feature_dim,
        model.precision,
        model.fingerprint,
        files,
        model.parameters,
        model.milliseconds,
    )


def _plan_copies(spec: ModelSpec, within: str) -> tuple[str, dict[str, Path]]:
    """The source of a bundled model, and the files to copy by path within the bundle."""
    if spec.kind == "onnx":
        return _plan_onnx_copies(spec, within)
    local, wanted = local_path(spec), local_files(spec)
    if local is None:
        return spec.source, {}
    source = get_source(spec.kind)
    if wanted is None:  # loading a predictor must not run code that it brings
        raise InputError(
            f"model {spec.name!r}: a saved predictor has no code, and {spec.source!r} is code in a "
            "local folder; export the network to ONNX, and use it as onnx/<file>"
        )
    home = f"{within}/{spec.name}"
    if not any(file.suffix == ".safetensors" for file in wanted):
        raise InputError(
            f"model {spec.name!r}: {str(local)!r} has no .safetensors file, and pickled weights "
            "are not copied into a predictor; convert them to safetensors"
        )
    above = local if local.is_dir() else local.parent
    copies = {f"{home}/{file.relative_to(above).as_posix()}": file for file in wanted}
    place = home if local.is_dir() else f"{home}/{local.name}"
    return f"{spec.kind}/{source.moved(spec, place)}", copies


def _plan_onnx_copies(spec: ModelSpec, within: str) -> tuple[str, dict[str, Path]]:
    file, *external = onnx_files(spec)
    if not external:
        path = f"{within}/{spec.name}.onnx"
        return f"onnx/{path}", {path: file}
    # a folder per model: external weight files of two models may have the same name
    home = f"{within}/{spec.name}"
    copies = {f"{home}/{spec.name}.onnx": file}
    for weights in external:
        relative = weights.relative_to(file.parent)
        if ".." in relative.parts:
            raise InputError(
                f"model {spec.name!r}: its weight file {str(weights)!r} is outside the folder of "
                "the model; move it there"
            )
        copies[f"{home}/{relative.as_posix()}"] = weights
    return f"onnx/{home}/{spec.name}.onnx", copies


SCHEMA = 1
_KIND = "oodzoo predictor"
HEAD, GAUSSIAN = "head.safetensors", "gaussian.safetensors"
"""Names of the groups of arrays, which are files of a saved predictor."""

Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class _HeadEntry:
    C: float


@dataclass(frozen=True)
class Document:
    """Content of predictor.json, besides its kind, schema and version."""

    classes: list[str | int | float | bool]
    models: list[BundledModel]
    head: _HeadEntry
    out_of_domain: GaussianScalars
    provenance: Provenance
    files: dict[str, str]
    adaptive: AdaptiveScalars | None
    features: list[FeatureModel]
    """Models that only have features; then there are no `models`."""
    normalised: list[str]
    """Models whose features are divided by their norm."""
    task: Kind
    """What is predicted."""
    left_out: LeftOut | None
    """What was measured on left-out domains."""


@dataclass(frozen=True)
class _Files:
    """The part of an entry of predictor.json that names files."""

    files: dict[str, str]


@dataclass(frozen=True)
class _Names(_Files):
    """The parts of predictor.json that name files."""

    models: list[_Files]


# --- from parts ---------------------------------------------------------------------------------


def to_tensors(parts: PredictorParts) -> dict[str, Tensors]:
    """The arrays of a predictor, in two groups."""
    head: Tensors = {"weights": parts.head.weights, "bias": parts.head.bias}
    head |= {f"columns.{name}": columns for name, columns in parts.columns.by_model.items()}
    if parts.adaptive is not None:
        head |= adaptive_tensors(parts.adaptive)
    return {HEAD: head, GAUSSIAN: parts.gaussian.tensors()}


def to_document(
    parts: PredictorParts, models: Sequence[BundledModel], files: Mapping[str, str]
) -> dict[str, Any]:
    """Everything else, for JSON; `files` are the checksums of the arrays."""
    document = Document(
        parts.classes,
        list(models),
        _HeadEntry(parts.head.C),
        parts.gaussian.scalars(),
        parts.provenance,
        dict(files),
        None if parts.adaptive is None else AdaptiveScalars.of(parts.adaptive),
        [model for model in parts.models if isinstance(model, FeatureModel)],
        sorted(parts.columns.normalised),
        parts.head.kind,
        parts.left_out,
    )
    head = {"kind": _KIND, "schema": SCHEMA, "oodzoo": oodzoo.__version__}
    return head | asdict(document)


# --- to parts -----------------------------------------------------------------------------------


def parse_document(content: dict[str, Any], what: str) -> Document:
    """Check a document; `what` begins error messages."""
    require_schema(content, SCHEMA, what, "fit it again")
    try:
        document = structured(content, Document, what)
    except InputError as error:
        raise InputError(f"{error}; fit again") from error
    names = {model.name for model in document.models}
    names |= {model.name for model in document.features}
    if unknown := sorted(set(document.normalised) - names):
        raise InputError(f"{what} is damaged: it has no model {unknown[0]!r}; fit again")
    if bool(document.models) == bool(document.features):
        raise InputError(
            f"{what} is damaged: it must have either models or models that only have features; "
            "fit again"
        )
    _require_thresholds(document, what)
    return document


def to_parts(
    document: Document,
    models: Sequence[PredictorModel],
    tensors: Mapping[str, Tensors],
    names: Mapping[str, str],
) -> PredictorParts:
    """Check the arrays, and put the parts together.

    `models` are those of `document.models`; `names` are those of the two groups of arrays in error
    messages.
    """
    head, gaussian = tensors[HEAD], tensors[GAUSSIAN]
    known: tuple[PredictorModel, ...] | tuple[FeatureModel, ...]
    known = tuple(models) if models else tuple(document.features)
    columns = Columns(
        {model.name: _columns(head, model, names[HEAD]) for model in known},
        frozenset(document.normalised),
    )
    n_classes, n_features = len(document.classes), len(columns)
    _require_shapes(names[HEAD], head, {"weights": (n_classes, n_features), "bias": (n_classes,)})
    _require_shapes(names[GAUSSIAN], gaussian, TrainingGaussian.shapes(gaussian, n_features))
    adaptive = None
    if document.adaptive is not None:
        _require_shapes(names[HEAD], head, adaptive_shapes(n_classes, n_features))
        adaptive = adaptive_head(head, document.adaptive)
    return PredictorParts(
        known,
        columns,
        document.classes,
        LinearHead(head["weights"], head["bias"], document.head.C, document.task),
        TrainingGaussian.from_tensors(gaussian, document.out_of_domain),
        document.provenance,
        adaptive,
        document.left_out,
    )


def named_files(content: dict[str, Any], what: str) -> dict[str, str]:
    """The files that predictor.json names: path and SHA-256; `what` begins error messages."""
    document = structured(content, _Names, what)
    return {
        name: sha256
        for entry in (document, *document.models)
        for name, sha256 in entry.files.items()
    }


def is_predictor(content: dict[str, Any]) -> bool:
    """Whether the content of a file predictor.json was written by oodzoo."""
    return content.get("kind") == _KIND


def _columns(head: Tensors, model: AnyModel, where: str) -> NDArray[np.int64]:
    columns = head.get(f"columns.{model.name}", np.empty(0))
    valid = columns.ndim == 1 and columns.dtype == np.int64 and len(columns) > 0
    if not valid or columns.min() < 0 or columns.max() >= model.feature_dim:
        raise InputError(
            f"{where} is damaged: the columns of model {model.name!r} are not among its "
            f"{model.feature_dim} features; fit again"
        )
    return columns


def _require_thresholds(document: Document, what: str) -> None:
    """Reject prediction sets whose thresholds are not those of the classes or numbers."""
    n = len(document.classes) if document.task == "regression" else 1
    for each in document.left_out.sets if document.left_out else ():
        if len(each.thresholds) != n or not each.coverage or min(each.thresholds) < 0:
            raise InputError(
                f"{what} is damaged: prediction sets of coverage {each.level:g} must have "
                f"{count(n, 'threshold')} and a measured coverage, got {each.thresholds}; fit again"
            )


def _require_shapes(where: str, tensors: Tensors, shapes: dict[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        if name not in tensors:
            raise InputError(f"{where} is damaged: it has no {name!r}; fit again")
        found = tensors[name].shape
        if found != shape:
            raise InputError(
                f"{where} is damaged: the shape of {name!r} must be {shape}, got {found}; fit again"
            )
        if np.isnan(tensors[name]).any():
            raise InputError(f"{where} is damaged: {name!r} contains NaN; fit again")


_HEADS = ("plain", "standardised", "base")


@dataclass(frozen=True)
class AdaptiveScalars:
    """The scalars of an adaptive head, for JSON."""

    C: dict[str, float]
    """C of each of its heads."""
    noise: float

    def __post_init__(self) -> None:
        if set(self.C) != set(_HEADS) or not 0 <= self.noise < np.inf:
            raise InputError(
                f"an adaptive head must have a C for each of {', '.join(_HEADS)}, and a noise of 0 "
                f"or more, got {self.C} and {self.noise}"
            )

    @classmethod
    def of(cls, adaptive: AdaptiveHead) -> AdaptiveScalars:
        """Scalars of an adaptive head."""
        C = {name: getattr(adaptive, name).C for name in _HEADS}
        return cls(C, adaptive.confusion.noise)


def adaptive_tensors(adaptive: AdaptiveHead) -> Tensors:
    """The arrays of an adaptive head, by name; all names begin with `adaptive.`."""
    confusion = adaptive.confusion
    tensors = {"adaptive.rates": confusion.rates, "adaptive.reference": confusion.reference}
    for name in _HEADS:
        head: LinearHead = getattr(adaptive, name)
        tensors |= {f"adaptive.{name}.weights": head.weights, f"adaptive.{name}.bias": head.bias}
    return tensors


def adaptive_shapes(n_classes: int, n_features: int) -> dict[str, tuple[int, ...]]:
    """The shapes that the tensors must have."""
    shapes: dict[str, tuple[int, ...]] = {
        "adaptive.rates": (n_classes, n_classes),
        "adaptive.reference": (n_classes,),
    }
    for name in _HEADS:
        shapes[f"adaptive.{name}.weights"] = (n_classes, n_features)
        shapes[f"adaptive.{name}.bias"] = (n_classes,)
    return shapes


def adaptive_head(tensors: Tensors, scalars: AdaptiveScalars) -> AdaptiveHead:
    """Inverse of :func:`adaptive_tensors` and :meth:`AdaptiveScalars.of`."""
    heads = {
        name: LinearHead(
            tensors[f"adaptive.{name}.weights"], tensors[f"adaptive.{name}.bias"], scalars.C[name]
        )
        for name in _HEADS
    }
    rates, reference = tensors["adaptive.rates"], tensors["adaptive.reference"]
    return AdaptiveHead(**heads, confusion=Confusion(rates, reference, scalars.noise))

"""Pre-trained models: named zoos, zoo files, and one loader per source."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from oodzoo.errors import InputError
from oodzoo.zoo import onnx
from oodzoo.zoo.catalogue import named_zoo, zoo_names
from oodzoo.zoo.model import Model, ModelInfo, Outputs
from oodzoo.zoo.preprocessing import Geometry, Preprocessing
from oodzoo.zoo.spec import (
    SOURCES,
    ModelSpec,
    check_spec,
    portable_source,
    read_zoo_file,
    require_unique_names,
)
from oodzoo.zoo.torch_model import assemble

__all__ = [
    "Geometry",
    "Model",
    "ModelInfo",
    "ModelSpec",
    "Outputs",
    "Preprocessing",
    "load_model",
    "load_zoo",
    "zoo_names",
]


def load_zoo(zoo: str | Path | Iterable[str]) -> list[ModelSpec]:
    """List the models of a zoo without loading them.

    Parameters
    ----------
    zoo : str, path or iterable of str
        A named zoo (`demo`, …), a zoo file (TOML), a model spec `source/name`, or several specs as
        a list or separated by commas.

    Examples
    --------
    >>> import oodzoo
    >>> zoo = oodzoo.load_zoo("timm/resnet50.a1_in1k, hf/facebook/dinov2-small")
    >>> [spec.name for spec in zoo]
    ['timm-resnet50.a1_in1k', 'hf-facebook-dinov2-small']
    """
    if not isinstance(zoo, str | Path):
        specs = [_parse_spec(text) for text in zoo]
        remedy = "leave one out, or give them different names in a zoo file (.toml)"
        require_unique_names((spec.name for spec in specs), "the list of models", remedy)
        return specs
    text = os.fspath(zoo).strip()
    if text in zoo_names():
        return named_zoo(text)
    if text.endswith(".toml") or Path(text).is_file():
        specs = read_zoo_file(Path(text))
        require_unique_names((spec.name for spec in specs), f"the zoo file {text!r}")
        return specs
    if text.partition("/")[0] in SOURCES:
        return load_zoo([part.strip() for part in text.split(",") if part.strip()])
    raise InputError(
        f"{text!r} is not a zoo: give one of {', '.join(zoo_names())}, a zoo file (.toml), "
        "or specs such as timm/resnet50.a1_in1k, separated by commas"
    )


def load_model(spec: ModelSpec, *, device: str = "cpu", precision: str = "float32") -> Model:
    """Load a model with its weights, ready to run on a device."""
    if spec.kind == "onnx":
        return onnx.load(spec, device=device, precision=precision)
    built = import_module(f"oodzoo.zoo.{spec.kind}").build(spec)
    return assemble(built, spec, device=device, precision=precision)


def _parse_spec(text: str) -> ModelSpec:
    """Name a model after its source; after a local file or folder without those above it."""
    spec = ModelSpec(name="", source=text)
    name = spec.file.stem if spec.kind == "onnx" else portable_source(spec).replace("/", "-")
    return check_spec(dataclasses.replace(spec, name=name), "the list of models")

"""What is known about torchvision models before they are loaded."""

from __future__ import annotations

from typing import Any

from oodzoo._packages import optional_package
from oodzoo.zoo.listing.measuring import build_empty, measure_module, remembered
from oodzoo.zoo.listing.weights import Measured, Weights, url_weights
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.torchvision import checkpoint_of, registered
from oodzoo.zoo.torchvision_import import import_torchvision

_MEBIBYTE = 2**20


def identifiers(pattern: str) -> list[str]:
    """Names of models with their default weights; `<name>.<weights>` if the pattern has a dot."""
    models = _torchvision(f"the zoo 'torchvision/{pattern}'").models
    names = models.list_models(module=models)
    if "." not in pattern:
        return list(names)
    return [f"{name}.{each.name}" for name in names for each in models.get_model_weights(name)]


def licence(spec: ModelSpec) -> str | None:
    found: str | None = _registered(spec).meta.get("license")
    return None if checkpoint_of(spec) else found


def measure(spec: ModelSpec) -> Measured:
    return remembered(
        "torchvision", spec, spec.identifier, lambda: measure_module(build_empty(spec).module)
    )


def weights(spec: ModelSpec) -> Weights:
    known = _registered(spec)
    torch = optional_package("torch", extra="torchvision", purpose="torchvision")
    if url := checkpoint_of(spec):
        return url_weights(torch, url, None)
    return url_weights(torch, known.url, round(known.meta["_file_size"] * _MEBIBYTE))


def _registered(spec: ModelSpec) -> Any:
    return registered(_torchvision(f"model {spec.name!r} (torchvision)"), spec)[1]


def _torchvision(purpose: str) -> Any:
    return import_torchvision(extra="torchvision", purpose=purpose)

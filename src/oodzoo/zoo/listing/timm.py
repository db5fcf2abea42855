"""What is known about timm models before they are loaded."""

from __future__ import annotations

from typing import Any

from oodzoo._packages import optional_package
from oodzoo.zoo.listing.measuring import build_empty, measure_module, remembered
from oodzoo.zoo.listing.weights import (
    Measured,
    Weights,
    hub_card,
    hub_weights,
    known_licence,
    local_weights,
    url_weights,
)
from oodzoo.zoo.spec import ModelSpec, local_path
from oodzoo.zoo.timm import registered
from oodzoo.zoo.torchvision_import import import_torchvision

_FILES = ("model.safetensors", "pytorch_model.bin")


def identifiers(pattern: str) -> list[str]:
    """All names `<architecture>.<tag>` with pre-trained weights."""
    return list(_timm(f"the zoo 'timm/{pattern}'").list_models(pretrained=True))


def licence(spec: ModelSpec) -> str | None:
    if local_path(spec) is not None:
        return None
    if repository := _repository(spec):
        return hub_card(repository).licence
    return known_licence(_config(spec).license)


def measure(spec: ModelSpec) -> Measured:
    return remembered(
        "timm", spec, spec.identifier, lambda: measure_module(build_empty(spec).module)
    )


def weights(spec: ModelSpec) -> Weights:
    if (path := local_path(spec)) is not None:
        return local_weights(path)
    if repository := _repository(spec):
        return hub_weights(repository, _FILES, hub_card(repository).size)
    config = _config(spec)
    if config.hf_hub_id:
        names = (config.hf_hub_filename,) if config.hf_hub_filename else _FILES
        return hub_weights(config.hf_hub_id, names, None)
    return url_weights(optional_package("torch", extra="timm", purpose="timm"), config.url, None)


def _repository(spec: ModelSpec) -> str:
    """The repository of `timm/hf-hub:<owner>/<name>`, otherwise an empty string."""
    scheme, _, repository = spec.identifier.partition(":")
    return repository if scheme in ("hf-hub", "hf_hub") else ""


def _config(spec: ModelSpec) -> Any:
    return registered(_timm(f"model {spec.name!r} (timm)"), spec.identifier, spec)


def _timm(purpose: str) -> Any:
    import_torchvision(extra="timm", purpose=purpose)
    return optional_package("timm", extra="timm", purpose=purpose)

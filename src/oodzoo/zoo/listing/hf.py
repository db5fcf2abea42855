"""What is known about transformers models before they are loaded."""

from __future__ import annotations

from oodzoo._packages import optional_package
from oodzoo._text import one_line
from oodzoo.errors import InputError
from oodzoo.zoo.listing.measuring import build_empty
from oodzoo.zoo.listing.weights import (
    Measured,
    Weights,
    hub_card,
    hub_weights,
    is_offline,
    local_weights,
)
from oodzoo.zoo.spec import ModelSpec, local_path
from oodzoo.zoo.torch_model import count_parameters
from oodzoo.zoo.wildcards import has_wildcard

_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_TASKS = ("image-classification", "image-feature-extraction", "zero-shot-image-classification")


def identifiers(pattern: str) -> list[str]:
    """The vision models of an owner on the Hugging Face Hub."""
    zoo = f"the zoo 'hf/{pattern}'"
    hub = optional_package("huggingface_hub", extra="hf", purpose=zoo)
    owner, slash, _ = pattern.partition("/")
    if not slash or has_wildcard(owner):
        raise InputError(f"{zoo} must name an owner before the wildcard, as in hf/facebook/dinov2*")
    if is_offline():
        raise InputError(
            f"{zoo} needs the Hugging Face Hub, and HF_HUB_OFFLINE is set; unset it, or "
            "name the models"
        )
    try:
        listed = list(hub.HfApi().list_models(author=owner, filter="transformers"))
    except Exception as error:
        raise InputError(
            f"{zoo} needs the Hugging Face Hub, which cannot be reached: {one_line(error)}; check "
            "the connection, or name the models"
        ) from error
    return sorted(model.id for model in listed if model.pipeline_tag in _TASKS)


def licence(spec: ModelSpec) -> str | None:
    return None if local_path(spec) is not None else hub_card(spec.identifier).licence


def measure(spec: ModelSpec) -> Measured:
    """Count the parts in use; the file may contain others, so its size is not estimated."""
    return Measured(count_parameters(build_empty(spec).module))


def weights(spec: ModelSpec) -> Weights:
    if (path := local_path(spec)) is not None:
        return local_weights(path)
    return hub_weights(spec.identifier, _FILES, hub_card(spec.identifier).size)

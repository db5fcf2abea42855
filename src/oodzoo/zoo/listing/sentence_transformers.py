"""What is known about text encoders before they are loaded."""

from __future__ import annotations

from oodzoo.errors import InputError
from oodzoo.zoo.listing.weights import Measured, Weights, hub_card, hub_weights, local_weights
from oodzoo.zoo.model_spec import ModelSpec
from oodzoo.zoo.spec import local_path

_FILES = ("model.safetensors", "pytorch_model.bin", "model.safetensors.index.json")
_OWNER = "sentence-transformers"


def identifiers(pattern: str) -> list[str]:
    raise InputError(
        f"the zoo 'sentence-transformers/{pattern}' has a wildcard, and the models of "
        "sentence-transformers are not listed anywhere; name them"
    )


def licence(spec: ModelSpec) -> str | None:
    return None if local_path(spec) is not None else hub_card(_repository(spec)).licence


def measure(spec: ModelSpec) -> Measured:
    """Not known: the number of parameters of its modules is only known from the weights."""
    raise InputError(f"model {spec.name!r}: {spec.source} must be loaded to count its parameters")


def weights(spec: ModelSpec) -> Weights:
    if (path := local_path(spec)) is not None:
        return local_weights(path)
    repository = _repository(spec)
    return hub_weights(repository, _FILES, hub_card(repository).size)


def _repository(spec: ModelSpec) -> str:
    """The repository on the hub; a name without an owner is one of sentence-transformers itself."""
    return spec.identifier if "/" in spec.identifier else f"{_OWNER}/{spec.identifier}"

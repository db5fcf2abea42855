"""What is known about open_clip models before they are loaded."""

from __future__ import annotations

from pathlib import PurePosixPath

from oodzoo.zoo.listing.measuring import measure_module, on_meta_device, remembered
from oodzoo.zoo.listing.weights import Measured, Weights, hub_card, hub_weights, local_weights
from oodzoo.zoo.open_clip import build_whole, create_options, import_open_clip
from oodzoo.zoo.spec import ModelSpec, local_path
from oodzoo.zoo.torch_model import count_parameters

_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")


def identifiers(pattern: str) -> list[str]:
    """All pairs `<architecture>/<tag>` with pre-trained weights."""
    open_clip = import_open_clip(f"the zoo 'open_clip/{pattern}'")
    return ["/".join(pair) for pair in open_clip.list_pretrained()]


def licence(spec: ModelSpec) -> str | None:
    """The licence that the hub states; open_clip itself states none."""
    if local_path(spec) is not None:
        return None
    return hub_card(_repository(spec)[0]).licence


def measure(spec: ModelSpec) -> Measured:
    """Count the image tower; the weights to download have both towers."""

    def compute() -> Measured:
        open_clip = import_open_clip(f"model {spec.name!r} (open_clip)")
        options = create_options(open_clip, spec)
        with on_meta_device(spec):
            whole = build_whole(open_clip, spec, options, pretrained=False)
        return Measured(count_parameters(whole.visual), measure_module(whole).size)

    architecture = spec.identifier.partition("/")[0]
    return remembered("open_clip_torch", spec, architecture, compute)


def weights(spec: ModelSpec) -> Weights:
    if (path := local_path(spec)) is not None:
        return local_weights(path)
    repository, files = _repository(spec)
    return hub_weights(repository, files, hub_card(repository).size)


def _repository(spec: ModelSpec) -> tuple[str, tuple[str, ...]]:
    """The repository of a model on the Hugging Face Hub, and the files that may be loaded."""
    scheme, colon, repository = spec.identifier.partition(":")
    if colon and scheme == "hf-hub":
        return repository, _FILES
    open_clip = import_open_clip(f"model {spec.name!r} (open_clip)")
    create_options(open_clip, spec)  # rejects an unknown name
    location = open_clip.get_pretrained_cfg(*spec.identifier.split("/", 1))["hf_hub"]
    if location.endswith("/"):
        return location.rstrip("/"), _FILES
    path = PurePosixPath(location)
    safe = path.with_suffix(".safetensors").name
    return str(path.parent), (safe, path.name)

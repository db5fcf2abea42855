"""open_clip image towers: `open_clip/<architecture>/<pre-training tag>`.

Features are the result of `encode_image`: the image embedding, projected into the space shared
with text and not normalised to unit length. It is what the model was trained on, and the one
output that all architectures have. There are no logits. The text tower, for zero-shot
classification, is loaded apart.

A file may replace the tag (`open_clip/ViT-B-16/./weights.safetensors`). A folder in open_clip's
own format is `open_clip/local-dir:<path>`, a repository on the hub
`open_clip/hf-hub:<owner>/<name>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from oodzoo.core.errors import InputError
from oodzoo.core.packages import import_torchvision, optional_package
from oodzoo.zoo.hub import hub_access
from oodzoo.zoo.preprocessing import Fit, Geometry, Preprocessing
from oodzoo.zoo.prompts import TextTower
from oodzoo.zoo.sources import local_dir, path_of, weight_files
from oodzoo.zoo.spec import ModelSpec, local_path, verified_file
from oodzoo.zoo.torch_model import (
    Built,
    Module,
    Tensor,
    count_parameters,
    local_identifier,
    refuse_sha256,
    scaled,
    unknown_name,
)
from oodzoo.zoo.torch_source import (
    TorchSource,
    measure_module,
    on_meta_device,
    remembered,
    repeatable,
)
from oodzoo.zoo.weights import Measured, Weights, hub_card, hub_weights, local_weights

_EXTRA = "open-clip"
_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
_FITS: dict[str, Fit] = {"shortest": "cover", "longest": "contain", "squash": "squash"}


def build(spec: ModelSpec, *, pretrained: bool = True) -> Built:
    """Build an image tower with its pre-trained weights, from the cache or the hub."""
    open_clip = import_open_clip(f"model {spec.name!r} (open_clip)")
    options = create_options(open_clip, spec)
    module = build_whole(open_clip, spec, options, pretrained=pretrained).visual
    architecture = spec.identifier.partition(":" if ":" in spec.identifier else "/")[0]
    gelu = ", QuickGELU" if options.get("force_quick_gelu") else ""
    return Built(
        module=module,
        forward=_embedding,
        preprocessing=scaled(_preprocessing(module.preprocess_cfg), spec),
        identity=f"open_clip {architecture}{gelu} image embedding",
        pretraining=spec.identifier.rpartition("/")[2],
    )


class OpenClipSource(TorchSource):
    """open_clip's image towers."""

    kind = "open_clip"
    packages = ("open-clip-torch", "torch")
    extra = _EXTRA

    def build(self, spec: ModelSpec, *, pretrained: bool = True) -> Built:
        return build(spec, pretrained=pretrained)

    def text_tower(self, spec: ModelSpec, *, device: str) -> TextTower:
        return text_tower(spec, device=device)

    def local_path(self, spec: ModelSpec) -> Path | None:
        return local_dir(spec) or path_of(spec, spec.identifier.partition("/")[2])

    def is_model(self, path: Path) -> bool:
        return path.is_file()

    def files(self, path: Path) -> list[Path]:
        return weight_files(path)

    def moved(self, spec: ModelSpec, path: str) -> str:
        is_folder = spec.identifier.startswith("local-dir:")
        return f"local-dir:{path}" if is_folder else f"{spec.identifier.partition('/')[0]}/./{path}"

    def names(self, pattern: str) -> list[str]:
        """All pairs `<architecture>/<tag>` with pre-trained weights."""
        open_clip = import_open_clip(f"the zoo 'open_clip/{pattern}'")
        return ["/".join(pair) for pair in open_clip.list_pretrained()]

    def licence(self, spec: ModelSpec) -> str | None:
        """The licence that the hub states; open_clip itself states none."""
        if local_path(spec) is not None:
            return None
        return hub_card(_repository(spec)[0]).licence

    def measure(self, spec: ModelSpec) -> Measured:
        """Count the image tower; the weights to download have both towers."""

        def compute() -> Measured:
            open_clip = import_open_clip(f"model {spec.name!r} (open_clip)")
            options = create_options(open_clip, spec)
            with on_meta_device(spec):
                whole = build_whole(open_clip, spec, options, pretrained=False)
            return Measured(count_parameters(whole.visual), measure_module(whole).size)

        architecture = spec.identifier.partition("/")[0]
        return remembered("open_clip_torch", spec, architecture, compute)

    def weights(self, spec: ModelSpec) -> Weights:
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


def import_open_clip(purpose: str) -> Any:
    """Import open_clip, and torchvision before it."""
    import_torchvision(extra=_EXTRA, purpose=purpose)
    return optional_package("open_clip", extra=_EXTRA, purpose=purpose)


def build_whole(
    open_clip: Any, spec: ModelSpec, options: dict[str, Any], *, pretrained: bool = True
) -> Module:
    """Build a model with both towers."""
    if spec.input_size is not None:
        options = {**options, "force_image_size": spec.input_size}
    pretrained = pretrained and spec.pretrained is not False
    if not pretrained:
        import torch

        current = torch.empty(0).device  # the meta device, if a caller only wants shapes
        options = {**options, "pretrained": None, "require_pretrained": False, "device": current}
    with hub_access(spec, needed=pretrained or ":" in spec.identifier), repeatable(spec):
        return open_clip.create_model(**options)


def text_tower(spec: ModelSpec, *, device: str = "cpu") -> TextTower:
    """Load the text tower of a model, with its tokeniser."""
    open_clip = import_open_clip(f"zero-shot classification with model {spec.name!r} (open_clip)")
    options = create_options(open_clip, spec)
    whole = build_whole(open_clip, spec, options)
    with hub_access(spec):
        tokenize = open_clip.get_tokenizer(options["model_name"])
    scale, bias = float(whole.logit_scale.detach().exp()), getattr(whole, "logit_bias", None)
    del whole.visual
    whole = whole.float().eval().requires_grad_(False).to(device)

    def embed(texts: Sequence[str]) -> Any:
        return whole.encode_text(tokenize(list(texts)).to(device)).float().cpu().numpy()

    return TextTower(embed, scale, 0.0 if bias is None else float(bias.detach()))


def _embedding(module: Module, batch: Tensor) -> tuple[Tensor, None]:
    output = module(batch)
    # Captioning towers return (embedding, tokens).
    return (output[0] if isinstance(output, tuple) else output), None


def _preprocessing(config: dict[str, Any]) -> Preprocessing:
    """The data equivalent of `open_clip.image_transform_v2(config, is_train=False)`."""
    size = config["size"]
    height, width = (size, size) if isinstance(size, int) else size
    geometry = Geometry(
        resize=(height, width),
        crop=(height, width),
        fit=_FITS[config["resize_mode"]],
        interpolation=config["interpolation"],
        fill=config["fill_color"] if config["resize_mode"] == "longest" else 0,
    )
    return Preprocessing(geometry, tuple(config["mean"]), tuple(config["std"]))


def create_options(open_clip: Any, spec: ModelSpec) -> dict[str, Any]:
    """Arguments of `open_clip.create_model`."""
    if ":" in spec.identifier:
        refuse_sha256(spec)
        return {"model_name": local_identifier(spec), "require_pretrained": True}
    name, _, tag = spec.identifier.partition("/")
    if name not in open_clip.list_models():
        raise unknown_name(spec, "open_clip has no architecture", name, open_clip.list_models())
    options = {"model_name": name, "pretrained": tag, "require_pretrained": True}
    if tag.startswith((".", "/")):
        file, _ = verified_file(replace(spec, source=f"open_clip/{tag}"))
        return {**options, "pretrained": str(file)}
    refuse_sha256(spec)
    known = open_clip.get_pretrained_cfg(name, tag)
    if not known:
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(name))
        raise InputError(
            f"model {spec.name!r}: open_clip has no weights {tag!r} for {name}; "
            f"{f'it has {tags}' if tags else 'it has none for this architecture'}"
        )
    # Weights trained with QuickGELU need it; open_clip only warns and would compute wrong features.
    return {
        **options,
        "force_quick_gelu": bool(known.get("quick_gelu")),
        "force_preprocess_cfg": {
            key: known[key]
            for key in ("mean", "std", "interpolation", "resize_mode", "fill_color")
            if key in known
        },
    }

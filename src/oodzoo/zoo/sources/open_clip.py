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
from oodzoo.zoo.model import ModelSize
from oodzoo.zoo.preprocessing import Fit, Geometry, Preprocessing
from oodzoo.zoo.prompts import TextTower
from oodzoo.zoo.sources import path_of
from oodzoo.zoo.sources.torch import (
    HubSource,
    TorchSource,
    local_dir,
    measure_module,
    on_meta_device,
    refuse_sha256,
    remembered,
    repeatable,
    scaled,
    unknown_name,
)
from oodzoo.zoo.spec import ModelSpec, verified_file
from oodzoo.zoo.torch_model import Built, Module, Tensor, count_parameters

_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
_FITS: dict[str, Fit] = {"shortest": "cover", "longest": "contain", "squash": "squash"}


class OpenClipSource(HubSource, TorchSource):
    """open_clip's image towers."""

    kind = module = "open_clip"
    packages = ("open-clip-torch", "torch")
    extra = "open-clip"

    def build(self, spec: ModelSpec, *, pretrained: bool = True) -> Built:
        """Build an image tower with its pre-trained weights, from the cache or the hub."""
        open_clip, options = self._options(spec)
        tower = self._whole(open_clip, spec, options, pretrained=pretrained).visual
        architecture = spec.identifier.partition(":" if ":" in spec.identifier else "/")[0]
        gelu = ", QuickGELU" if options.get("force_quick_gelu") else ""
        return Built(
            module=tower,
            forward=_embedding,
            preprocessing=scaled(_preprocessing(tower.preprocess_cfg), spec),
            identity=f"open_clip {architecture}{gelu} image embedding",
            pretraining=spec.identifier.rpartition("/")[2],
        )

    def text_tower(self, spec: ModelSpec, *, device: str) -> TextTower:
        """Load the text tower of a model, with its tokeniser."""
        purpose = f"zero-shot classification with model {spec.name!r} (open_clip)"
        open_clip, options = self._options(spec, purpose)
        whole = self._whole(open_clip, spec, options)
        with self.access(spec):
            tokenize = open_clip.get_tokenizer(options["model_name"])
        del whole.visual

        def embed(texts: Sequence[str]) -> Any:
            return whole.encode_text(tokenize(list(texts)).to(device)).float().cpu().numpy()

        return TextTower.of(whole, device, embed)

    def local_path(self, spec: ModelSpec) -> Path | None:
        return local_dir(spec) or path_of(spec, spec.identifier.partition("/")[2])

    def is_model(self, path: Path) -> bool:
        return path.is_file()

    def moved(self, spec: ModelSpec, path: str) -> str:
        is_folder = spec.identifier.startswith("local-dir:")
        return f"local-dir:{path}" if is_folder else f"{spec.identifier.partition('/')[0]}/./{path}"

    def names(self, pattern: str) -> list[str]:
        """All pairs `<architecture>/<tag>` with pre-trained weights."""
        open_clip = self.library(f"the zoo 'open_clip/{pattern}'")
        return ["/".join(pair) for pair in open_clip.list_pretrained()]

    def repository(self, spec: ModelSpec) -> tuple[str, tuple[str, ...]]:
        scheme, colon, repository = spec.identifier.partition(":")
        if colon and scheme == "hf-hub":
            return repository, _FILES
        open_clip, _ = self._options(spec)  # rejects an unknown name
        location = open_clip.get_pretrained_cfg(*spec.identifier.split("/", 1))["hf_hub"]
        if location.endswith("/"):
            return location.rstrip("/"), _FILES
        path = PurePosixPath(location)
        return str(path.parent), (path.with_suffix(".safetensors").name, path.name)

    def measure(self, spec: ModelSpec) -> ModelSize:
        """Count the image tower; the weights to download have both towers."""

        def compute() -> ModelSize:
            open_clip, options = self._options(spec)
            with on_meta_device(spec):
                whole = self._whole(open_clip, spec, options, pretrained=False)
            return ModelSize(count_parameters(whole.visual), measure_module(whole).size)

        architecture = spec.identifier.partition("/")[0]
        return remembered("open_clip_torch", spec, architecture, compute)

    def _options(self, spec: ModelSpec, purpose: str = "") -> tuple[Any, dict[str, Any]]:
        """open_clip, and the arguments of `open_clip.create_model`."""
        open_clip = self.library(purpose or f"model {spec.name!r} (open_clip)")
        if ":" in spec.identifier:
            refuse_sha256(spec)
            folder = local_dir(spec)
            name = spec.identifier if folder is None else f"local-dir:{folder}"
            return open_clip, {"model_name": name, "require_pretrained": True}
        name, _, tag = spec.identifier.partition("/")
        if name not in open_clip.list_models():
            raise unknown_name(spec, "open_clip has no architecture", name, open_clip.list_models())
        options = {"model_name": name, "pretrained": tag, "require_pretrained": True}
        if tag.startswith((".", "/")):
            file, _ = verified_file(replace(spec, source=f"open_clip/{tag}"))
            return open_clip, {**options, "pretrained": str(file)}
        refuse_sha256(spec)
        known = open_clip.get_pretrained_cfg(name, tag)
        if not known:
            tags = ", ".join(open_clip.list_pretrained_tags_by_model(name))
            raise InputError(
                f"model {spec.name!r}: open_clip has no weights {tag!r} for {name}; "
                f"{f'it has {tags}' if tags else 'it has none for this architecture'}"
            )
        # Weights trained with QuickGELU need it; open_clip only warns and would compute wrong
        # features.
        return open_clip, {
            **options,
            "force_quick_gelu": bool(known.get("quick_gelu")),
            "force_preprocess_cfg": {
                key: known[key]
                for key in ("mean", "std", "interpolation", "resize_mode", "fill_color")
                if key in known
            },
        }

    def _whole(
        self, open_clip: Any, spec: ModelSpec, options: dict[str, Any], *, pretrained: bool = True
    ) -> Module:
        """Build a model with both towers."""
        if spec.input_size is not None:
            options = {**options, "force_image_size": spec.input_size}
        pretrained = pretrained and spec.pretrained is not False
        if not pretrained:
            import torch

            current = torch.empty(0).device  # the meta device, if a caller only wants shapes
            options = {
                **options,
                "pretrained": None,
                "require_pretrained": False,
                "device": current,
            }
        with self.access(spec, needed=pretrained or ":" in spec.identifier), repeatable(spec):
            return open_clip.create_model(**options)


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

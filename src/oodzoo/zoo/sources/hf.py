"""transformers vision models: `hf/<owner>/<name>` on the hub, or `hf/./folder` on disk.

The features depend on the kind of checkpoint:

- image classifier (`ViTForImageClassification`, …): the input of the classifier, and its logits;
- image-text model (`CLIPModel`, `SiglipModel`, …): the image embedding of `get_image_features`,
  projected if the architecture has a projection, not normalised to unit length; there are no
  logits, and the text tower, for zero-shot classification, is loaded apart;
- any other model: its pooled output. If the checkpoint has no weights for the pooling layer, the
  class token or, without one, the mean over all positions; a randomly initialised pooling layer is
  never used.

Image processors share the names of their settings, but not their exact meaning (ConvNeXT crops by
a percentage below 384 pixels and squashes above). So each interpretation of the settings is
compared with the processor's own output on two noise images, and the first that agrees is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from oodzoo.core.errors import InputError, MissingPackageError
from oodzoo.core.packages import optional_package, torchvision_installed
from oodzoo.core.text import count, one_line
from oodzoo.zoo.model import ModelSize
from oodzoo.zoo.preprocessing import Geometry, Interpolation, Preprocessing, square
from oodzoo.zoo.prompts import TextTower
from oodzoo.zoo.sources.torch import (
    HubSource,
    TorchSource,
    refuse_sha256,
    repeatable,
    scaled,
)
from oodzoo.zoo.spec import WILDCARD, ModelSpec
from oodzoo.zoo.torch_model import (
    Built,
    Forward,
    Module,
    Tensor,
    count_parameters,
    split_head,
)

_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_TASKS = ("image-classification", "image-feature-extraction", "zero-shot-image-classification")

_INTERPOLATIONS: dict[int, Interpolation] = {
    0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming",
}  # fmt: skip

_EXACT = 1e-5
_EIGHT_BITS = 1.5 / 255
"""Tolerance for processors that need torchvision, whose resizing rounds differently."""


class HuggingFaceSource(HubSource, TorchSource):
    """transformers' vision models."""

    kind = extra = "hf"
    packages = ("torch", "transformers")
    module = "transformers"
    takes_arguments = True

    def build(self, spec: ModelSpec, *, pretrained: bool = True) -> Built:
        """Build a model with its weights, from a folder, transformers' cache or the hub."""
        transformers, checkpoint, config = self._open(spec)
        with self.access(spec):
            whole, missing = _whole(transformers, checkpoint, config, spec, pretrained)
            stored, _ = transformers.PretrainedConfig.get_config_dict(checkpoint)
            preprocessing = _image_preprocessing(transformers, checkpoint, spec)
        module, forward, output = _extractor(whole, missing, spec)
        # entries that cannot affect the features
        irrelevant = {"_name_or_path", "transformers_version", "torch_dtype", "dtype"}
        irrelevant |= {"_commit_hash", "id2label", "label2id", "architectures"}
        relevant = {key: value for key, value in stored.items() if key not in irrelevant}
        known = json.dumps(relevant, sort_keys=True, default=str)
        return Built(
            module=module,
            forward=forward,
            preprocessing=preprocessing,
            identity=f"hf {type(whole).__name__} {output} {known}{spec.variant}",
        )

    def text_tower(self, spec: ModelSpec, *, device: str) -> TextTower | None:
        """Load the text tower of an image-text model, with its tokeniser."""
        transformers, checkpoint, config = self._open(spec)
        if not hasattr(config, "text_config"):
            return None
        with self.access(spec):
            whole, missing = _whole(transformers, checkpoint, config, spec, pretrained=True)
            if not (hasattr(whole, "get_text_features") and hasattr(whole, "logit_scale")):
                return None
            _require_weights(whole, missing, spec)
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                checkpoint, trust_remote_code=False
            )
        length = config.text_config.max_position_embeddings

        def embed(texts: Sequence[str]) -> Any:
            # Some models were trained on texts of this length, without a mask; others ignore the
            # rest.
            tokens = tokenizer(
                list(texts),
                padding="max_length",
                truncation=True,
                max_length=length,
                return_tensors="pt",
            )
            output = whole.get_text_features(**tokens.to(device))
            return getattr(output, "pooler_output", output).float().cpu().numpy()

        return TextTower.of(whole, device, embed)

    def names(self, pattern: str) -> list[str]:
        """The vision models of an owner on the Hugging Face Hub."""
        zoo = f"the zoo 'hf/{pattern}'"
        hub = optional_package("huggingface_hub", extra="hf", purpose=zoo)
        owner, slash, _ = pattern.partition("/")
        if not slash or WILDCARD.search(owner):
            raise InputError(
                f"{zoo} must name an owner before the wildcard, as in hf/facebook/dinov2*"
            )
        if import_module("huggingface_hub.constants").HF_HUB_OFFLINE:
            raise InputError(
                f"{zoo} needs the Hugging Face Hub, and HF_HUB_OFFLINE is set; unset it, or "
                "name the models"
            )
        try:
            listed = list(hub.HfApi().list_models(author=owner, filter="transformers"))
        except Exception as error:
            raise InputError(
                f"{zoo} needs the Hugging Face Hub, which cannot be reached: {one_line(error)}; "
                "check the connection, or name the models"
            ) from error
        return sorted(model.id for model in listed if model.pipeline_tag in _TASKS)

    def repository(self, spec: ModelSpec) -> tuple[str, tuple[str, ...]]:
        return spec.identifier, _FILES

    def measure(self, spec: ModelSpec) -> ModelSize:
        """Count the parts in use; the file may contain others, so its size is not estimated."""
        return ModelSize(count_parameters(self.build_empty(spec).module))

    def _open(self, spec: ModelSpec) -> tuple[Any, str, Any]:
        """Import transformers; find a checkpoint, and read its configuration."""
        refuse_sha256(spec)
        transformers = self.library(f"model {spec.name!r} (hf)")
        checkpoint = self.checkpoint(
            spec, "is not a transformers checkpoint: it has no config.json"
        )
        with self.access(spec):
            config, unknown = transformers.AutoConfig.from_pretrained(
                checkpoint,
                trust_remote_code=False,
                return_unused_kwargs=True,
                **(spec.arguments or {}),
            )
            if unknown := sorted(set(unknown) & set(spec.arguments or {})):
                raise InputError(
                    f"model {spec.name!r}: the configuration of {spec.source} has no "
                    f"{unknown[0]!r}; remove it from the arguments"
                )
            if config.model_type == "timm_wrapper":
                raise InputError(
                    f"model {spec.name!r} is a timm model; use the source "
                    f"timm/hf-hub:{spec.identifier}"
                )
        return transformers, checkpoint, config


def _whole(
    transformers: Any, checkpoint: str, config: Any, spec: ModelSpec, pretrained: bool
) -> tuple[Module, set[str]]:
    """Return the model as transformers builds it, and the weights missing in the checkpoint."""
    saved = (getattr(config, "architectures", None) or [""])[0]
    kind = transformers.AutoModel
    if "ForImageClassification" in saved:
        kind = getattr(transformers, saved, kind)
    if config.model_type == "vit_mae":
        config.mask_ratio = 0.0  # otherwise it masks three quarters of every image at random
    if not pretrained or spec.pretrained is False:
        from_config = getattr(kind, "from_config", None) or kind
        with repeatable(spec):
            return from_config(config), set()
    whole, report = kind.from_pretrained(
        checkpoint, config=config, output_loading_info=True, trust_remote_code=False
    )
    # The precision is chosen when the model is moved to its device, whatever the file contains.
    return whole.float(), set(report["missing_keys"])


def _extractor(whole: Module, missing: set[str], spec: ModelSpec) -> tuple[Module, Forward, str]:
    """Return the parts of a model in use, their forward pass, and a description of its output."""
    pooler = {key for key in missing if key.startswith("pooler.")}
    _require_weights(whole, missing - pooler, spec)
    if type(whole).__name__.endswith("ForImageClassification"):
        return _without_head(whole, spec), _features_and_logits, "input of the classifier"
    if hasattr(whole, "get_image_features"):
        return _without_text(whole), _embedding, "image embedding"
    if pooler:
        whole.pooler = None  # randomly initialised: not used, and not part of the fingerprint
    class_token = any(name.endswith("cls_token") for name, _ in whole.named_parameters())
    forward = partial(_pooled, pooler=not pooler, class_token=class_token)
    return whole, forward, f"pooled, pooler {not pooler}, class token {class_token}"


def _require_weights(whole: Module, missing: set[str], spec: ModelSpec) -> None:
    if missing:
        raise InputError(
            f"model {spec.name!r}: {spec.source} lacks {count(len(missing), 'weight')} of "
            f"{type(whole).__name__} ({min(missing)}, …), which would be initialised at random"
        )


def _features_and_logits(module: Module, batch: Tensor) -> tuple[Tensor, Tensor]:
    features = module["backbone"](pixel_values=batch).logits.flatten(1)
    return features, module["head"](features)


def _embedding(module: Module, batch: Tensor) -> tuple[Tensor, None]:
    output = module.get_image_features(pixel_values=batch)
    # transformers 4 returns the tensor, transformers 5 an output object that contains it.
    return getattr(output, "pooler_output", output), None


def _pooled(
    module: Module, batch: Tensor, *, pooler: bool, class_token: bool
) -> tuple[Tensor, None]:
    output = module(pixel_values=batch)
    pooled = getattr(output, "pooler_output", None) if pooler else None
    if pooled is not None:
        return pooled.flatten(1), None
    hidden = output.last_hidden_state
    if hidden.ndim == 4:
        return hidden.mean((2, 3)), None
    return (hidden[:, 0] if class_token else hidden.mean(1)), None


def _without_head(whole: Module, spec: ModelSpec) -> Module:
    """Split off the last layer of a classifier as its head."""
    if "classifier" not in dict(whole.named_children()):
        raise InputError(
            f"model {spec.name!r}: {type(whole).__name__} has no layer named classifier, whose "
            "input would be the features; use the same model from timm"
        )
    return split_head(whole, "classifier")


def _without_text(whole: Module) -> Module:
    """Remove the text-only parts of an image-text model."""
    for name in ("text_model", "text_projection", "logit_scale", "logit_bias", "temperature"):
        if hasattr(whole, name):
            delattr(whole, name)
    return whole


# --- preprocessing --------------------------------------------------------------------------------


def _image_preprocessing(transformers: Any, checkpoint: str, spec: ModelSpec) -> Preprocessing:
    """Return the preprocessing of a checkpoint, overridden by its zoo file."""
    try:
        processor = _processor(transformers, checkpoint)
    except Exception as error:
        if spec.input_size and spec.mean and spec.std:
            return square(spec.input_size, spec.mean, spec.std)
        if not torchvision_installed() and "torchvision" in str(error):
            purpose = f"the image processor of model {spec.name!r}"
            raise MissingPackageError("torchvision", "torchvision", purpose) from error
        raise InputError(
            f"model {spec.name!r}: {spec.source} has no usable image processor "
            f"({one_line(error, 80)}); set input_size, mean and std in a zoo file"
        ) from error
    settings = processor.to_dict()
    for candidate in _interpretations(settings):
        if _agree(candidate, processor):
            return scaled(candidate, spec)
    raise InputError(
        f"model {spec.name!r}: its {type(processor).__name__} does more than resize, crop and "
        "normalise an RGB image; use the model as a callable or as ONNX"
    )


def _processor(transformers: Any, checkpoint: str) -> Any:
    """Load the image processor, preferring the Pillow variant, which needs no torchvision."""
    plain: dict[str, Any] = {"backend": "pil"}
    if int(transformers.__version__.partition(".")[0]) < 5:
        plain = {"use_fast": False}
    return transformers.AutoImageProcessor.from_pretrained(
        checkpoint, trust_remote_code=False, **plain
    )


def _interpretations(settings: dict[str, Any]) -> Iterator[Preprocessing]:
    """Yield the preprocessings that the settings of an image processor may mean."""
    size = settings.get("size") or {}
    interpolation = _INTERPOLATIONS.get(int(settings.get("resample") or 0), "bilinear")
    mean, std = _normalisation(settings)

    def preprocessing(resize: tuple[int, int], crop: tuple[int, int], fit: Any) -> Preprocessing:
        geometry = Geometry(resize, crop, fit, interpolation, centring="down")
        return Preprocessing(geometry, mean, std)

    if not settings.get("do_resize"):
        return
    crop = _sides(settings.get("crop_size")) if settings.get("do_center_crop") else None
    squashed = _sides(size)
    if squashed:
        yield preprocessing(squashed, crop or squashed, "squash")
    shortest = size.get("shortest_edge")
    if shortest:
        percent = settings.get("crop_pct")
        larger = [shortest, *([int(shortest / percent)] if percent else []), int(shortest * 8 / 7)]
        for side in larger:
            yield preprocessing((side, side), crop or (shortest, shortest), "cover")
        yield preprocessing((shortest, shortest), crop or (shortest, shortest), "squash")


def _sides(size: Any) -> tuple[int, int] | None:
    if isinstance(size, dict) and size.get("height") and size.get("width"):
        return int(size["height"]), int(size["width"])
    return None


def _normalisation(settings: dict[str, Any]) -> tuple[Any, Any]:
    """Return the mean and standard deviation by which pixels/255 are normalised."""
    scale = 255 * settings.get("rescale_factor", 1 / 255) if settings.get("do_rescale") else 255.0
    scale = 1.0 if abs(scale - 1) < 1e-6 else scale
    mean, std = [0.0] * 3, [1.0] * 3
    if settings.get("do_normalize"):
        mean, std = (_triple(settings[key]) for key in ("image_mean", "image_std"))
    return tuple(m / scale for m in mean), tuple(s / scale for s in std)


def _triple(value: Any) -> list[float]:
    return [float(v) for v in value] if isinstance(value, list | tuple) else [float(value)] * 3


def _agree(candidate: Preprocessing, processor: Any) -> bool:
    tensors = getattr(processor, "backend", None) == "torchvision"
    tensors |= type(processor).__name__.endswith("Fast")  # in transformers 4
    tolerance = _EIGHT_BITS / min(candidate.std) if tensors else _EXACT
    for image in _probes(max(candidate.geometry.resize)):
        try:
            theirs: NDArray[Any] = np.asarray(processor(image, return_tensors="np")["pixel_values"])
        except Exception:  # not a processor of images
            return False
        ours = candidate([image])
        if ours.shape != theirs.shape or np.abs(ours - theirs).max() > tolerance:
            return False
    return True


def _probes(side: int) -> Iterator[Image.Image]:
    """Yield a landscape and a portrait image, whose size differs from the crop by an odd number."""
    noise = np.random.default_rng(0)
    for width, height in ((side + 67, side + 10), (side // 2 + 1, side - 8)):
        yield Image.fromarray(noise.integers(0, 256, (max(1, height), width, 3), dtype=np.uint8))

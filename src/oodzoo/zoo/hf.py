"""transformers vision models: `hf/<owner>/<name>` on the hub, or `hf/./folder` on disk.

The features depend on the kind of checkpoint:

- image classifier (`ViTForImageClassification`, …): the input of the classifier, and its logits;
- image-text model (`CLIPModel`, `SiglipModel`, …): the image embedding of `get_image_features`,
  projected if the architecture has a projection, not normalised to unit length; there are no
  logits, and the text tower, for zero-shot classification, is loaded apart;
- any other model: its pooled output. If the checkpoint has no weights for the pooling layer, the
  class token or, without one, the mean over all positions; a randomly initialised pooling layer is
  never used.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from oodzoo._packages import optional_package
from oodzoo._text import count
from oodzoo.errors import InputError
from oodzoo.zoo.hf_preprocessing import image_preprocessing
from oodzoo.zoo.hub import hub_access
from oodzoo.zoo.sources import path_of, require_not_here, weight_files
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.text_tower import TextTower
from oodzoo.zoo.torch_model import (
    Built,
    Forward,
    Module,
    Tensor,
    refuse_sha256,
)
from oodzoo.zoo.torch_source import TorchSource, repeatable
from oodzoo.zoo.torchvision_import import import_torchvision, torchvision_installed


def build(spec: ModelSpec, *, pretrained: bool = True) -> Built:
    """Build a model with its pre-trained weights, from a folder, transformers' cache or the hub."""
    transformers, config = _open(spec)
    checkpoint = _checkpoint(spec)
    with hub_access(spec):
        whole, missing = _whole(_kind(transformers, config), spec, config, pretrained)
        stored, _ = transformers.PretrainedConfig.get_config_dict(checkpoint)
        preprocessing = image_preprocessing(transformers, checkpoint, spec)
    module, forward, output = _extractor(whole, missing, spec)
    return Built(
        module=module,
        forward=forward,
        preprocessing=preprocessing,
        identity=f"hf {type(whole).__name__} {output} {_relevant(stored)}{spec.variant}",
    )


class HuggingFaceSource(TorchSource):
    """transformers' vision models."""

    kind = "hf"
    packages = ("torch", "transformers")
    extra = "hf"
    takes_arguments = True
    listing = "oodzoo.zoo.listing.hf"

    def build(self, spec: ModelSpec, *, pretrained: bool = True) -> Built:
        return build(spec, pretrained=pretrained)

    def text_tower(self, spec: ModelSpec, *, device: str) -> TextTower | None:
        return text_tower(spec, device=device)

    def local_path(self, spec: ModelSpec) -> Path | None:
        return path_of(spec, spec.identifier)

    def is_model(self, path: Path) -> bool:
        return (path / "config.json").is_file()

    def files(self, path: Path) -> list[Path]:
        return weight_files(path)

    def moved(self, spec: ModelSpec, path: str) -> str:
        return f"./{path}"


def text_tower(spec: ModelSpec, *, device: str = "cpu") -> TextTower | None:
    """Load the text tower of an image-text model, with its tokeniser; None for other models."""
    transformers, config = _open(spec)
    if not hasattr(config, "text_config"):
        return None
    checkpoint = _checkpoint(spec)
    with hub_access(spec):
        whole, missing = _whole(_kind(transformers, config), spec, config, pretrained=True)
        if not (hasattr(whole, "get_text_features") and hasattr(whole, "logit_scale")):
            return None
        _require_weights(whole, missing, spec)
        tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint, trust_remote_code=False)
    scale, bias = float(whole.logit_scale.detach().exp()), getattr(whole, "logit_bias", None)
    whole = whole.float().eval().requires_grad_(False).to(device)
    length = config.text_config.max_position_embeddings

    def embed(texts: Sequence[str]) -> Any:
        # Some models were trained on texts of this length, without a mask; others ignore the rest.
        tokens = tokenizer(
            list(texts),
            padding="max_length",
            truncation=True,
            max_length=length,
            return_tensors="pt",
        )
        output = whole.get_text_features(**tokens.to(device))
        return getattr(output, "pooler_output", output).float().cpu().numpy()

    return TextTower(embed, scale, 0.0 if bias is None else float(bias.detach()))


def _open(spec: ModelSpec) -> tuple[Any, Any]:
    """Import transformers, and read the configuration of a checkpoint."""
    refuse_sha256(spec)
    purpose = f"model {spec.name!r} (hf)"
    optional_package("torch", extra="hf", purpose=purpose)
    if torchvision_installed():  # transformers imports it if installed, even if it is broken
        import_torchvision(extra="hf", purpose=purpose)
    transformers = optional_package("transformers", extra="hf", purpose=purpose)
    checkpoint = _checkpoint(spec)
    with hub_access(spec):
        config, unknown = transformers.AutoConfig.from_pretrained(
            checkpoint,
            trust_remote_code=False,
            return_unused_kwargs=True,
            **(spec.arguments or {}),
        )
        if unknown := sorted(set(unknown) & set(spec.arguments or {})):
            raise InputError(
                f"model {spec.name!r}: the configuration of {spec.source} has no {unknown[0]!r}; "
                "remove it from the arguments"
            )
        if config.model_type == "timm_wrapper":
            raise InputError(
                f"model {spec.name!r} is a timm model; use the source timm/hf-hub:{spec.identifier}"
            )
    return transformers, config


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
    import torch

    head = getattr(whole, "classifier", None)
    if not isinstance(head, torch.nn.Module):
        raise InputError(
            f"model {spec.name!r}: {type(whole).__name__} has no layer named classifier, whose "
            "input would be the features; use the same model from timm"
        )
    whole.classifier = torch.nn.Identity()
    return torch.nn.ModuleDict({"backbone": whole, "head": head})


def _without_text(whole: Module) -> Module:
    """Remove the text-only parts of an image-text model."""
    for name in ("text_model", "text_projection", "logit_scale", "logit_bias", "temperature"):
        if hasattr(whole, name):
            delattr(whole, name)
    return whole


def _whole(kind: Any, spec: ModelSpec, config: Any, pretrained: bool) -> tuple[Module, set[str]]:
    """Return the model as transformers builds it, and the weights missing in the checkpoint."""
    if config.model_type == "vit_mae":
        config.mask_ratio = 0.0  # otherwise it masks three quarters of every image at random
    if not pretrained or spec.pretrained is False:
        from_config = getattr(kind, "from_config", None) or kind
        with repeatable(spec):
            return from_config(config), set()
    whole, report = kind.from_pretrained(
        _checkpoint(spec), config=config, output_loading_info=True, trust_remote_code=False
    )
    # The precision is chosen when the model is moved to its device, whatever the file contains.
    return whole.float(), set(report["missing_keys"])


def _kind(transformers: Any, config: Any) -> Any:
    """Return the class of an image classifier's checkpoint, or AutoModel for anything else."""
    saved = (getattr(config, "architectures", None) or [""])[0]
    if "ForImageClassification" in saved and hasattr(transformers, saved):
        return getattr(transformers, saved)
    return transformers.AutoModel


def _relevant(stored: dict[str, Any]) -> str:
    """The stored configuration as JSON, without entries that cannot affect the features."""
    irrelevant = {"_name_or_path", "transformers_version", "torch_dtype", "dtype", "_commit_hash"}
    irrelevant |= {"id2label", "label2id", "architectures"}
    relevant = {key: value for key, value in stored.items() if key not in irrelevant}
    return json.dumps(relevant, sort_keys=True, default=str)


def _checkpoint(spec: ModelSpec) -> str:
    """Return a name on the hub, or a folder; a relative one is relative to the zoo file."""
    folder = path_of(spec, spec.identifier)
    if folder is None:
        require_not_here(spec)
        return spec.identifier
    if not (folder / "config.json").is_file():
        raise InputError(
            f"model {spec.name!r}: {str(folder)!r} is not a transformers checkpoint: it has no "
            "config.json"
        )
    return str(folder)

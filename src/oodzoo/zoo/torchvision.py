"""torchvision models: `torchvision/<name>` or `torchvision/<name>.<weights>`.

Features are the input of the last linear layer. The weights default to torchvision's `DEFAULT`.
"""

from __future__ import annotations

from typing import Any

from oodzoo.errors import InputError
from oodzoo.zoo.preprocessing import Geometry, Preprocessing
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.torch_model import (
    Built,
    Module,
    Tensor,
    cannot_load,
    no_unpickling,
    refuse_sha256,
    scaled,
    unknown_name,
)
from oodzoo.zoo.torch_source import TorchSource, repeatable
from oodzoo.zoo.torchvision_import import import_torchvision

_REMEDY = (
    "weights are downloaded once from download.pytorch.org and cached: check the connection, or "
    "set TORCH_HOME to a cache that has them"
)


def build(spec: ModelSpec, *, pretrained: bool = True) -> Built:
    """Build a model with its pre-trained weights, from torch's cache or its server."""
    refuse_sha256(spec)
    pretrained = pretrained and spec.pretrained is not False
    purpose = f"model {spec.name!r} (torchvision)"
    torchvision = import_torchvision(extra="torchvision", purpose=purpose)
    name, weights = registered(torchvision, spec)
    try:
        with no_unpickling(), repeatable(spec):
            whole = _whole(torchvision, name, weights, pretrained, spec.arguments or {})
    except Exception as error:
        raise cannot_load(spec, error, _REMEDY) from error
    return Built(
        module=_split(whole),
        forward=_squeezenet if name.startswith("squeezenet") else _features_and_logits,
        preprocessing=scaled(_preprocessing(weights), spec),
        identity=f"torchvision {name} input of the last linear layer{spec.variant}",
        pretraining=weights.name if pretrained else None,
        licence=weights.meta.get("license"),
    )


class TorchvisionSource(TorchSource):
    """torchvision's classifiers."""

    kind = "torchvision"
    packages = ("torch", "torchvision")
    extra = "torchvision"
    takes_arguments = True
    listing = "oodzoo.zoo.listing.torchvision"

    def build(self, spec: ModelSpec, *, pretrained: bool = True) -> Built:
        return build(spec, pretrained=pretrained)


def _features_and_logits(module: Module, batch: Tensor) -> tuple[Tensor, Tensor]:
    features = module["backbone"](batch).flatten(1)
    return features, module["head"](features)


def _squeezenet(module: Module, batch: Tensor) -> tuple[Tensor, Tensor]:
    """SqueezeNet, whose head is a convolution followed by pooling."""
    maps = module["backbone"].features(batch)
    return maps.mean((2, 3)), module["backbone"].classifier(maps).flatten(1)


def _split(whole: Module) -> Module:
    """Split off the last linear layer of a model as its head."""
    import torch

    linear = [name for name, part in whole.named_modules() if isinstance(part, torch.nn.Linear)]
    if not linear:
        return torch.nn.ModuleDict({"backbone": whole})
    parent, _, last = linear[-1].rpartition(".")
    head = whole.get_submodule(linear[-1])
    setattr(whole.get_submodule(parent), last, torch.nn.Identity())
    return torch.nn.ModuleDict({"backbone": whole, "head": head})


def _whole(
    torchvision: Any, name: str, weights: Any, pretrained: bool, arguments: dict[str, Any]
) -> Module:
    options: dict[str, Any] = {"weights": weights}
    if not pretrained:  # what the builder sets for these weights
        options = {}
        if name in ("googlenet", "inception_v3"):
            options = {"transform_input": True, "aux_logits": False, "init_weights": False}
        elif name.startswith("vit_"):
            options = {"image_size": weights.meta["min_size"][0]}
    whole = torchvision.models.get_model(name, **{**options, **arguments})
    if getattr(whole, "AuxLogits", None) is not None:  # Inception's second head, for training only
        whole.aux_logits, whole.AuxLogits = False, None
    return whole


def _preprocessing(weights: Any) -> Preprocessing:
    """The data equivalent of `weights.transforms()` for a Pillow image."""
    preset = weights.transforms()
    resize, crop = preset.resize_size[0], preset.crop_size[0]
    geometry = Geometry(
        resize=(resize, resize),
        crop=(crop, crop),
        fit="cover",
        interpolation=preset.interpolation.value,
    )
    return Preprocessing(geometry, tuple(preset.mean), tuple(preset.std))


def registered(torchvision: Any, spec: ModelSpec) -> tuple[str, Any]:
    """Return the name of the architecture and its weights."""
    models = torchvision.models
    known = models.list_models(module=models)
    name, _, version = spec.identifier.partition(".")
    if name not in known:
        subject = f"torchvision {torchvision.__version__} has no classification model"
        raise unknown_name(spec, subject, name, known)
    versions = models.get_model_weights(name).__members__
    if (version or "DEFAULT") not in versions:
        raise InputError(
            f"model {spec.name!r}: torchvision has no weights {version!r} for {name}; "
            f"it has {', '.join(key for key in versions if key != 'DEFAULT')}"
        )
    return name, versions[version or "DEFAULT"]

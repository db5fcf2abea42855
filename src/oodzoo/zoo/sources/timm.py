"""timm models: `timm/<architecture>.<tag>`.

Features are timm's pre-logits: the pooled, normalised input of the classifier. A timm folder on
disk (`config.json` and `model.safetensors`) is `timm/local-dir:<path>`, a repository on the hub
`timm/hf-hub:<owner>/<name>`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from oodzoo.core.errors import InputError
from oodzoo.core.packages import optional_package
from oodzoo.zoo.hub import hub_weights, known_licence, url_weights
from oodzoo.zoo.model import ModelSize, Weights
from oodzoo.zoo.preprocessing import Fit, Geometry, Preprocessing
from oodzoo.zoo.sources.torch import (
    HubSource,
    TorchSource,
    local_dir,
    refuse_sha256,
    repeatable,
    unknown_name,
)
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.torch_model import Built, Module, Tensor

_FILES = ("model.safetensors", "pytorch_model.bin")
_FITS: dict[str, Fit] = {"squash": "squash", "border": "contain"}


class TimmSource(HubSource, TorchSource):
    """timm's models."""

    kind = "timm"
    packages = ("timm", "torch")
    module = extra = "timm"
    takes_arguments = True

    def build(self, spec: ModelSpec, *, pretrained: bool = True) -> Built:
        """Build a model with its pre-trained weights, from timm's cache or the hub."""
        pretrained = pretrained and spec.pretrained is not False
        arguments = spec.arguments or {}
        if spec.input_size is None and isinstance(arguments.get("img_size"), int):
            spec = replace(spec, input_size=arguments["img_size"])
        refuse_sha256(spec)
        timm, folder, fixed_size = self.library(f"model {spec.name!r} (timm)"), local_dir(spec), {}
        name = spec.identifier if folder is None else f"local-dir:{folder}"
        if ":" not in name:
            config = _registered(timm, spec)
            if spec.input_size is not None and config and config.fixed_input_size:
                fixed_size["img_size"] = spec.input_size
        with self.access(spec, needed=pretrained or ":" in name), repeatable(spec):
            module = timm.create_model(name, pretrained=pretrained, **{**fixed_size, **arguments})
        known = module.pretrained_cfg
        return Built(
            module=module,
            forward=partial(_features_and_logits, classifies=_has_classifier(module)),
            preprocessing=_preprocessing(timm, module, spec),
            identity=f"timm {known.get('architecture')} pre-logits{spec.variant}",
            pretraining=known.get("description") or known.get("tag"),
            licence=known.get("license"),
        )

    def local_path(self, spec: ModelSpec) -> Path | None:
        return local_dir(spec)

    def moved(self, spec: ModelSpec, path: str) -> str:
        return f"local-dir:{path}"

    def names(self, pattern: str) -> list[str]:
        """All names `<architecture>.<tag>` with pre-trained weights."""
        return list(self.library(f"the zoo 'timm/{pattern}'").list_models(pretrained=True))

    def repository(self, spec: ModelSpec) -> tuple[str, tuple[str, ...]]:
        return spec.identifier.partition(":")[2], _FILES

    def _config(self, spec: ModelSpec) -> Any:
        """timm's configuration of a model that it has a name for; None for a folder or the hub."""
        if spec.identifier.startswith(("local-dir:", "hf-hub:", "hf_hub:")):
            return None
        return _registered(self.library(f"model {spec.name!r} (timm)"), spec)

    def licence(self, spec: ModelSpec) -> str | None:
        config = self._config(spec)
        return super().licence(spec) if config is None else known_licence(config.license)

    def measure(self, spec: ModelSpec) -> ModelSize:
        return self.measured(spec, "timm")

    def weights(self, spec: ModelSpec) -> Weights:
        config = self._config(spec)
        if config is None:
            return super().weights(spec)
        if config.hf_hub_id:
            names = (config.hf_hub_filename,) if config.hf_hub_filename else _FILES
            return hub_weights(config.hf_hub_id, names, None)
        torch = optional_package("torch", extra="timm", purpose="timm")
        return url_weights(torch, config.url, None)


def _registered(timm: Any, spec: ModelSpec) -> Any:
    """Return timm's configuration of a model; reject a name without pre-trained weights."""
    name = spec.identifier
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        subject = f"timm {timm.__version__} has no architecture"
        raise unknown_name(spec, subject, architecture, timm.list_models())
    tags = timm.list_models(f"{architecture}.*", pretrained=True)
    if not tags and spec.pretrained is not False:
        raise InputError(
            f"model {spec.name!r}: timm has no pre-trained weights for {architecture!r}"
        )
    if tag and name not in tags:
        raise InputError(
            f"model {spec.name!r}: timm has no weights {name!r}; it has {', '.join(tags)}"
        )
    return timm.get_pretrained_cfg(name)


def _features_and_logits(
    module: Module, batch: Tensor, *, classifies: bool
) -> tuple[Tensor, Tensor | None]:
    # The backbone runs once and the head twice: the layers between pre-logits and logits differ
    # between architectures (two classifiers, a norm), so only timm can apply them.
    maps = module.forward_features(batch)
    features = module.forward_head(maps, pre_logits=True).flatten(1)
    return features, module.forward_head(maps) if classifies else None


def _has_classifier(module: Module) -> bool:
    """Whether the head is a classifier; that of a CLIP image tower projects into an embedding."""
    known = module.pretrained_cfg
    tag = known.get("tag") or ""
    name = f"{known.get('architecture')}.{tag}"
    contrastive = "clip" in name or "pe_core" in name
    projects = contrastive and "ft_in" not in tag and not known.get("label_names")
    return bool(module.num_classes) and not projects


def _preprocessing(timm: Any, module: Module, spec: ModelSpec) -> Preprocessing:
    """The data equivalent of `timm.data.create_transform(**config, is_training=False)`."""
    wanted: dict[str, Any] = {"mean": spec.mean, "std": spec.std}
    if spec.input_size is not None:
        wanted["input_size"] = (3, spec.input_size, spec.input_size)
    config = timm.data.resolve_model_data_config(module, args=wanted)
    channels, height, width = config["input_size"]
    if channels != 3:
        raise InputError(f"model {spec.name!r} takes images with {channels} channels, not RGB")
    fit = _FITS.get(config["crop_mode"], "cover")
    mean, std = tuple(config["mean"]), tuple(config["std"])
    geometry = Geometry(
        resize=tuple(math.floor(side / config["crop_pct"]) for side in (height, width)),
        crop=(height, width),
        fit=fit,
        interpolation=config["interpolation"],
        fill=round(255 * mean[0]) if fit == "contain" else 0,
    )
    return Preprocessing(geometry, mean, std)

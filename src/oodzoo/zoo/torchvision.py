"""torchvision models: `torchvision/<name>` or `torchvision/<name>.<weights>`.

Features are the input of the last linear layer. The weights default to torchvision's `DEFAULT`.

`torchvision/<name>/<checkpoint>` has the weights of a PyTorch checkpoint, a URL or a path that
begins with `./`, `/` or `~`. Only tensors are read from it, no code runs. The weights may be
wrapped (`state_dict`, `model`) and have a prefix, as after contrastive learning or training with
the library `robustness`. A classifier of another shape than the architecture's is left out. Images
are prepared as for torchvision's first weights of the architecture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from oodzoo.core.errors import InputError
from oodzoo.core.packages import import_torchvision, optional_package
from oodzoo.zoo.preprocessing import Geometry, Preprocessing
from oodzoo.zoo.sources import path_of
from oodzoo.zoo.spec import ModelSpec, verified_file
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
from oodzoo.zoo.torch_source import (
    TorchSource,
    build_empty,
    measure_module,
    remembered,
    repeatable,
)
from oodzoo.zoo.weights import Measured, Weights, url_weights

_MEBIBYTE = 2**20

_REMEDY = (
    "weights are downloaded once from download.pytorch.org and cached: check the connection, or "
    "set TORCH_HOME to a cache that has them"
)


def build(spec: ModelSpec, *, pretrained: bool = True) -> Built:
    """Build a model with its pre-trained weights, from torch's cache or its server."""
    checkpoint = checkpoint_of(spec)
    if not checkpoint:
        refuse_sha256(spec)
    pretrained = pretrained and spec.pretrained is not False
    torchvision = _torchvision(f"model {spec.name!r} (torchvision)")
    name, weights = registered(torchvision, spec)
    try:
        with no_unpickling(), repeatable(spec):
            arguments = dict(spec.arguments or {})
            if without_head := arguments.get("num_classes") == 0:
                del arguments["num_classes"]
            whole = _whole(torchvision, name, weights, pretrained and not checkpoint, arguments)
            if checkpoint and pretrained:
                without_head |= not _load_checkpoint(whole, spec)
    except InputError:
        raise
    except Exception as error:
        raise cannot_load(spec, error, _REMEDY) from error
    module = _split(whole)
    if without_head and "head" in module:
        del module["head"]
    return Built(
        module=module,
        forward=_squeezenet if name.startswith("squeezenet") else _features_and_logits,
        preprocessing=scaled(_preprocessing(weights), spec),
        identity=f"torchvision {name} input of the last linear layer{spec.variant}",
        pretraining=(Path(checkpoint).name or weights.name) if pretrained else None,
        licence=None if checkpoint else weights.meta.get("license"),
    )


class TorchvisionSource(TorchSource):
    """torchvision's classifiers."""

    kind = "torchvision"
    packages = ("torch", "torchvision")
    extra = "torchvision"
    takes_arguments = True

    def build(self, spec: ModelSpec, *, pretrained: bool = True) -> Built:
        return build(spec, pretrained=pretrained)

    def local_path(self, spec: ModelSpec) -> Path | None:
        return path_of(spec, checkpoint_of(spec))

    def is_model(self, path: Path) -> bool:
        return path.is_file()

    def names(self, pattern: str) -> list[str]:
        """Names of models; `<name>.<weights>` if the pattern has a dot."""
        models = _torchvision(f"the zoo 'torchvision/{pattern}'").models
        names = models.list_models(module=models)
        if "." not in pattern:
            return list(names)
        return [f"{name}.{each.name}" for name in names for each in models.get_model_weights(name)]

    def licence(self, spec: ModelSpec) -> str | None:
        found: str | None = _registered(spec).meta.get("license")
        return None if checkpoint_of(spec) else found

    def measure(self, spec: ModelSpec) -> Measured:
        return remembered(
            "torchvision", spec, spec.identifier, lambda: measure_module(build_empty(spec).module)
        )

    def weights(self, spec: ModelSpec) -> Weights:
        known = _registered(spec)
        torch = optional_package("torch", extra="torchvision", purpose="torchvision")
        if url := checkpoint_of(spec):
            return url_weights(torch, url, None)
        return url_weights(torch, known.url, round(known.meta["_file_size"] * _MEBIBYTE))


def _registered(spec: ModelSpec) -> Any:
    return registered(_torchvision(f"model {spec.name!r} (torchvision)"), spec)[1]


def _torchvision(purpose: str) -> Any:
    return import_torchvision(extra="torchvision", purpose=purpose)


def _features_and_logits(module: Module, batch: Tensor) -> tuple[Tensor, Tensor | None]:
    features = module["backbone"](batch).flatten(1)
    return features, module["head"](features) if "head" in module else None


def _squeezenet(module: Module, batch: Tensor) -> tuple[Tensor, Tensor]:
    """SqueezeNet, whose head is a convolution followed by pooling."""
    maps = module["backbone"].features(batch)
    return maps.mean((2, 3)), module["backbone"].classifier(maps).flatten(1)


def _split(whole: Module) -> Module:
    """Split off the last linear layer of a model as its head."""
    import torch

    linear = _linear(whole)
    if not linear:
        return torch.nn.ModuleDict({"backbone": whole})
    parent, _, last = linear[-1].rpartition(".")
    head = whole.get_submodule(linear[-1])
    setattr(whole.get_submodule(parent), last, torch.nn.Identity())
    return torch.nn.ModuleDict({"backbone": whole, "head": head})


def checkpoint_of(spec: ModelSpec) -> str:
    """The URL or path of a checkpoint; empty for torchvision's weights."""
    return spec.identifier.partition("/")[2]


def checkpoint_file(torch: Any, spec: ModelSpec) -> Path:
    """Where a checkpoint is, or will be: that of a URL in torch's cache."""
    local, url = path_of(spec, checkpoint_of(spec)), checkpoint_of(spec)
    if local is not None:
        return local
    if not url.startswith("https://"):
        raise InputError(
            f"model {spec.name!r}: the checkpoint {url!r} of {spec.source} is neither a URL "
            "(https://…) nor a path that begins with ./, / or ~"
        )
    return Path(torch.hub.get_dir()) / "checkpoints" / Path(urlsplit(url).path).name


def _load_checkpoint(whole: Module, spec: ModelSpec) -> bool:
    """Fill a network with the weights of a checkpoint; return whether its classifier has some."""
    import torch

    file = checkpoint_file(torch, spec)
    if not file.exists() and path_of(spec, checkpoint_of(spec)) is None:
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(checkpoint_of(spec), str(file), progress=False)
    verified_file(replace(spec, source=f"torchvision/{file.absolute()}"))
    found = torch.load(file, map_location="cpu", weights_only=True)
    for key in ("state_dict", "model"):
        found = found.get(key, found) if isinstance(found, Mapping) else {}
    wanted = {k: v for k, v in whole.state_dict().items() if "num_batches_tracked" not in k}
    head = {key for key in wanted if key.rpartition(".")[0] in _linear(whole)[-1:]}
    first = next(iter(wanted))
    # The first in the file that fits: MoCo's query encoder comes before its momentum encoder.
    for prefix in [key.removesuffix(first) for key in found if key.endswith(first)]:
        each = {key: found.get(prefix + key) for key in wanted}
        fits = {key for key, value in each.items() if _shape(value) == wanted[key].shape}
        if fits >= wanted.keys() - head:
            whole.load_state_dict({key: each[key] for key in fits}, strict=False)
            return fits >= head
    names = f"names such as {next(iter(found))!r}" if found else "no names"
    raise InputError(
        f"model {spec.name!r}: {str(file)!r} has not all weights of torchvision's "
        f"{spec.identifier.partition('/')[0]}; it has {names}"
    )


def _shape(value: Any) -> Any:
    return getattr(value, "shape", None)


def _linear(whole: Module) -> list[str]:
    """The names of the linear layers of a network."""
    import torch

    return [name for name, part in whole.named_modules() if isinstance(part, torch.nn.Linear)]


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
    name, _, version = spec.identifier.partition("/")[0].partition(".")
    if name not in known:
        subject = f"torchvision {torchvision.__version__} has no classification model"
        raise unknown_name(spec, subject, name, known)
    versions = models.get_model_weights(name).__members__
    if (version or "DEFAULT") not in versions:
        raise InputError(
            f"model {spec.name!r}: torchvision has no weights {version!r} for {name}; "
            f"it has {', '.join(key for key in versions if key != 'DEFAULT')}"
        )
    default = next(iter(versions)) if checkpoint_of(spec) else "DEFAULT"
    return name, versions[version or default]

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

from oodzoo.core.errors import InputError
from oodzoo.core.packages import import_torchvision, optional_package
from oodzoo.core.text import one_line
from oodzoo.zoo.hub import no_unpickling, url_file, url_weights
from oodzoo.zoo.model import ModelSize, Weights
from oodzoo.zoo.preprocessing import Geometry, Preprocessing
from oodzoo.zoo.sources import path_of
from oodzoo.zoo.sources.torch import (
    TorchSource,
    refuse_sha256,
    repeatable,
    scaled,
    unknown_name,
)
from oodzoo.zoo.spec import ModelSpec, verified_file
from oodzoo.zoo.torch_model import Built, Module, Tensor, features_and_logits, split_head

_MEBIBYTE = 2**20


class TorchvisionSource(TorchSource):
    """torchvision's classifiers."""

    kind = "torchvision"
    packages = ("torch", "torchvision")
    extra = "torchvision"
    takes_arguments = True

    def build(self, spec: ModelSpec, *, pretrained: bool = True) -> Built:
        """Build a model with its pre-trained weights, from torch's cache or its server."""
        checkpoint = _checkpoint(spec)
        if not checkpoint:
            refuse_sha256(spec)
        pretrained = pretrained and spec.pretrained is not False
        torchvision, name, weights = _registered(spec)
        arguments = dict(spec.arguments or {})
        without_head = arguments.get("num_classes") == 0
        if without_head:
            del arguments["num_classes"]
        try:
            with no_unpickling(), repeatable(spec):
                options = {"weights": weights}
                if not pretrained or checkpoint:
                    options = _without_weights(name, weights)
                whole = torchvision.models.get_model(name, **{**options, **arguments})
                if getattr(whole, "AuxLogits", None) is not None:  # a second head, for training
                    whole.aux_logits, whole.AuxLogits = False, None
                if checkpoint and pretrained:
                    without_head |= not _load_checkpoint(whole, spec)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"model {spec.name!r}: cannot load {spec.source}: {one_line(error)}; weights are "
                "downloaded once from download.pytorch.org and cached: check the connection, or "
                "set TORCH_HOME to a cache that has them"
            ) from error
        return Built(
            module=_split(whole, without_head),
            forward=_squeezenet if name.startswith("squeezenet") else features_and_logits,
            preprocessing=scaled(_preprocessing(weights), spec),
            identity=f"torchvision {name} input of the last linear layer{spec.variant}",
            pretraining=(Path(checkpoint).name or weights.name) if pretrained else None,
            licence=None if checkpoint else weights.meta.get("license"),
        )

    def local_path(self, spec: ModelSpec) -> Path | None:
        return path_of(spec, _checkpoint(spec))

    def is_model(self, path: Path) -> bool:
        return path.is_file()

    def names(self, pattern: str) -> list[str]:
        """Names of models; `<name>.<weights>` if the pattern has a dot."""
        purpose = f"the zoo 'torchvision/{pattern}'"
        models = import_torchvision(extra="torchvision", purpose=purpose).models
        names = models.list_models(module=models)
        if "." not in pattern:
            return list(names)
        return [f"{name}.{each.name}" for name in names for each in models.get_model_weights(name)]

    def licence(self, spec: ModelSpec) -> str | None:
        found: str | None = _registered(spec)[2].meta.get("license")
        return None if _checkpoint(spec) else found

    def measure(self, spec: ModelSpec) -> ModelSize:
        return self.measured(spec, "torchvision")

    def weights(self, spec: ModelSpec) -> Weights:
        known = _registered(spec)[2]
        torch = optional_package("torch", extra="torchvision", purpose="torchvision")
        if url := _checkpoint(spec):
            return url_weights(torch, url, None)
        return url_weights(torch, known.url, round(known.meta["_file_size"] * _MEBIBYTE))


def _checkpoint(spec: ModelSpec) -> str:
    """The URL or path of a checkpoint; empty for torchvision's weights."""
    return spec.identifier.partition("/")[2]


def _registered(spec: ModelSpec) -> tuple[Any, str, Any]:
    """Return torchvision, the name of the architecture and its weights."""
    purpose = f"model {spec.name!r} (torchvision)"
    torchvision = import_torchvision(extra="torchvision", purpose=purpose)
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
    default = next(iter(versions)) if _checkpoint(spec) else "DEFAULT"
    return torchvision, name, versions[version or default]


def _without_weights(name: str, weights: Any) -> dict[str, Any]:
    """What the builder of an architecture sets for its weights."""
    if name in ("googlenet", "inception_v3"):
        return {"transform_input": True, "aux_logits": False, "init_weights": False}
    if name.startswith("vit_"):
        return {"image_size": weights.meta["min_size"][0]}
    return {}


def _load_checkpoint(whole: Module, spec: ModelSpec) -> bool:
    """Fill a network with the weights of a checkpoint; return whether its classifier has some."""
    import torch

    url = _checkpoint(spec)
    file = path_of(spec, url)
    if file is None:
        if not url.startswith("https://"):
            raise InputError(
                f"model {spec.name!r}: the checkpoint {url!r} of {spec.source} is neither a URL "
                "(https://…) nor a path that begins with ./, / or ~"
            )
        file = url_file(torch, url)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            torch.hub.download_url_to_file(url, str(file), progress=False)
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
        fits = {k for k, value in each.items() if getattr(value, "shape", None) == wanted[k].shape}
        if fits >= wanted.keys() - head:
            whole.load_state_dict({key: each[key] for key in fits}, strict=False)
            return fits >= head
    names = f"names such as {next(iter(found))!r}" if found else "no names"
    raise InputError(
        f"model {spec.name!r}: {str(file)!r} has not all weights of torchvision's "
        f"{spec.identifier.partition('/')[0]}; it has {names}"
    )


def _linear(whole: Module) -> list[str]:
    """The names of the linear layers of a network."""
    import torch

    return [name for name, part in whole.named_modules() if isinstance(part, torch.nn.Linear)]


def _split(whole: Module, without_head: bool) -> Module:
    """Split off the last linear layer of a model as its head."""
    import torch

    linear = _linear(whole)
    parts = split_head(whole, linear[-1]) if linear else torch.nn.ModuleDict({"backbone": whole})
    if linear and without_head:
        del parts["head"]
    return parts


def _squeezenet(module: Module, batch: Tensor) -> tuple[Tensor, Tensor]:
    """SqueezeNet, whose head is a convolution followed by pooling."""
    maps = module["backbone"].features(batch)
    return maps.mean((2, 3)), module["backbone"].classifier(maps).flatten(1)


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

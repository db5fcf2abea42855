"""Vision models of transformers: `hf/<owner>/<name>` on the hub, or `hf/./folder` on disk.

What the features are depends on what the checkpoint holds:

- an image classifier (`ViTForImageClassification`, …): the input of its classifier, beside the
  logits;
- a model trained on images and texts (`CLIPModel`, `SiglipModel`, …): the image embedding that
  `get_image_features` gives, projected where the architecture projects, not scaled to length 1;
  the text tower is thrown away and there are no logits;
- any other model: its pooled output. Where the checkpoint has no weights for the pooling layer,
  the class token, or without one the mean over all places: never a pooling layer of random weights.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from oodzoo.errors import InputError
from oodzoo.zoo.hf_preprocessing import image_preprocessing
from oodzoo.zoo.packages import optional_package
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.torch_model import (
    HUB_REMEDY,
    Built,
    Forward,
    Module,
    Tensor,
    TorchModel,
    assemble,
    cannot_load,
    no_unpickling,
    refuse_sha256,
)
from oodzoo.zoo.torchvision_import import import_torchvision, torchvision_installed


def load(spec: ModelSpec, *, device: str = "cpu", precision: str = "float32") -> TorchModel:
    """Load a model with its weights, from a folder, transformers' cache or the hub."""
    return assemble(build(spec), spec, device=device, precision=precision)


def build(spec: ModelSpec, *, pretrained: bool = True) -> Built:
    refuse_sha256(spec)
    purpose = f"model {spec.name!r} (hf)"
    optional_package("torch", extra="hf", purpose=purpose)
    if torchvision_installed():  # transformers imports it where it finds it, also a broken one
        import_torchvision(extra="hf", purpose=purpose)
    transformers = optional_package("transformers", extra="hf", purpose=purpose)
    where = _where(spec)
    try:
        with no_unpickling():
            config = transformers.AutoConfig.from_pretrained(where, trust_remote_code=False)
            _refuse_timm(config, spec)
            kind = _kind(transformers, config)
            whole, missing = _whole(kind, where, config, pretrained)
            stored, _ = transformers.PretrainedConfig.get_config_dict(where)
    except InputError:
        raise
    except Exception as error:
        raise cannot_load(spec, error, HUB_REMEDY) from error
    module, forward, taken = _taken(whole, missing, spec)
    return Built(
        module=module,
        forward=forward,
        preprocessing=image_preprocessing(transformers, where, spec),
        identity=f"hf {type(whole).__name__} {taken} {_decisive(stored)}",
    )


def _taken(whole: Module, missing: set[str], spec: ModelSpec) -> tuple[Module, Forward, str]:
    """What is taken of a model: its parts, the forward pass and what that gives, in words."""
    pooler = {key for key in missing if key.startswith("pooler.")}
    if missing - pooler:
        first = min(missing - pooler)
        raise InputError(
            f"model {spec.name!r}: {spec.source} lacks {len(missing - pooler)} weights of "
            f"{type(whole).__name__} ({first}, …); they would be random"
        )
    if type(whole).__name__.endswith("ForImageClassification"):
        return _without_head(whole, spec), _features_and_logits, "input of the classifier"
    if hasattr(whole, "get_image_features"):
        return _without_text(whole), _embedding, "image embedding"
    if pooler:
        whole.pooler = None  # random: neither used nor part of the fingerprint
    class_token = any(name.endswith("cls_token") for name, _ in whole.named_parameters())
    forward = partial(_pooled, pooler=not pooler, class_token=class_token)
    return whole, forward, f"pooled, pooler {not pooler}, class token {class_token}"


def _features_and_logits(module: Module, batch: Tensor) -> tuple[Tensor, Tensor]:
    features = module["backbone"](pixel_values=batch).logits.flatten(1)
    return features, module["head"](features)


def _embedding(module: Module, batch: Tensor) -> tuple[Tensor, None]:
    output = module.get_image_features(pixel_values=batch)
    # transformers 4 gives the tensor, transformers 5 an output that holds it.
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
    """A classifier without its last layer, and that layer beside it."""
    import torch

    head = getattr(whole, "classifier", None)
    if not isinstance(head, torch.nn.Module):
        raise InputError(
            f"model {spec.name!r}: {type(whole).__name__} has no layer named classifier, so its "
            "features cannot be told from its logits; look for the same model in timm"
        )
    whole.classifier = torch.nn.Identity()
    return torch.nn.ModuleDict({"backbone": whole, "head": head})


def _without_text(whole: Module) -> Module:
    """A model of images and texts, with what only texts need removed."""
    for name in ("text_model", "text_projection", "logit_scale", "logit_bias", "temperature"):
        if hasattr(whole, name):
            delattr(whole, name)
    return whole


def _whole(kind: Any, where: str, config: Any, pretrained: bool) -> tuple[Module, set[str]]:
    """The model as transformers builds it, and the weights that the checkpoint did not have."""
    if config.model_type == "vit_mae":
        config.mask_ratio = 0.0  # it would hide three quarters of every image, at random
    if not pretrained:
        from_config = getattr(kind, "from_config", None) or kind
        return from_config(config), set()
    whole, report = kind.from_pretrained(
        where, config=config, output_loading_info=True, trust_remote_code=False
    )
    # Whatever the file holds: the precision is chosen when the model goes to its device.
    return whole.float(), set(report["missing_keys"])


def _kind(transformers: Any, config: Any) -> Any:
    """The class that a checkpoint was saved from, where it classifies images; else its backbone."""
    saved = (getattr(config, "architectures", None) or [""])[0]
    if "ForImageClassification" in saved and hasattr(transformers, saved):
        return getattr(transformers, saved)
    return transformers.AutoModel


def _refuse_timm(config: Any, spec: ModelSpec) -> None:
    if config.model_type == "timm_wrapper":
        raise InputError(
            f"model {spec.name!r} is a model of timm: give it as timm/hf-hub:{spec.where}"
        )


def _decisive(stored: dict[str, Any]) -> str:
    """The configuration as it is stored, without what says nothing about the features."""
    beside = {"_name_or_path", "transformers_version", "torch_dtype", "dtype", "_commit_hash"}
    beside |= {"id2label", "label2id", "architectures"}
    kept = {key: value for key, value in stored.items() if key not in beside}
    return json.dumps(kept, sort_keys=True, default=str)


def _where(spec: ModelSpec) -> str:
    """A name on the hub, or a folder: relative to the zoo file that names it."""
    path = Path(spec.where).expanduser()
    if not (path.is_absolute() or spec.where.startswith(".")):
        return spec.where
    folder = spec.folder / path
    if not (folder / "config.json").is_file():
        raise InputError(
            f"model {spec.name!r}: {str(folder)!r} is no folder of transformers: it has no "
            "config.json"
        )
    return str(folder)

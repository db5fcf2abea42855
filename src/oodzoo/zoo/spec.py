"""The specification of one model, and the pooling of its layer to one vector per image."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from oodzoo.core.errors import InputError
from oodzoo.core.io import file_digest
from oodzoo.core.text import did_you_mean, one_line
from oodzoo.zoo.preprocessing import Geometry

Item = TypeVar("Item")

Pooling = Literal["cls", "mean", "both"]
POOLINGS: tuple[Pooling, ...] = ("cls", "mean", "both")

_MOST_PREFIX_TOKENS = 16
"""Most class and register tokens before the tokens of an image."""


@dataclass(frozen=True)
class LayerPool:
    """How the output of a layer is made (n, d).

    Attributes
    ----------
    layout : str
        `vector` (n, d), `map` (n, d, height, width), `map_last` (n, height, width, d) or `tokens`
        (n, t, d).
    pooling : str, optional
        `mean`, `cls` or `both`; None for a vector.
    prefix : int
        Number of class and register tokens, which come first and are not part of a mean.
    """

    layout: Literal["vector", "map", "map_last", "tokens"]
    pooling: Pooling | None
    prefix: int = 0

    def __call__(self, tensor: Any) -> Any:
        """LayerPool a torch tensor to float32; the result shares no memory with it."""
        import torch

        if self.layout == "vector":
            return tensor.to(torch.float32, copy=True)
        if self.layout != "tokens":
            axes = (2, 3) if self.layout == "map" else (1, 2)
            return tensor.mean(axes, dtype=torch.float32)
        parts = []
        if self.pooling in ("cls", "both"):
            parts.append(tensor[:, 0].to(torch.float32, copy=True))
        if self.pooling in ("mean", "both"):
            parts.append(tensor[:, self.prefix :].mean(1, dtype=torch.float32))
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def choose_pool(
    shape: Sequence[int],
    n: int,
    crop: tuple[int, int],
    pooling: Pooling | None,
    *,
    class_token: bool | None = None,
) -> LayerPool:
    """Choose how the output of a layer for `n` images of the size `crop` is pooled.

    The two sides of a feature map are those in the proportions of the image. Tokens have a class
    token if they form no grid in these proportions, but do without the first few.

    Parameters
    ----------
    shape : sequence of int
    n : int
    crop : tuple of int
        Height and width of the images.
    pooling : str, optional
        By default the class token if there is one, else the mean.
    class_token : bool, optional
        Whether the network has a class token, if that is known.

    Raises
    ------
    InputError
        If the output cannot be pooled so; the message continues "layer 'x' …".

    Examples
    --------
    >>> choose_pool((2, 64, 7, 7), 2, (224, 224), None)
    LayerPool(layout='map', pooling='mean', prefix=0)
    >>> choose_pool((2, 197, 384), 2, (224, 224), None)
    LayerPool(layout='tokens', pooling='cls', prefix=1)
    """
    if pooling not in (None, *POOLINGS):
        raise InputError(f"has the unknown pooling {pooling!r}; use {', '.join(POOLINGS)}")
    described = f"gives an output of shape {tuple(shape)} for {n} images"
    if len(shape) not in (2, 3, 4) or shape[0] != n or 0 in shape:
        raise InputError(
            f"{described}; expected (n, d), (n, d, height, width) or (n, tokens, d): "
            "choose another layer"
        )
    if len(shape) == 2:
        if pooling is not None:
            raise InputError(f"{described}, which needs no pooling; remove ':{pooling}'")
        return LayerPool("vector", None)
    if len(shape) == 4:
        if pooling not in (None, "mean"):
            raise InputError(
                f"{described}, a feature map without a class token; use ':mean' instead of "
                f"':{pooling}'"
            )
        last = not _is_grid(shape[2], shape[3], crop) and _is_grid(shape[1], shape[2], crop)
        return LayerPool("map_last" if last else "map", "mean")
    prefix = prefix_tokens(shape[1], crop)
    has_class_token = prefix > 0 and class_token is not False
    if not has_class_token and pooling not in (None, "mean"):
        raise InputError(
            f"{described}, tokens without a class token; use ':mean' instead of ':{pooling}'"
        )
    return LayerPool("tokens", pooling or ("cls" if has_class_token else "mean"), prefix)


def prefix_tokens(n_tokens: int, crop: tuple[int, int]) -> int:
    """Count the tokens that come before a grid in the proportions of an image; 0 if none fits.

    Examples
    --------
    >>> [prefix_tokens(n, (224, 224)) for n in (196, 197, 201, 50)]
    [0, 1, 5, 1]
    """
    for prefix in range(min(_MOST_PREFIX_TOKENS, n_tokens - 1) + 1):
        rest = n_tokens - prefix
        height = round(math.sqrt(rest * crop[0] / crop[1]))
        for side in (height - 1, height, height + 1):
            if side > 0 and rest % side == 0 and _is_grid(side, rest // side, crop):
                return prefix
    return 0


def unknown_layer(name: str, known: Sequence[str], examples: Sequence[str]) -> InputError:
    """Build the error for a layer that does not exist; the message continues "model 'x': "."""
    near = did_you_mean(name, known)
    if not near and examples:
        near = f"it has {', '.join(examples[:3])}, …"
    return InputError(f"there is no layer {name!r}" + (f"; {near}" if near else ""))


def _is_grid(height: int, width: int, crop: tuple[int, int]) -> bool:
    """Whether two sides have the proportions of an image, up to rounding."""
    if crop[0] == crop[1]:
        return height == width
    return abs(height * crop[1] - width * crop[0]) < max(crop)


Triple = tuple[float, float, float]

WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class ModelSpec:
    """One model of a zoo.

    `source` is `<kind>/<identifier>`: `onnx/path/to/file.onnx`, `timm/resnet50.a1_in1k`,
    `torchvision/resnet50`, `hf/facebook/dinov2-small`, `open_clip/ViT-B-16/openai`. Fields that
    are None are taken from the source when the model is loaded.

    With `pretrained` False, the weights are random: drawn with a seed that is the name of the
    model, so that it can be loaded again. `arguments` are keyword arguments of the function that
    builds the model. `geometry` has the fields of a :class:`oodzoo.zoo.Geometry`, for an ONNX file
    whose images are not squashed to a square.
    """

    name: str
    source: str
    input_size: int | None = None
    mean: Triple | None = None
    std: Triple | None = None
    features: str | None = None
    logits: str | None = None
    feature_dim: int | None = None
    parameters: int | None = None
    sha256: str | None = None
    pretraining: str | None = None
    architecture: str | None = None
    licence: str | None = None
    origin: str | None = None
    pretrained: bool | None = None
    arguments: dict[str, Any] | None = dataclasses.field(default=None, hash=False)
    geometry: dict[str, Any] | None = dataclasses.field(default=None, hash=False)
    layer: str | None = None
    """A module or tensor of the network whose output are the features; `@layer` in a source."""
    pooling: Pooling | None = None
    """How the output of the layer is pooled; `:pooling` in a source."""
    folder: Path = dataclasses.field(default=Path(), compare=False)
    """The folder that a relative path in `source` is relative to."""

    @property
    def kind(self) -> str:
        return self.source.partition("/")[0]

    @property
    def identifier(self) -> str:
        """Everything after the first slash of the source."""
        return self.source.partition("/")[2]

    @property
    def file(self) -> Path:
        """The file of a model whose identifier is a path."""
        return self.folder / self.identifier

    @property
    def variant(self) -> str:
        """The arguments as a suffix of what identifies a model; empty without arguments."""
        if not self.arguments:
            return ""
        return f" arguments {json.dumps(self.arguments, sort_keys=True)}"

    def to_dict(self) -> dict[str, Any]:
        """The fields that are set, without the folder; suitable for JSON."""
        fields = dataclasses.asdict(self)
        del fields["folder"]
        return {key: value for key, value in fields.items() if value is not None}


_NOT_OF_NETWORK = (
    "name", "layer", "pooling", "features", "logits", "feature_dim", "parameters",
    "pretraining", "architecture", "licence", "origin",
)  # fmt: skip
"""Fields of a spec in which models of one network may differ."""


def network_key(spec: ModelSpec) -> Hashable:
    """Identify the network of a model; models with the same key are loaded together."""
    fields = {key: repr(value) for key, value in vars(spec).items() if key not in _NOT_OF_NETWORK}
    fields["folder"] = str(spec.folder.resolve())
    if spec.pretrained is False:
        fields["name"] = spec.name.partition("@")[0]  # the seed of its weights
    return tuple(sorted(fields.items()))


def by_network(items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    """Group items by the key of their network, in the order of their first members."""
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def require_unique_names(
    names: Iterable[str], context: str, remedy: str = "rename one of them"
) -> None:
    """Reject two models with the same name: their features would share a folder."""
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:  # some file systems ignore case
            raise InputError(f"{context} names two models {name!r}; {remedy}")
        seen.add(name.casefold())


def verified_file(spec: ModelSpec) -> tuple[Path, str]:
    """Return the file of a model and its SHA-256, checked against the one in its zoo file."""
    try:
        digest = file_digest(spec.file)
    except OSError as error:
        raise InputError(
            f"model {spec.name!r}: cannot read {str(spec.file)!r}: {error.strerror}"
        ) from error
    if spec.sha256 is not None and digest != spec.sha256.lower():
        raise InputError(
            f"model {spec.name!r}: {str(spec.file)!r} has the sha256 {digest[:12]}…, but its zoo "
            f"file sets {spec.sha256[:12]}…; download the file again or correct the zoo file"
        )
    return spec.file, digest


def read_geometry(table: dict[str, Any], context: str) -> Geometry:
    """Read the table `geometry` of a zoo file; `context` begins the message of an error.

    Examples
    --------
    >>> read_geometry({"resize": [256, 256], "crop": [224, 224], "fit": "cover"}, "zoo").crop
    (224, 224)
    """
    fields = [field.name for field in dataclasses.fields(Geometry)]
    known = [name for name in fields if name != "decode"]  # an option of the extraction
    if unknown := sorted(set(table) - set(known)):
        raise InputError(
            f"{context}: unknown key {unknown[0]!r} of geometry; expected one of {', '.join(known)}"
        )
    try:
        geometry = msgspec.convert(table, Geometry)
    except msgspec.ValidationError as error:
        raise InputError(f"{context}: the geometry {table} is wrong: {one_line(error)}") from error
    if not 0 <= geometry.fill <= 255:
        raise InputError(f"{context}: fill of geometry must be from 0 to 255, got {geometry.fill}")
    return geometry

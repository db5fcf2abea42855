"""The specification of one model."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oodzoo.zoo.layers_pooling import Pooling

Triple = tuple[float, float, float]


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

"""Architectures: small enough to ship, and diverse.

Each function returns a :class:`Model` that maps ``(n, 3, 32, 32)`` normalised images to ``(n, d)``
pooled features. None has more than 75,000 weights.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["ARCHITECTURES", "Model", "keep_scale"]


class Model(nn.Module):
    """A body that computes features, and a linear head if the objective has classes."""

    def __init__(self, body: nn.Module, feature_dim: int) -> None:
        super().__init__()
        self.body, self.feature_dim = body, feature_dim
        self.head: nn.Linear | None = None

    def add_head(self, classes: int) -> None:
        self.head = nn.Linear(self.feature_dim, classes)

    def features(self, images: Tensor) -> Tensor:
        features: Tensor = self.body(images)
        return features

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        features = self.features(images)
        return (features,) if self.head is None else (features, self.head(features))


class GlobalAverage(nn.Module):
    def forward(self, grid: Tensor) -> Tensor:
        return grid.mean(dim=(2, 3))


class Residual(nn.Module):
    """``after(inner(x) + outer(x))``: the shortcut of all residual parts."""

    def __init__(self, inner: nn.Module, outer: nn.Module, after: nn.Module) -> None:
        super().__init__()
        self.inner, self.outer, self.after = inner, outer, after

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.after(self.inner(x) + self.outer(x))
        return out


def keep_scale(model: nn.Module) -> None:
    """Re-initialise the convolutions so that activations keep their scale (He et al., 2015).

    In training, batch normalisation does that; in an untrained model it has no effect, and the
    features would nearly vanish.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")


# --- convolutional ----------------------------------------------------------------------------


def _conv(inside: int, outside: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(inside, outside, kernel, stride, padding=kernel // 2, bias=False)
    return [conv, nn.BatchNorm2d(outside)]


def _plain_trunk(*widths: int) -> nn.Sequential:
    """A 3 x 3 convolution per width; every one but the first halves the side."""
    layers: list[nn.Module] = []
    for place, (inside, outside) in enumerate(zip((3, *widths), widths, strict=False)):
        layers += [*_conv(inside, outside, stride=2 if place else 1), nn.ReLU()]
    return nn.Sequential(*layers)


def cnn() -> Model:
    """Four convolutions and a global average."""
    return Model(nn.Sequential(_plain_trunk(12, 24, 40, 64), GlobalAverage()), 64)


def cnn_bottleneck() -> Model:
    """Four convolutions and a linear code over the whole grid, as an autoencoder needs."""
    trunk = _plain_trunk(12, 24, 32, 32)
    return Model(nn.Sequential(trunk, nn.Flatten(), nn.Linear(32 * 16, 48)), 48)


def _residual_block(inside: int, outside: int, stride: int) -> Residual:
    inner = nn.Sequential(
        *_conv(inside, outside, stride=stride), nn.ReLU(), *_conv(outside, outside)
    )
    same = inside == outside and stride == 1
    outer = nn.Identity() if same else nn.Sequential(*_conv(inside, outside, 1, stride))
    return Residual(inner, outer, nn.ReLU())


def resnet() -> Model:
    """Three residual blocks of two convolutions each."""
    body = nn.Sequential(
        *_conv(3, 12),
        nn.ReLU(),
        _residual_block(12, 20, 2),
        _residual_block(20, 32, 2),
        _residual_block(32, 56, 2),
        GlobalAverage(),
    )
    return Model(body, 56)


def separable() -> Model:
    """Alternating depthwise and pointwise convolutions, as in MobileNet."""

    def pair(inside: int, outside: int, stride: int) -> list[nn.Module]:
        depth = nn.Conv2d(inside, inside, 3, stride, padding=1, groups=inside, bias=False)
        return [depth, nn.BatchNorm2d(inside), nn.ReLU(), *_conv(inside, outside, 1), nn.ReLU()]

    body = nn.Sequential(
        *_conv(3, 16),
        nn.ReLU(),
        *pair(16, 32, 2),
        *pair(32, 64, 2),
        *pair(64, 64, 1),
        *pair(64, 96, 2),
        *pair(96, 96, 1),
        GlobalAverage(),
    )
    return Model(body, 96)


class ChannelsLast(nn.Module):
    """Apply a layer that expects channels on the last axis to a grid."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, grid: Tensor) -> Tensor:
        out: Tensor = self.layer(grid.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return out


def convnext() -> Model:
    """Large depthwise kernels, layer norms and inverted bottlenecks."""

    def block(width: int) -> Residual:
        mix = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        depth = nn.Conv2d(width, width, 5, padding=2, groups=width)
        return Residual(nn.Sequential(depth, ChannelsLast(mix)), nn.Identity(), nn.Identity())

    body = nn.Sequential(
        nn.Conv2d(3, 24, 4, stride=2, padding=1),
        ChannelsLast(nn.LayerNorm(24)),
        block(24),
        nn.Conv2d(24, 40, 2, stride=2),
        block(40),
        block(40),
        nn.Conv2d(40, 64, 2, stride=2),
        block(64),
        GlobalAverage(),
        nn.LayerNorm(64),
    )
    return Model(body, 64)


# --- not convolutional ------------------------------------------------------------------------


def mlp() -> Model:
    """Two hidden layers on the image at half resolution, without any spatial structure."""
    body = nn.Sequential(
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(768, 48),
        nn.BatchNorm1d(48),
        nn.ReLU(),
        nn.Linear(48, 48),
        nn.BatchNorm1d(48),
        nn.ReLU(),
    )
    return Model(body, 48)


class Attention(nn.Module):
    """Multi-head self-attention, written out so that it exports to plain matrix products."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.share = heads, width // heads
        self.query_key_value, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        _, count, width = tokens.shape
        split = self.query_key_value(tokens).reshape(-1, count, 3, self.heads, self.share)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        weights = (query @ key.transpose(-2, -1) * self.share**-0.5).softmax(dim=-1)
        mixed = (weights @ value).transpose(1, 2).reshape(-1, count, width)
        out: Tensor = self.out(mixed)
        return out


class AcrossTokens(nn.Module):
    """Apply a layer along the axis of the tokens."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.layer(tokens.transpose(1, 2)).transpose(1, 2)
        return out


class TokenBody(nn.Module):
    """64 patches of 4 x 4 pixels, blocks of layers, and the average over the patches."""

    def __init__(self, width: int, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, width, 4, stride=4)
        self.position = nn.Parameter(0.02 * torch.randn(1, 64, width))
        self.blocks, self.norm = nn.Sequential(*blocks), nn.LayerNorm(width)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.embed(images).flatten(2).transpose(1, 2) + self.position
        out: Tensor = self.norm(self.blocks(tokens)).mean(dim=1)
        return out


def _shortcut(*layers: nn.Module) -> Residual:
    return Residual(nn.Sequential(*layers), nn.Identity(), nn.Identity())


def _bottleneck(width: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


def vit() -> Model:
    """A vision transformer of three blocks."""
    width, blocks = 40, list[nn.Module]()
    for _ in range(3):
        blocks += [
            _shortcut(nn.LayerNorm(width), Attention(width, heads=4)),
            _shortcut(nn.LayerNorm(width), _bottleneck(width, 2 * width)),
        ]
    return Model(TokenBody(width, blocks), width)


def mixer() -> Model:
    """An MLP-mixer of three blocks."""
    width, blocks = 40, list[nn.Module]()
    for _ in range(3):
        blocks += [
            _shortcut(nn.LayerNorm(width), AcrossTokens(_bottleneck(64, 32))),
            _shortcut(nn.LayerNorm(width), _bottleneck(width, 2 * width)),
        ]
    return Model(TokenBody(width, blocks), width)


ARCHITECTURES: dict[str, Callable[[], Model]] = {
    "plain CNN": cnn,
    "coding CNN": cnn_bottleneck,
    "residual CNN": resnet,
    "separable CNN": separable,
    "ConvNeXt": convnext,
    "MLP": mlp,
    "vision transformer": vit,
    "MLP-mixer": mixer,
}
"""Architectures by their name in ``zoo.toml``."""

"""Noise images, small transformers checkpoints with random weights, and files in a cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VIT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
SQUASH = ("ViTImageProcessor", {"size": {"height": 32, "width": 32}})
CROP = (
    "BitImageProcessor",
    {"size": {"shortest_edge": 37}, "crop_size": {"height": 32, "width": 32}},
)
HUBCONF = """
dependencies = ["torch"]
import torch
from nets import Net, WIDTH


def classifier(width=WIDTH, pretrained=True):
    net = Net(width)
    if pretrained:
        torch.nn.init.constant_(net.head.bias, 0.5)
    return net


def backbone():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 6, 4, stride=4), torch.nn.ReLU())


def pickled():
    import pathlib
    return torch.load(pathlib.Path(__file__).with_name("weights.pt"), weights_only=False)


def number():
    return 3


def pair():
    return torch.nn.LSTM(4, 4)


def broken():
    raise KeyError("no such thing")
"""
NETS = """
import torch

WIDTH = {width}


class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, width, 4, stride=4)
        self.head = torch.nn.Linear(width, 5)

    def forward(self, x):
        return self.head(self.conv(x).relu().mean((2, 3)))
"""


def noise(n: int, side: int) -> NDArray[np.uint8]:
    """A batch of `n` square noise images."""
    return np.random.default_rng(0).integers(0, 256, (n, side, side, 3), dtype=np.uint8)


def image_processor(transformers: Any, kind: str, settings: dict[str, Any]) -> Any:
    """The Pillow variant of an image processor, in transformers 5 or 4."""
    return (getattr(transformers, kind + "Pil", None) or getattr(transformers, kind))(**settings)


def save_checkpoint(
    transformers: Any, module: Any, folder: Path, processor: tuple[str, Any]
) -> Any:
    """Write a module and its image processor to a folder; return the module."""
    module.eval().save_pretrained(folder)
    image_processor(transformers, *processor).save_pretrained(folder)
    return module


def cache_file(cache: Path, repository: str, name: str, content: bytes) -> None:
    """Write a file as huggingface_hub does when it has downloaded it."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    commit = "0" * 40
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(commit)
    (folder / "snapshots" / commit).mkdir(parents=True, exist_ok=True)
    (folder / "snapshots" / commit / name).write_bytes(content)

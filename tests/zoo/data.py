"""Noise images, small transformers checkpoints with random weights, and files in a cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VIT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}
SQUASH = ("ViTImageProcessor", {"size": {"height": 32, "width": 32}})
CROP = (
    "BitImageProcessor",
    {"size": {"shortest_edge": 37}, "crop_size": {"height": 32, "width": 32}},
)


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

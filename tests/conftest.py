"""Small real data sets to test on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

WriteImage = Callable[[Path], Path]


@pytest.fixture
def write_image() -> WriteImage:
    """A function that writes a tiny image, unlike all others of the test, and gives its path."""
    written = 0

    def write(path: Path) -> Path:
        nonlocal written
        written += 1
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (written % 256, written // 256, 7)).save(path)
        return path

    return write


@pytest.fixture
def photos(tmp_path: Path, write_image: WriteImage) -> Path:
    """A folder of 2 domains x 2 classes x 2 images; nothing about it is odd."""
    root = tmp_path / "photos"
    for domain in ("day", "night"):
        for label in ("cat", "dog"):
            for name in ("1.png", "2.png"):
                write_image(root / domain / label / name)
    return root

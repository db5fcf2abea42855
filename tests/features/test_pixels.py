"""Decoding the images of a shard, in every size, in the background."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from oodzoo.features.pixels import Decoding
from oodzoo.zoo.preprocessing import Geometry, square

SMALL, LARGE = (square(side, (0.5,) * 3, (0.5,) * 3).geometry for side in (4, 6))


def write(folder: Path, n: int) -> dict[int, Path | Image.Image]:
    """Images of one colour each, by position; every third position is left out."""
    files: dict[int, Path | Image.Image] = {}
    for position in range(n):
        if position % 3 != 2:
            files[position] = folder / f"{position}.png"
            Image.new("RGB", (8, 8), (position, 0, 0)).save(folder / f"{position}.png")
    return files


def reds(pixels: np.ndarray) -> list[int]:
    return [int(image[0, 0, 0]) for image in pixels]


def test_every_image_in_every_size(tmp_path: Path) -> None:
    files = write(tmp_path, 11)
    chunk = Decoding(files, [SMALL, LARGE]).result()
    assert chunk.positions == list(files)
    assert chunk.problems == {}
    for geometry, side in ((SMALL, 4), (LARGE, 6)):
        assert chunk.pixels[geometry].shape == (len(files), side, side, 3)
        assert reds(chunk.pixels[geometry]) == list(files)


def test_unreadable_images_have_no_row(tmp_path: Path) -> None:
    files = write(tmp_path, 11)
    (tmp_path / "3.png").write_bytes(b"")
    chunk = Decoding(files, [SMALL]).result()
    assert chunk.problems == {3: "the file is empty (0 bytes)"}
    assert chunk.positions == [position for position in files if position != 3]
    assert reds(chunk.pixels[SMALL]) == chunk.positions


def test_images_in_memory(tmp_path: Path) -> None:
    image = Image.new("L", (8, 8), 7)
    chunk = Decoding({5: image}, [SMALL]).result()
    assert (chunk.positions, reds(chunk.pixels[SMALL])) == ([5], [7])


def test_no_images() -> None:
    geometry: Geometry = SMALL
    chunk = Decoding({}, [geometry]).result()
    assert (chunk.positions, chunk.pixels[geometry].shape) == ([], (0, 4, 4, 3))


def test_cancel(tmp_path: Path) -> None:
    Decoding(write(tmp_path, 11), [SMALL]).cancel()

"""Crops of images on a device, against those of Pillow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from tests.oracles.pillow_resize import coefficients

from oodzoo.data.files import LocalFile
from oodzoo.tuning.images import DeviceImages, TrainingImages, resizing_weights
from oodzoo.zoo.preprocessing import Geometry

torch = pytest.importorskip("torch")

SIZES = [(60, 50), (24, 24), (16, 30), (9, 40), (40, 9), (7, 6), (100, 30), (1, 1), (64, 200)]
"""Width and height: reduced, as they are, smaller than the crop, much longer than wide."""
GEOMETRY = Geometry((20, 16), (20, 16))


@pytest.fixture
def images(tmp_path: Path) -> Iterator[TrainingImages]:
    rng = np.random.default_rng(0)
    files = []
    for number, (width, height) in enumerate(SIZES):
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        if number % 2:  # smooth, as photographs are
            Image.fromarray(pixels).resize((4, 4)).resize((width, height)).save(
                tmp_path / f"{number}.png"
            )
        else:
            Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        files.append(LocalFile(str(tmp_path / f"{number}.png")))
    with TrainingImages(files, GEOMETRY) as found:
        yield found


def levels(batch: Any) -> NDArray[np.float64]:
    """Values from 0 to 255, channels last."""
    found: NDArray[np.float64] = batch.permute(0, 2, 3, 1).double().cpu().numpy() * 255
    return found


@pytest.mark.parametrize("seed", range(5))
def test_crops_are_those_of_pillow(images: TrainingImages, seed: int) -> None:
    rows = np.arange(len(SIZES))
    crops = DeviceImages(images, rows, torch.device("cpu")).cropped(rows, seed)
    assert crops.shape == (len(SIZES), 3, 20, 16)
    assert crops.dtype == torch.float32
    # Pillow rounds to whole levels twice
    difference = np.abs(levels(crops) - images.cropped(rows, seed))
    assert difference.max() < 1.1
    assert difference.max() > 0.1


def test_rows_in_any_order_and_again(images: TrainingImages) -> None:
    chosen = np.array([6, 2, 5])
    on_device = DeviceImages(images, chosen, torch.device("cpu"))
    rows = np.array([5, 6, 5, 2, 2])
    difference = levels(on_device.cropped(rows, 3)) - images.cropped(rows, 3)
    assert np.abs(difference).max() < 1.1


def test_a_white_image_stays_white(tmp_path: Path) -> None:
    """The padding beside a smaller image does not reach into its crops."""
    files = []
    for number, size in enumerate([(30, 18), (18, 30), (5, 4)]):
        Image.new("RGB", size, (255, 255, 255)).save(tmp_path / f"{number}.png")
        files.append(LocalFile(str(tmp_path / f"{number}.png")))
    with TrainingImages(files, GEOMETRY) as images:
        rows = np.repeat(np.arange(3), 20)
        crops = DeviceImages(images, np.arange(3), torch.device("cpu")).cropped(rows, 0)
    torch.testing.assert_close(crops, torch.ones_like(crops), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("start", "length", "size", "result"),
    [
        (0, 24, 24, 24),  # as it is
        (3, 20, 30, 8),  # smaller
        (2, 5, 9, 16),  # larger
        (4, 7, 11, 7),
        (0, 1, 1, 5),
        (6, 1, 9, 3),
        (10, 13, 40, 12),
        (0, 40, 40, 1),
    ],
)
def test_weights_are_those_of_the_twin(start: int, length: int, size: int, result: int) -> None:
    (found,) = resizing_weights(torch.tensor([start]), torch.tensor([length]), size, result)
    expected = np.zeros((result, size))
    expected[:, start : start + length] = coefficients(length, 0, length, result)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


def test_only_gpus(images: TrainingImages) -> None:
    assert DeviceImages.if_they_fit(images, np.arange(3), torch.device("cpu")) is None

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from tests.oracles import leaks as oracle

from oodzoo.data.files import LocalFile
from oodzoo.leaks.pixels import SIDE, correlation, correlations, thumbnails


def picture(seed: int, size: tuple[int, int] = (120, 90)) -> Image.Image:
    """A smooth picture of random blobs."""
    pixels = np.random.default_rng(seed).integers(0, 256, (9, 12, 3), np.uint8)
    return Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)


@pytest.mark.parametrize("seed", range(3))
def test_correlation_is_the_best_of_all_windows(seed: int) -> None:
    first, second = thumbnails(picture(seed)), thumbnails(picture(seed + 10))
    found = correlation(first, second)
    assert found == pytest.approx(oracle.correlation(first, second, SIDE), abs=1e-4)
    assert found == pytest.approx(correlation(second, first))


CHANGES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "smaller": lambda image: image.resize((60, 45)),
    "mirrored": ImageOps.mirror,
    "darker": lambda image: ImageEnhance.Brightness(image).enhance(0.7),
    "grey": lambda image: image.convert("L").convert("RGB"),
    "cropped": lambda image: image.crop((8, 2, 116, 85)),
    "with a border": lambda image: ImageOps.expand(image, 4, "white"),
    "blurred": lambda image: image.filter(ImageFilter.GaussianBlur(1)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_images_correlate(change: str) -> None:
    for seed in range(5):
        image = picture(seed)
        assert correlation(thumbnails(image), thumbnails(CHANGES[change](image))) > 0.93


def test_other_images_do_not_correlate() -> None:
    values = [
        correlation(thumbnails(picture(seed)), thumbnails(picture(seed + 100)))
        for seed in range(10)
    ]
    assert max(values) < 0.6


def test_flat_images_correlate_with_nothing() -> None:
    flat = thumbnails(Image.new("RGB", (40, 40), "white"))
    assert correlation(flat, thumbnails(picture(0))) == 0
    assert correlation(flat, flat) == 0


def test_files_are_read_once_and_unreadable_ones_give_nothing(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 1)):
        picture(seed).save(tmp_path / f"{name}.png")
    a, b, none = (LocalFile(str(tmp_path / f"{name}.png")) for name in ("a", "b", "none"))
    same, other, unknown = correlations([(a, a), (a, b), (b, none)])
    assert same == pytest.approx(1)
    assert other is not None
    assert other < 0.6
    assert unknown is None

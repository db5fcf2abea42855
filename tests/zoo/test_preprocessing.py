"""Preprocessing, compared with each step computed by hand."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from oodzoo.core.errors import InputError
from oodzoo.zoo import preprocessing
from oodzoo.zoo.preprocessing import Geometry, Preprocessing, square

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIDES = st.integers(1, 60)


def noise(width: int, height: int) -> Image.Image:
    rng = np.random.default_rng(width * 1000 + height)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8))


def gradient(width: int, height: int) -> Image.Image:
    """Red is the column, green the row."""
    y, x = np.mgrid[:height, :width]
    return Image.fromarray(np.stack([x, y, 0 * x], axis=2).astype(np.uint8))


@given(
    st.lists(st.floats(-2, 2), min_size=3, max_size=3),
    st.lists(st.floats(0.01, 10), min_size=3, max_size=3),
)
def test_any_mean_and_std(mean: Any, std: Any) -> None:
    pixels = np.arange(256, dtype=np.uint8).repeat(3).reshape(1, 16, 16, 3)
    found = Preprocessing(Geometry((16, 16), (16, 16)), tuple(mean), tuple(std)).normalise(pixels)
    expected = (pixels / 255.0 - mean) / std
    np.testing.assert_allclose(found, expected.transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("std", [(0.5, 0.5, 0.0), (0.5, -1.0, 0.5)])
def test_std_must_be_positive(std: tuple[float, float, float]) -> None:
    with pytest.raises(InputError, match="std must be positive"):
        square(8, MEAN, std)


@given(SIDES, SIDES, SIDES)
def test_squash_is_pillow_resize(width: int, height: int, size: int) -> None:
    image = noise(width, height)
    expected = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(square(size, MEAN, STD).geometry.apply(image), expected)


@given(SIDES, SIDES, st.integers(1, 40), st.integers(0, 30))
def test_cover_is_resize_and_centre_crop_of_torchvision(
    width: int, height: int, crop: int, spare: int
) -> None:
    """Resize(int) and CenterCrop(int), transcribed from torchvision."""
    image = noise(width, height)
    size = crop + spare
    short, long = sorted((width, height))
    longer = int(size * long / short)
    new_width, new_height = (size, longer) if width <= height else (longer, size)
    resized = image.resize((new_width, new_height), Image.Resampling.BICUBIC)
    top = round((new_height - crop) / 2.0)
    left = round((new_width - crop) / 2.0)
    expected = resized.crop((left, top, left + crop, top + crop))
    geometry = Geometry((size, size), (crop, crop), fit="cover", interpolation="bicubic")
    np.testing.assert_array_equal(geometry.apply(image), np.asarray(expected))


@pytest.mark.parametrize(
    ("centring", "spare", "offset"),
    [("even", 3, 2), ("even", 1, 0), ("down", 3, 1), ("down", 4, 2)],
)
def test_offset_of_the_crop(centring: Literal["even", "down"], spare: int, offset: int) -> None:
    size = 10 + spare
    geometry = Geometry((size, size), (10, 10), centring=centring)
    found = geometry.apply(gradient(size, size))
    np.testing.assert_array_equal(found[0, :, 0], np.arange(offset, offset + 10))
    np.testing.assert_array_equal(found[:, 0, 1], np.arange(offset, offset + 10))


@given(SIDES, SIDES, st.integers(4, 40))
def test_contain_shows_the_whole_image(width: int, height: int, size: int) -> None:
    """The aspect ratio is kept to a pixel, and the rest is padded."""
    image = Image.new("RGB", (width, height), "white")
    found = Geometry((size, size), (size, size), fit="contain", fill=0).apply(image)
    shown = found[..., 0] == 255
    rows, columns = np.flatnonzero(shown.any(axis=1)), np.flatnonzero(shown.any(axis=0))
    assert max(len(rows), len(columns)) == size
    scale = size / max(width, height)
    assert math.isclose(len(rows), max(1, height * scale), abs_tol=1)
    assert math.isclose(len(columns), max(1, width * scale), abs_tol=1)
    assert shown[np.ix_(rows, columns)].all()
    for found_sides, total in ((rows, size), (columns, size)):
        before, after = found_sides[0], total - 1 - found_sides[-1]
        assert 0 <= after - before <= 1
    assert set(np.unique(found)) <= {0, 255}


# The child may use 512 MiB more than when it has imported everything; then hardly anything.
LITTLE_MEMORY = """
import resource
from PIL import Image
from oodzoo.data.files import UnreadableImageError
from oodzoo.zoo.preprocessing import Geometry

def limit(more):
    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))

Geometry((8, 8), (8, 8)).apply(Image.new("RGB", (9, 9)))
limit(1 << 29)
for side in (20_000, 16_000_000):
    for size in ((1, side), (side, 1)):
        for fit in ("squash", "cover", "contain"):
            image = Image.new("RGB", size, (9, 8, 7))
            print(*Geometry((256, 256), (224, 224), fit, "bicubic").apply(image).max(axis=(0, 1)))
            del image
image = Image.new("RGB", (3000, 2000))
limit(1 << 25)
try:
    Geometry((4000, 4000), (4000, 4000), "cover", "bicubic").apply(image)
except UnreadableImageError as error:
    print(error, error.transient)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_memory_of_very_long_images_and_lack_of_memory() -> None:
    command = [sys.executable, "-c", LITTLE_MEMORY]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [*["9 8 7"] * 12, "not enough memory True"]


@given(
    st.integers(1, 300),
    st.integers(1, 300),
    st.tuples(st.integers(4, 40), st.integers(4, 40)),
    st.tuples(st.integers(4, 40), st.integers(4, 40)),
    st.sampled_from(["squash", "cover", "contain"]),
    st.sampled_from(["even", "down"]),
    st.sampled_from(["bilinear", "bicubic", "lanczos", "hamming"]),
)
def test_only_the_centre_is_resized_to_the_same_pixels(
    width: int, height: int, resize: Any, crop: Any, fit: Any, centring: Any, interpolation: Any
) -> None:
    # half as steep as the steepest gradient in 8 bits, so that nothing is clipped at either end
    y, x = np.mgrid[:height, :width]
    pixels = np.stack([60 + 120 * x / width, 60 + 120 * y / height, 0 * x + 90], axis=2)
    image = Image.fromarray(pixels.astype(np.uint8))
    geometry = Geometry(resize, crop, fit, interpolation, fill=7, centring=centring)
    expected = geometry.apply(image).astype(int)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preprocessing, "_MAX_PIXELS", 0)
        found = geometry.apply(image).astype(int)
    assert abs(found - expected).max() <= 1


def test_a_very_long_side_is_averaged() -> None:
    """Beyond the side that is resized as it is, the result stays that of the whole image."""
    side = (1 << 21) + 12_345
    row = (np.arange(side) * 255 // side).astype(np.uint8)
    geometry = Geometry((64, 64), (64, 64), "squash", "bilinear")
    for pixels in (row[None, :], row[:, None]):
        found = geometry.apply(Image.fromarray(np.repeat(pixels[..., None], 3, axis=2)))
        line = found[0, :, 0] if pixels.shape[0] == 1 else found[:, 0, 0]
        expected = (np.arange(64) + 0.5) * 255 / 64
        assert abs(line[1:-1] - expected[1:-1]).max() <= 1

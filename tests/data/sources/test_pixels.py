"""Images in memory become image files that decode to the same pixels."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from PIL import Image

from oodzoo.data.files import UnreadableImageError
from oodzoo.data.images import as_rgb, decode
from oodzoo.data.sources.pixels import image_bytes, require_image

SIZES = st.tuples(st.integers(5, 9), st.integers(5, 9))
PIXELS = SIZES.flatmap(lambda size: arrays(np.uint8, (*size, 3)))


def decoded(image: Any) -> NDArray[np.uint8]:
    return np.asarray(decode(image_bytes(image)))


@given(PIXELS)
def test_files_decode_to_the_same_pixels(pixels: NDArray[np.uint8]) -> None:
    np.testing.assert_array_equal(decoded(pixels), pixels)
    assert image_bytes(pixels) == image_bytes(np.asfortranarray(pixels))
    assert image_bytes(pixels) == image_bytes(Image.fromarray(pixels))
    assert image_bytes(pixels) == image_bytes(pixels.tolist())


@given(PIXELS, st.sampled_from([np.float16, np.float32, np.float64]))
def test_floats_become_the_integers_they_came_from(pixels: NDArray[Any], kind: type) -> None:
    floats: NDArray[Any] = (pixels / 255).astype(kind)
    assert image_bytes(floats) == image_bytes(pixels)


@given(PIXELS, st.sampled_from([np.int16, np.int64, np.uint16]))
def test_wider_integers_are_accepted_in_the_range_of_bytes(pixels: Any, kind: type) -> None:
    assert image_bytes(pixels.astype(kind)) == image_bytes(pixels)


def test_all_levels_survive_division_by_255() -> None:
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    for kind in (np.float16, np.float32, np.float64):
        assert image_bytes((levels / 255).astype(kind)) == image_bytes(levels)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "uint8"])
def test_tensors_have_their_channels_first(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    pixels = np.arange(8 * 32 * 3, dtype=np.uint8).reshape(8, 32, 3)
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)
    if dtype != "uint8":
        tensor = tensor.to(torch.float32).div(255).to(getattr(torch, dtype)).requires_grad_()
    assert image_bytes(tensor) == image_bytes(pixels)


def test_grey_and_transparent_pixels() -> None:
    grey = np.arange(30, dtype=np.uint8).reshape(5, 6)
    for image in (grey, grey[..., np.newaxis], grey[np.newaxis]):
        np.testing.assert_array_equal(decoded(image), np.stack([grey] * 3, axis=-1))
    rgba = np.zeros((5, 6, 4), np.uint8)
    rgba[0, 0] = (10, 20, 30, 255)
    assert decoded(rgba)[0, 0].tolist() == [10, 20, 30]
    assert decoded(rgba)[1, 1].tolist() == [255, 255, 255]
    assert image_bytes(rgba) == image_bytes(np.moveaxis(rgba, -1, 0))


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1", "I;16", "LA"])
def test_pillow_images_are_converted_as_files_are(mode: str) -> None:
    image = Image.radial_gradient("L").resize((8, 6))
    image = image.convert("I;16") if mode == "I;16" else image.convert("RGB").convert(mode)
    np.testing.assert_array_equal(decoded(image), np.asarray(as_rgb(image)))
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = io.BytesIO()
    Image.new("RGB", (8, 6)).save(turned, "JPEG", exif=exif)
    assert decode(image_bytes(Image.open(turned))).size == (6, 8)


def test_files_stay_as_they_are(photos: Path) -> None:
    path = photos / "day/cat/1.png"
    content = path.read_bytes()
    assert image_bytes(content) == image_bytes(bytearray(content)) == content
    assert image_bytes({"bytes": content, "path": "elsewhere.png"}) == content
    assert image_bytes({"bytes": None, "path": str(path)}) == content


def test_a_file_at_a_url() -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe("/pixels/a.png", b"content")
    assert image_bytes({"bytes": None, "path": "memory://pixels/a.png"}) == b"content"
    with pytest.raises(UnreadableImageError, match="no such file"):
        image_bytes({"bytes": None, "path": "memory://pixels/b.png"})


@pytest.mark.skipif(os.name == "nt", reason="there are no pipes in folders")
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "1.png")
    with pytest.raises(UnreadableImageError, match="not a regular file"):
        image_bytes({"bytes": None, "path": str(tmp_path / "1.png")})


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (np.full((5, 6, 3), 1.5), "float pixels from 1.5 to 1.5; give them as uint8, or as floats"),
        (np.full((5, 6, 3), -0.1), "float pixels from -0.1 to -0.1"),
        (np.full((5, 6, 3), np.nan), "float pixels from nan to nan"),
        (np.full((5, 6, 3), 256), "pixels of type int64 from 256 to 256; give them as uint8"),
        (np.full((5, 6, 3), -1), "from -1 to -1"),
        (np.ones((5, 6, 3), bool), "pixels of type bool"),
        (np.ones((5, 6, 3), complex), "pixels of type complex128"),
        (np.zeros((3, 6, 3), np.uint8), r"shape \(3, 6, 3\) has its channels first or last"),
        (np.zeros((5, 6, 2), np.uint8), r"shape \(5, 6, 2\) is not an image"),
        (np.zeros((0, 6, 3), np.uint8), r"shape \(0, 6, 3\) is not an image"),
        (np.zeros((0, 6), np.float32), r"shape \(0, 6\) is not an image"),
        (np.zeros(6, np.uint8), r"shape \(6,\) is not an image"),
        (np.zeros((2, 5, 6, 3), np.uint8), "is not an image"),
        ([[1, 2], [3]], "list is not an array of pixels"),
        (None, "NoneType is not an image; give a Pillow image"),
        (7, "int is not an image"),
    ],
)
def test_what_is_not_an_image(image: Any, words: str) -> None:
    for function in (image_bytes, require_image):
        with pytest.raises(UnreadableImageError, match=words) as caught:
            function(image)
        assert not caught.value.transient


def test_a_cell_without_an_image() -> None:
    with pytest.raises(UnreadableImageError, match="neither bytes nor a path"):
        image_bytes({"bytes": None, "path": None})


def test_files_are_not_read_to_be_checked() -> None:
    require_image({"bytes": None, "path": "missing.png"})
    require_image(b"not an image")

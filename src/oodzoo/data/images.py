"""Decoding image files to 8-bit RGB."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from oodzoo._text import one_line
from oodzoo._threads import Budget
from oodzoo.data.files import ImageFile, UnreadableImageError, reading

# fmt: off
# Accepted content, whatever the suffix. Pillow has more formats, for some of which it runs other
# programs on the file (Ghostscript for EPS).
_FORMATS = frozenset({
    "AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TIFF", "WEBP",
})
# fmt: on

# What all threads together hold at the same time; the largest image fits in.
_PIXELS = Budget(1 << 28)

_GRID = 32
"""Pixels in each direction of the grid that tells greyscale from colour."""

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@contextmanager
def decoding(content: bytes) -> Iterator[Image.Image]:
    """Decode the bytes of an image file to upright RGB, for use in the with block.

    The EXIF orientation is applied, transparent pixels become white, 16-bit greyscale is scaled to
    8 bits (Pillow's own conversion would clip it), and the first frame of an animation is used.
    Pillow's limit against decompression bombs stays in force. Threads wait for each other rather
    than decode more pixels at the same time than a fixed number.

    Raises
    ------
    UnreadableImageError
        For an empty, truncated, oversized or undecodable file; transient for lack of memory.
    """
    with ExitStack() as reserved:
        yield _decode(content, reserved)


def decode(content: bytes) -> Image.Image:
    """Decode the bytes of an image file; see :func:`decoding`."""
    with decoding(content) as image:
        return image


class ImageFacts(NamedTuple):
    """What decoding an image file shows."""

    width: int
    """Pixels of the upright image."""
    height: int
    format: str
    """Pillow's name of the file format, such as "JPEG"."""
    mode: str
    """Pillow's name of the kind of pixels in the file, such as "RGB" or "L"."""
    is_grey: bool
    """Red, green and blue are equal in all of a grid of pixels, after decoding to RGB."""


def examine(content: bytes) -> ImageFacts:
    """Decode the bytes of an image file as :func:`decoding` does, and return what this shows."""
    with ExitStack() as reserved, _opened(content, reserved) as image:
        rgb = as_rgb(image)
        grid = (min(rgb.width, _GRID), min(rgb.height, _GRID))
        pixels = np.asarray(rgb.resize(grid, Image.Resampling.NEAREST))
        is_grey = bool((pixels == pixels[..., :1]).all())
        return ImageFacts(*rgb.size, str(image.format), image.mode, is_grey)


def _decode(content: bytes, reserved: ExitStack) -> Image.Image:
    with _opened(content, reserved) as image:
        return as_rgb(image)


@contextmanager
def _opened(content: bytes, reserved: ExitStack) -> Iterator[Image.Image]:
    """Open the bytes of an image file, and reserve what decoding them needs."""
    if not content:
        raise UnreadableImageError("the file is empty (0 bytes)")
    with explaining_errors(), Image.open(io.BytesIO(content)) as image:
        if image.format not in _FORMATS:
            raise UnreadableImageError(
                f"unsupported format {image.format}; convert it to PNG or JPEG"
            )
        # Pillow only warns between its limit and twice its limit.
        if Image.MAX_IMAGE_PIXELS and image.width * image.height > Image.MAX_IMAGE_PIXELS:
            raise Image.DecompressionBombError
        # Pillow has a pointer to each row, as large as two pixels
        reserved.enter_context(_PIXELS.reserve((image.width + 2) * image.height))
        yield image


def as_rgb(image: Image.Image) -> Image.Image:
    """Convert an open image as :func:`decode` does."""
    with explaining_errors():
        _require_known_range(image)
        image.load()
        return _to_rgb(_upright(image))


@contextmanager
def explaining_errors() -> Iterator[None]:
    """Turn any exception of a decoder, or while resizing, into an UnreadableImageError."""
    try:
        yield
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        limit = Image.MAX_IMAGE_PIXELS
        raise UnreadableImageError(
            f"more than {limit:,} pixels, Pillow's limit against decompression bombs"
        ) from error
    except UnidentifiedImageError as error:
        raise UnreadableImageError("not an image that Pillow can identify") from error
    except UnreadableImageError:
        raise
    except MemoryError as error:
        raise UnreadableImageError("not enough memory", transient=True) from error
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error, EOFError, ...
        raise UnreadableImageError(one_line(error)) from error


def read(path: ImageFile | str | Path) -> Image.Image:
    """Read and decode one image file; see :func:`reading` and :func:`decoding`."""
    with reading(path) as content:
        return decode(content)


def _require_known_range(image: Image.Image) -> None:
    # Mode I may have 16-bit pixels: from PPM and, in older versions of Pillow, from PNG.
    if image.mode == "F" or (image.mode == "I" and image.format not in ("PNG", "PPM")):
        kind = "floating-point" if image.mode == "F" else "32-bit"
        raise UnreadableImageError(
            f"{kind} pixels have no known range; convert the image to 8 or 16 bits"
        )


def _upright(image: Image.Image) -> Image.Image:
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # damaged metadata do not affect the pixels
        return image
    method = _UPRIGHT.get(orientation)
    if method is None:
        return image
    turned = image.transpose(method)
    # Without the orientation: the image may be given to us again.
    turned.info = {k: v for k, v in image.info.items() if k == "transparency"}
    return turned


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        return _deep_grey_to_rgb(image)
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        background = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(background, rgba).convert("RGB")
    return image.convert("RGB")


def _deep_grey_to_rgb(image: Image.Image) -> Image.Image:
    grey = np.asarray(image)
    eight_bit = np.round(grey / 257.0).astype(np.uint8)
    transparent = image.info.get("transparency")  # the one transparent grey value of a PNG
    if transparent is not None:
        eight_bit[grey == transparent] = 255
    return Image.fromarray(eight_bit).convert("RGB")

"""Reading one image file into 8-bit RGB, the same way everywhere."""

from __future__ import annotations

import io
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from oodzoo._text import one_line

# fmt: off
# What a file may hold, whatever its suffix says. Pillow knows more, some of it by running other
# programs on the file: Ghostscript for EPS.
_FORMATS = frozenset({
    "AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TIFF", "WEBP",
})
# fmt: on

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class UnreadableImageError(Exception):
    """An image file that cannot be decoded; the message is the reason, without the path."""


def decode(content: bytes) -> Image.Image:
    """Decode the bytes of an image file into RGB, upright, as a person would see it.

    The orientation that a camera recorded is applied, transparent pixels show white, 16-bit
    greyscale is scaled to 8 bits (Pillow's own conversion would clip it to white), and of an
    animation the first frame is taken. Pillow's limit against decompression bombs stays on.

    Raises
    ------
    UnreadableImageError
        For an empty, truncated, oversized or undecodable file.
    """
    if not content:
        raise UnreadableImageError("the file is empty (0 bytes)")
    with _explaining(), Image.open(io.BytesIO(content)) as image:
        _refuse_format(image)
        _refuse_bomb(image)
        return _seen(image)


def as_rgb(image: Image.Image) -> Image.Image:
    """An image that is open already, as :func:`decode` would give it."""
    with _explaining():
        return _seen(image)


def _seen(image: Image.Image) -> Image.Image:
    _refuse_unknown_range(image)
    image.load()
    return _to_rgb(_upright(image))


@contextmanager
def _explaining() -> Iterator[None]:
    """Turn whatever a decoder raises into the reason, in one line."""
    try:
        yield
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UnreadableImageError(_bomb()) from error
    except UnidentifiedImageError as error:
        raise UnreadableImageError("not an image that Pillow can identify") from error
    except UnreadableImageError:
        raise
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error, EOFError, ...
        raise UnreadableImageError(one_line(error)) from error


def read(path: str | Path) -> Image.Image:
    """Read and decode one image file; see :func:`decode`."""
    return decode(read_bytes(path))


def read_bytes(path: str | Path) -> bytes:
    """The content of an image file, with the reason in one line where it cannot be read."""
    try:
        # a pipe would keep us waiting, a device may have no end
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise UnreadableImageError("not a plain file")
        return Path(path).read_bytes()
    except OSError as error:
        raise UnreadableImageError(error.strerror or one_line(error)) from error


def _refuse_format(image: Image.Image) -> None:
    if image.format not in _FORMATS:
        raise UnreadableImageError(f"it holds {image.format}; convert it to PNG or JPEG")


def _refuse_bomb(image: Image.Image) -> None:
    # Pillow only warns between its limit and twice its limit.
    if Image.MAX_IMAGE_PIXELS and image.width * image.height > Image.MAX_IMAGE_PIXELS:
        raise UnreadableImageError(_bomb())


def _bomb() -> str:
    limit = Image.MAX_IMAGE_PIXELS
    return f"more than {limit:,} pixels, Pillow's limit against decompression bombs"


def _refuse_unknown_range(image: Image.Image) -> None:
    # Pillow has 16-bit pixels in mode I too, from PPM and, in older versions, from PNG.
    if image.mode == "F" or (image.mode == "I" and image.format not in ("PNG", "PPM")):
        kind = "floating-point" if image.mode == "F" else "32-bit"
        raise UnreadableImageError(
            f"{kind} pixels have no known range; convert the image to 8 or 16 bits"
        )


def _upright(image: Image.Image) -> Image.Image:
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # damaged metadata leave the pixels as good as they were
        return image
    method = _UPRIGHT.get(orientation)
    return image if method is None else image.transpose(method)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        return _deep_grey_to_rgb(image)
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        paper = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(paper, rgba).convert("RGB")
    return image.convert("RGB")


def _deep_grey_to_rgb(image: Image.Image) -> Image.Image:
    grey = np.asarray(image)
    eight_bit = np.round(grey / 257.0).astype(np.uint8)
    transparent = image.info.get("transparency")  # PNG declares one grey value to be
    if transparent is not None:
        eight_bit[grey == transparent] = 255
    return Image.fromarray(eight_bit).convert("RGB")

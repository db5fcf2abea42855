"""Decoding image files to 8-bit RGB."""

from __future__ import annotations

import ctypes
import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

from oodzoo.core.remote.cache import size_of_environment
from oodzoo.core.text import file_size, one_line
from oodzoo.core.threads import Budget
from oodzoo.data.files import ImageFile, UnreadableImageError, reading

# fmt: off
# Accepted content, whatever the suffix. Pillow has more formats, for some of which it runs other
# programs on the file (Ghostscript for EPS).
_FORMATS = frozenset({
    "AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TIFF", "WEBP",
})
# fmt: on

_DECODERS = {"AVIF": 8, "JPEG2000": 16, "WEBP": 8}
"""Bytes per pixel that decoders hold as long as the image is open."""

LIMIT = "OODZOO_IMAGE_MEMORY"
"""Environment variable: the bytes that decoding one image may take."""
_LIMIT = 1 << 30
"""Its default: 12 bytes for each pixel that Pillow's limit against decompression bombs allows."""

# What all threads together hold at the same time; a larger image is decoded alone.
_MEMORY = Budget(3 * _LIMIT)

Reduction = Callable[[int, int], int]
"""By how much a JPEG may be reduced while it is decoded: 1, 2, 4 or 8, by its upright size."""

_STRIP = 1 << 18
"""Pixels that are converted to RGB at once."""

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

_SIDEWAYS = frozenset({_UPRIGHT[orientation] for orientation in (5, 6, 7, 8)})

_SCALES = (1, 2, 4, 8)

_SHOWN = "oodzoo"
"""Key in the `info` of an image that was reduced while it was decoded."""


class Shown(NamedTuple):
    """What an image shows that was reduced while it was decoded.

    A side that the scale does not divide has a part of a pixel more than the image of the file.

    Attributes
    ----------
    size : tuple of int
        Width and height of the whole upright image.
    box : tuple of float
        Left, top, right and bottom of the whole image in the reduced one.
    """

    size: tuple[int, int]
    box: tuple[float, float, float, float]


def shown(image: Image.Image) -> Shown | None:
    """Return what a decoded image shows, if it was reduced."""
    found = image.info.get(_SHOWN)
    return found if isinstance(found, Shown) else None


# libtiff would write about damaged files to stderr, beside the exception. On Windows, where it is a
# part of Pillow, its functions are not found.
with suppress(OSError, AttributeError):
    _pillow = ctypes.CDLL(str(import_module("PIL._imaging").__file__))
    _pillow.TIFFSetErrorHandler(None)
    _pillow.TIFFSetWarningHandler(None)


def _whole(width: int, height: int) -> int:
    return 1


@contextmanager
def decoding(content: bytes, reduction: Reduction = _whole) -> Iterator[Image.Image]:
    """Decode the bytes of an image file to upright RGB, for use in the with block.

    The EXIF orientation is applied, transparent pixels become white, 16-bit greyscale is scaled to
    8 bits (Pillow's own conversion would clip it), and the first frame of an animation is used.
    A JPEG is decoded at the scale that `reduction` allows. An image that would take more memory
    than the limit is refused, or decoded at a reduced scale if it is a JPEG. Threads wait for each
    other rather than hold more than a fixed amount together.

    Raises
    ------
    UnreadableImageError
        For an empty, truncated, oversized or undecodable file; transient for lack of memory.
    """
    with ExitStack() as reserved:
        yield _decode(content, reserved, reduction)


def decode_scaled(
    content: bytes, reductions: Sequence[Reduction]
) -> Iterator[tuple[Image.Image, list[int]]]:
    """Decode the bytes of an image file once for each scale that is asked for.

    Scales of 1/2, 1/4 and 1/8 take a fraction of the time of the whole JPEG; images of other
    formats are decoded as they are. See :func:`decoding`.

    Parameters
    ----------
    content : bytes
    reductions : sequence of callable
        Called with the upright width and height of a JPEG.

    Yields
    ------
    image : Image
        Only to be used before the next one is asked for.
    positions : list of int
        The reductions that it is meant for.
    """
    left = list(range(len(reductions)))
    scales = [1] * len(reductions)

    def next_scale(width: int, height: int) -> int:
        scales[:] = [each(width, height) for each in reductions]
        return scales[left[0]]

    while left:
        with ExitStack() as reserved:
            image = _decode(content, reserved, next_scale)
            same = [at for at in left if scales[at] == scales[left[0]]]
            yield image, same
        left = [at for at in left if at not in same]


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


def _decode(content: bytes, reserved: ExitStack, reduction: Reduction) -> Image.Image:
    with _opened(content, reserved, reduction) as image:
        rgb = as_rgb(image)
        if _SHOWN in image.info:
            rgb.info[_SHOWN] = image.info[_SHOWN]
        return rgb


@contextmanager
def _opened(
    content: bytes, reserved: ExitStack, reduction: Reduction = _whole
) -> Iterator[Image.Image]:
    """Open the bytes of an image file, and reserve what decoding them needs."""
    if not content:
        raise UnreadableImageError("the file is empty (0 bytes)")
    limit = size_of_environment(LIMIT, _LIMIT)
    if LIMIT in os.environ:  # else Pillow refuses what the user asks for
        Image.MAX_IMAGE_PIXELS = None
    with explaining_errors(), _open(content) as image:
        if image.format not in _FORMATS:
            raise UnreadableImageError(
                f"unsupported format {image.format}; convert it to PNG or JPEG"
            )
        needed = _fit(image, limit, reduction)
        if needed > limit:
            raise UnreadableImageError(
                f"decoding {image.width:,} × {image.height:,} pixels takes {file_size(needed)}, "
                f"more than the limit of {file_size(limit)}; make the image smaller, or set the "
                f"variable {LIMIT}={needed // 10**9 + 1}G"
            )
        reserved.enter_context(_MEMORY.reserve(needed))
        yield image


def _open(content: bytes) -> Image.Image:
    try:
        return Image.open(io.BytesIO(content))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        if not content.startswith(b"\xff\xd8\xff"):
            raise
        return JpegImageFile(io.BytesIO(content))  # whose size can be reduced


def _fit(image: Image.Image, limit: int, reduction: Reduction) -> int:
    """Return the bytes that decoding takes.

    A JPEG is reduced as much as the reduction allows, and further where it exceeds the limit.
    """
    pixels, (width, height) = Image.MAX_IMAGE_PIXELS, image.size
    stored = 1 if image.mode in ("1", "L", "P") else 4
    # A progressive JPEG has its coefficients in memory, whatever the size of the pixels.
    layers = image.layers if isinstance(image, JpegImageFile) else 0
    least = reduction(*_upright_size(image)) if layers else 1
    for scale in [each for each in _SCALES if each >= least] if layers else (1,):
        wide, high = -(-width // scale), -(-height // scale)
        # The stored pixels, turned, in RGB; Pillow has a pointer to each row of the three.
        needed = high * (wide * (2 * stored + 4) + 24)
        needed += width * height * _DECODERS.get(str(image.format), 0)
        needed = max(needed, width * height * 2 * layers + wide * high * stored)
        fits = not pixels or wide * high <= pixels
        if fits and needed <= limit:
            break
    if not fits:  # Pillow only warns between its limit and twice its limit
        raise Image.DecompressionBombError
    if scale > 1:
        image.draft(None, (width // scale, height // scale))
        image.info[_SHOWN] = _shown(image, width, height, scale)
    return needed


def _shown(image: Image.Image, width: int, height: int, scale: int) -> Shown:
    """What a reduced image shows when it is upright: decoders add pixels at the right and below."""
    method, (wide, high) = _turn(image), image.size
    right, bottom = width / scale, height / scale
    left, top = wide - right, high - bottom
    turned = {
        Image.Transpose.FLIP_LEFT_RIGHT: (left, 0.0, wide, bottom),
        Image.Transpose.ROTATE_180: (left, top, wide, high),
        Image.Transpose.FLIP_TOP_BOTTOM: (0.0, top, right, high),
        Image.Transpose.TRANSPOSE: (0.0, 0.0, bottom, right),
        Image.Transpose.ROTATE_270: (top, 0.0, high, right),
        Image.Transpose.TRANSVERSE: (top, left, high, wide),
        Image.Transpose.ROTATE_90: (0.0, left, bottom, wide),
    }
    size = (height, width) if method in _SIDEWAYS else (width, height)
    return Shown(size, (0.0, 0.0, right, bottom) if method is None else turned[method])


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
            f"more than {limit:,} pixels, Pillow's limit against decompression bombs; make the "
            f"image smaller, or set the variable {LIMIT}, such as 4G"
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


def _turn(image: Image.Image) -> Image.Transpose | None:
    """How an image is turned upright, if it has to be."""
    try:
        return _UPRIGHT.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged metadata do not affect the pixels
        return None


def _upright_size(image: Image.Image) -> tuple[int, int]:
    width, height = image.size
    return (height, width) if _turn(image) in _SIDEWAYS else (width, height)


def _upright(image: Image.Image) -> Image.Image:
    method = _turn(image)
    if method is None:
        return image
    turned = image.transpose(method)
    # Without the orientation: the image may be given to us again.
    turned.info = {k: v for k, v in image.info.items() if k == "transparency"}
    return turned


def _to_rgb(image: Image.Image) -> Image.Image:
    """Convert to RGB in strips, since transparency takes several copies."""
    rows = max(1, _STRIP // image.width)
    if rows >= image.height:
        return _strip_to_rgb(image)
    rgb = Image.new("RGB", image.size)
    for top in range(0, image.height, rows):
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        rgb.paste(_strip_to_rgb(strip), (0, top))
    return rgb


def _strip_to_rgb(image: Image.Image) -> Image.Image:
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

"""The bytes of a lossless image file for an image in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from oodzoo.core.remote.location import Url, parse_location
from oodzoo.core.remote.objects import find_file
from oodzoo.data.files import RemoteImage, UnreadableImageError, read_bytes
from oodzoo.data.images import as_rgb

_CHANNELS = (1, 3, 4)
_ROUNDING = 1e-6  # floats from 0 to 1 may leave the range by their rounding


def image_bytes(image: Any) -> bytes:
    """Return the bytes of an image file with the pixels of an image.

    Pixels become an uncompressed PPM file in RGB: the same pixels always give the same bytes.
    Pillow images are converted as image files are. Bytes are those of a file already.

    Raises
    ------
    UnreadableImageError
        If it is not an image, or its pixels have another range than 0 to 255, or floats 0 to 1.
    """
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    if isinstance(image, Image.Image):
        return _ppm(np.asarray(as_rgb(image)))
    if isinstance(image, Mapping):
        return _cell_bytes(image)
    return _ppm(_rgb(_pixels(image)))


def require_image(image: Any) -> None:
    """Raise what :func:`image_bytes` would, if that shows without reading or decoding a file."""
    if not isinstance(image, bytes | bytearray | memoryview | Image.Image | Mapping):
        _pixels(image)


def _pixels(image: Any) -> NDArray[np.uint8]:
    return _channels_last(_as_uint8(_as_array(image)))


def _as_uint8(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Convert pixels to 8 bits: integers from 0 to 255, or floats from 0 to 1.

    Floats that are 8-bit values divided by 255, as of torchvision's ToTensor, become those values.
    """
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype.kind not in "iuf":
        raise UnreadableImageError(f"pixels of type {pixels.dtype}; give them as uint8")
    if not pixels.size:
        return pixels.astype(np.uint8)
    low, high = pixels.min(), pixels.max()
    if pixels.dtype.kind == "f":
        if not (low >= -_ROUNDING and high <= 1 + _ROUNDING):  # not: NaN
            raise UnreadableImageError(
                f"float pixels from {low:.3g} to {high:.3g}; give them as uint8, or as floats "
                "from 0 to 1, before any normalisation"
            )
        wide = pixels if pixels.dtype == np.float64 else pixels.astype(np.float32)
        levels: NDArray[np.uint8] = np.rint(wide * 255).astype(np.uint8)
        return levels
    if low < 0 or high > 255:
        raise UnreadableImageError(
            f"pixels of type {pixels.dtype} from {low} to {high}; give them as uint8, from 0 to 255"
        )
    return pixels.astype(np.uint8)


def _as_array(image: Any) -> NDArray[Any]:
    if type(image).__module__.partition(".")[0] == "torch":
        image = image.detach().cpu()
        if image.is_floating_point():
            image = image.float() if image.element_size() < 4 else image  # bfloat16
        image = image.numpy()
    if not (isinstance(image, list | tuple) or hasattr(image, "__array__")):
        raise UnreadableImageError(
            f"{type(image).__name__} is not an image; give a Pillow image, an array of pixels, or "
            "the bytes of an image file"
        )
    try:
        return np.asarray(image)
    except (ValueError, TypeError) as error:  # lists of several lengths
        raise UnreadableImageError(
            f"{type(image).__name__} is not an array of pixels (height, width, 3)"
        ) from error


def _channels_last(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return pixels as (height, width, channels); tensors of PyTorch have the channels first."""
    shape = pixels.shape
    if pixels.size and pixels.ndim == 2:
        return pixels[..., np.newaxis]
    first, last = (pixels.ndim == 3 and shape[axis] in _CHANNELS for axis in (0, -1))
    if not pixels.size or not (first or last):
        raise UnreadableImageError(
            f"an array of shape {shape} is not an image; give (height, width), (height, width, 3) "
            "or (3, height, width)"
        )
    if first and last:
        raise UnreadableImageError(
            f"an array of shape {shape} has its channels first or last; give a Pillow image"
        )
    return pixels if last else np.moveaxis(pixels, 0, -1)


def _rgb(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    channels = pixels.shape[-1]
    if channels == 4:
        return np.asarray(as_rgb(Image.fromarray(np.ascontiguousarray(pixels))))
    return np.broadcast_to(pixels, (*pixels.shape[:2], 3)) if channels == 1 else pixels


def _ppm(rgb: NDArray[np.uint8]) -> bytes:
    height, width = rgb.shape[:2]
    return b"P6\n%d %d\n255\n" % (width, height) + rgb.tobytes()


def _cell_bytes(cell: Mapping[str, Any]) -> bytes:
    """Return the bytes of `{"bytes": …, "path": …}`, the form of Hugging Face's image columns."""
    content, path = cell.get("bytes"), cell.get("path")
    if content is not None:
        return bytes(content)
    if path is None:
        raise UnreadableImageError("it has neither bytes nor a path")
    location = parse_location(path)
    if not isinstance(location, Url):
        return read_bytes(location)
    file = find_file(location)
    if file is None:
        raise UnreadableImageError(f"no such file: {path!r}", transient=True)
    return read_bytes(RemoteImage(file))

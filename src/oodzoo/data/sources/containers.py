"""Files that contain many images, local or remote; and lossless files of images in memory."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from oodzoo.core.errors import InputError
from oodzoo.core.remote.cache import SIZE, cache_size
from oodzoo.core.remote.location import Url, parse_location
from oodzoo.core.remote.objects import RemoteFile, find_file, list_files
from oodzoo.core.text import count
from oodzoo.core.threads import Prefetch
from oodzoo.data.files import Container, LocalFile, RemoteImage, UnreadableImageError, read_bytes
from oodzoo.data.images import as_rgb

T = TypeVar("T")

_MOST = 100_000
_FETCHED_TOGETHER = 4
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"([0-9]{1,18})\.\.([0-9]{1,18})")
_SIGNS = frozenset("*?[")


def find_containers(location: Path | Url, suffixes: tuple[str, ...]) -> list[Container]:
    """Find the files that a path or URL means, sorted.

    It is one file, a folder of files with one of the suffixes, or a pattern with `*`, `?`, `[…]`,
    `{000..012}` or `{day,night}`.

    Raises
    ------
    InputError
        If there is no such file, or remote files do not fit into the cache.
    """
    if isinstance(location, Url):
        files = _remote(location, suffixes)
        _require_room(files, str(location))
        return [RemoteImage(file) for file in files]
    return [LocalFile(str(path)) for path in _local(location, suffixes)]


def read_each(function: Callable[[Container], T], files: Sequence[Container]) -> Iterator[T]:
    """Call a function with each file; several remote files are fetched at the same time."""
    threads = _FETCHED_TOGETHER if any(file.remote for file in files) else 1
    return Prefetch(function, [(file,) for file in files], n_threads=threads, ahead=2 * threads)


def expand_braces(pattern: str) -> list[str]:
    """List the names that a pattern with braces means.

    Examples
    --------
    >>> expand_braces("{day,night}-{08..10}.tar")[:4]
    ['day-08.tar', 'day-09.tar', 'day-10.tar', 'night-08.tar']
    """
    names = list(islice(_expanded(pattern), _MOST + 1))
    if not names or len(names) > _MOST:
        n = f"more than {count(_MOST, 'file')}" if names else "no file"
        raise InputError(f"the braces in {pattern!r} mean {n}")
    return names


def _expanded(pattern: str) -> Iterator[str]:
    for found in _BRACES.finditer(pattern):
        numbers = _RANGE.fullmatch(found[1])
        choices: Iterator[str] | list[str] | None = None
        if numbers:
            width = len(numbers[1])
            choices = (f"{n:0{width}}" for n in range(int(numbers[1]), int(numbers[2]) + 1))
        elif "," in found[1]:
            choices = found[1].split(",")
        if choices is not None:
            before, after = pattern[: found.start()], pattern[found.end() :]
            for choice in choices:
                yield from _expanded(before + choice + after)
            return
    yield pattern


def _local(location: Path, suffixes: tuple[str, ...]) -> list[Path]:
    if location.is_dir():
        names = [path.name for path in location.iterdir()]
        return [location / name for name in _of_folder(names, suffixes, str(location))]
    if location.exists():
        return [location]
    paths: dict[str, None] = {}
    for pattern in expand_braces(str(location)):
        # Path.glob takes no absolute pattern
        found = sorted(glob.glob(pattern)) if _SIGNS & set(pattern) else []  # noqa: PTH207
        if not found and not Path(pattern).is_file():
            raise _nothing(pattern, str(location))
        paths |= dict.fromkeys(found or [pattern])
    return [Path(path) for path in paths]


def _remote(location: Url, suffixes: tuple[str, ...]) -> list[RemoteFile]:
    names = [Url(text) for text in expand_braces(str(location))]
    if not location.name.lower().endswith(suffixes):
        here = {
            Url(file.url).name: file for file in list_files(location) if _parent(file) == location
        }
        return [here[name] for name in _of_folder(here, suffixes, str(location))]
    plain = [(url,) for url in names if not _SIGNS & set(str(url))]
    single = dict(zip(plain, Prefetch(find_file, plain, n_threads=16), strict=True))
    files: dict[RemoteFile, None] = {}
    for url in names:
        one = single.get((url,))
        found = [one] if one else _matching(url)
        if not found:
            raise _nothing(str(url), str(location))
        files |= dict.fromkeys(found)
    return list(files)


def _matching(pattern: Url) -> list[RemoteFile]:
    """List the remote files whose URLs match a pattern part by part."""
    parts = str(pattern).split("/")
    first = next((n for n, part in enumerate(parts) if _SIGNS & set(part)), None)
    if first is None:
        return []
    found = []
    for file in list_files(Url("/".join(parts[:first]))):
        names = file.url.split("/")
        hidden = any(name.startswith(".") for name in names[first:])
        if len(names) == len(parts) and all(map(fnmatchcase, names, parts)) and not hidden:
            found.append(file)
    return found


def _parent(file: RemoteFile) -> Url:
    return Url(file.url).parent


def _of_folder(
    names: Sequence[str] | dict[str, RemoteFile], suffixes: tuple[str, ...], folder: str
) -> list[str]:
    found = sorted(n for n in names if n.lower().endswith(suffixes) and not n.startswith("."))
    if not found:
        raise InputError(f"no {' or '.join(suffixes)} file in {folder!r}")
    return found


def _nothing(name: str, pattern: str) -> InputError:
    if _SIGNS & set(name):
        return InputError(f"no file matches {name!r}")
    return InputError(
        f"no such file: {name!r}" + (f", which {pattern!r} means" if name != pattern else "")
    )


def _require_room(files: Sequence[RemoteFile], name: str) -> None:
    total, bound = sum(file.size or 0 for file in files), cache_size()
    if total > bound:
        raise InputError(
            f"{name!r} has {total / 1e9:.1f} GB in {count(len(files), 'file')}, and the cache "
            f"holds {bound / 1e9:.1f} GB; set {SIZE} to more, such as {total // 10**9 + 1}G"
        )


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

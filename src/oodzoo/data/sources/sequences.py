"""Sequences in Python: images, data frames, and samples such as `(image, label, domain)`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import Url, parse_location
from oodzoo.core.remote.objects import find_file
from oodzoo.core.text import count, one_line
from oodzoo.data.files import ImageFile, ObjectImage, RemoteImage, UnreadableImageError, read_bytes
from oodzoo.data.listing import Listing
from oodzoo.data.pixels import as_rgb
from oodzoo.data.sources.base import (
    SourceOptions,
    SourceTable,
    as_list,
    collect_roles,
    list_columns,
    list_labelled,
    require_root_unused,
    require_used,
    row_names,
)
from oodzoo.data.sources.column_roles import (
    find_columns,
    split_columns,
)

_ROLES = ("image", "label", "domain", "group")
_READ_TWICE = 8


def is_item(value: Any) -> bool:
    """Whether an element of a sequence is an image with its label."""
    return isinstance(value, tuple) or (isinstance(value, Mapping) and "bytes" not in value)


def split_items(
    items: Sequence[Any], name: str, options: SourceOptions
) -> tuple[list[Any], dict[str, Any]]:
    """Return the images of samples in memory, and what the samples say about them by role."""
    opener = _Items(items, name)
    opener.fields = _fields(items[0], name, options)
    columns: dict[str, list[Any]] = {role: [] for role in opener.fields}
    for i in range(len(items)):
        for role, value in opener.parts(i).items():
            columns[role].append(value)
    return columns.pop("image"), opener.by_column(columns)


def read_items(
    items: Any, name: str, options: SourceOptions, positions: Sequence[int]
) -> tuple[list[ImageFile], dict[str, Any]]:
    """Return the images at some positions, and what the samples say about them by role.

    Labels come from an attribute `targets` or `labels`, as data sets of torchvision have it, if
    there is one; an attribute `classes` names them. For all that the options, the attributes and
    the form of the first sample leave open, every sample is read once.

    Raises
    ------
    InputError
        If a sample cannot be read, or gives another image each time.
    """
    opener = _Items(items, name)
    own: dict[str, list[Any]] = {}
    if len(positions):
        opener.fields = _fields(opener.item(positions[0]), name, options)
        opener.require_same(positions[:_READ_TWICE])
        labels = _attribute(items, ("targets", "labels"), len(items))
        known = {} if labels is None else {"label": [labels[i] for i in positions]}
        wanted = [role for role in opener.fields if role != "image"]
        wanted = [role for role in wanted if options.given(role) is None and role not in known]
        own = {role: [] for role in wanted} | known
        for i in positions if wanted else ():
            values = opener.parts(i)
            for role in wanted:
                own[role].append(values[role])
        if "label" in own:
            own["label"] = name_classes(own["label"], getattr(items, "classes", None))
    return [ObjectImage(opener, i, f"{name}: {i}") for i in positions], opener.by_column(own)


def name_classes(labels: list[Any], classes: Any) -> list[Any]:
    """Replace numbers of classes by their names, where there are names for all of them."""
    is_list = isinstance(classes, list | tuple) and all(isinstance(c, str) for c in classes)
    if not is_list or not all(type(label) is int and 0 <= label < len(classes) for label in labels):
        return labels
    return [classes[label] for label in labels]


def _attribute(items: Any, names: Sequence[str], n: int) -> list[Any] | None:
    for name in names:
        values = getattr(items, name, None)
        if values is None or isinstance(values, str | Mapping) or not hasattr(values, "__len__"):
            continue
        if len(values) == n and len(getattr(values, "shape", (n,))) == 1:
            return as_list(values)
    return None


def _fields(item: Any, name: str, options: SourceOptions) -> dict[str, Any]:
    """Return where the image, and what is known about it, is in each sample."""
    if isinstance(item, Mapping):
        needed = ("image", *options.missing("label", "domain"))
        optional = tuple(role for role in _ROLES if role not in needed)
        found: dict[str, Any] = {}
        found |= find_columns(list(item), options.columns, needed, name, optional=optional)
        if "label" in found and found["label"] not in item:
            found["label"] = tuple(split_columns(found["label"], list(item)))
        return found
    if options.columns is not None:
        raise InputError(
            f"columns= is not used with {name!r}: its samples have no names for their parts"
        )
    if not isinstance(item, tuple | list):
        return {"image": None}
    if not 1 < len(item) <= len(_ROLES):
        raise InputError(
            f"{name!r}: a sample has {count(len(item), 'part')}; expected (image, label), "
            "(image, label, domain) or (image, label, domain, group)"
        )
    return {role: at for at, role in enumerate(_ROLES[: len(item)])}


class _Items:
    """Opens the images of samples, one at a time: data sets need not be safe for threads."""

    def __init__(self, items: Any, name: str) -> None:
        self._items = items
        self._name = name
        self._lock = Lock()
        self.fields: dict[str, Any] = {}

    def open(self, i: int, /) -> bytes:
        with self._lock:
            item = self._items[i]
        return image_bytes(self._part(item, "image"))

    def item(self, i: int) -> Any:
        try:
            return self._items[i]
        except Exception as error:  # of code that somebody else has written
            raise InputError(
                f"{self._name!r}: sample {i} cannot be read: {type(error).__name__}: "
                f"{one_line(error)}"
            ) from error

    def parts(self, i: int) -> dict[str, Any]:
        item = self.item(i)
        try:
            return {
                role: self._part(item, role) if role == "image" else _plain(self._part(item, role))
                for role in self.fields
            }
        except (KeyError, IndexError, TypeError) as error:
            raise InputError(
                f"{self._name!r}: sample {i} has other parts than the first sample"
            ) from error

    def require_same(self, positions: Sequence[int]) -> None:
        """Reject pixels of another range, and images that are random.

        What cannot be read or decoded here is reported as unreadable later.
        """
        for i in positions:
            try:
                first, second = (self._part(self._items[i], "image") for _ in range(2))
            except Exception:  # of code that somebody else has written
                continue
            try:
                require_image(first)
            except UnreadableImageError as error:
                raise InputError(f"{self._name!r}, sample {i}: {error}") from error
            with suppress(UnreadableImageError, OSError):
                if image_bytes(first) != image_bytes(second):
                    raise InputError(
                        f"{self._name!r}: sample {i} gives another image each time; leave out "
                        "random transforms"
                    )

    def _part(self, item: Any, role: str) -> Any:
        at = self.fields[role]
        if isinstance(at, tuple):  # several labels
            return [_plain(item[each]) for each in at]
        return item if at is None else item[at]

    def by_column(self, own: dict[str, list[Any]]) -> dict[str, Any]:
        """Return labels of several columns by column."""
        names = self.fields.get("label")
        if "label" not in own or not isinstance(names, tuple):
            return {**own}
        rows = own["label"]
        return own | {"label": {name: [row[at] for row in rows] for at, name in enumerate(names)}}


def _plain(value: Any) -> Any:
    """Convert a scalar of NumPy or PyTorch to one of Python, and an array to a list."""
    to_list = getattr(value, "tolist", None)
    return value if to_list is None else to_list()


def list_arrays(images: Any, options: SourceOptions) -> Listing:
    """List a sequence of images, with `labels` and `domains`, or of `(image, label, domain)`.

    Pixels are (height, width), (height, width, 3 or 4) or (3 or 4, height, width), of the same
    size or of several.
    """
    name = type(images).__name__
    if not len(images) or not is_item(images[0]):
        require_used(options, name, ("root", "labels", "domains", "groups"))
        return list_values(name, images, {}, options)
    if isinstance(images, list | tuple):
        return list_values(name, *split_items(images, name, options), options)
    require_used(options, name, ("columns", "labels", "domains", "groups"))
    files, own = read_items(images, name, options, range(len(images)))
    return list_labelled(name, row_names(len(files)), files, own, options)


def list_values(name: str, images: Any, own: Mapping[str, Any], options: SourceOptions) -> Listing:
    """List images of any kind: paths and URLs of files, or images in memory.

    `own` has the label, domain and group of each image, where the source has them.

    Raises
    ------
    InputError
        If one of them is not an image, with its position.
    """
    if are_paths(images, name):
        roles = collect_roles(name, len(images), options, own)
        columns = {"path": list(images), **roles}
        return list_columns(name, columns, options.folder, Path.cwd(), options.task)
    paths = row_names(len(images))
    return list_labelled(name, paths, image_files(images, name, paths, options), own, options)


def are_paths(images: Any, name: str) -> bool:
    """Whether images are paths and URLs of files; InputError if only some of them are."""
    if len(getattr(images, "shape", ())) > 1:  # one array of pixels
        return False
    n_paths = sum(isinstance(image, str | os.PathLike) for image in images)
    if 0 < n_paths < len(images):
        raise InputError(f"{name!r} mixes paths and images in memory; give all of one kind")
    return n_paths > 0


def image_files(
    images: Any, name: str, paths: Sequence[str], options: SourceOptions
) -> list[ImageFile]:
    """Return the files of images in memory, with unique names."""
    require_root_unused(options, name)
    if len(getattr(images, "shape", ())) < 2:
        images = list(images)
    _require_images(images, name)
    opener = _Images(images)
    return [ObjectImage(opener, i, f"{name}: {path}") for i, path in enumerate(paths)]


def _require_images(images: Any, name: str) -> None:
    """Reject what is not an image, or has pixels of another range."""
    shape = tuple(getattr(images, "shape", ()))
    if len(shape) == 3 and shape[-1] in (1, 3, 4):
        raise InputError(
            f"{name!r} of shape {shape} is one image, or several; give (n, height, width, 3)"
        )
    same = shape and str(images.dtype).endswith("uint8")  # else the range of each one matters
    for i in range(min(len(images), 1) if same else len(images)):
        try:
            require_image(images[i])
        except UnreadableImageError as error:
            raise InputError(f"{name!r}, image {i}: {error}") from error


class _Images:
    """Opens images in memory."""

    def __init__(self, images: Any) -> None:
        self._images = images
        # Pillow reads the pixels of an image when they are first used
        self._locks = {}
        if isinstance(images, list):
            self._locks = {id(x): Lock() for x in images if isinstance(x, Image.Image)}

    def open(self, i: int, /) -> bytes:
        image = self._images[i]
        if id(image) not in self._locks:
            return image_bytes(image)
        with self._locks[id(image)]:
            return image_bytes(image)


# --- data frames ----------------------------------------------------------------------------------


def list_frame(frame: Any, options: SourceOptions) -> Listing:
    """List the rows of a DataFrame, or a Series of images with `labels` and `domains`.

    A column `image` has bytes, Pillow images, arrays of pixels, or dicts of bytes and path as
    Hugging Face writes them; a column `path` beside it names them. Without it, the column `path`
    names files, relative to `root`, by default the working folder.
    """
    name = type(frame).__name__
    if name == "Series":
        require_used(options, name, ("root", "labels", "domains", "groups"))
        return list_values(name, frame.to_list(), {}, options)
    if name != "DataFrame":
        advice = "; call collect() first" if hasattr(frame, "collect") else ""
        raise InputError(f"cannot read images from a {name}; give a DataFrame{advice}")
    columns = {str(column): column for column in reversed(frame.columns)}  # the first of a name
    table = SourceTable(
        name, list(map(str, frame.columns)), lambda c: frame[columns[c]].to_list(), Path.cwd()
    )
    found = table.find(options, table.content(options, "path"))
    if "image" not in found:
        return table.list(found, options)
    images = table.values(found["image"])
    if are_paths(images, name):
        return table.list({**found, "path": found["image"]}, options)
    paths = table.values(found["path"]) if "path" in found else []
    if len(set(map(str, paths))) < len(images) or not all(isinstance(p, str) for p in paths):
        paths = row_names(len(images))
    return table.list(found, options, (paths, image_files(images, name, paths, options)))


# --- images in memory as lossless files -----------------------------------------------------------

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

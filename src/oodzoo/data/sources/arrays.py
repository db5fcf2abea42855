"""Sequences in Python: images, data frames, and samples such as `(image, label, domain)`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from PIL import Image

from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import parse_location
from oodzoo.core.text import count, one_line
from oodzoo.data.files import ImageFile, ObjectImage, UnreadableImageError
from oodzoo.data.listing import Listing
from oodzoo.data.sources.base import (
    Options,
    as_list,
    collect_roles,
    list_labelled,
    require_no_root,
    require_used,
    row_names,
)
from oodzoo.data.sources.columns import find_columns, read_metadata, split_columns, used_columns
from oodzoo.data.sources.containers import image_bytes, require_image
from oodzoo.data.sources.rows import list_columns

_ROLES = ("image", "label", "domain", "group")
_READ_TWICE = 8


def is_item(value: Any) -> bool:
    """Whether an element of a sequence is an image with its label."""
    return isinstance(value, tuple) or (isinstance(value, Mapping) and "bytes" not in value)


def list_items(items: Any, name: str, options: Options) -> Listing:
    """List a sequence of samples that are read when they are needed; its images are numbered."""
    require_used(options, name, ("columns", "labels", "domains", "groups"))
    files, own = read_items(items, name, options, range(len(items)))
    return list_labelled(name, row_names(len(files)), files, own, options)


def split_items(
    items: Sequence[Any], name: str, options: Options
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
    items: Any, name: str, options: Options, positions: Sequence[int]
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


def _fields(item: Any, name: str, options: Options) -> dict[str, Any]:
    """Return where the image, and what is known about it, is in each sample."""
    if isinstance(item, Mapping):
        needed = ("image", *options.missing(("label", "domain")))
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


def list_arrays(images: Any, options: Options) -> Listing:
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
    return list_items(images, name, options)


def list_values(
    name: str,
    images: Any,
    own: Mapping[str, Any],
    options: Options,
    paths: Sequence[str] | None = None,
) -> Listing:
    """List images of any kind.

    Parameters
    ----------
    name : str
        What messages call the source.
    images : sequence
        Paths and URLs of files, or images in memory.
    own : dict of str to sequence
        The label, domain and group of each image, where the source has them.
    options : Options
    paths : sequence of str, optional
        Unique names of images in memory; by default, numbers.

    Raises
    ------
    InputError
        If one of them is not an image, with its position.
    """
    shape = getattr(images, "shape", ())
    if len(shape) < 2:  # not one array of pixels
        images = list(images)
        n_paths = sum(isinstance(image, str | os.PathLike) for image in images)
        if 0 < n_paths == len(images):
            roles = collect_roles(name, n_paths, options, own)
            root = None if options.root is None else parse_location(options.root)
            return list_columns(name, {"path": images, **roles}, root, Path.cwd(), options.task)
        if n_paths:
            raise InputError(f"{name!r} mixes paths and images in memory; give all of one kind")
    require_no_root(options, name)
    _require_images(images, name)
    opener = _Images(images)
    paths = row_names(len(images)) if paths is None else paths
    files = [ObjectImage(opener, i, f"{name}: {path}") for i, path in enumerate(paths)]
    return list_labelled(name, paths, files, own, options)


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

_OF_FRAMES = ("path", "label", "domain", "group")


def list_frame(frame: Any, options: Options) -> Listing:
    """List the rows of a DataFrame, or a Series of images with `labels` and `domains`.

    A column `image` has bytes, Pillow images, arrays of pixels, or dicts of bytes and path as
    Hugging Face writes them; a column `path` beside it names them. Without it, the column `path`
    names files, relative to `root`, by default the working folder.
    """
    name = type(frame).__name__
    if name == "Series":
        require_used(options, name, ("root", "labels", "domains", "groups"))
        return list_values(name, _values(frame), {}, options)
    if name != "DataFrame":
        advice = "; call collect() first" if hasattr(frame, "collect") else ""
        raise InputError(f"cannot read images from a {name}; give a DataFrame{advice}")
    found = _columns(frame, name, options)
    available = list(map(str, frame.columns))
    own: dict[str, Any] = {
        role: {c: _column(frame, c) for c in split_columns(column, available)}
        if role == "label"
        else _column(frame, column)
        for role, column in found.items()
    }
    if "image" in own:
        images, paths = own.pop("image"), own.pop("path", None)
        listing = list_values(name, images, own, options, paths if _are_names(paths) else None)
    else:
        paths = own.pop("path")
        roles = collect_roles(name, len(paths), options, own)
        root = None if options.root is None else parse_location(options.root)
        listing = list_columns(name, {"path": paths, **roles}, root, Path.cwd(), options.task)
    if options.propose:
        used = used_columns(found, available)
        listing.metadata = read_metadata(available, used, lambda c: _column(frame, c))
    return listing


def _columns(frame: Any, name: str, options: Options) -> dict[str, str]:
    """Return the names of the columns that are used, by role."""
    available = list(map(str, frame.columns))
    given = options.columns or {}
    has_image = "image" in given or ("image" in available and "path" not in given)
    needed = ("image" if has_image else "path", *options.missing(("label", "domain")))
    optional = tuple(role for role in _OF_FRAMES if role not in needed)
    return find_columns(available, options.columns, needed, name, optional=optional)


def _column(frame: Any, column: str) -> list[Any]:
    """Return the values of a column by the text of its name."""
    return _values(frame[frame.columns[list(map(str, frame.columns)).index(column)]])


def _values(series: Any) -> list[Any]:
    """Return the values of a Series of pandas or polars."""
    values: list[Any] = series.to_list()
    return values


def _are_names(paths: list[Any] | None) -> bool:
    return (
        paths is not None
        and all(isinstance(path, str) for path in paths)
        and len(set(paths)) == len(paths)
    )

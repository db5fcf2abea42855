"""Sequences of images (files, bytes, Pillow images, arrays of pixels), and data frames."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from PIL import Image

from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import parse_location
from oodzoo.data.files import ObjectImage, UnreadableImageError
from oodzoo.data.listing import Listing
from oodzoo.data.sources.base import Options, require_no_root, require_used
from oodzoo.data.sources.columns import find_columns, read_metadata, split_columns, used_columns
from oodzoo.data.sources.items import is_item, list_items, split_items
from oodzoo.data.sources.labelled import collect_roles, list_labelled, row_names
from oodzoo.data.sources.pixels import image_bytes, require_image
from oodzoo.data.sources.rows import list_columns


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

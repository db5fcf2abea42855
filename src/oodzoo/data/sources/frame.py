"""DataFrames of pandas and polars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oodzoo.data.listing import Listing
from oodzoo.data.sources.arrays import list_values
from oodzoo.data.sources.labelled import collect_roles
from oodzoo.data.sources.metadata import read_metadata
from oodzoo.data.sources.names import find_columns, split_columns, used_columns
from oodzoo.data.sources.options import Options, require_used
from oodzoo.data.sources.rows import list_columns
from oodzoo.errors import InputError
from oodzoo.remote.location import parse_location

_ROLES = ("path", "label", "domain", "group")


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
    optional = tuple(role for role in _ROLES if role not in needed)
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

"""The image column of a data set of `datasets`: the original files, undecoded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oodzoo.data.files import ImageFile, LocalFile, ObjectImage
from oodzoo.data.sources.labelled import row_names
from oodzoo.data.sources.pixels import image_bytes

_ROWS = 1000


def has_files(feature: Any) -> bool:
    """Whether a column has image files, as bytes or paths."""
    if isinstance(feature, dict):
        return feature.keys() == {"bytes", "path"}
    return type(feature).__name__ == "Image"


class ImageColumn:
    """Opens the images of a column, from memory-mapped files where the data set has them.

    Parameters
    ----------
    data : datasets.Dataset
    column : str
        Image files, bytes, or pixels.
    """

    def __init__(self, data: Any, column: str) -> None:
        feature = data.features[column]
        data = data.select_columns([column]).with_format(None)
        self._column = column
        self._has_files = has_files(feature)
        if self._has_files:
            if not isinstance(feature, dict):
                data = data.cast_column(column, type(feature)(decode=False))
            data = data.flatten()
        elif getattr(feature, "dtype", None) not in ("binary", "large_binary"):
            data = data.with_format("numpy")
        self._data = data

    def open(self, i: int, /) -> bytes:
        row = self._data[i]
        if not self._has_files:
            return image_bytes(row[self._column])
        return image_bytes({part: row[f"{self._column}.{part}"] for part in ("bytes", "path")})

    def files(self, splits: Sequence[str], name: str) -> tuple[list[str], list[ImageFile]]:
        """Return the path and the file of each image; `splits` and `name` are for messages.

        The path is the name of the image file if each has one of its own, else the row.
        """
        n = len(self._data)
        given = self._paths() if self._has_files else [None] * n
        paths = _relative(given)
        if paths is None:
            rows = row_names(n)
            paths = [f"{s}/{row}" if s else row for s, row in zip(splits, rows, strict=True)]
        files: list[ImageFile] = [
            ObjectImage(self, i, f"{name}: {path}") for i, path in enumerate(paths)
        ]
        for start in range(0, n, _ROWS):
            local = {i for i in range(start, min(start + _ROWS, n)) if _is_file(given[i])}
            without_bytes = self._without_bytes(start) if local else []
            for i in local:
                if without_bytes[i - start]:
                    files[i] = LocalFile(str(given[i]))
        return paths, files

    def _paths(self) -> list[str | None]:
        column = f"{self._column}.path"
        table = self._data.select_columns([column]).with_format("arrow")[:]
        paths: list[str | None] = table.column(0).to_pylist()
        return paths

    def _without_bytes(self, start: int) -> list[bool]:
        """Tell for some rows whether the bytes are missing."""
        column = f"{self._column}.bytes"
        table = self._data.select_columns([column]).with_format("arrow")[start : start + _ROWS]
        missing: list[bool] = table.column(0).is_null().to_pylist()
        return missing


def _is_file(path: str | None) -> bool:
    return path is not None and os.path.isfile(path)  # noqa: PTH113 - no error on a long name


def _relative(paths: Sequence[str | None]) -> list[str] | None:
    """Return unique names relative to the folder that contains all; None if there are none."""
    names = [path for path in paths if path]
    if len(set(names)) < len(paths) or not names:
        return None
    absolute = [Path(name).is_absolute() for name in names]
    if all(absolute):
        folder = os.path.commonpath([str(Path(name).parent) for name in names])
        return [Path(name).relative_to(folder).as_posix() for name in names]
    return None if any(absolute) else names

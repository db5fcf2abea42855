"""Cache files of arrays computed from a store.

Each file contains the key of its inputs; with another key the arrays are recomputed. In a read-only
store nothing is cached.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo._io import write_tidily
from oodzoo.errors import InputError

VERSION = 7
"""Increased when the computation of something cached changes."""

Arrays = dict[str, NDArray[Any]]


def cached_arrays(
    path: Path, key: str, compute: Callable[[], Arrays], keep: Callable[[Arrays], bool]
) -> Arrays:
    """Read arrays from a cache file; compute them if its key differs, and write them if `keep`."""
    key = f"{VERSION} {key}"
    arrays = _read(path, key)
    if arrays is None:
        arrays = compute()
        if keep(arrays):
            _write(path, key, arrays)
    return arrays


def _read(path: Path, key: str) -> Arrays | None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            if str(content["key"]) == key:
                return {name: content[name] for name in content.files if name != "key"}
    except Exception:  # missing, damaged or of another format: recompute
        return None
    return None


def _write(path: Path, key: str, arrays: Arrays) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, key=np.array(key), **arrays)  # type: ignore[arg-type]
    with contextlib.suppress(InputError):
        # thousands of small files, and a damaged one, which has checksums, is recomputed
        write_tidily(path, buffer.getvalue(), durable=False)

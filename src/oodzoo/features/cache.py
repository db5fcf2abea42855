"""Arrays computed from the features of a store, cached inside it.

A cache file holds the key of what it was computed from; with another key it is computed again. A
store that cannot be written to is not cached in.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo._io import write_bytes
from oodzoo.errors import InputError

VERSION = 3
"""Increased when something cached is computed in another way."""

Arrays = dict[str, NDArray[Any]]


def cached_arrays(
    path: Path, key: str, compute: Callable[[], Arrays], keep: Callable[[Arrays], bool]
) -> Arrays:
    """The arrays of a cache file with this key, else computed, and written if `keep` agrees."""
    key = f"{VERSION} {key}"
    arrays = _read(path, key)
    if arrays is None:
        arrays = compute()
        if keep(arrays):
            _write(path, key, arrays)
    return arrays


def _read(path: Path, key: str) -> Arrays | None:
    try:
        with np.load(path, allow_pickle=False) as content:
            if str(content["key"]) == key:
                return {name: content[name] for name in content.files if name != "key"}
    except Exception:  # missing, damaged or of another kind: computed again in any case
        return None
    return None


def _write(path: Path, key: str, arrays: Arrays) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, key=np.array(key), **arrays)  # type: ignore[arg-type]
    with contextlib.suppress(InputError):
        write_bytes(path, buffer.getbuffer())

"""Cache files of arrays computed from a store.

Each file contains the key of its inputs and ends in a checksum; with another key, or if it is
damaged, the arrays are recomputed. In a read-only store nothing is cached.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.io import write_tidily
from oodzoo.store.documents import sealed_bytes, unsealed_bytes

VERSION = 7
"""Increased when the computation of something cached changes."""

Arrays = dict[str, NDArray[Any]]


def read_cached(path: Path, key: str) -> Arrays | None:
    """Read arrays from a cache file; None without this key."""
    key = f"{VERSION} {key}"
    try:
        with np.load(io.BytesIO(unsealed_bytes(path)), allow_pickle=False) as content:
            if str(content["key"]) == key:
                return {name: content[name] for name in content.files if name != "key"}
    except Exception:  # missing, damaged or of another format: recompute
        return None
    return None


def write_cached(path: Path, key: str, arrays: Arrays) -> None:
    """Write arrays into a cache file, if the store can be written."""
    key = f"{VERSION} {key}"
    buffer = io.BytesIO()
    np.savez(buffer, key=np.array(key), **arrays)  # type: ignore[arg-type]
    with contextlib.suppress(InputError):
        # thousands of small files, and a damaged one is recomputed
        write_tidily(path, sealed_bytes(buffer.getvalue()), durable=False)

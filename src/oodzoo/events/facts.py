"""Facts of events as plain values and as text."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def plain_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that JSON can express; the others, such as results, are left out.

    Paths become text, numbers that are not finite None.

    Examples
    --------
    >>> plain_facts({"status": "done", "models": ("a", "b"), "result": object()})
    {'status': 'done', 'models': ['a', 'b']}
    """
    found = {name: _plain(value) for name, value in facts.items()}
    return {name: value for name, value in found.items() if value is not _NEITHER}


_NEITHER = object()


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        inner = {str(key): _plain(each) for key, each in value.items()}
        return _NEITHER if _NEITHER in inner.values() else inner
    if isinstance(value, list | tuple):
        items = [_plain(each) for each in value]
        return _NEITHER if _NEITHER in items else items
    return _NEITHER

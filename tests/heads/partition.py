"""What a split that keeps groups whole must satisfy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def require_whole(groups: Iterable[Any], inside: NDArray[Any], outside: NDArray[Any]) -> None:
    """Require that two parts have all samples, once, and no group in common."""
    names = np.asarray(list(groups))
    assert sorted([*inside.tolist(), *outside.tolist()]) == list(range(len(names)))
    assert not set(names[inside].tolist()) & set(names[outside].tolist())

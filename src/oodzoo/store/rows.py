"""Loading rows of images from the shards of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oodzoo.store.coverage import Places
from oodzoo.store.files import fetch_shards
from oodzoo.store.manifest import ModelRecord
from oodzoo.store.shards import Array, Shard, open_shard

_AHEAD = 16
"""Shards of a store at a URL that are fetched together."""


def gather_rows(
    store: Path,
    folder: Path,
    record: ModelRecord,
    shards: Sequence[Shard],
    index: Mapping[str, Sequence[str]],
    places: Places,
    output: str,
) -> Array:
    """Load rows in a given order; `folder` has the shard files of the model."""
    array = np.empty((len(places), record.widths[output]), record.dtype)
    order = np.argsort(places[:, 0], kind="stable")  # each shard is opened once
    numbers, starts = np.unique(places[order, 0], return_index=True)
    used = [folder / shards[number].files[output].file for number in numbers.tolist()]
    parts = zip(numbers.tolist(), np.split(order, starts[1:]), strict=False)
    for at, (number, positions) in enumerate(parts):
        if at % _AHEAD == 0:
            fetch_shards(used[at : at + _AHEAD])
        shard = shards[number]
        file = shard.files[output]
        shape = (len(index[shard.shard]) - len(shard.absent), record.widths[output])
        opened = open_shard(store, used[at], file, shape, record.dtype)
        array[_slice(positions)] = opened[_slice(places[positions, 1])]
    return array


def _slice(rows: NDArray[np.intp]) -> slice | NDArray[np.intp]:
    """Return consecutive rows as a slice, which is faster."""
    consecutive = bool((np.diff(rows) == 1).all())
    return slice(int(rows[0]), int(rows[0]) + len(rows)) if consecutive else rows

"""Where the rows of images are, from images to shards and rows of a model; and loading them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.store.files import fetch_shards
from oodzoo.store.manifest import ModelRecord
from oodzoo.store.shards import Array, Shard, open_shard

Places = NDArray[np.int64]
"""Shard and row of each image, (n, 2); see :class:`Place`."""


class Place(NamedTuple):
    """A row of a shard; `shard` is a position in the list of shards of a model."""

    shard: int
    row: int


class Coverage:
    """The images that a model has rows of.

    Attributes
    ----------
    rows : dict of str to Place
        An image in several shards has the row in the last of them.
    unreadable : dict of str to str
        Why other images cannot be decoded.
    """

    def __init__(self, index: Mapping[str, Sequence[str]], shards: Iterable[Shard]) -> None:
        self.rows: dict[str, Place] = {}
        self.unreadable: dict[str, str] = {}
        for number, shard in enumerate(shards):
            row = 0
            for position, image in enumerate(index[shard.shard]):
                if position in shard.absent:
                    reason = shard.absent[position]
                    if reason is not None:
                        self.unreadable[image] = reason
                else:
                    self.rows[image] = Place(number, row)
                    row += 1
        for image in self.rows:
            self.unreadable.pop(image, None)

    def places(self, images: Sequence[str]) -> Places:
        """Return the places of images; raise KeyError for an image without a row."""
        return np.array([self.rows[image] for image in images], np.int64).reshape(-1, 2)

    def missing(self, images: Iterable[str]) -> list[str]:
        """List the images, each once, that have no row and are not known to be unreadable."""
        return [
            image
            for image in dict.fromkeys(images)
            if image not in self.rows and image not in self.unreadable
        ]


class Coverages:
    """Coverages of many models; those with the same shards share one."""

    def __init__(self) -> None:
        self._known: dict[Any, Coverage] = {}

    def of(self, index: Mapping[str, Sequence[str]], shards: Sequence[Shard]) -> Coverage:
        key = tuple((shard.shard, tuple(shard.absent.items())) for shard in shards)
        if key not in self._known:
            self._known[key] = Coverage(index, shards)
        return self._known[key]


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

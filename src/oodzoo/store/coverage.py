"""Where the rows of images are: from images to shards and rows of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.store.shards import Shard

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

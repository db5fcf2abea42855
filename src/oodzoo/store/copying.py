"""Copying rows between stores, or within one, instead of computing them again."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from oodzoo.store.coverage import Coverage
from oodzoo.store.shards import Array
from oodzoo.store.writer import StoreWriter


class RowSource(Protocol):
    """Something that has rows of images."""

    def coverage(self, model: str) -> Coverage:
        """Return the images that a model has rows of."""
        ...

    def gather(self, model: str, images: list[str], output: str) -> Array:
        """Load the rows of some images."""
        ...


def copy_rows(writer: StoreWriter, source: RowSource, model: str, images: Collection[str]) -> None:
    """Copy the rows of images that a model of the writer lacks.

    The model must be registered. Images that the source could not decode are recorded as such.
    """
    coverage = source.coverage(model)
    unreadable = {i: why for i, why in coverage.unreadable.items() if i in images}
    available = {image for image in images if image in coverage.rows} | unreadable.keys()
    for shard in writer.plan([model], available):
        rows = [image for image in shard.images if image in coverage.rows]
        absent = {
            position: unreadable.get(image)
            for position, image in enumerate(shard.images)
            if image not in coverage.rows
        }
        outputs = {
            output: source.gather(model, rows, output) for output in writer.record(model).widths
        }
        writer.write_shard(model, shard.name, outputs, absent)

"""A part of an extraction, for schedulers that run the same command on many machines."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from oodzoo.engine.choice import Part
from oodzoo.store.index import ImageIndex
from oodzoo.store.writer import PlannedShard


def planned_part(
    planned: Sequence[PlannedShard],
    index: ImageIndex,
    images: Collection[str],
    models: Sequence[str],
    part: Part,
) -> list[PlannedShard]:
    """Return what one of several processes does of the planned shards.

    All shards of the index with one of `images` and all models are put in a row, shard by shard,
    and the row is cut into parts with as many images each. The parts thus depend on the index and
    the models only, not on what other processes have already done, and most images are decoded by
    one process.
    """
    shards = {
        name: len(members)
        for name, members in index.shards.items()
        if any(image in images for image in members)
    }
    total = sum(shards.values()) * len(models)
    mine: dict[str, list[str]] = {}
    before = 0
    for name, size in shards.items():
        for model in models:
            # by the middle of its images, so that each part has its share
            number = (2 * before + size) * part.of // (2 * total)
            if number == part.number - 1:
                mine.setdefault(name, []).append(model)
            before += size
    result = []
    for shard in planned:
        names = [model for model in shard.models if model in mine.get(shard.name, ())]
        if names:
            result.append(shard._replace(models=names))
    return result

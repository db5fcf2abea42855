"""What an extraction has to do: the shards that models lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from oodzoo.data.contents import inspect
from oodzoo.data.files import ImageFile
from oodzoo.extraction.engines.choice import Part
from oodzoo.extraction.progress import ExtractionProgress
from oodzoo.store.index import ImageIndex
from oodzoo.store.writer import PlannedShard, StoreWriter


def plan_missing(
    writer: StoreWriter,
    models: Sequence[str],
    files: Mapping[str, ImageFile],
    progress: ExtractionProgress,
    *,
    again: bool = True,
    only: bool = False,
    part: Part | None = None,
) -> list[PlannedShard]:
    """List the shards that models lack, and count the images that need not be computed.

    Parameters
    ----------
    writer : StoreWriter
    models : sequence of str
    files : dict of str to ImageFile
        The images to have features of, by their SHA-256.
    progress : ExtractionProgress
    again : bool
        Whether to look for images that were unreadable in an earlier extraction and are not now.
    only : bool
        Whether the shards may have no other images.
    part : Part, optional
        Only what this part has to do.
    """
    readable = _readable_again(writer, models, files) if again else []
    planned = writer.plan(models, files.keys(), readable, only=only)
    if part is not None:
        planned = planned_part(planned, writer.index, files, models, part)
    todo = Counter[str]()
    for shard in planned:
        n_images = sum(image in files for image in shard.images)
        todo.update(dict.fromkeys(shard.models, n_images))
    for name in models:
        progress.has(name, len(files) - todo[name])
    return planned


def _readable_again(
    writer: StoreWriter, models: Sequence[str], files: Mapping[str, ImageFile]
) -> list[str]:
    unreadable = {image for name in models for image in writer.coverage(name).unreadable}
    known = {image: files[image] for image in sorted(unreadable) if image in files}
    return [image for image, found in inspect(known).items() if not found.problem]


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

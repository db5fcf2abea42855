"""What an extraction has to do: the shards that models lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from oodzoo.data.contents import inspect
from oodzoo.data.files import ImageFile
from oodzoo.engine.choice import Part
from oodzoo.features.part import planned_part
from oodzoo.features.progress import ExtractionProgress
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

"""Images decoded once for every model in background threads, and forward passes, batch by batch."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from joblib import cpu_count
from PIL import Image

from oodzoo.core.errors import InputError
from oodzoo.core.threads import Prefetch
from oodzoo.data import pixels
from oodzoo.data.files import ImageFile, RemoteImage, UnreadableImageError, reading
from oodzoo.data.listing import REMOTE_READERS
from oodzoo.zoo.model import (
    Collected,
    Model,
    Outputs,
    Pixels,
    collect_together,
    launch_together,
)
from oodzoo.zoo.preprocessing import Geometry

Tag = TypeVar("Tag")
Item = TypeVar("Item")
Batches = Generator[Any, None, None] | Prefetch[Any]


@dataclass(frozen=True)
class ForwardJob(Generic[Tag]):
    """Models of one network and the images to run them on; the tag is for the caller.

    `report` is called with the number of images that have been run.
    """

    tag: Tag
    models: Sequence[Model]
    pixels: Pixels
    batch_size: int
    report: Callable[[int], None] = lambda _: None


@dataclass(frozen=True)
class ForwardResult(Generic[Tag]):
    """Outputs of a finished job, or the error that it raised."""

    job: ForwardJob[Tag]
    outputs: list[Outputs] | None
    """Outputs of each model of the job."""
    error: Exception | None
    seconds: float
    """Time spent starting the forward passes and waiting for them."""
    batch_size: int
    """The batch size that fitted into the memory of the device."""
    shares: list[float] = field(default_factory=list)
    """Share of the time after which the outputs of each model were there."""
    fastest: float | None = None
    """Seconds per image of the fastest batch on the device, if that measures them."""

    def seconds_of(self, at: int) -> float:
        """Time up to the outputs of one of the models."""
        return self.seconds * self.shares[at]


def run_forward(jobs: Iterable[ForwardJob[Tag]]) -> Iterator[ForwardResult[Tag]]:
    """Run jobs one after another and yield their results in order.

    Batches for a GPU are prepared in the background, and each job is launched before the previous
    one is collected, so that the GPU is never idle.
    """
    prepared = ((job, _prepare(job, job.batch_size)) for job in jobs)
    with closing(_one_ahead(prepared, discard=lambda item: item[1].close())) as ahead:
        for result, launched in _one_ahead(_launch(*item) for item in ahead):
            yield _collect(result, launched)


def _one_ahead(
    items: Iterable[Item], discard: Callable[[Item], None] = lambda _: None
) -> Generator[Item, None, None]:
    """Yield each item after the next one has been made; discard those that are not used.

    If making an item fails, the one before it is still yielded before the error is raised.
    """
    waiting: list[Item] = []
    failure: Exception | None = None
    try:
        try:
            for item in items:
                waiting.append(item)
                if len(waiting) > 1:
                    yield waiting.pop(0)
        except Exception as error:
            failure = error
        while waiting:
            yield waiting.pop()
        if failure is not None:
            raise failure
    finally:
        for item in waiting:
            discard(item)


def _launch(job: ForwardJob[Tag], batches: Batches) -> tuple[ForwardResult[Tag], list[Any]]:
    """Start all batches; halve the batch size while the device runs out of memory."""
    started = time.perf_counter()
    batch_size = job.batch_size
    while True:
        launched, problem = [], None
        try:
            for number, batch in enumerate(batches, start=1):
                launched.append(launch_together(job.models, batch))
                job.report(min(number * batch_size, len(job.pixels)))
        except Exception as error:
            problem = error
            batches.close()
        if type(problem).__name__ != "OutOfMemoryError" or batch_size == 1:
            seconds = time.perf_counter() - started
            return ForwardResult(job, None, problem, seconds, batch_size), launched
        batch_size //= 2
        batches = _prepare(job, batch_size)


def _collect(result: ForwardResult[Tag], launched: list[Any]) -> ForwardResult[Tag]:
    """Wait for the outputs of a launched job."""
    if result.error is not None:
        return result
    started = time.perf_counter()
    models = result.job.models
    try:
        batches = [collect_together(models, batch) for batch in launched]
        outputs = [
            _concatenate([batch.outputs[at] for batch in batches], model)
            for at, model in enumerate(models)
        ]
        for each, model in zip(outputs, models, strict=True):
            _require_shapes(each, model, len(result.job.pixels))
        shares = _typical_shares(batches, len(models))
        result = replace(result, outputs=outputs, shares=shares, fastest=_fastest(batches))
    except Exception as error:
        result = replace(result, error=error)
    return replace(result, seconds=result.seconds + time.perf_counter() - started)


def _typical_shares(batches: list[Collected], n_models: int) -> list[float]:
    """The median over the batches: the first one may be slower at the start."""
    if not batches:
        return [1.0] * n_models
    return [float(each) for each in np.median([batch.shares for batch in batches], axis=0)]


def _fastest(batches: list[Collected]) -> float | None:
    pairs = [(each.seconds, len(each.outputs[0].features)) for each in batches]
    return min((seconds / n for seconds, n in pairs if seconds is not None and n), default=None)


def _require_shapes(outputs: Outputs, model: Model, n: int) -> None:
    """Reject outputs that do not have one row of the expected width per image."""
    info = model.info
    for name, values, width in (
        ("features", outputs.features, info.feature_dim),
        ("logits", outputs.logits, info.n_logits),
    ):
        if values is not None and values.shape != (n, width):
            raise InputError(
                f"model {info.name!r} returned {name} of shape {values.shape} for {n} images; "
                f"expected {(n, width)}"
            )


def require_finite(outputs: Outputs, model: Model, paths: Sequence[str]) -> None:
    """Reject NaN and infinite values, naming the first image that causes them."""
    for name, values in (("features", outputs.features), ("logits", outputs.logits)):
        if values is not None and not np.isfinite(values).all():
            row = int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
            raise InputError(
                f"model {model.info.name!r} returned NaN or infinite {name} for {paths[row]!r}"
            )


def _prepare(job: ForwardJob[Any], batch_size: int) -> Batches:
    """Prepare the batches of a job, in the background if the model does not run on the CPU."""
    starts = range(0, len(job.pixels), batch_size)
    batches = [(job.pixels[start : start + batch_size],) for start in starts]
    model = job.models[0]
    if model.on_cpu:
        return (model.prepare(*batch) for batch in batches)
    return Prefetch(model.prepare, batches, n_threads=2, ahead=3)


def _concatenate(parts: list[Outputs], model: Model) -> Outputs:
    info = model.info
    if not parts:
        logits = None if info.n_logits is None else np.empty((0, info.n_logits), np.float32)
        return Outputs(np.empty((0, info.feature_dim), np.float32), logits)
    features = np.concatenate([part.features for part in parts])
    if info.n_logits is None:
        return Outputs(features, None)
    return Outputs(features, np.concatenate([p.logits for p in parts if p.logits is not None]))


_IMAGES_PER_CALL = 4
"""Images per background call, to reduce the overhead of dispatching."""


class HashedFile(NamedTuple):
    """An image file that must still have the SHA-256 it had when it was listed."""

    file: ImageFile
    sha256: str


Source = HashedFile | ImageFile | Image.Image

Decoded = Mapping[Geometry | None, Any]
"""Pixels by geometry; texts have none, and are a list."""


@dataclass(frozen=True)
class Chunk:
    """Decoded images of a shard.

    `positions` has the readable images, in the order of the rows of `pixels`; `problems` has the
    error of each unreadable one.
    """

    positions: list[int]
    pixels: dict[Geometry | None, Any]
    problems: dict[int, UnreadableImageError]


class Decoding:
    """Decodes images in the background from the moment it is created.

    `files` has image files, or images in memory, by position in the shard; each is resized to all
    geometries. `problems` has the errors of images that are known to be unreadable.
    """

    def __init__(
        self,
        files: Mapping[int, Source],
        geometries: Collection[Geometry | None],
        problems: Mapping[int, UnreadableImageError] | None = None,
    ) -> None:
        self._known = dict(problems or {})
        self._positions = list(files)
        self._pixels: dict[Geometry | None, Any] = {
            geometry: [""] * len(files)
            if geometry is None
            else np.empty((len(files), *geometry.crop, 3), np.uint8)
            for geometry in geometries
        }
        sources = list(files.values())
        calls = [
            (sources[start : start + _IMAGES_PER_CALL], start, self._pixels)
            for start in range(0, len(sources), _IMAGES_PER_CALL)
        ]
        # Files of an extraction have been fetched already; reading another remote one waits.
        waits = any(isinstance(each, RemoteImage) for each in sources)
        threads = REMOTE_READERS if waits else cpu_count()
        self._results = Prefetch(_decode, calls, n_threads=threads)

    def cancel(self) -> None:
        """Cancel the decoding of the remaining images."""
        self._results.close()

    def result(self) -> Chunk:
        """Wait until all images are decoded."""
        problems = {
            self._positions[row]: error for found in self._results for row, error in found.items()
        }
        rows = [row for row, position in enumerate(self._positions) if position not in problems]
        pixels = self._pixels
        if problems:
            pixels = {
                geometry: [array[row] for row in rows] if geometry is None else array[rows]
                for geometry, array in pixels.items()
            }
        return Chunk([self._positions[row] for row in rows], pixels, {**self._known, **problems})


def _decode(
    sources: Sequence[Source], start: int, pixels: Decoded
) -> dict[int, UnreadableImageError]:
    """Decode images into the rows from `start` of each array; return the errors by row."""
    problems = {}
    for row, source in enumerate(sources, start=start):
        try:
            if None in pixels:
                pixels[None][row] = _read_text(source)
                continue
            geometries = [geometry for geometry in pixels if geometry is not None]
            with closing(_opened(source, geometries)) as images:
                for image, positions in images:
                    for geometry in (geometries[at] for at in positions):
                        pixels[geometry][row] = geometry.apply(image)
        except UnreadableImageError as error:
            problems[row] = error
    return problems


def _read_text(source: Source) -> str:
    file, digest = source if isinstance(source, HashedFile) else (source, None)
    if isinstance(file, Image.Image):
        raise UnreadableImageError("an image, not a text")
    with reading(file) as content:
        _require_digest(content, digest)
        return content.decode(errors="replace")


def _require_digest(content: bytes, digest: str | None) -> None:
    if digest is not None and hashlib.sha256(content).hexdigest() != digest:
        raise UnreadableImageError("the file has changed since it was listed", transient=True)


def _opened(
    source: Source, geometries: Sequence[Geometry]
) -> Generator[tuple[Image.Image, list[int]], None, None]:
    """Decode an image at each scale that geometries need, with the positions of these."""
    if isinstance(source, Image.Image):
        yield pixels.as_rgb(source), list(range(len(geometries)))
        return
    file, digest = source if isinstance(source, HashedFile) else (source, None)
    with reading(file) as content:
        _require_digest(content, digest)
        yield from pixels.decode_scaled(content, [each.reduction for each in geometries])

"""Forward passes of models over decoded images, batch by batch."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from oodzoo.errors import InputError
from oodzoo.features.prefetch import cancel, in_background
from oodzoo.zoo.model import Model, Outputs, Pixels

Tag = TypeVar("Tag")


@dataclass(frozen=True)
class Job(Generic[Tag]):
    """A model and the images to run it on; the tag identifies the job for the caller."""

    tag: Tag
    model: Model
    pixels: Pixels
    batch_size: int


@dataclass(frozen=True)
class JobResult(Generic[Tag]):
    """Outputs of a finished job, or the error that it raised."""

    job: Job[Tag]
    outputs: Outputs | None
    error: Exception | None
    seconds: float
    """Time spent starting the forward passes and waiting for them."""
    batch_size: int
    """The batch size that fitted into the memory of the device."""


def run_jobs(jobs: Iterable[Job[Tag]]) -> Iterator[JobResult[Tag]]:
    """Run jobs one after another and yield their results in order.

    Batches for a GPU are prepared in the background, and each job is launched before the previous
    one is collected, so that the GPU is never idle.
    """
    with closing(_prefetched(jobs)) as prepared:
        yield from _run_prepared(prepared)


Batches = Generator[Any, None, None]


def _run_prepared(prepared: Iterator[tuple[Job[Tag], Batches]]) -> Iterator[JobResult[Tag]]:
    last: _Launched[Tag] | None = None
    stopped: Exception | None = None
    while True:
        try:
            following = _launch(*next(prepared))
        except StopIteration:
            break
        except Exception as error:  # the job source failed: collect the last job, then raise
            stopped = error
            break
        if last is not None:
            yield _collect(last)
        last = following
    if last is not None:
        yield _collect(last)
    if stopped is not None:
        raise stopped


def _prefetched(jobs: Iterable[Job[Tag]]) -> Generator[tuple[Job[Tag], Batches], None, None]:
    """Yield each job with its batches, one job ahead."""
    waiting: deque[tuple[Job[Tag], Batches]] = deque()
    stopped: Exception | None = None
    remaining = iter(jobs)
    try:
        while True:
            try:
                job = next(remaining)
            except StopIteration:
                break
            except Exception as error:
                stopped = error
                break
            waiting.append((job, _prepare(job, job.batch_size)))
            if len(waiting) > 1:
                yield waiting.popleft()
        while waiting:
            yield waiting.popleft()
        if stopped is not None:
            raise stopped
    finally:
        for _, batches in waiting:
            cancel(batches)


@dataclass(frozen=True)
class _Launched(Generic[Tag]):
    job: Job[Tag]
    batches: list[Any]
    error: Exception | None
    seconds: float
    batch_size: int


def _launch(job: Job[Tag], batches: Batches) -> _Launched[Tag]:
    """Start all batches; halve the batch size while the device runs out of memory."""
    started = time.perf_counter()
    batch_size = job.batch_size
    while True:
        try:
            launched = [job.model.launch(batch) for batch in batches]
            return _Launched(job, launched, None, time.perf_counter() - started, batch_size)
        except Exception as error:
            cancel(batches)
            if type(error).__name__ != "OutOfMemoryError" or batch_size == 1:
                return _Launched(job, [], error, time.perf_counter() - started, batch_size)
        batch_size //= 2
        batches = _prepare(job, batch_size)


def _collect(launched: _Launched[Tag]) -> JobResult[Tag]:
    started = time.perf_counter()
    job, error = launched.job, launched.error
    outputs = None
    if error is None:
        try:
            parts = [job.model.collect(batch) for batch in launched.batches]
            outputs = _concatenate(parts, job.model)
            _require_shapes(outputs, job.model, len(job.pixels))
        except Exception as raised:
            outputs, error = None, raised
    seconds = launched.seconds + time.perf_counter() - started
    return JobResult(job, outputs, error, seconds, launched.batch_size)


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


def _prepare(job: Job[Any], batch_size: int) -> Batches:
    """Prepare the batches of a job, in the background if the model does not run on the CPU."""
    starts = range(0, len(job.pixels), batch_size)
    batches = [(job.pixels[start : start + batch_size],) for start in starts]
    if job.model.on_cpu:
        return (job.model.prepare(*batch) for batch in batches)
    return in_background(job.model.prepare, batches, n_jobs=2, ahead=3)


def _concatenate(parts: list[Outputs], model: Model) -> Outputs:
    info = model.info
    if not parts:
        logits = None if info.n_logits is None else np.empty((0, info.n_logits), np.float32)
        return Outputs(np.empty((0, info.feature_dim), np.float32), logits)
    features = np.concatenate([part.features for part in parts])
    if info.n_logits is None:
        return Outputs(features, None)
    return Outputs(features, np.concatenate([p.logits for p in parts if p.logits is not None]))

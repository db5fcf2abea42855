"""The time of a forward pass of each model.

It must not depend on what else the machine does, or it would differ between runs:

- **On the CPU**, it is the CPU time of one thread, the least of a few passes after the extraction.
  With several threads, those that wait for others compute nothing and yet use CPU time, the more
  the busier the machine is.
- **On a GPU**, it is the time on the device of the fastest batch of the extraction. A single image
  would hardly use it.
- Of other models, such as Python functions, it is the wall time of the fastest shard.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np

from oodzoo.core.threads import thread_seconds
from oodzoo.zoo import Model
from oodzoo.zoo.model import Pixels, collect_together, launch_together


@dataclass
class Timing:
    """Images that a model was run on, and the seconds that it took."""

    images: int = 0
    seconds: float = 0.0


class PassTime(NamedTuple):
    """Milliseconds per image of a forward pass, and how they were measured."""

    milliseconds: float
    measured: str

    def after(self, earlier: PassTime | None) -> PassTime:
        """The time known after an earlier one: the least, if both were measured in one way."""
        same = earlier is not None and earlier.measured == self.measured
        return min(self, earlier) if same and earlier is not None else self


PASSES = 4
"""Passes that are timed, fewer if they are slow."""


SHORTEST_PASS = 0.005
"""Seconds of a pass; it has several images if a single one is faster."""


MOST_IMAGES = 16


LONGEST = 1.0
"""Seconds of all passes, after which no more than two are made."""


def time_passes(models: Sequence[Model], text: str | None = None) -> list[float]:
    """Return the milliseconds per image of models of one network on one thread of the CPU.

    The images are black; models of text are run on `text`.
    """
    first = models[0]
    found: list[list[float]] = []
    n, total = 1, 0.0
    with first.one_thread():
        while len(found) < PASSES and (len(found) < 2 or total < LONGEST):
            images = [text] * n if text is not None else _black(first, n)
            start = thread_seconds()
            launched = launch_together(models, first.prepare(images))
            shares = collect_together(models, launched).shares
            seconds = thread_seconds() - start
            computed = -(-n // first.batch) * first.batch
            found.append([1000 * seconds / computed * share for share in shares])
            total += seconds
            n = max(1, min(MOST_IMAGES, int(SHORTEST_PASS * n / max(seconds, 1e-6))))
    return [min(times) for times in zip(*found, strict=True)]


def _black(model: Model, n: int) -> Pixels:
    return np.zeros((n, *model.info.preprocessing.geometry.crop, 3), np.uint8)


@cache
def how_on_cpu() -> str:
    """Say how a model is timed on this processor."""
    name = platform.processor() or platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.partition(":")[2] for line in lines if line[:10] == "model name"), name)
    return f"CPU time of one thread, least of a few passes ({name.strip()})"


@cache
def how_on_device(device: str, *, by_batch: bool) -> str:
    """Say how a model is timed on another device."""
    if not by_batch:
        return f"wall time, least of the shards ({device})"
    name = import_module("torch").cuda.get_device_name(device)
    return f"time of the GPU, least of the batches ({name})"

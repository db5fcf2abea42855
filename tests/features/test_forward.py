"""Running models over shards: what is charged to whom, and what is kept."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from oodzoo.features.forward import Job, run_jobs
from oodzoo.zoo.callable import model_from_callable
from oodzoo.zoo.model import Model
from oodzoo.zoo.preprocessing import square


def model(name: str, seconds: float = 0.0) -> Model:
    def features(batch: Any) -> Any:
        time.sleep(seconds)
        return batch.mean(axis=(2, 3))

    shape = square(4, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    return model_from_callable(features, name=name, preprocessing=shape, version="1")


def jobs(*models: Model) -> Iterator[Job[str]]:
    pixels = np.random.default_rng(0).integers(0, 256, (10, 4, 4, 3), dtype=np.uint8)
    for one in models:
        yield Job(one.info.name, [one], pixels, batch_size=4)


def test_time_is_charged_to_the_model_that_took_it() -> None:
    fast, slow = model("fast"), model("slow", seconds=0.05)
    spent = {"fast": 0.0, "slow": 0.0}
    for done in run_jobs(jobs(*[fast, slow] * 3)):
        spent[done.job.tag] += done.seconds
    assert spent["slow"] >= 3 * 3 * 0.05
    assert spent["fast"] < spent["slow"] / 3


def test_what_was_launched_is_kept_when_no_more_jobs_come() -> None:
    def stopping() -> Iterator[Job[str]]:
        yield from jobs(model("a"), model("b"), model("c"))
        raise OSError("the disk has gone")

    results = run_jobs(stopping())
    assert [next(results).job.tag for _ in range(3)] == ["a", "b", "c"]
    with pytest.raises(OSError, match="the disk has gone"):
        next(results)

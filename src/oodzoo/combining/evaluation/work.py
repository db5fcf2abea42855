"""Test domains and learning curves as tasks: results are written into the cache of the store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from oodzoo.combining.evaluation.judge import Judge, Rankings
from oodzoo.combining.evaluation.learning_curve import Part, metrics_of, metrics_without_one
from oodzoo.combining.evaluation.settings import Settings
from oodzoo.combining.heads import predict_with_heads
from oodzoo.combining.work import StoreJob, compute_device, describe_store, open_source, run_all
from oodzoo.combining.work import missing_here as missing_store
from oodzoo.core.events import Progress
from oodzoo.extraction.engines.task import Engine, Work, Worker
from oodzoo.extraction.source import FeatureSource


class _Job(msgspec.Struct, frozen=True):
    source: StoreJob
    settings: Settings


class FoldTask(msgspec.Struct, frozen=True, tag="fold"):
    """Judge a test domain, and what would be recommended for it in less time per image."""

    test: str
    budgets: list[float]

    def __str__(self) -> str:
        return f"the result for the test domain {self.test!r}"


class CurveTask(msgspec.Struct, frozen=True, tag="curve"):
    """Train heads on a part of the images."""

    part: Part

    def __str__(self) -> str:
        return f"the learning curve of {self.part.model!r}"


class FewerTask(msgspec.Struct, frozen=True, tag="fewer"):
    """Train heads on fewer domains."""

    model: str
    settings: dict[str, int]

    def __str__(self) -> str:
        return f"the heads of {self.model!r} on fewer domains"


Task = FoldTask | CurveTask | FewerTask


def compute_tasks(
    source: FeatureSource,
    settings: Settings,
    tasks: Sequence[Task],
    engine: Engine,
    progress: Progress,
) -> None:
    """Run tasks on an engine; the heads are already in the store."""
    job = _Job(describe_store(source, engine), settings)
    work = Work(f"{__name__}:run_task", msgspec.json.encode(job), check=f"{__name__}:missing_here")
    named = [(str(task), msgspec.json.encode(task)) for task in tasks]
    run_all(work, named, engine, progress)


def missing_here(shared: bytes) -> list[str]:
    """List what this machine lacks to compute on a store."""
    return missing_store(msgspec.json.encode(msgspec.json.decode(shared, type=_Job).source))


def run_task(shared: bytes, task: bytes, worker: Worker) -> bytes:
    """Run a task; of a test domain, return what is recommended without it."""
    todo, device = msgspec.json.decode(task, type=Task), compute_device(worker)
    if isinstance(todo, FoldTask):
        judge = _judge(shared, device)
        fold = judge.fold(todo.test)
        for max_ms in todo.budgets:
            judge.limited(todo.test, fold, max_ms)
        return fold.recommended.encode()
    source = _source(shared)
    if isinstance(todo, CurveTask):
        metrics_of(source, todo.part, device=device)
    else:
        metrics_without_one(source, todo.model, todo.settings, device=device)
    return b""


def _source(shared: bytes) -> FeatureSource:
    return open_source(msgspec.json.encode(msgspec.json.decode(shared, type=_Job).source))


@lru_cache(maxsize=1)
def _judge(shared: bytes, device: str | None) -> Judge:
    settings = msgspec.json.decode(shared, type=_Job).settings
    source = _source(shared)
    rankings = Rankings.of(source, settings, device)
    heads = predict_with_heads(source, device=device)
    return Judge(source, settings, heads, rankings, device)

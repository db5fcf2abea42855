"""Test domains as tasks: the result of each is written into the cache of the store."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from oodzoo.combination.heads import predict_with_heads
from oodzoo.combination.work import StoreJob, compute_device, describe_store, open_source, run_all
from oodzoo.combination.work import missing_here as missing_store
from oodzoo.engine.task import Engine, Work, Worker
from oodzoo.evaluation.judge import Judge
from oodzoo.evaluation.settings import Settings
from oodzoo.events import Progress
from oodzoo.features.source import FeatureSource
from oodzoo.ranking.ranker import rank_for_test_domains


class _Job(msgspec.Struct, frozen=True):
    source: StoreJob
    settings: Settings


def compute_folds(
    source: FeatureSource, settings: Settings, engine: Engine, progress: Progress
) -> None:
    """Judge all test domains by tasks of an engine; the heads are already in the store."""
    job = _Job(describe_store(source, engine), settings)
    work = Work(f"{__name__}:run_task", msgspec.json.encode(job), check=f"{__name__}:missing_here")
    run_all(work, source.domains, engine, progress, "the result for the test domain")


def missing_here(shared: bytes) -> list[str]:
    """List what this machine lacks to compute on a store."""
    return missing_store(msgspec.json.encode(msgspec.json.decode(shared, type=_Job).source))


def run_task(shared: bytes, task: bytes, worker: Worker) -> bytes:
    """Judge a test domain; return what is recommended without it."""
    return _judge(shared, compute_device(worker)).fold(task.decode()).recommended.encode()


@lru_cache(maxsize=1)
def _judge(shared: bytes, device: str | None) -> Judge:
    job = msgspec.json.decode(shared, type=_Job)
    source = open_source(msgspec.json.encode(job.source))
    rankings = rank_for_test_domains(source, score=job.settings.score, device=device)
    heads = predict_with_heads(source, device=device)
    return Judge(source, job.settings, heads, rankings, device)

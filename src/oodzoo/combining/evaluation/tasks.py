"""An evaluation as tasks of other processes, which write into the cache of a store they all see."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from oodzoo.combining.evaluation.judge import Judge, Rankings
from oodzoo.combining.evaluation.learning_curve import Part, metrics_of, metrics_without_one
from oodzoo.combining.evaluation.settings import Settings
from oodzoo.combining.predictions import model_predictions, predict_with_heads
from oodzoo.core.errors import InputError
from oodzoo.core.events import Together, part, tracked
from oodzoo.core.text import count
from oodzoo.extraction.engines import Engine, Work, Worker
from oodzoo.extraction.features import FeatureSource, StoreSource, head_costs
from oodzoo.ranking.ranker import model_orders, rank_for_test_domains
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.mirror import is_remote, location


class StoreJob(msgspec.Struct, frozen=True):
    """The features that tasks compute on: some models of a store that all machines see.

    Attributes
    ----------
    store, fingerprint : str
    models : list of str
    settings : Settings, optional
        Of the evaluation; heads can be computed without it.
    """

    store: str
    fingerprint: str
    models: list[str]
    settings: Settings | None = None


class HeadsTask(msgspec.Struct, frozen=True, tag="heads"):
    """Compute the heads of a model, and what ranks it: for the order, or for all scores."""

    model: str
    by_test: bool = False

    def __str__(self) -> str:
        return f"the heads of model {self.model!r}"

    def run(self, shared: bytes, device: str | None) -> bytes:
        source = open_source(shared)
        alone = StoreSource(source.store, [self.model])
        with part(0.0, 0.5):
            if self.by_test:
                rank_for_test_domains(alone, device=device)
            else:
                model_orders(alone, device=device)
        digest = hashlib.sha256()
        with part(0.5, 1.0):
            single, heads = model_predictions(source, self.model, device=device)
        for head, predictions in [(self.model, single), *heads.items()]:
            for test, found in predictions.items():
                digest.update(f"{head} {test} {found.setting}".encode())
                for array in found.out_of_fold:
                    digest.update(array.tobytes())
        return digest.hexdigest().encode()


class FoldTask(msgspec.Struct, frozen=True, tag="fold"):
    """Judge a held-out domain, and what would be recommended for it in less time per image."""

    test: str
    budgets: list[float]

    def __str__(self) -> str:
        return f"the result for the held-out domain {self.test!r}"

    def run(self, shared: bytes, device: str | None) -> bytes:
        with part(0.0, 0.1):
            judge = _judge(shared, device)
        with part(0.1, 0.85):
            fold = judge.fold(self.test)
        with part(0.85, 1.0):
            for max_ms in tracked(self.budgets):
                judge.limited(self.test, fold, max_ms)
        return fold.recommended.encode()


class CurveTask(msgspec.Struct, frozen=True, tag="curve"):
    """Train heads on a part of the images."""

    part: Part

    def __str__(self) -> str:
        return f"the learning curve of {self.part.model!r}"

    def run(self, shared: bytes, device: str | None) -> bytes:
        metrics_of(open_source(shared), self.part, device=device)
        return b""


class FewerTask(msgspec.Struct, frozen=True, tag="fewer"):
    """Train heads on fewer domains."""

    model: str
    settings: dict[str, int]

    def __str__(self) -> str:
        return f"the heads of {self.model!r} on fewer domains"

    def run(self, shared: bytes, device: str | None) -> bytes:
        metrics_without_one(open_source(shared), self.model, self.settings, device=device)
        return b""


Task = HeadsTask | FoldTask | CurveTask | FewerTask


def compute_heads(source: FeatureSource, engine: Engine, *, by_test: bool = False) -> None:
    """Compute the heads of all models, and what ranks the models, by tasks of an engine."""
    tasks = [HeadsTask(model, by_test) for model in source.models]
    compute_tasks(describe_store(source, engine), tasks, engine, head_costs(source, source.models))


def compute_tasks(
    job: StoreJob, tasks: Sequence[Task], engine: Engine, costs: Sequence[float]
) -> None:
    """Run tasks of some expected costs on an engine; an error is raised when the others are done.

    What they compute is in the cache of the store.
    """
    work = Work(f"{__name__}:run_task", msgspec.json.encode(job), check=f"{__name__}:missing_here")
    problems: dict[int, str] = {}
    encoded: Iterator[bytes] = (msgspec.json.encode(task) for task in tasks)
    together = Together(costs)
    for number, reply in engine.run(work, encoded, together.reach):
        if reply.fatal:
            raise InputError(str(reply.error))
        if reply.error is not None:
            problems[number] = reply.error
        together.reach(number)
    if problems:
        number, reason = next(iter(problems.items()))
        others = f" ({count(len(problems), 'task')} failed)" if len(problems) > 1 else ""
        raise InputError(
            f"{tasks[number]} could not be computed{others}: {reason}; the others are kept"
        )


def describe_store(
    source: FeatureSource, engine: Engine, settings: Settings | None = None
) -> StoreJob:
    """Describe a source for other processes; only a store can be opened by them."""
    if not isinstance(source, StoreSource):
        raise InputError(
            f"the engine {engine.name} needs a feature store, not arrays in memory: other "
            "processes read the features from disk"
        )
    store = source.store
    if is_remote(store.path) and engine.name == "ray":
        raise InputError(
            f"the engine ray keeps what tasks compute in the cache of the store, which machines do "
            f"not share for a store at {store.location!r}; leave the engine out, or copy the store "
            "to a disk that all machines share"
        )
    if not os.access(store.path, os.W_OK):
        raise InputError(
            f"the engine {engine.name} keeps what tasks compute in the store "
            f"{store.location!r}, which cannot be written; leave the engine out"
        )
    return StoreJob(location(store.path), store.fingerprint, list(source.models), settings)


def missing_here(shared: bytes) -> list[str]:
    """List what this machine lacks to compute on a store."""
    job = msgspec.json.decode(shared, type=StoreJob)
    advice = "put it on a disk that all machines share"
    try:
        store = FeatureStore(job.store)
    except InputError:
        return [f"cannot see the store {job.store!r}; {advice}"]
    if store.fingerprint != job.fingerprint:
        return [f"has another store at {job.store!r}; {advice}"]
    return []


def run_task(shared: bytes, task: bytes, worker: Worker) -> bytes:
    """Run a task; return a digest of predictions, or the recommended combination."""
    device = worker.device if worker.device.startswith("cuda") else None  # NumPy on a CPU
    todo: Any = msgspec.json.decode(task, type=Task)
    result: bytes = todo.run(shared, device)
    return result


@lru_cache(maxsize=1)
def open_source(shared: bytes) -> StoreSource:
    """Open the store of a job; a process keeps the last one open."""
    job = msgspec.json.decode(shared, type=StoreJob)
    store = FeatureStore(job.store)
    if store.fingerprint != job.fingerprint:
        raise InputError(f"the store {job.store!r} has changed since the work began; start again")
    return StoreSource(store, job.models)


@lru_cache(maxsize=1)
def _judge(shared: bytes, device: str | None) -> Judge:
    settings = msgspec.json.decode(shared, type=StoreJob).settings
    assert settings is not None
    source = open_source(shared)
    rankings = Rankings.of(source, settings, device)
    return Judge(source, settings, predict_with_heads(source, device=device), rankings, device)

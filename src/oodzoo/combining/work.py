"""Heads as tasks, one for each model: their predictions are written into the cache of the store."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec

from oodzoo.combining.predictions import model_predictions
from oodzoo.core.errors import InputError
from oodzoo.core.events import Progress
from oodzoo.core.text import count
from oodzoo.extraction.engines import Engine, Work, Worker
from oodzoo.extraction.features import FeatureSource, StoreSource
from oodzoo.ranking.ranker import model_orders, rank_for_test_domains
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.mirror import is_remote, location


class StoreJob(msgspec.Struct, frozen=True):
    """The features that tasks compute on: some models of a store that all machines see."""

    store: str
    fingerprint: str
    models: list[str]
    by_test: bool = False
    """Whether all scores are wanted without each held-out domain, and not only the order by one."""


def describe_store(source: FeatureSource, engine: Engine) -> StoreJob:
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
    return StoreJob(location(store.path), store.fingerprint, list(source.models))


def compute_heads(
    source: FeatureSource,
    engine: Engine,
    progress: Progress | None = None,
    *,
    by_test: bool = False,
) -> None:
    """Compute the heads of all models, and what ranks the models, by tasks of an engine.

    They are then in the cache of the store.
    """
    job = msgspec.structs.replace(describe_store(source, engine), by_test=by_test)
    shared = msgspec.json.encode(job)
    work = Work(f"{__name__}:run_task", shared, check=f"{__name__}:missing_here")
    tasks = [(f"the heads of model {model!r}", model.encode()) for model in source.models]
    run_all(work, tasks, engine, progress)


def run_all(
    work: Work, tasks: Sequence[tuple[str, bytes]], engine: Engine, progress: Progress | None
) -> None:
    """Run tasks, each with a name for messages; an error is raised when all others are done."""
    problems: dict[int, str] = {}
    encoded: Iterator[bytes] = (task for _, task in tasks)
    for done, (number, reply) in enumerate(engine.run(work, encoded), start=1):
        if reply.fatal:
            raise InputError(str(reply.error))
        if reply.error is not None:
            problems[number] = reply.error
        if progress is not None:
            progress(done, len(tasks))
    if problems:
        number, reason = next(iter(problems.items()))
        others = f" ({count(len(problems), 'task')} failed)" if len(problems) > 1 else ""
        name, _ = tasks[number]
        raise InputError(f"{name} could not be computed{others}: {reason}; the others are kept")


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
    """Compute the heads of a model; return a digest of their predictions."""
    source, device = open_source(shared), compute_device(worker)
    model = task.decode()
    alone = StoreSource(source.store, [model])
    if msgspec.json.decode(shared, type=StoreJob).by_test:
        rank_for_test_domains(alone, device=device)
    else:
        model_orders(alone, device=device)
    digest = hashlib.sha256()
    single, heads = model_predictions(source, model, device=device)
    for head, predictions in [(model, single), *heads.items()]:
        for test, found in predictions.items():
            digest.update(f"{head} {test} {found.setting}".encode())
            for array in found.out_of_fold:
                digest.update(array.tobytes())
    return digest.hexdigest().encode()


def compute_device(worker: Worker) -> str | None:
    """Return the device for arrays: NumPy on a CPU."""
    return worker.device if worker.device.startswith("cuda") else None


@lru_cache(maxsize=1)
def open_source(shared: bytes) -> StoreSource:
    """Open the store of a job; a process keeps the last one open."""
    job = msgspec.json.decode(shared, type=StoreJob)
    store = FeatureStore(job.store)
    if store.fingerprint != job.fingerprint:
        raise InputError(f"the store {job.store!r} has changed since the work began; start again")
    return StoreSource(store, job.models)

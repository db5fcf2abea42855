"""The extraction as tasks: some models, and some shards of one domain.

A task writes shards into the store and returns their names and checksums.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from oodzoo.core.errors import InputError
from oodzoo.core.io import file_digest, structured
from oodzoo.data.files import ImageFile, StoredFile, UnreadableImageError, absolute, reading
from oodzoo.extraction.engines import Work, Worker
from oodzoo.extraction.loop import ExtractionLoop
from oodzoo.extraction.models import LoadedModel
from oodzoo.extraction.outcome import Extraction, ExtractionConfig, ExtractionProgress
from oodzoo.extraction.timing import PassTime, Timing
from oodzoo.store.format import MANIFEST
from oodzoo.store.mirror import location, pulled, store_folder
from oodzoo.store.table import segment_file
from oodzoo.store.writer import PlannedShard, StoreWriter, writing
from oodzoo.zoo import Model, ModelSpec
from oodzoo.zoo.preprocessing import Decode
from oodzoo.zoo.sources import local_path
from oodzoo.zoo.spec import by_network

MODELS_PER_TASK = 8
"""Models that share the decoded images of a task."""

SHARDS_PER_TASK = 4
"""So few that a task on a core ends within minutes: progress is known when a task ends."""

SHARDS_PER_GPU_TASK = 128
"""So many that loading the models, in a new process, takes a small part of the time."""

TASKS_PER_SLOT = 4
"""So many tasks let fast workers take over from slow ones."""


class ExtractionJob(msgspec.Struct, frozen=True):
    """What all tasks of an extraction need.

    Attributes
    ----------
    store : str
    segments : dict of str to str
        Digests of the index of images, which every machine must see.
    files : dict of str to StoredFile
        Image files by their SHA-256; paths are absolute.
    models : dict of str to dict
        The specification of each model, its folder included.
    weights : dict of str to str
        The file or folder of each model that has one here.
    """

    store: str
    segments: dict[str, str]
    files: dict[str, StoredFile]
    models: dict[str, dict[str, object]]
    weights: dict[str, str]
    batch_size: int | None
    precision: str
    dtype: str
    on_error: Literal["skip", "fail"]
    decode: Decode


class ModelShards(msgspec.Struct, frozen=True):
    """Models to run, and the shards to run them on; without shards they are only registered."""

    models: list[str]
    domain: str = ""
    shards: list[str] = []
    timed: list[str] = []
    """Models whose forward pass is timed on the CPU: each in one of its tasks."""


class Done(msgspec.Struct, frozen=True):
    """The result of a task; see :class:`~oodzoo.extraction.outcome.Extraction`."""

    written: dict[str, dict[str, str]]
    timings: dict[str, tuple[int, float]]
    pass_times: dict[str, PassTime]
    failed: dict[str, str]
    interrupted: dict[str, str]
    decoded: int
    waiting: float
    running: float
    warnings: list[str]

    def add_to(self, extraction: Extraction) -> None:
        """Add what was done to the outcome of the extraction."""
        for model, shards in self.written.items():
            extraction.written.setdefault(model, {}).update(shards)
        for model, (images, seconds) in self.timings.items():
            timing = extraction.timings.setdefault(model, Timing())
            timing.images += images
            timing.seconds += seconds
        for model, time in self.pass_times.items():
            extraction.add_pass_time(model, time)
        extraction.interrupted |= self.interrupted
        extraction.decoded += self.decoded
        extraction.waiting += self.waiting
        extraction.running += self.running


def describe_job(
    writer: StoreWriter,
    files: Mapping[str, ImageFile],
    specs: Sequence[ModelSpec],
    config: ExtractionConfig,
) -> Work:
    """Describe the extraction for an engine."""
    job = ExtractionJob(
        location(writer.path),
        writer.index.segments,
        {image: absolute(file) for image, file in files.items()},
        {spec.name: {**spec.to_dict(), "folder": str(spec.folder.resolve())} for spec in specs},
        {
            spec.name: str(path.absolute())
            for spec in specs
            if (path := local_path(spec)) is not None and path.exists()
        },
        config.batch_size,
        config.precision,
        config.dtype,
        config.on_error,
        config.decode,
    )
    here = __name__
    return Work(f"{here}:run_task", msgspec.json.encode(job), check=f"{here}:missing_here")


def cut_tasks(
    planned: Sequence[PlannedShard],
    domains: dict[str, str],
    slots: int,
    longest: int = SHARDS_PER_TASK,
    networks: Mapping[str, Hashable] | None = None,
) -> Iterator[ModelShards]:
    """Cut planned shards into tasks, several for each slot, with at most `longest` shards.

    Shards of a task follow each other and belong to one domain; `domains` has that of each image.
    Models with the same value in `networks` are in the same tasks.
    """
    network_of = dict(networks or {})

    def grouped(names: Sequence[str]) -> list[list[str]]:
        return by_network(names, lambda name: network_of.get(name, name))

    models = max((len(grouped(shard.models)) for shard in planned), default=1)
    # Few shards: fewer models in a task, so that there is work for every slot.
    together = min(MODELS_PER_TASK, max(1, models * len(planned) // (TASKS_PER_SLOT * slots)))
    groups = -(-models // together)
    length = max(1, min(longest, len(planned) * groups // (TASKS_PER_SLOT * slots)))
    runs: list[list[PlannedShard]] = []
    last = None
    for shard in planned:
        kind = (domains[shard.images[0]], tuple(shard.models))
        if kind != last or len(runs[-1]) == length:
            runs.append([])
        runs[-1].append(shard)
        last = kind
    # All shards of some models first: a worker then keeps the models that it has loaded.
    for at in range(groups):
        for run in runs:
            some = grouped(run[0].models)[at * together : (at + 1) * together]
            if names := [name for network in some for name in network]:
                yield ModelShards(names, domains[run[0].images[0]], [shard.name for shard in run])


def missing_here(shared: bytes) -> list[str]:
    """List what this machine lacks for an extraction."""
    job = _job(shared)
    try:
        store = pulled(job.store)
    except InputError as error:  # of a URL
        return [str(error)]
    if not (store / MANIFEST).is_file():
        return [f"cannot see the store {job.store!r}; put it on a disk that all machines share"]
    for name, digest in job.segments.items():
        segment = segment_file(store, name)
        if not segment.is_file() or file_digest(segment) != digest:
            other = f"has another store at {job.store!r}"
            return [f"{other}; put the store on a disk that all machines share"]
    if not os.access(store, os.W_OK):
        return [f"cannot write to the store {job.store!r}"]
    files = list(job.files.values())
    for file in files[:: max(1, len(files) // 5)]:
        try:
            with reading(file):
                pass
        except UnreadableImageError as error:
            where = "" if file.remote else "; put the data on a disk that all share"
            return [f"cannot read the image {str(file)!r} ({error}){where}"]
    for name, path in job.weights.items():
        if not os.access(path, os.R_OK):
            return [f"cannot read {path!r} of model {name!r}; put it on a disk that all share"]
    return []


def run_task(shared: bytes, task: bytes, worker: Worker) -> bytes:
    """Extract in this process what a task asks for and the store still lacks."""
    job = _job(shared)
    wanted = msgspec.json.decode(task, type=ModelShards)
    config = ExtractionConfig(
        worker.device,
        job.batch_size,
        job.precision,
        job.dtype,
        job.on_error,
        decode=job.decode,
    )
    extraction = Extraction(store_folder(job.store))
    with warnings.catch_warnings(record=True) as warned, writing(job.store) as writer:
        warnings.simplefilter("always")
        files = {
            image: job.files[image]
            for shard in wanted.shards
            for image in writer.index.shards[shard]
            if image in job.files
        }
        specs = [_spec(job, name) for name in wanted.models]
        progress = ExtractionProgress(models=wanted.models, n_images=len(files))
        memory = _Memory.of(config, wanted.models)
        loop = ExtractionLoop(
            files, writer, config, progress, extraction, load=memory.load, timed=wanted.timed
        )
        for group in loop.load_groups(specs):
            if len(group) < len(specs):
                memory.forget()  # the main memory does not hold all models
            lacking = {loaded.name: writer.records(loaded.name) for loaded in group}
            planned = [
                PlannedShard(shard, writer.index.shards[shard], names)
                for shard in wanted.shards
                if (names := [name for name, done in lacking.items() if shard not in done])
            ]
            loop.extract(group, planned)
            group.clear()
    failed = {name: _on(worker, reason) for name, reason in extraction.failed.items()}
    timings = {name: (each.images, each.seconds) for name, each in extraction.timings.items()}
    return msgspec.json.encode(
        Done(
            extraction.written,
            timings,
            extraction.pass_times,
            failed,
            extraction.interrupted,
            extraction.decoded,
            extraction.waiting,
            extraction.running,
            list(dict.fromkeys(str(each.message) for each in warned)),
        )
    )


def _on(worker: Worker, reason: str) -> str:
    return f"{reason} (on the machine {worker.machine})" if worker.machine else reason


@lru_cache(maxsize=1)
def _job(shared: bytes) -> ExtractionJob:
    return msgspec.json.decode(shared, type=ExtractionJob)


def _spec(job: ExtractionJob, name: str) -> ModelSpec:
    known = dict(job.models[name])
    folder = Path(str(known.pop("folder")))
    spec = structured(known, ModelSpec, f"the description of model {name!r}")
    return replace(spec, folder=folder)


class _Memory:
    """The models that this process has loaded for its last task."""

    last: _Memory | None = None

    def __init__(self, config: ExtractionConfig) -> None:
        self.config = config
        self._loaded: dict[ModelSpec | Model, LoadedModel] = {}

    @classmethod
    def of(cls, config: ExtractionConfig, models: Sequence[str]) -> _Memory:
        """Return the memory for a task; other models are forgotten first."""
        last = cls.last
        if last is None or last.config != config:
            last = cls.last = cls(config)
        last._loaded = {
            spec: loaded for spec, loaded in last._loaded.items() if loaded.name in models
        }
        return last

    def forget(self) -> None:
        self._loaded.clear()

    def load(self, members: Sequence[ModelSpec | Model]) -> list[LoadedModel | InputError]:
        """Load models of one network; together, if one of them is not loaded yet."""
        if not all(member in self._loaded for member in members):
            for member in members:
                self._loaded.pop(member, None)  # frees the memory of the network
            found = self.config.load(members)
            pairs = zip(members, found, strict=True)
            self._loaded |= {
                member: model for member, model in pairs if isinstance(model, LoadedModel)
            }
            return found
        return [self._loaded[member] for member in members]

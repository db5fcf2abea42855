"""The extraction loop: each image is decoded once for all models in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from oodzoo.core.backend import available_memory, default_batch_size
from oodzoo.core.errors import DiskError, InputError
from oodzoo.core.remote.cache import cached_file
from oodzoo.core.remote.objects import RemoteFile
from oodzoo.core.text import file_size, one_line
from oodzoo.data.files import ImageFile, UnreadableImageError, modality_of
from oodzoo.data.listing import REMOTE_READERS
from oodzoo.extraction.forward import (
    Chunk,
    Decoding,
    ForwardJob,
    ForwardResult,
    HashedFile,
    require_finite,
    run_forward,
)
from oodzoo.extraction.models import LoadedModel, member_name, network_of_member
from oodzoo.extraction.outcome import Extraction, ExtractionConfig, ExtractionProgress
from oodzoo.extraction.timing import PassTime, how_on_cpu, how_on_device, time_passes
from oodzoo.store.format import read_local
from oodzoo.store.mirror import free_space
from oodzoo.store.writer import PlannedShard, StoreWriter, as_stored
from oodzoo.zoo import Model, ModelSpec
from oodzoo.zoo.model import network_of
from oodzoo.zoo.spec import by_network


@dataclass(frozen=True)
class _Shard:
    """A shard with missing features; `files` has its images in the data set, by position."""

    name: str
    images: list[str]
    files: dict[int, HashedFile]
    models: list[LoadedModel]

    def n_values(self) -> int:
        """Count the output values of all models."""
        infos = [loaded.model.info for loaded in self.models]
        return len(self.files) * sum(info.feature_dim + (info.n_logits or 0) for info in infos)

    def remote_files(self) -> set[RemoteFile]:
        return {file.remote for file, _ in self.files.values() if file.remote is not None}

    def absent(self, chunk: Chunk) -> dict[int, str | None]:
        """Return the positions without a row: unreadable images, and those not in the data set."""
        problems = {position: str(error) for position, error in chunk.problems.items()}
        return {
            position: problems.get(position)
            for position in range(len(self.images))
            if position in problems or position not in self.files
        }


class _Run(NamedTuple):
    """Models of one network and the decoded images of a shard to run them on."""

    models: list[LoadedModel]
    shard: _Shard
    chunk: Chunk


Load = Callable[[Sequence[ModelSpec | Model]], list[LoadedModel | InputError]]


class ExtractionLoop:
    """Computes shards in this process and counts what was done in `extraction`.

    Parameters
    ----------
    files : dict of str to ImageFile
        Image files by their SHA-256. Other images of a shard get no row.
    writer : StoreWriter
    config : ExtractionConfig
    progress : ExtractionProgress
    extraction : Extraction
    load : callable, optional
        Loads models of one network; for example one that remembers those of the last task.
    timed : collection of str, optional
        Models whose forward pass is timed on the CPU; by default all.
    """

    def __init__(
        self,
        files: Mapping[str, ImageFile],
        writer: StoreWriter,
        config: ExtractionConfig,
        progress: ExtractionProgress,
        extraction: Extraction,
        load: Load | None = None,
        timed: Collection[str] | None = None,
    ) -> None:
        self.files = files
        self.writer = writer
        self.config = config
        self.progress = progress
        self.extraction = extraction
        self._load_network = load or config.load
        self._timed = timed
        self._text: str | None = None
        self._batch_sizes: dict[str, int] = {}

    def load_groups(self, members: Sequence[ModelSpec | Model]) -> Iterator[list[LoadedModel]]:
        """Load models in groups, each as large as half of the free memory allows."""
        group: list[LoadedModel] = []
        taken = 0
        for network in by_network(members, network_of_member):
            loaded = self._load(network)
            if not loaded:
                continue
            size = 8 * (loaded[0].model.info.parameters or 0)
            if group and taken + size > available_memory() / 2:
                yield group
                group, taken = [], 0
            group += loaded
            taken += size
        if group:
            yield group

    def extract(self, group: list[LoadedModel], planned: Sequence[PlannedShard]) -> None:
        """Compute the shards that models of a group lack."""
        plan = self._plan(group, planned)
        self._require_space(plan)
        uses_gpu = not all(loaded.model.on_cpu for loaded in group)
        for result in run_forward(self._jobs(plan, decode_ahead=uses_gpu)):
            self._write_outputs(result)
        self._time_passes([loaded for loaded in group if loaded.model.on_cpu])

    def _load(self, members: Sequence[ModelSpec | Model]) -> list[LoadedModel]:
        """Load models of one network; those that fail are left out."""
        found: Sequence[LoadedModel | Exception]
        try:
            found = self._load_network(members)
        except Exception as error:
            found = [error for _ in members]
        usable = []
        for member, loaded in zip(members, found, strict=True):
            try:
                if isinstance(loaded, Exception):
                    raise loaded
                self._require_modality(loaded.model)
                self.writer.add_model(loaded.name, loaded.record(self.config.dtype))
                usable.append(loaded)
            except DiskError:
                raise
            except Exception as error:
                self._mark_failed(member_name(member), error)
        return usable

    def _require_modality(self, model: Model) -> None:
        """Reject a model that takes texts if the data are images, or the other way round."""
        if self.files and model.modality != (data := modality_of(self.files.values())):
            raise InputError(
                f"model {model.info.name!r} takes {model.modality}s, but the samples are {data}s; "
                f"give models of {data}s"
                + ("" if data == "text" else ", or name a column of texts: --columns text=NAME")
            )

    def _mark_failed(self, name: str, error: Exception) -> None:
        reason = str(error).removeprefix(f"model {name!r}: ")
        if not isinstance(error, InputError):
            reason = f"{type(error).__name__}: {one_line(error)}"
        self.extraction.failed[name] = reason
        self.progress.fail(name, reason)

    def _plan(self, group: list[LoadedModel], planned: Sequence[PlannedShard]) -> list[_Shard]:
        """Find the files of the images and the loaded models of each shard."""
        loaded = {member.name: member for member in group}
        shards = []
        for shard in planned:
            files = {
                position: HashedFile(self.files[image], image)
                for position, image in enumerate(shard.images)
                if image in self.files
            }
            models = [loaded[name] for name in shard.models if name in loaded]
            if models:
                shards.append(_Shard(shard.name, shard.images, files, models))
        return shards

    def _require_space(self, plan: list[_Shard]) -> None:
        size = sum(shard.n_values() for shard in plan) * np.dtype(self.config.dtype).itemsize
        path = self.writer.path
        free = free_space(path)
        if size:
            self.progress.say(f"The store will grow by {file_size(size)}.")
        if free is not None and size > free:
            raise InputError(
                f"the features need {size / 1e6:,.2f} MB, the disk of {str(path)!r} has "
                f"{free / 1e6:,.2f} MB free; choose another disk, fewer models or float16"
            )

    def _jobs(self, plan: list[_Shard], *, decode_ahead: bool) -> Iterator[ForwardJob[_Run]]:
        """Decode shard by shard and yield one job per network.

        With `decode_ahead` the next shard is decoded while the models run. On the CPU that would
        slow down both.
        """
        todo = Fetching(plan, _Shard.remote_files)
        following = self._start_next(todo)
        try:
            while following is not None:
                shard, decoding = following
                chunk = self._finish_decoding(decoding, shard)
                following = self._start_next(todo, wait=False) if decode_ahead else None
                active = self._active_models(shard)
                for together in by_network(active, lambda loaded: network_of(loaded.model)):
                    if chunk is None:
                        break
                    models = [loaded.model for loaded in together]
                    pixels = chunk.pixels[models[0].info.preprocessing.geometry]
                    task, size = _Run(together, shard, chunk), self._batch_size(together[0])
                    yield ForwardJob(task, models, pixels, size, partial(self._report, task))
                if following is None:
                    following = self._start_next(todo)
        finally:
            todo.close()
            if following is not None:
                following[1].cancel()

    def _report(self, task: _Run, n_images: int) -> None:
        models, shard, _ = task
        images = dict.fromkeys((loaded.name for loaded in models), float(n_images))
        self.progress.runs((models[0].name, shard.name), images)

    def _start_next(
        self, todo: Fetching[_Shard], *, wait: bool = True
    ) -> tuple[_Shard, Decoding] | None:
        """Start to decode a shard whose images are here and that has an active model."""
        start = time.perf_counter()
        try:
            while (shard := todo.take(wait=wait)) is not None:
                if self._active_models(shard):
                    return shard, self._start_decoding(shard, todo.failed)
            return None
        finally:
            self.extraction.waiting += time.perf_counter() - start

    def _start_decoding(self, shard: _Shard, failed: Mapping[RemoteFile, InputError]) -> Decoding:
        problems = {
            position: UnreadableImageError(str(failed[remote]), transient=True)
            for position, (file, _) in shard.files.items()
            if (remote := file.remote) is not None and remote in failed
        }
        files = {at: hashed for at, hashed in shard.files.items() if at not in problems}
        geometries = dict.fromkeys(
            loaded.model.info.preprocessing.geometry for loaded in self._active_models(shard)
        )
        return Decoding(files, geometries, problems)

    def _active_models(self, shard: _Shard) -> list[LoadedModel]:
        return [loaded for loaded in shard.models if loaded.name not in self.extraction.failed]

    def _finish_decoding(self, decoding: Decoding, shard: _Shard) -> Chunk | None:
        """Wait for the images of a shard; None if the file of one cannot be read now."""
        start = time.perf_counter()
        chunk = decoding.result()
        self.extraction.waiting += time.perf_counter() - start
        self.extraction.decoded += len(chunk.positions) + len(chunk.problems)
        for position, error in chunk.problems.items():
            if self.config.on_error == "fail":
                raise InputError(f"cannot read {self._path(shard, position)!r}: {error}")
            if error.transient:
                self.extraction.interrupted[self._path(shard, position)] = str(error)
        return None if any(e.transient for e in chunk.problems.values()) else chunk

    def _path(self, shard: _Shard, position: int) -> str:
        image = shard.images[position]
        # The table of a new store is written at the end, by the process that has the data set.
        return self._places[image][1] if image in self._places else str(self.files[image])

    @cached_property
    def _places(self) -> dict[str, tuple[str, str]]:
        return self.writer.table.places()

    def _write_outputs(self, result: ForwardResult[_Run]) -> None:
        """Write the outputs of models for a shard, or mark a model as failed."""
        models, shard, chunk = result.job.tag
        self.progress.runs((models[0].name, shard.name), {})
        paths = [self._path(shard, position) for position in chunk.positions]
        self.extraction.running += result.seconds
        for at, loaded in enumerate(models):
            name = loaded.name
            if name in self.extraction.failed:
                continue
            self._batch_sizes[name] = result.batch_size
            try:
                if result.outputs is None:
                    raise result.error or RuntimeError("no outputs")
                outputs = result.outputs[at]
                require_finite(outputs, loaded.model, paths)
                arrays = {
                    output: as_stored(values, self.config.dtype, name)
                    for output, values in outputs._asdict().items()
                    if values is not None
                }
            except Exception as error:
                self._mark_failed(name, error)
                continue
            seconds = result.seconds_of(at)
            record = self.writer.write_shard(name, shard.name, arrays, shard.absent(chunk))
            self.extraction.add_shard(name, record, len(result.job.pixels), seconds)
            self.progress.advance(name, len(shard.files), seconds)
            pixels = result.job.pixels
            if loaded.model.modality == "text" and len(pixels):
                self._text = sorted(map(str, pixels), key=len)[len(pixels) // 2]
            if not loaded.model.on_cpu and len(pixels):
                fastest = result.fastest or result.seconds / len(pixels)
                how = how_on_device(loaded.device, by_batch=result.fastest is not None)
                time_here = PassTime(1000 * fastest * result.shares[at], how)
                self.extraction.add_pass_time(name, time_here)

    def _time_passes(self, group: Sequence[LoadedModel]) -> None:
        """Time models on the CPU that were not timed on such a processor before."""
        lacking = [
            loaded
            for loaded in group
            if loaded.name not in self.extraction.failed | self.extraction.pass_times
            and (self._timed is None or loaded.name in self._timed)
            and read_local(self.writer.path, loaded.name).get("measured") != how_on_cpu()
        ]
        start = time.perf_counter()
        for together in by_network(lacking, lambda loaded: network_of(loaded.model)):
            models = [loaded.model for loaded in together]
            if models[0].modality == "text" and self._text is None:
                continue
            try:
                times = time_passes(models, self._text)
            except Exception as error:  # the features are there
                self.progress.say(f"model {together[0].name!r} cannot be timed: {one_line(error)}")
                continue
            for loaded, milliseconds in zip(together, times, strict=True):
                self.extraction.add_pass_time(loaded.name, PassTime(milliseconds, how_on_cpu()))
        self.extraction.running += time.perf_counter() - start

    def _batch_size(self, loaded: LoadedModel) -> int:
        if self.config.batch_size is not None:
            return self.config.batch_size
        return self._batch_sizes.get(loaded.name, default_batch_size(loaded.device))


T = TypeVar("T")

AHEAD = 8
"""Groups that are fetched at the same time: while one waits for a slow answer, others arrive."""


class Fetching(Generic[T]):
    """Gives out groups of images when all their files are here, so that decoding never waits.

    A group with a slow file is overtaken by others.

    Parameters
    ----------
    groups : iterable
    files : callable
        Returns the remote files of a group; a group without any is here at once.

    Attributes
    ----------
    failed : dict of RemoteFile to InputError
        Why some files could not be fetched.
    """

    def __init__(self, groups: Iterable[T], files: Callable[[T], Collection[RemoteFile]]) -> None:
        self._groups = iter(groups)
        self._files = files
        self._pool: ThreadPoolExecutor | None = None
        self._arrived: SimpleQueue[T] = SimpleQueue()
        self._under_way = 0
        self._lock = Lock()
        self.failed: dict[RemoteFile, InputError] = {}

    def take(self, *, wait: bool = True) -> T | None:
        """Return a group that is here; None if there are no more or, without `wait`, none yet."""
        while self._under_way < (AHEAD if self._pool is not None else 1):
            group = next(self._groups, None)
            if group is None:
                break
            self._start(group)
        if not self._under_way:
            self.close()
            return None
        try:
            group = self._arrived.get(block=wait)
        except Empty:
            return None
        self._under_way -= 1
        return group

    def close(self) -> None:
        """Cancel what has not started."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self, group: T) -> None:
        self._under_way += 1
        files = set(self._files(group))
        if not files:
            self._arrived.put(group)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(REMOTE_READERS)
        missing = len(files)

        def fetch(file: RemoteFile) -> None:
            nonlocal missing
            try:
                cached_file(file)
                self.failed.pop(file, None)  # it may have failed for another group
            except InputError as error:
                self.failed[file] = error
            finally:
                with self._lock:
                    missing -= 1
                    is_here = not missing
                if is_here:
                    self._arrived.put(group)

        for file in files:
            self._pool.submit(fetch, file)

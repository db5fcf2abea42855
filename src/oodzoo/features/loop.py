"""The extraction loop: each image is decoded once for all models in memory."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from oodzoo._text import one_line
from oodzoo.data.dataset import ImageDomains
from oodzoo.errors import DiskError, InputError
from oodzoo.features.config import Extraction, ExtractionConfig, Reporter
from oodzoo.features.forward import Job, JobResult, require_finite, run_jobs
from oodzoo.features.index import DomainIndex
from oodzoo.features.members import LoadedModel, member_name
from oodzoo.features.pixels import Chunk, Decoding
from oodzoo.features.store import read_local
from oodzoo.features.writer import StoreWriter, as_stored
from oodzoo.zoo import Model, ModelSpec
from oodzoo.zoo.device import available_memory, default_batch_size


@dataclass(frozen=True)
class _Shard:
    """A shard with missing features.

    `skipped` has the unreadable images by position; None if no image of the shard was read before.
    """

    domain: DomainIndex
    number: int
    skipped: dict[int, str] | None
    models: list[LoadedModel]

    @property
    def n_images(self) -> int:
        return self.domain.shards[self.number]

    def path(self, position: int) -> str:
        return self.domain.paths[self.domain.shard_range(self.number)[position]]

    def n_values(self) -> int:
        """Count the output values of all models."""
        infos = [loaded.model.info for loaded in self.models]
        return self.n_images * sum(info.feature_dim + (info.n_logits or 0) for info in infos)


class _Task(NamedTuple):
    """A model and the decoded images of a shard to run it on."""

    loaded: LoadedModel
    shard: _Shard
    chunk: Chunk


@dataclass
class _Timing:
    images: int = 0
    seconds: float = 0.0


class ExtractionLoop:
    """Computes the features that a store lacks and counts what was done in `extraction`."""

    def __init__(
        self,
        dataset: ImageDomains,
        writer: StoreWriter,
        config: ExtractionConfig,
        reporter: Reporter,
    ) -> None:
        self.dataset = dataset
        self.writer = writer
        self.config = config
        self.reporter = reporter
        self.extraction = Extraction(writer.path)
        self._batch_sizes: dict[str, int] = {}
        self._timings: dict[str, _Timing] = {}

    def load_groups(self, members: Sequence[ModelSpec | Model]) -> Iterator[list[LoadedModel]]:
        """Load models in groups, each as large as half of the free memory allows."""
        group: list[LoadedModel] = []
        taken = 0
        for member in members:
            loaded = self._load(member)
            if loaded is None:
                continue
            size = 8 * (loaded.model.info.parameters or 0)
            if group and taken + size > available_memory() / 2:
                yield group
                group, taken = [], 0
            group.append(loaded)
            taken += size
        if group:
            yield group

    def extract(self, group: list[LoadedModel]) -> None:
        """Compute the missing shards of a group of models, and write the manifest."""
        plan = self._plan(group)
        self._require_space(plan)
        uses_gpu = not all(loaded.model.on_cpu for loaded in group)
        for result in run_jobs(self._jobs(plan, decode_ahead=uses_gpu)):
            self._write_outputs(result)
        for loaded in group:
            self._write_local_facts(loaded)
        incomplete = self.writer.finish(self.dataset.fingerprint)
        self.extraction.outdated = [n for n in incomplete if n not in self.extraction.failed]

    def _load(self, member: ModelSpec | Model) -> LoadedModel | None:
        config = self.config
        try:
            loaded = LoadedModel.load(member, device=config.device, precision=config.precision)
            self.writer.add_model(loaded.name, loaded.record(config.dtype))
        except DiskError:
            raise
        except Exception as error:
            self._mark_failed(member_name(member), error)
            return None
        return loaded

    def _mark_failed(self, name: str, error: Exception) -> None:
        reason = one_line(error)
        if not isinstance(error, InputError):
            reason = f"{type(error).__name__}: {reason}"
        self.extraction.failed[name] = reason
        self.reporter.failed(name, reason)

    def _plan(self, group: list[LoadedModel]) -> list[_Shard]:
        """List the shards that some model lacks, ordered by domain and row."""
        plan: dict[tuple[str, int], _Shard] = {}
        for loaded in group:
            missing = self.writer.missing_shards(loaded.name)
            for domain, number in missing:
                key = domain.name, number
                if key not in plan:
                    skipped = self.writer.skipped(domain, number)
                    plan[key] = _Shard(domain, number, skipped, [])
                plan[key].models.append(loaded)
            present = len(self.dataset) - sum(domain.shards[number] for domain, number in missing)
            self.reporter.advance(loaded.name, present, 0.0)
        return [plan[key] for key in sorted(plan)]

    def _require_space(self, plan: list[_Shard]) -> None:
        size = sum(shard.n_values() for shard in plan) * np.dtype(self.config.dtype).itemsize
        path = self.writer.path
        free = shutil.disk_usage(path).free
        if size:
            self.reporter.say(f"The store will grow by {size / 1e6:,.1f} MB.")
        if size > free:
            raise InputError(
                f"the features need {size / 1e6:,.2f} MB, the disk of {str(path)!r} has "
                f"{free / 1e6:,.2f} MB free; choose another disk, fewer models or float16"
            )

    def _jobs(self, plan: list[_Shard], *, decode_ahead: bool) -> Iterator[Job[_Task]]:
        """Decode shard by shard and yield one job per model.

        With `decode_ahead` the next shard is decoded while the models run. On the CPU that would
        slow down both.
        """
        todo = iter(plan)
        following = self._start_next(todo)
        try:
            while following is not None:
                shard, decoding = following
                chunk = self._finish_decoding(decoding, shard)
                following = self._start_next(todo) if decode_ahead else None
                for loaded in self._active_models(shard):
                    pixels = chunk.pixels[loaded.model.info.preprocessing.geometry]
                    task = _Task(loaded, shard, chunk)
                    yield Job(task, loaded.model, pixels, self._batch_size(loaded))
                if not decode_ahead:
                    following = self._start_next(todo)
        finally:
            if following is not None:
                following[1].cancel()

    def _start_next(self, todo: Iterator[_Shard]) -> tuple[_Shard, Decoding] | None:
        """Start to decode the next shard that has an active model."""
        for shard in todo:
            if self._active_models(shard):
                return shard, self._start_decoding(shard)
        return None

    def _start_decoding(self, shard: _Shard) -> Decoding:
        geometries = dict.fromkeys(
            loaded.model.info.preprocessing.geometry for loaded in self._active_models(shard)
        )
        rows = shard.domain.shard_range(shard.number)
        files = {
            position: self.dataset.root / shard.domain.paths[row]
            for position, row in enumerate(rows)
            if position not in (shard.skipped or {})
        }
        return Decoding(files, geometries)

    def _active_models(self, shard: _Shard) -> list[LoadedModel]:
        return [loaded for loaded in shard.models if loaded.name not in self.extraction.failed]

    def _finish_decoding(self, decoding: Decoding, shard: _Shard) -> Chunk:
        start = time.perf_counter()
        chunk = decoding.result()
        self.extraction.waiting += time.perf_counter() - start
        self.extraction.decoded += len(chunk.positions) + len(chunk.problems)
        for position, reason in chunk.problems.items():
            if self.config.on_error == "fail":
                raise InputError(f"cannot read {shard.path(position)!r}: {reason}")
            if shard.skipped is not None:
                raise InputError(
                    f"cannot read {shard.path(position)!r} any more ({reason}), but the store has "
                    "features of it; restore the image and rerun the command"
                )
        if shard.skipped is None:
            self.writer.write_skipped(shard.domain, shard.number, chunk.problems)
        return chunk

    def _write_outputs(self, result: JobResult[_Task]) -> None:
        """Write the outputs of a model for a shard, or mark the model as failed."""
        loaded, shard, chunk = result.job.tag
        name = loaded.name
        if name in self.extraction.failed:
            return
        self._batch_sizes[name] = result.batch_size
        try:
            if result.outputs is None:
                raise result.error or RuntimeError("no outputs")
            require_finite(result.outputs, loaded.model, [shard.path(p) for p in chunk.positions])
            arrays = {
                output: as_stored(values, self.config.dtype, name)
                for output, values in result.outputs._asdict().items()
                if values is not None
            }
        except Exception as error:
            self._mark_failed(name, error)
            return
        self.writer.write_shard(name, shard.domain, shard.number, arrays)
        self.extraction.running += result.seconds
        self.extraction.shards += 1
        timing = self._timings.setdefault(name, _Timing())
        timing.images += len(result.job.pixels)
        timing.seconds += result.seconds
        self.reporter.advance(name, shard.n_images, result.seconds)

    def _batch_size(self, loaded: LoadedModel) -> int:
        if self.config.batch_size is not None:
            return self.config.batch_size
        return self._batch_sizes.get(loaded.name, default_batch_size(loaded.device))

    def _write_local_facts(self, loaded: LoadedModel) -> None:
        facts: dict[str, Any] = loaded.location()
        timing = self._timings.get(loaded.name)
        if timing is not None and timing.images:
            before = read_local(self.writer.path).get(loaded.name, {})
            seconds = before.get("seconds", 0.0) + timing.seconds
            images = before.get("images", 0) + timing.images
            facts |= {"seconds": seconds, "images": images}
            facts["milliseconds_per_image"] = 1000 * seconds / images
        self.writer.update_local(loaded.name, facts)

"""The loop from images to features: every image is decoded once for all models in memory."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from oodzoo._text import one_line
from oodzoo.data.dataset import ImageDomains
from oodzoo.errors import DiskError, InputError
from oodzoo.features.forward import Done, Job, require_finite, run_jobs
from oodzoo.features.index import DomainIndex
from oodzoo.features.pixels import Chunk, Decoding
from oodzoo.features.store import FeatureStore, read_local
from oodzoo.features.writer import DTYPES, StoreWriter, as_stored, writing
from oodzoo.zoo import Model, ModelInfo, ModelSpec, load_model, load_zoo
from oodzoo.zoo.device import available_memory, default_batch_size, require_device, resolve_device
from oodzoo.zoo.spec import require_unique_names, verified_file


class Reporter(Protocol):
    """Told how an extraction goes on."""

    def start(self, models: Sequence[str], n_images: int) -> None:
        """Before the first model is loaded."""

    def say(self, message: str) -> None:
        """Something worth a line."""

    def advance(self, model: str, n_images: int, seconds: float) -> None:
        """Images of a model are on disk; with no seconds they were there already."""

    def failed(self, model: str, reason: str) -> None:
        """A model is given up; the others go on."""


class Silent:
    """A reporter that says nothing."""

    def start(self, models: Sequence[str], n_images: int) -> None: ...
    def say(self, message: str) -> None: ...
    def advance(self, model: str, n_images: int, seconds: float) -> None: ...
    def failed(self, model: str, reason: str) -> None: ...


@dataclass
class Extraction:
    """What an extraction did."""

    path: Path
    failed: dict[str, str] = field(default_factory=dict)
    """Models that were given up, and why."""
    outdated: list[str] = field(default_factory=list)
    """Models of the store that lack images which this run added; the zoo did not name them."""
    decoded: int = 0
    """Images read and decoded in this run, each counted as often as it was."""
    shards: int = 0
    """Shards written in this run."""
    waiting: float = 0.0
    """Seconds the models waited for images."""
    running: float = 0.0
    """Seconds spent in forward passes."""

    @property
    def limit(self) -> str:
        """What more speed would have to come from."""
        return "decode" if self.waiting > self.running else "forward"


@dataclass(frozen=True)
class Settings:
    """How to extract; see :func:`extract`."""

    device: str = "auto"
    batch_size: int | None = None
    precision: str = "float32"
    dtype: str = "float32"
    on_error: Literal["skip", "fail"] = "skip"

    def __post_init__(self) -> None:
        require_device(self.device)
        if self.batch_size is not None and not isinstance(self.batch_size, int):
            raise InputError(f"the batch size must be a number, and is {self.batch_size!r}")
        for key, known in (
            ("precision", ("float32", "bfloat16", "float16")),
            ("dtype", DTYPES),
            ("on_error", ("skip", "fail")),
        ):
            if getattr(self, key) not in known:
                raise InputError(f"{key} is {getattr(self, key)!r}; known are {', '.join(known)}")
        if self.batch_size is not None and self.batch_size < 1:
            raise InputError(f"the batch size must be at least 1, and is {self.batch_size}")


def extract(
    dataset: ImageDomains | str | Path,
    zoo: str | Path | Sequence[str | ModelSpec | Model],
    store: str | Path,
    *,
    device: str = "auto",
    batch_size: int | None = None,
    precision: str = "float32",
    dtype: str = "float32",
    on_error: Literal["skip", "fail"] = "skip",
) -> FeatureStore:
    """Extract the features of every image with every model of a zoo into a store.

    Only what the store lacks is computed: after an interruption the same call finishes the work,
    and models, images or domains can be added later.

    Parameters
    ----------
    dataset : ImageDomains or path
        What :class:`oodzoo.ImageDomains` takes.
    zoo : str, path or sequence
        What :func:`oodzoo.load_zoo` takes or gives; models that are loaded already may be in it.
    store : path
        The folder of the store.
    device : str, default "auto"
        "cpu", "cuda", "cuda:1", "mps"; "auto" takes the fastest there is.
    batch_size : int, optional
        Images in one forward pass; by default chosen for the device.
    precision : {"float32", "bfloat16", "float16"}
        In which PyTorch models compute.
    dtype : {"float32", "float16"}
        In which features are stored.
    on_error : {"skip", "fail"}
        Whether an unreadable image is left out and recorded, or ends the extraction.

    Returns
    -------
    FeatureStore
        A model that failed is missing there; a warning says why.
    """
    dataset = dataset if isinstance(dataset, ImageDomains) else ImageDomains(dataset)
    settings = Settings(device, batch_size, precision, dtype, on_error)
    extraction = run_extraction(dataset, zoo, Path(store), settings)
    for name, reason in extraction.failed.items():
        warnings.warn(f"model {name!r} is left out: {reason}", stacklevel=2)
    if extraction.outdated:
        warnings.warn(_outdated(extraction.outdated), stacklevel=2)
    return FeatureStore(store)


def run_extraction(
    dataset: ImageDomains,
    zoo: str | Path | Sequence[str | ModelSpec | Model],
    path: Path,
    settings: Settings,
    reporter: Reporter | None = None,
) -> Extraction:
    """Do what :func:`extract` does, tell a reporter about it, and say what was done."""
    members = _members(zoo)
    with writing(path) as writer:
        run = _Run(dataset, writer, settings, reporter or Silent())
        run.reporter.start([_name(m) for m in members], len(dataset))
        writer.grow(dataset)
        for group in run.groups(members):
            run.extract(group)
            group.clear()  # their memory is for the next ones
    done = run.extraction
    if len(done.failed) == len(members):
        name, reason = next(iter(done.failed.items()))
        raise InputError(f"no model could be used; the first, {name!r}: {reason}")
    if not FeatureStore(path).n_images:
        first, reason = next(iter(FeatureStore(path).skipped.items()))
        raise InputError(f"none of the images can be read; the first, {first!r}: {reason}")
    return done


def _members(zoo: str | Path | Sequence[str | ModelSpec | Model]) -> list[ModelSpec | Model]:
    members: list[ModelSpec | Model] = []
    for given in [zoo] if isinstance(zoo, str | Path | ModelSpec | Model) else zoo:
        if not isinstance(given, str | Path | ModelSpec | Model):
            raise InputError(
                f"{given!r} is no model; make one of a function with "
                "oodzoo.zoo.callable.model_from_callable"
            )
        members += load_zoo(given) if isinstance(given, str | Path) else [given]
    if not members:
        raise InputError("the zoo is empty; give at least one model")
    require_unique_names([_name(m) for m in members], "the zoo")
    return members


def _outdated(names: Sequence[str]) -> str:
    return (
        f"{', '.join(names)}: in the store, but not for the images that were added now, and so "
        "left out; run again with a zoo that names them"
    )


@dataclass(frozen=True)
class _Member:
    """A loaded model and what the zoo says of it."""

    model: Model
    spec: ModelSpec | None

    @property
    def name(self) -> str:
        return self.model.info.name

    def record(self, settings: Settings) -> dict[str, Any]:
        """What goes into the store; nothing in it depends on where the model lies."""
        info = self.model.info
        source = "python" if self.spec is None else self.spec.source
        precision = settings.precision
        if self.spec is not None and self.spec.kind == "onnx":
            source = f"onnx/{self.spec.file.name}"
            precision = _ONNX_PRECISION
        return {
            "source": source,
            "fingerprint": info.fingerprint,
            "feature_dim": info.feature_dim,
            "n_logits": info.n_logits,
            "parameters": info.parameters,
            "pretraining": info.pretraining,
            "precision": precision,
            "dtype": settings.dtype,
            "preprocessing": info.preprocessing.to_json(),
            "spec": None if self.spec is None else _resolved(self.spec, info),
        }


def _resolved(spec: ModelSpec, info: ModelInfo) -> dict[str, Any]:
    """Fields of a spec with which the model loads again; see :class:`StoredModel`."""
    features, logits = (*info.outputs, None, None)[:2]
    return {
        "input_size": spec.input_size,
        "mean": spec.mean,
        "std": spec.std,
        "features": features,
        "logits": logits,
        "sha256": verified_file(spec)[1] if spec.kind == "onnx" else None,
    }


_ONNX_PRECISION = "float32"  # of what goes in and out; inside, an ONNX file is as it is


class _Run:
    def __init__(
        self, dataset: ImageDomains, writer: StoreWriter, settings: Settings, reporter: Reporter
    ) -> None:
        self.dataset = dataset
        self.writer = writer
        self.settings = settings
        self.reporter = reporter
        self.extraction = Extraction(writer.path)
        self._batch_sizes: dict[str, int] = {}
        self._spent: dict[str, float] = {}
        self._computed: dict[str, int] = {}

    def groups(self, members: Sequence[ModelSpec | Model]) -> Iterator[list[_Member]]:
        """Load as many models at a time as half of the free memory holds."""
        group: list[_Member] = []
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

    def _load(self, member: ModelSpec | Model) -> _Member | None:
        try:
            if isinstance(member, Model):
                loaded = _Member(member, None)
            else:
                device = resolve_device(self.settings.device, member.kind)
                precision = _ONNX_PRECISION if member.kind == "onnx" else self.settings.precision
                model = load_model(member, device=device, precision=precision)
                loaded = _Member(model, member)
            self.writer.add_model(loaded.name, loaded.record(self.settings))
        except DiskError:
            raise
        except Exception as error:
            self._give_up(_name(member), error)
            return None
        return loaded

    def _give_up(self, name: str, error: Exception) -> None:
        reason = one_line(error)
        if not isinstance(error, InputError):
            reason = f"{type(error).__name__}: {reason}"
        self.extraction.failed[name] = reason
        self.reporter.failed(name, reason)

    def extract(self, group: list[_Member]) -> None:
        """Compute the shards that the models of a group lack, shard by shard."""
        plan = self._plan(group)
        self._require_space(plan)
        elsewhere = not all(member.model.on_cpu for member in group)
        for done in run_jobs(self._jobs(plan, decode_ahead=elsewhere)):
            self._keep(done)
        for member in group:
            self._note(member)
        incomplete = self.writer.finish(self.dataset.fingerprint)
        self.extraction.outdated = [n for n in incomplete if n not in self.extraction.failed]

    def _jobs(self, plan: list[_Shard], *, decode_ahead: bool) -> Iterator[Job[_Task]]:
        """What each model has to do.

        The next shard can be decoded while this one is at work. Where the models run on the same
        cores as the decoding that only makes both slower.
        """
        todo = iter(plan)
        ahead = self._start(todo)
        try:
            while ahead is not None:
                shard, decoding = ahead
                chunk = self._wait(decoding, shard)
                ahead = self._start(todo) if decode_ahead else None
                for member in self._active(shard):
                    pixels = chunk.pixels[member.model.info.preprocessing.geometry]
                    task = _Task(member, shard, chunk)
                    yield Job(task, member.model, pixels, self._batch_size(member))
                if not decode_ahead:
                    ahead = self._start(todo)
        finally:
            if ahead is not None:
                ahead[1].abandon()

    def _plan(self, group: list[_Member]) -> list[_Shard]:
        """The shards that some model lacks, in the order of domains and rows."""
        lacking: dict[tuple[str, int], _Shard] = {}
        for member in group:
            missing = self.writer.missing_shards(member.name)
            for domain, number in missing:
                key = domain.name, number
                if key not in lacking:
                    known = self.writer.skipped(domain, number)
                    lacking[key] = _Shard(domain, number, known, [])
                lacking[key].lacking.append(member)
            there = len(self.dataset) - sum(domain.shards[number] for domain, number in missing)
            self.reporter.advance(member.name, there, 0.0)
        return [lacking[key] for key in sorted(lacking)]

    def _require_space(self, plan: list[_Shard]) -> None:
        width = {"float32": 4, "float16": 2}[self.settings.dtype]
        size = sum(shard.values() for shard in plan) * width
        path = self.writer.path
        free = shutil.disk_usage(path).free
        if size:
            self.reporter.say(f"The store will grow by {size / 1e6:,.1f} MB.")
        if size > free:
            raise InputError(
                f"the features need {size / 1e6:,.2f} MB and the disk of {str(path)!r} has "
                f"{free / 1e6:,.2f} MB free; choose another disk, fewer models or float16"
            )

    def _start(self, todo: Iterator[_Shard]) -> tuple[_Shard, Decoding] | None:
        """Begin to decode the next shard that a model still wants."""
        for shard in todo:
            if self._active(shard):
                return shard, self._decode(shard)
        return None

    def _decode(self, shard: _Shard) -> Decoding:
        geometries = dict.fromkeys(
            member.model.info.preprocessing.geometry for member in self._active(shard)
        )
        rows = shard.domain.shard_range(shard.number)
        files = {
            at: self.dataset.root / shard.domain.paths[row]
            for at, row in enumerate(rows)
            if at not in (shard.skipped or {})
        }
        return Decoding(files, geometries)

    def _active(self, shard: _Shard) -> list[_Member]:
        return [m for m in shard.lacking if m.name not in self.extraction.failed]

    def _wait(self, decoding: Decoding, shard: _Shard) -> Chunk:
        start = time.perf_counter()
        chunk = decoding.result()
        self.extraction.waiting += time.perf_counter() - start
        self.extraction.decoded += len(chunk.positions) + len(chunk.problems)
        for at, reason in chunk.problems.items():
            if self.settings.on_error == "fail":
                raise InputError(f"cannot read {shard.path(at)!r}: {reason}")
            if shard.skipped is not None:
                raise InputError(
                    f"cannot read {shard.path(at)!r} any more ({reason}), though other models "
                    "have its features; put the image back and run the same command again"
                )
        if shard.skipped is None:
            self.writer.skip(shard.domain, shard.number, chunk.problems)
        return chunk

    def _keep(self, done: Done[_Task]) -> None:
        """Write what came out of a model for a shard, or give the model up."""
        member, shard, chunk = done.job.tag
        if member.name in self.extraction.failed:
            return
        self._batch_sizes[member.name] = done.batch_size
        try:
            if done.outputs is None:
                raise done.error or RuntimeError("no outputs")
            require_finite(done.outputs, member.model, [shard.path(at) for at in chunk.positions])
            arrays = {
                name: as_stored(values, self.settings.dtype, member.name)
                for name, values in done.outputs._asdict().items()
                if values is not None
            }
        except Exception as error:
            self._give_up(member.name, error)
            return
        self.writer.write_shard(member.name, shard.domain, shard.number, arrays)
        self.extraction.running += done.seconds
        self.extraction.shards += 1
        self._spent[member.name] = self._spent.get(member.name, 0.0) + done.seconds
        self._computed[member.name] = self._computed.get(member.name, 0) + len(done.job.pixels)
        self.reporter.advance(member.name, shard.domain.shards[shard.number], done.seconds)

    def _batch_size(self, member: _Member) -> int:
        if self.settings.batch_size is not None:
            return self.settings.batch_size
        kind = "python" if member.spec is None else member.spec.kind
        chosen = default_batch_size(resolve_device(self.settings.device, kind))
        return self._batch_sizes.get(member.name, chosen)

    def _note(self, member: _Member) -> None:
        facts: dict[str, Any] = {}
        if computed := self._computed.get(member.name):
            before = read_local(self.writer.path).get(member.name, {})
            seconds = before.get("seconds", 0.0) + self._spent[member.name]
            images = before.get("images", 0) + computed
            facts = {"seconds": seconds, "images": images}
            facts["milliseconds_per_image"] = 1000 * seconds / images
        if member.spec is not None:
            facts["source"] = member.spec.source
            facts["folder"] = str(member.spec.folder.resolve())
        self.writer.note_locally(member.name, facts)


@dataclass(frozen=True)
class _Shard:
    """A shard that some models lack; `skipped` is None where nobody has looked at its images."""

    domain: DomainIndex
    number: int
    skipped: dict[int, str] | None
    lacking: list[_Member]

    def path(self, position: int) -> str:
        return self.domain.paths[self.domain.shard_range(self.number)[position]]

    def values(self) -> int:
        """How many numbers the outputs of the models have."""
        infos = [member.model.info for member in self.lacking]
        return self.domain.shards[self.number] * sum(
            info.feature_dim + (info.n_logits or 0) for info in infos
        )


class _Task(NamedTuple):
    """Whose images a model runs over."""

    member: _Member
    shard: _Shard
    chunk: Chunk


def _name(member: ModelSpec | Model) -> str:
    return member.info.name if isinstance(member, Model) else member.name

"""Options and outcome of an extraction, and its events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, TypedDict

from oodzoo.core.backend import require_device, require_present
from oodzoo.core.errors import InputError
from oodzoo.core.events import Listeners, Stage, advance
from oodzoo.core.options import parse_devices
from oodzoo.extraction.models import LoadedModel
from oodzoo.extraction.timing import PassTime, Timing
from oodzoo.store.format import read_local
from oodzoo.store.shards import Shard
from oodzoo.store.writer import DTYPES, update_local
from oodzoo.zoo import Model, ModelSpec
from oodzoo.zoo.preprocessing import DECODE, Decode
from oodzoo.zoo.prompts import Prompts
from oodzoo.zoo.torch_model import PRECISIONS


@dataclass
class Extraction:
    """Outcome of an extraction.

    Attributes
    ----------
    failed : dict of str to str
        Why each model that failed was skipped.
    outdated : list of str
        Models in the store that are not in the zoo and lack the images added by this run.
    unreadable : dict of str to str
        Why image files could not be read at all, by path. They are not in the store.
    interrupted : dict of str to str
        Why image files could not be read, or had changed, after they were listed. The shards with
        these images are not in the store.
    decoded : int
        Number of images read and decoded in this run; an image decoded twice counts twice.
    written : dict of str to dict of str to str
        SHA-256 of the features of each shard written in this run, by model.
    timings : dict of str to Timing
    pass_times : dict of str to PassTime
    embedded : list of str
        Models whose text tower has embedded the classes in this run.
    without_texts : dict of str to str
        Why models with a text tower have no class embeddings.
    waiting, running : float
        Seconds that the models waited for images, and seconds spent in forward passes.
    """

    path: Path
    failed: dict[str, str] = field(default_factory=dict)
    outdated: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    interrupted: dict[str, str] = field(default_factory=dict)
    decoded: int = 0
    written: dict[str, dict[str, str]] = field(default_factory=dict)
    timings: dict[str, Timing] = field(default_factory=dict)
    pass_times: dict[str, PassTime] = field(default_factory=dict)
    embedded: list[str] = field(default_factory=list)
    without_texts: dict[str, str] = field(default_factory=dict)
    waiting: float = 0.0
    running: float = 0.0

    @property
    def shards(self) -> int:
        """Number of shards written in this run."""
        return sum(map(len, self.written.values()))

    def add_shard(self, model: str, record: Shard, images: int, seconds: float) -> None:
        """Count a shard that was written."""
        self.written.setdefault(model, {})[record.shard] = record.features.sha256
        timing = self.timings.setdefault(model, Timing())
        timing.images += images
        timing.seconds += seconds

    def add_pass_time(self, model: str, time: PassTime) -> None:
        """Take another measurement of a model."""
        self.pass_times[model] = time.after(self.pass_times.get(model))

    @property
    def bottleneck(self) -> Literal["decoding", "inference"]:
        """The step that took longer."""
        return "decoding" if self.waiting > self.running else "inference"

    def warnings(self) -> list[str]:
        """Describe, one line each, what the finished store lacks."""
        found = [f"model {name!r} is left out: {reason}" for name, reason in self.failed.items()]
        if self.outdated:
            found.append(
                f"{', '.join(self.outdated)}: left out, without features of the images added now; "
                "run again with a zoo that includes them"
            )
        for name, reason in self.without_texts.items():
            found.append(f"model {name!r} has no zero-shot predictions: {reason}")
        return found


class ExtractionOptions(TypedDict, total=False):
    precision: str
    dtype: str
    on_error: Literal["skip", "fail"]
    decode: Decode
    engine: str
    address: str | None


@dataclass(frozen=True)
class ExtractionConfig:
    """Options of an extraction; see :func:`extract`."""

    device: str = "auto"
    batch_size: int | None = None
    precision: str = "float32"
    dtype: str = "float32"
    on_error: Literal["skip", "fail"] = "skip"
    prompts: Prompts = field(default_factory=Prompts)
    decode: Decode = "reduced"

    def __post_init__(self) -> None:
        devices = parse_devices(self.device)
        for device in devices:
            require_device(device)
        for device in devices if len(devices) > 1 else ():
            require_present(device)
        object.__setattr__(self, "device", ",".join(devices))  # of "all"
        if self.batch_size is not None and (
            not isinstance(self.batch_size, int) or self.batch_size < 1
        ):
            raise InputError(
                f"batch_size must be an integer of at least 1, got {self.batch_size!r}"
            )
        for key, known in (
            ("precision", PRECISIONS),
            ("dtype", DTYPES),
            ("on_error", ("skip", "fail")),
            ("decode", DECODE),
        ):
            if getattr(self, key) not in known:
                raise InputError(
                    f"unknown {key} {getattr(self, key)!r}; expected one of {', '.join(known)}"
                )

    def load(self, members: Sequence[ModelSpec | Model]) -> list[LoadedModel | InputError]:
        """Load models of one network on the device; in place of one that fails, an error."""
        return LoadedModel.load(
            members, device=self.device, precision=self.precision, decode=self.decode
        )


STAGE = "extraction"


class ExtractionProgress(Stage):
    """Counts the images of each model and emits the events of an extraction.

    Parameters
    ----------
    listener : Listener or sequence of Listener, optional
    models : sequence of str
    n_images : int
        Images that each model is to be run on.
    costs : dict of str to float
        Expected time per image of models for which it is known, in any unit.
    """

    def __init__(
        self,
        listener: Listeners | None = None,
        models: Sequence[str] = (),
        n_images: int = 0,
        costs: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(listener, STAGE, models=list(models), images=n_images)
        self._models = list(models)
        self._n_images = n_images
        self._total = len(models) * n_images
        self._done: Counter[str] = Counter()
        self._running: dict[Hashable, dict[str, float]] = {}  # images of tasks that are not done
        self._expected = dict(costs or {})
        self._timed: dict[str, Timing] = {}
        self._at = (0, self._total)

    def advance(self, model: str, n_images: int, seconds: float) -> None:
        """Features of more images have been written to disk."""
        self._done[model] = min(self._done[model] + n_images, self._n_images)
        if seconds:
            timing = self._timed.setdefault(model, Timing())
            timing.images += n_images
            timing.seconds += seconds
        self._emit(model=model, images=n_images, seconds=seconds)

    def runs(self, task: Hashable, images: Mapping[str, float]) -> None:
        """So many images of models are done in a task, but not on disk yet; none at its end."""
        if images:
            self._running[task] = dict(images)
            self._report()
        else:
            self._running.pop(task, None)

    def has(self, model: str, n_images: int) -> None:
        """Features of so many images need not be computed here."""
        if (new := n_images - self._done[model]) > 0:
            self.advance(model, new, 0.0)

    def fail(self, model: str, reason: str) -> None:
        """A model failed and is skipped; the others continue."""
        self.leave(model)
        self._emit(model=model, failed=reason)

    def leave(self, model: str) -> None:
        """No more images of a model will be done."""
        self._done[model] = self._n_images

    def measured(self, model: str, milliseconds: float) -> None:
        """The time of a forward pass, per image, is known."""
        self.events.metric(STAGE, f"{model}/milliseconds_per_image", milliseconds)

    def _emit(self, **facts: Any) -> None:
        self._at = (self._done.total(), self._total)
        self._report()
        super()._emit(**facts)

    def _report(self) -> None:
        """Report the share of the work that is done: images, times the cost of their model."""
        if not self._total:
            return
        known = {name: each.seconds / each.images for name, each in self._timed.items()}
        usual = fmean(known.values() or self._expected.values() or [1.0])
        both = [name for name in known if self._expected.get(name)]
        unit = fmean(known[name] / self._expected[name] for name in both) if both else 1.0
        done = 0.0
        costs = {
            name: known.get(name) or unit * self._expected.get(name, 0.0) or usual
            for name in self._models
        }
        for name, cost in costs.items():
            running = sum(images.get(name, 0.0) for images in self._running.values())
            done += cost * min(self._done[name] + running, self._n_images)
        share = done / (sum(costs.values()) * self._n_images)
        self.whole.reach(share)
        advance(share, 1)  # of the task, in a worker


class Timings:
    """Adds the timings of an extraction to those of earlier ones.

    Several processes may do so for the same store; each adds what is new since it last did.
    """

    def __init__(self, path: Path, extraction: Extraction, progress: ExtractionProgress) -> None:
        self._path = path
        self._extraction = extraction
        self._progress = progress
        self._saved: dict[str, Timing] = {}

    def known(self, model: str) -> Timing:
        """Return what a model has taken in all extractions into this store."""
        facts, new = read_local(self._path, model), self._new(model)
        return Timing(facts.get("images", 0) + new.images, facts.get("seconds", 0) + new.seconds)

    def save(self, model: str, member: ModelSpec | Model) -> None:
        """Write the timing of a model, if it has run, and its location."""
        known_facts = read_local(self._path, model)
        facts: dict[str, Any] = {}
        if isinstance(member, ModelSpec):
            facts |= {"source": member.source, "folder": str(member.folder.resolve())}
        if self._new(model).images:
            known = self.known(model)
            facts |= {"seconds": known.seconds, "images": known.images}
            self._saved[model] = replace(self._extraction.timings[model])
        if (found := self._extraction.pass_times.get(model)) is not None:
            earlier = None
            if (milliseconds := known_facts.get("milliseconds_per_image")) is not None:
                earlier = PassTime(milliseconds, known_facts.get("measured", ""))
            found = found.after(earlier)
            facts |= {"milliseconds_per_image": found.milliseconds, "measured": found.measured}
            if found != earlier:
                self._progress.measured(model, found.milliseconds)
        if known_facts | facts != known_facts:  # other processes may write it, too
            update_local(self._path, model, facts)

    def _new(self, model: str) -> Timing:
        now = self._extraction.timings.get(model, Timing())
        before = self._saved.get(model, Timing())
        return Timing(now.images - before.images, now.seconds - before.seconds)

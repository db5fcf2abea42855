"""Options and outcome of an extraction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from oodzoo.core.errors import InputError
from oodzoo.extraction.engines.choice import parse_devices
from oodzoo.extraction.members import LoadedModel
from oodzoo.store.shards import Shard
from oodzoo.store.writer import DTYPES
from oodzoo.zoo import Model, ModelSpec
from oodzoo.zoo.device import require_device, require_present
from oodzoo.zoo.prompts import Prompts
from oodzoo.zoo.torch_model import PRECISIONS


@dataclass
class Timing:
    """Images that a model was run on, and the seconds that it took."""

    images: int = 0
    seconds: float = 0.0


class PassTime(NamedTuple):
    """Milliseconds per image of a forward pass, and how they were measured."""

    milliseconds: float
    measured: str

    def after(self, earlier: PassTime | None) -> PassTime:
        """The time known after an earlier one: the least, if both were measured in one way."""
        same = earlier is not None and earlier.measured == self.measured
        return min(self, earlier) if same and earlier is not None else self


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


@dataclass(frozen=True)
class ExtractionConfig:
    """Options of an extraction; see :func:`extract`."""

    device: str = "auto"
    batch_size: int | None = None
    precision: str = "float32"
    dtype: str = "float32"
    on_error: Literal["skip", "fail"] = "skip"
    prompts: Prompts = field(default_factory=Prompts)

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
        ):
            if getattr(self, key) not in known:
                raise InputError(
                    f"unknown {key} {getattr(self, key)!r}; expected one of {', '.join(known)}"
                )

    def load(self, members: Sequence[ModelSpec | Model]) -> list[LoadedModel | InputError]:
        """Load models of one network on the device; in place of one that fails, an error."""
        return LoadedModel.load(members, device=self.device, precision=self.precision)

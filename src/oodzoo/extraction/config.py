"""Options and outcome of an extraction, and its models: resolved, loaded, recorded."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

from oodzoo.core.backend import require_device, require_present, resolve_device
from oodzoo.core.errors import InputError
from oodzoo.core.io import structured
from oodzoo.core.options import parse_devices
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.format import ModelRecord, StoredModel
from oodzoo.store.shards import Shard
from oodzoo.store.writer import DTYPES
from oodzoo.zoo import Model, ModelInfo, ModelSpec, load_zoo
from oodzoo.zoo.layers import expand_layers
from oodzoo.zoo.model import network_of
from oodzoo.zoo.prompts import Prompts
from oodzoo.zoo.sources import get_source, load_network, packages_of, portable_source
from oodzoo.zoo.spec import network_key, require_unique_names, verified_file
from oodzoo.zoo.torch_model import PRECISIONS

Zoo = str | Path | Sequence[str | ModelSpec | Model]
"""What :func:`oodzoo.load_zoo` accepts or returns, or a sequence of specs and loaded models."""


def resolve_zoo(zoo: Zoo) -> list[ModelSpec | Model]:
    """List the models of a zoo; the names are unique."""
    members: list[ModelSpec | Model] = []
    for item in [zoo] if isinstance(zoo, str | Path | ModelSpec | Model) else zoo:
        if not isinstance(item, str | Path | ModelSpec | Model):
            raise InputError(
                f"{item!r} is not a model; wrap a function with "
                "oodzoo.zoo.callable.model_from_callable"
            )
        if isinstance(item, str | Path):
            members += load_zoo(item)
        else:
            members += [item] if isinstance(item, Model) else expand_layers(item, "the zoo")
    if not members:
        raise InputError("the zoo is empty; give at least one model")
    require_unique_names([member_name(member) for member in members], "the zoo")
    return members


def member_name(member: ModelSpec | Model) -> str:
    return member.info.name if isinstance(member, Model) else member.name


def network_of_member(member: ModelSpec | Model) -> Hashable:
    """Identify the network of a model; models of one network are loaded together."""
    return network_of(member) if isinstance(member, Model) else network_key(member)


@dataclass(frozen=True)
class LoadedModel:
    """A loaded model and its spec; the spec is None for a model that was passed already loaded."""

    model: Model
    spec: ModelSpec | None
    precision: str
    device: str

    @classmethod
    def load(
        cls, members: Sequence[ModelSpec | Model], *, device: str, precision: str
    ) -> list[LoadedModel | InputError]:
        """Load models of one network; in place of one that fails, an error."""
        loaded = [member for member in members if isinstance(member, Model)]
        if loaded:
            device = resolve_device(device, "python")
            return [cls(model, None, precision, device) for model in loaded]
        specs = [member for member in members if isinstance(member, ModelSpec)]
        device = resolve_device(device, specs[0].kind)
        precision = get_source(specs[0].kind).precision or precision
        models = load_network(specs, device=device, precision=precision)
        return [
            model if isinstance(model, InputError) else cls(model, spec, precision, device)
            for spec, model in zip(specs, models, strict=True)
        ]

    @property
    def name(self) -> str:
        return self.model.info.name

    def record(self, dtype: str) -> ModelRecord:
        """Describe the model for a store whose features have this dtype, independent of place."""
        info, spec = self.model.info, self.spec
        return ModelRecord(
            source="python" if spec is None else portable_source(spec),
            fingerprint=info.fingerprint,
            feature_dim=info.feature_dim,
            n_logits=info.n_logits,
            parameters=info.parameters,
            pretraining=info.pretraining,
            precision=self.precision,
            dtype=dtype,
            preprocessing=asdict(info.preprocessing),
            licence=info.licence,
            spec=None if spec is None else _resolved_spec(spec, info),
            versions=_versions("" if spec is None else spec.kind),
        )

    def location(self) -> dict[str, str]:
        """Source and folder of the model on this machine; empty if it was passed loaded."""
        if self.spec is None:
            return {}
        return {"source": self.spec.source, "folder": str(self.spec.folder.resolve())}


def find_spec(store: FeatureStore, stored: StoredModel, zoo: Sequence[ModelSpec]) -> ModelSpec:
    """Find the model that computed features of a store.

    The location is that in the zoo, else the one that the store recorded; everything else is as
    the store recorded it. The files are not verified.
    """
    spec = next((spec for spec in zoo if spec.name == stored.name), None)
    if stored.spec is None:
        if spec is None:
            raise InputError(
                f"the store {store.location!r} does not record how model {stored.name!r} is "
                "loaded; give the zoo it came from (--zoo, or zoo=)"
            )
        return spec
    spec = spec or _recorded_location(store, stored.name)
    # Not recorded means not set; a model of that name in the zoo may be built in another way.
    stated = replace(
        spec, pretrained=None, arguments=None, geometry=None, layer=None, pooling=None
    ).to_dict()
    recorded = {**stated, **stored.spec}
    what = f"the manifest of the store {store.location!r}"
    return replace(structured(recorded, ModelSpec, what), folder=spec.folder)


def _recorded_location(store: FeatureStore, name: str) -> ModelSpec:
    recorded = store.local(name)
    source, folder = recorded.get("source"), recorded.get("folder")
    if not isinstance(source, str) or not isinstance(folder, str):
        raise InputError(
            f"model {name!r}: the store {store.location!r} does not record its location, and no "
            "zoo given has it; give the zoo it came from (--zoo, or zoo=)"
        )
    spec = ModelSpec(name=name, source=source, folder=Path(folder))
    if spec.kind == "onnx" and not spec.file.is_file():
        raise InputError(
            f"model {name!r} is no longer at {str(spec.file)!r}; give the new location of its zoo "
            "(--zoo, or zoo=)"
        )
    return spec


def _versions(kind: str) -> dict[str, str]:
    names = ("oodzoo", "numpy", "pillow", *(packages_of(kind) if kind else ()))
    return {name: version(name) for name in sorted(names)}


def _resolved_spec(spec: ModelSpec, info: ModelInfo) -> dict[str, Any]:
    """Fields with which the model loads again, see `ModelRecord.spec`."""
    features, logits = (*info.outputs, None, None)[:2]
    built = {
        "pretrained": spec.pretrained,
        "arguments": spec.arguments,
        "geometry": spec.geometry,
        "layer": info.layer,
        "pooling": info.pooling,
    }
    return {
        **{key: value for key, value in built.items() if value is not None},
        "input_size": spec.input_size,
        "mean": spec.mean,
        "std": spec.std,
        "features": features,
        "logits": logits,
        "sha256": verified_file(spec)[1] if spec.kind == "onnx" else None,
    }


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


class ExtractionOptions(TypedDict, total=False):
    precision: str
    dtype: str
    on_error: Literal["skip", "fail"]
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

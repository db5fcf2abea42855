"""Models of an extraction: resolved, loaded, recorded, found again."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from oodzoo.core.backend import resolve_device
from oodzoo.core.errors import InputError
from oodzoo.core.io import structured
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.format import ModelRecord, StoredModel
from oodzoo.zoo import Model, ModelInfo, ModelSpec, load_zoo
from oodzoo.zoo.model import network_of
from oodzoo.zoo.preprocessing import Decode, Preprocessing
from oodzoo.zoo.sources import get_source, load_network, packages_of, portable_source
from oodzoo.zoo.spec import network_key, require_unique_names, verified_file
from oodzoo.zoo.zoos import expand_layers

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
        cls, members: Sequence[ModelSpec | Model], *, device: str, precision: str, decode: Decode
    ) -> list[LoadedModel | InputError]:
        """Load models of one network; in place of one that fails, an error."""
        loaded = [member for member in members if isinstance(member, Model)]
        if loaded:
            device = resolve_device(device, "python")
            return [cls(model.decoding(decode), None, precision, device) for model in loaded]
        specs = [member for member in members if isinstance(member, ModelSpec)]
        device = resolve_device(device, specs[0].kind)
        precision = get_source(specs[0].kind).precision or precision
        models = load_network(specs, device=device, precision=precision)
        return [
            model
            if isinstance(model, InputError)
            else cls(model.decoding(decode), spec, precision, device)
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
            preprocessing=_recorded(info.preprocessing),
            licence=info.licence,
            spec=None if spec is None else _resolved_spec(spec, info),
            versions=_versions("" if spec is None else spec.kind),
        )

    def location(self) -> dict[str, str]:
        """Source and folder of the model on this machine; empty if it was passed loaded."""
        if self.spec is None:
            return {}
        return {"source": self.spec.source, "folder": str(self.spec.folder.resolve())}


def _recorded(preprocessing: Preprocessing) -> dict[str, Any]:
    """The fields of a preprocessing; images are decoded at full size where it does not say how."""
    found = asdict(preprocessing)
    if preprocessing.geometry is not None and preprocessing.geometry.decode == "full":
        del found["geometry"]["decode"]
    return found


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

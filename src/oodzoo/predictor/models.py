"""The models of a predictor: found by what a store knows of them, and known again later."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path

from oodzoo._io import file_digest
from oodzoo.errors import InputError
from oodzoo.features.store import FeatureStore, StoredModel, read_local
from oodzoo.zoo import Model, ModelSpec, Preprocessing, load_model
from oodzoo.zoo.device import resolve_device
from oodzoo.zoo.onnx import external_files, fingerprint, output_names


class OtherModelError(InputError):
    """What was loaded is not the model that made the features."""


@dataclass(frozen=True)
class PredictorModel:
    """A model that a predictor runs.

    Attributes
    ----------
    spec : ModelSpec
        How to load it; of an ONNX file only the output that the features come from.
    preprocessing : Preprocessing
    feature_dim : int
    precision : str
        In which a PyTorch model computes, as it did for the store.
    fingerprint : str
        Of what decides about the features, as the store has it.
    """

    spec: ModelSpec
    preprocessing: Preprocessing
    feature_dim: int
    precision: str
    fingerprint: str

    @property
    def name(self) -> str:
        return self.spec.name

    def load(self, device: str = "auto") -> Model:
        """Load the weights, and make sure that it is this model and no other."""
        where = resolve_device(device, self.spec.kind)
        model = load_model(self.spec, device=where, precision=self.precision)
        info = model.info
        # The fingerprint of an ONNX file is known from its bytes, checked before it was named.
        if self.spec.kind != "onnx" and info.fingerprint != self.fingerprint:
            raise OtherModelError(
                f"model {self.name!r}: {self.spec.source} has the fingerprint "
                f"{info.fingerprint[:12]}…, the predictor was fitted with {self.fingerprint[:12]}…;"
                " its weights have changed: fit again, or bring the old ones back"
            )
        if info.feature_dim != self.feature_dim:
            raise OtherModelError(
                f"model {self.name!r} gives {info.feature_dim} features, the predictor was "
                f"fitted with {self.feature_dim}; fit again"
            )
        if info.preprocessing != self.preprocessing:
            raise OtherModelError(
                f"model {self.name!r}: {self.spec.source} prepares images in another way than "
                "when the predictor was fitted; install the versions of then, or fit again"
            )
        return model


def model_of(store: FeatureStore, name: str, zoo: Sequence[ModelSpec] = ()) -> PredictorModel:
    """Find the model that made features of a store.

    Parameters
    ----------
    store : FeatureStore
    name : str
    zoo : sequence of ModelSpec
        Where to look first; a store only knows where its models lay when it was made.

    Raises
    ------
    InputError
        If it is not to be found, or what lies there is another model.
    """
    stored = store.model(name)
    if stored.preprocessing is None or stored.source == "python":
        what = "a Python function" if stored.source == "python" else "imported as features"
        raise InputError(
            f"model {name!r} of the store is {what}; a predictor needs a model that can be "
            "loaded from a zoo: leave it out, or extract with such a model"
        )
    spec = _spec(store, name, zoo)
    preprocessing = Preprocessing.from_json(stored.preprocessing)
    if spec.kind == "onnx":
        spec = _onnx_spec(spec, stored, preprocessing)
    model = PredictorModel(
        spec, preprocessing, stored.feature_dim, stored.precision, stored.fingerprint
    )
    return model if spec.kind == "onnx" else _tried(model)


def _spec(store: FeatureStore, name: str, zoo: Sequence[ModelSpec]) -> ModelSpec:
    """What is known of where a model lies."""
    for spec in zoo:
        if spec.name == name:
            return spec
    known = read_local(store.path).get(name, {})
    source, folder = known.get("source"), known.get("folder")
    if not isinstance(source, str) or not isinstance(folder, str):
        where = f"the store {str(store.path)!r}" + (" and the zoo given" if zoo else "")
        raise InputError(
            f"model {name!r}: {where} cannot tell where it lies; name the zoo it came from "
            "(--zoo, or zoo=)"
        )
    spec = ModelSpec(name=name, source=source, folder=Path(folder))
    if spec.kind == "onnx" and not spec.file.is_file():
        raise InputError(
            f"model {name!r} is no longer at {str(spec.file)!r}; say where its zoo is now "
            "(--zoo, or zoo=)"
        )
    return spec


def _onnx_spec(spec: ModelSpec, stored: StoredModel, preprocessing: Preprocessing) -> ModelSpec:
    """How to load an ONNX file for its features alone.

    A store does not write down the names of the outputs, but they are part of its fingerprint:
    the ones that give it are the right ones, and the file is the right file.
    """
    digests = list(file_digests(spec).values())
    n_outputs = 1 if stored.n_logits is None else 2
    for outputs in permutations(output_names(spec.file.read_bytes()), n_outputs):
        if fingerprint(digests, list(outputs)) == stored.fingerprint:
            return replace(
                spec,
                input_size=preprocessing.geometry.crop[0],
                mean=preprocessing.mean,
                std=preprocessing.std,
                features=outputs[0],
                logits=None,
                sha256=digests[0],
            )
    raise InputError(
        f"model {spec.name!r}: {str(spec.file)!r} is not the file that the store's features "
        "come from; say where that one is (--zoo, or zoo=), or extract again"
    )


def file_digests(spec: ModelSpec) -> dict[Path, str]:
    """SHA-256 of an ONNX file and of the files beside it that hold its weights."""
    try:
        content = spec.file.read_bytes()
        digests = {spec.file: hashlib.sha256(content).hexdigest()}
        for name in external_files(content):
            file = spec.file.parent / name
            digests[file] = file_digest(file)
    except OSError as error:
        raise InputError(
            f"model {spec.name!r}: cannot read {error.filename!r}: {error.strerror}"
        ) from error
    return digests


def _tried(model: PredictorModel) -> PredictorModel:
    """The model with what a zoo file may have stated beside its source, found by trying."""
    first, *others = _candidates(model)
    try:
        first.load("cpu")
        return first
    except OtherModelError:
        for candidate in others:
            with contextlib.suppress(OtherModelError):
                candidate.load("cpu")
                return candidate
        raise  # what is wrong with the plain one


def _candidates(model: PredictorModel) -> Iterator[PredictorModel]:
    yield model
    height, width = model.preprocessing.geometry.crop
    stated = {"mean": model.preprocessing.mean, "std": model.preprocessing.std}
    yield replace(model, spec=replace(model.spec, **stated))  # type: ignore[arg-type]
    if height == width:
        spec = replace(model.spec, **stated, input_size=height)  # type: ignore[arg-type]
        yield replace(model, spec=spec)

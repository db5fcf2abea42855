"""The models of a predictor: found, verified when loaded, and removed at the end if temporary.

Of some models, which oodzoo does not run, only the features are known.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np

from oodzoo.core.backend import resolve_device, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.io import file_digest, structured
from oodzoo.extraction.features import FeatureSource
from oodzoo.extraction.models import find_spec
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.format import StoredModel
from oodzoo.zoo import Model, ModelSpec, Preprocessing, load_model
from oodzoo.zoo.onnx_model import external_files, fingerprint, layer_fingerprint
from oodzoo.zoo.preprocessing import TextPreprocessing, square
from oodzoo.zoo.sources import get_source, load_network, local_path
from oodzoo.zoo.spec import by_network, network_key

_removed_at_exit: set[Path] = set()


def remove_at_exit(folder: Path, release: Callable[[], None] | None = None) -> Path:
    """Remove a folder at the end of this process, after a call of `release`; return the folder."""
    process = os.getpid()

    def remove() -> None:
        if os.getpid() == process:  # not in a process that was forked
            if release is not None:
                release()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    _removed_at_exit.add(folder.resolve())
    return folder


@dataclass(frozen=True)
class PredictorModel:
    """A model of a predictor; precision and fingerprint are those recorded in the store.

    The spec of an ONNX file names the output with the features, and no logits.
    """

    spec: ModelSpec
    preprocessing: Preprocessing
    feature_dim: int
    precision: str
    fingerprint: str
    files: dict[str, str] = field(default_factory=dict, compare=False)
    """SHA-256 by path of the files in a saved predictor, which must still have it when loaded."""
    parameters: int | None = field(default=None, compare=False)
    milliseconds: float | None = field(default=None, compare=False)
    """Inference time per image on the machine of the extraction; None if it is not known."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def modality(self) -> Literal["image", "text"]:
        """What it takes."""
        return "text" if isinstance(self.preprocessing, TextPreprocessing) else "image"

    @property
    def bytes(self) -> int | None:
        """Size of its files; None for a model from a hub."""
        with _explaining_errors(self.name):
            files = local_files(self.spec)
            return None if files is None else sum(file.stat().st_size for file in files)

    @property
    def is_temporary(self) -> bool:
        """Whether its files are removed at the end of this process."""
        folder = self.spec.folder.resolve()
        return local_path(self.spec) is not None and any(
            each in _removed_at_exit for each in (folder, *folder.parents)
        )

    def load(self, device: str = "auto") -> Model:
        """Load the weights, and raise InputError if they are not those of the training features."""
        return load_models([self], device)[self.name]

    def require_unchanged(self) -> None:
        """Reject files that are not those of the saved predictor."""
        if not self.files:
            return
        saved = {(self.spec.folder / name).resolve(): sha256 for name, sha256 in self.files.items()}
        found = file_digests(self.spec, None if self.spec.kind == "onnx" else saved)
        for file, sha256 in found.items():
            if saved.get(file.resolve()) != sha256:
                raise InputError(
                    f"model {self.name!r}: {str(file)!r} is not the file that the predictor was "
                    "saved with; load the predictor again, or fit again"
                )


def load_models(models: Sequence[PredictorModel], device: str = "auto") -> dict[str, Model]:
    """Load models, by name and in this order; those of one network are loaded together.

    Raises InputError if the weights are not those of the training features.
    """
    loaded: dict[str, Model] = {}
    for together in by_network(models, lambda each: (network_key(each.spec), each.precision)):
        for model in together:
            model.require_unchanged()
        first = together[0]
        found = load_network(
            [model.spec for model in together],
            device=resolve_device(device, first.spec.kind),
            precision=first.precision,
        )
        for model, each in zip(together, found, strict=True):
            if isinstance(each, InputError):
                raise each
            if (geometry := model.preprocessing.geometry) is not None:
                each = each.decoding(geometry.decode)  # as the features were
            info, what = each.info, f"model {model.name!r}"
            # an ONNX file was verified before: its fingerprint includes logits, not loaded here
            if model.spec.kind != "onnx" and info.fingerprint != model.fingerprint:
                raise InputError(
                    f"{what}: {model.spec.source} has the fingerprint {info.fingerprint[:12]}…, "
                    f"but the features were computed with {model.fingerprint[:12]}…: its weights "
                    "have changed; restore the old weights, or extract and fit again"
                )
            if info.feature_dim != model.feature_dim:
                raise InputError(
                    f"{what} returns {info.feature_dim} features, but the predictor was fitted "
                    f"with {model.feature_dim}; fit again"
                )
            if info.preprocessing != model.preprocessing:
                raise InputError(
                    f"{what}: {model.spec.source} preprocesses {model.modality}s differently than "
                    "when the features were computed; install the versions used then, or extract "
                    "and fit again"
                )
            loaded[model.name] = each
    return {model.name: loaded[model.name] for model in models}


def in_one_pass(models: Sequence[PredictorModel]) -> list[list[PredictorModel]]:
    """Group models whose features one forward pass gives: of one network, on the same pixels."""
    return by_network(models, lambda each: (network_key(each.spec), each.preprocessing.geometry))


def as_preprocessing(stored: dict[str, Any], what: str) -> Preprocessing:
    """Return the preprocessing of images or texts; `what` begins error messages."""
    if "geometry" not in stored and "max_tokens" in stored:
        return cast(Preprocessing, structured(stored, TextPreprocessing, what))
    return structured(stored, Preprocessing, what)


def find_model(store: FeatureStore, name: str, zoo: Sequence[ModelSpec] = ()) -> PredictorModel:
    """Find the model that computed features of a store.

    The zoo is searched before the location that the store recorded. A model that is not the one
    that computed the features is rejected.
    """
    stored = store.model(name)
    if stored.preprocessing is None or stored.source == "python":
        what = f"the features of model {name!r} were imported"
        if stored.source == "python":
            what = f"model {name!r} is a Python function"
        raise InputError(
            f"{what}; a predictor can only use models that can be loaded from a zoo. Leave it out "
            "with --models (or models=)"
        )
    spec = find_spec(store, stored, zoo)
    spec = replace(
        spec,
        pretraining=spec.pretraining or stored.pretraining,
        licence=spec.licence or stored.licence,
    )
    what = f"the preprocessing of model {name!r} in the store"
    preprocessing = as_preprocessing(stored.preprocessing, what)
    if spec.kind == "onnx":
        spec = _verified_onnx(spec, stored, preprocessing)
    model = PredictorModel(
        spec,
        preprocessing,
        stored.feature_dim,
        stored.precision,
        stored.fingerprint,
        parameters=stored.parameters,
        milliseconds=store.milliseconds_per_image(name),
    )
    if spec.kind != "onnx":
        model.load("cpu")  # verifies the weights
    return model


def _verified_onnx(spec: ModelSpec, stored: StoredModel, preprocessing: Preprocessing) -> ModelSpec:
    """A complete spec that loads only the features of an ONNX file; rejects any other file."""
    outputs = [output for output in (spec.features, spec.logits) if output is not None]
    if stored.spec is None:  # a zoo need not name the outputs
        outputs = list(load_model(spec).info.outputs)
    digests = list(file_digests(spec).values())
    if spec.layer is None:
        found = fingerprint(digests, outputs)
    else:
        found = layer_fingerprint(digests, spec.layer, spec.pooling)
    if found != stored.fingerprint:
        raise InputError(
            f"model {spec.name!r}: {str(spec.file)!r} is not the file that the store's features "
            "were computed with; give the zoo with that file (--zoo, or zoo=), or extract again"
        )
    return replace(
        spec,
        **stated_preprocessing(preprocessing),
        features=outputs[0] if spec.layer is None else None,
        logits=None,
        sha256=digests[0],
    )


def stated_preprocessing(preprocessing: Preprocessing) -> dict[str, Any]:
    """The preprocessing of images as fields of the spec of an ONNX file.

    They do not say how images are decoded, which the predictor does by itself.
    """
    whole = preprocessing.decoding("full")
    height, width = whole.geometry.crop
    is_square = whole == square(height, whole.mean, whole.std)
    return {
        "input_size": height if height == width else None,
        "mean": whole.mean,
        "std": whole.std,
        "geometry": None if is_square else whole.geometry.stated(),
    }


def file_digests(spec: ModelSpec, files: Iterable[Path] | None = None) -> dict[Path, str]:
    """SHA-256 of files of a model, by default of an ONNX file and its external weight files."""
    with _explaining_errors(spec.name):
        return {file: file_digest(file) for file in (onnx_files(spec) if files is None else files)}


def onnx_files(spec: ModelSpec) -> list[Path]:
    """An ONNX file, followed by its external weight files."""
    with _explaining_errors(spec.name):
        names = external_files(spec.file.read_bytes())
    return [spec.file, *(spec.file.parent / name for name in names)]


def local_files(spec: ModelSpec) -> list[Path] | None:
    """The files that a model is loaded from; None if it comes from a hub, or from code."""
    if spec.kind == "onnx":
        return onnx_files(spec)
    local = local_path(spec)
    if local is None:
        return None
    with _explaining_errors(spec.name):
        files = get_source(spec.kind).files(local)
    return None if files is None else list(files)


@contextmanager
def _explaining_errors(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"model {name!r}: cannot read {error.filename!r}: {error.strerror}"
        ) from error


@dataclass(frozen=True)
class FeatureModel:
    """A model whose features are given, or computed by a Python function."""

    name: str
    feature_dim: int
    fingerprint: str
    """Of the training features."""
    parameters: int | None = field(default=None, compare=False)
    milliseconds: float | None = field(default=None, compare=False)
    """Time per sample, if it was measured."""
    spec: ClassVar[None] = None
    modality: ClassVar[None] = None
    bytes: ClassVar[None] = None

    def __post_init__(self) -> None:
        if self.feature_dim < 1:
            raise InputError(
                f"model {self.name!r} must have one feature or more, got {self.feature_dim}"
            )


AnyModel = PredictorModel | FeatureModel
"""A model of a predictor, of any kind."""


def has_features_only(stored: StoredModel) -> bool:
    """Whether a store has features of a model, but not the model: it cannot be loaded."""
    return stored.source in ("import", "python")


def array_feature_model(
    source: FeatureSource, name: str, milliseconds: float | None = None
) -> FeatureModel:
    """Return the model of features in memory."""
    digest = hashlib.sha256()
    for domain in source.domains:
        for features, _ in source.shards(name, domain):
            digest.update(np.ascontiguousarray(to_numpy(features), np.float32).tobytes())
    dimension = source.facts(name).feature_dim
    return FeatureModel(name, dimension, digest.hexdigest(), milliseconds=milliseconds)

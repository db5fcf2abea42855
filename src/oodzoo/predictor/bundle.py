"""Bundling: copy the files of a model into the folder of a predictor, and load it from there.

A model from a hub has no files to copy: its identifier and its fingerprint are recorded.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from oodzoo.core.errors import InputError
from oodzoo.core.io import file_digest, structured
from oodzoo.predictor.models import (
    PredictorModel,
    as_preprocessing,
    file_digests,
    local_files,
    onnx_files,
)
from oodzoo.zoo import ModelSpec
from oodzoo.zoo.layers import by_network, network_key
from oodzoo.zoo.sources import get_source
from oodzoo.zoo.spec import check_spec, local_path

FOLDER = "models"


@dataclass(frozen=True)
class BundledModel:
    """Entry of a model in predictor.json; paths are relative to the folder of the predictor."""

    name: str
    source: str
    stated: dict[str, Any]
    """The fields of its :class:`ModelSpec`, besides name and source."""
    preprocessing: dict[str, Any]
    feature_dim: int
    precision: str
    fingerprint: str
    files: dict[str, str]
    """SHA-256 of each copied file, by path."""
    parameters: int | None = None
    milliseconds: float | None = None

    def __post_init__(self) -> None:
        check_spec(self.spec, "predictor.json")
        as_preprocessing(self.preprocessing, f"the preprocessing of model {self.name!r}")

    @property
    def spec(self) -> ModelSpec:
        fields = {**self.stated, "name": self.name, "source": self.source}
        return structured(fields, ModelSpec, f"the spec of model {self.name!r}")

    def model(self, folder: Path) -> PredictorModel:
        """Return the model, with its files in the folder of the predictor."""
        return PredictorModel(
            replace(self.spec, folder=folder),
            as_preprocessing(self.preprocessing, f"the preprocessing of model {self.name!r}"),
            self.feature_dim,
            self.precision,
            self.fingerprint,
            self.files,
            self.parameters,
            self.milliseconds,
        )


def bundle_models(
    models: Sequence[PredictorModel], folder: Path, within: str = FOLDER
) -> list[BundledModel]:
    """Copy the files of models into a folder within the folder of a predictor.

    Models of one network share its files.
    """
    bundled: dict[str, BundledModel] = {}
    for together in by_network(models, lambda model: network_key(model.spec)):
        first = bundle_model(together[0], folder, within)
        for model in together:
            bundled[model.name] = bundle_entry(model, first.source, first.files)
    return [bundled[model.name] for model in models]


def bundle_model(model: PredictorModel, folder: Path, within: str = FOLDER) -> BundledModel:
    """Copy the files of a model into a folder within the folder of a predictor."""
    spec = model.spec
    source, copies = _plan_copies(spec, within)
    files = {}
    for path, file in copies.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with file.open("rb") as reader, target.open("wb") as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)
            writer.flush()
            os.fsync(writer.fileno())
        files[path] = file_digest(target)
    if spec.kind == "onnx" and list(files.values()) != list(file_digests(spec).values()):
        raise InputError(f"model {spec.name!r}: {str(spec.file)!r} changed while it was copied")
    return bundle_entry(model, source, files)


def bundle_entry(model: PredictorModel, source: str, files: dict[str, str]) -> BundledModel:
    """The entry of a model whose files are at `files`, with their SHA-256."""
    spec = model.spec
    return BundledModel(
        spec.name,
        source,
        {k: v for k, v in spec.to_dict().items() if k not in ("name", "source")},
        asdict(model.preprocessing),
        model.feature_dim,
        model.precision,
        model.fingerprint,
        files,
        model.parameters,
        model.milliseconds,
    )


def _plan_copies(spec: ModelSpec, within: str) -> tuple[str, dict[str, Path]]:
    """The source of a bundled model, and the files to copy by path within the bundle."""
    if spec.kind == "onnx":
        return _plan_onnx_copies(spec, within)
    local, wanted = local_path(spec), local_files(spec)
    if local is None:
        return spec.source, {}
    source = get_source(spec.kind)
    if wanted is None:  # loading a predictor must not run code that it brings
        raise InputError(
            f"model {spec.name!r}: a saved predictor has no code, and {spec.source!r} is code in a "
            "local folder; export the network to ONNX, and use it as onnx/<file>"
        )
    home = f"{within}/{spec.name}"
    if not any(file.suffix == ".safetensors" for file in wanted):
        raise InputError(
            f"model {spec.name!r}: {str(local)!r} has no .safetensors file, and pickled weights "
            "are not copied into a predictor; convert them to safetensors"
        )
    above = local if local.is_dir() else local.parent
    copies = {f"{home}/{file.relative_to(above).as_posix()}": file for file in wanted}
    place = home if local.is_dir() else f"{home}/{local.name}"
    return f"{spec.kind}/{source.moved(spec, place)}", copies


def _plan_onnx_copies(spec: ModelSpec, within: str) -> tuple[str, dict[str, Path]]:
    file, *external = onnx_files(spec)
    if not external:
        path = f"{within}/{spec.name}.onnx"
        return f"onnx/{path}", {path: file}
    # a folder per model: external weight files of two models may have the same name
    home = f"{within}/{spec.name}"
    copies = {f"{home}/{spec.name}.onnx": file}
    for weights in external:
        relative = weights.relative_to(file.parent)
        if ".." in relative.parts:
            raise InputError(
                f"model {spec.name!r}: its weight file {str(weights)!r} is outside the folder of "
                "the model; move it there"
            )
        copies[f"{home}/{relative.as_posix()}"] = weights
    return f"onnx/{home}/{spec.name}.onnx", copies

"""A fine-tuned network as a model of a predictor: an ONNX file, whatever source it came from."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from oodzoo._io import explaining_disk_errors
from oodzoo.predictor.models import PredictorModel, file_digests
from oodzoo.predictor.temporaries import remove_at_exit
from oodzoo.zoo import ModelSpec
from oodzoo.zoo.onnx import fingerprint
from oodzoo.zoo.preprocessing import square

FEATURES = "features"
"""The output of the file."""


def tuned_model(
    original: PredictorModel,
    name: str,
    write_onnx: Callable[[Path], None],
    domains: Sequence[str],
    folder: Path | None = None,
) -> PredictorModel:
    """Write a fine-tuned network, and describe it as a model of a predictor.

    Parameters
    ----------
    original : PredictorModel
        The model before: preprocessing, number of features, licence and cost are the same.
    name : str
        Name of the fine-tuned model.
    write_onnx : callable
        Writes the network to a file, see :class:`oodzoo.zoo.trainable.Trainable`.
    domains : sequence of str
        The domains that it was tuned on.
    folder : Path, optional
        Where to write the file; by default a folder that is removed when the process ends.
    """
    folder = _process_folder(os.getpid()) if folder is None else folder
    folder = Path(tempfile.mkdtemp(dir=folder))
    file = folder / f"{name}.onnx"
    with explaining_disk_errors(file):
        write_onnx(file)
    before, preprocessing = original.spec, original.preprocessing
    pretraining = before.pretraining or "pre-trained"
    height, _ = preprocessing.geometry.crop
    geometry: dict[str, Any] | None = None
    if preprocessing != square(height, preprocessing.mean, preprocessing.std):
        fields = asdict(preprocessing.geometry)
        geometry = {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}
    spec = ModelSpec(
        name=name,
        source=f"onnx/{file.name}",
        input_size=height if geometry is None else None,
        mean=preprocessing.mean,
        std=preprocessing.std,
        geometry=geometry,
        features=FEATURES,
        feature_dim=original.feature_dim,
        parameters=original.parameters,
        pretraining=f"{pretraining}, fine-tuned on {', '.join(domains)}",
        architecture=before.architecture,
        licence=before.licence,
        origin=before.origin,
        folder=folder,
    )
    digests = list(file_digests(spec).values())
    return PredictorModel(
        ModelSpec(**{**vars(spec), "sha256": digests[0]}),
        preprocessing,
        original.feature_dim,
        "float32",
        fingerprint(digests, [FEATURES]),
        parameters=original.parameters,
        milliseconds=original.milliseconds,
    )


def tuned_name(name: str, taken: Collection[str]) -> str:
    """Name a fine-tuned model; a tuned layer is not a layer of the network that it comes from.

    Examples
    --------
    >>> tuned_name("vit", ["vit", "resnet"]), tuned_name("vit", ["vit", "vit-tuned"])
    ('vit-tuned', 'vit-tuned-2')
    >>> tuned_name("vit@blocks.8", [])
    'vit-blocks.8-tuned'
    """
    first = f"{name.replace('@', '-')}-tuned"
    found, number = first, 1
    while found in taken:
        number += 1
        found = f"{first}-{number}"
    return found


@functools.cache
def _process_folder(process: int) -> Path:
    """A temporary folder of this process, removed at its end."""
    return remove_at_exit(Path(tempfile.mkdtemp(prefix="oodzoo-tuned-")))

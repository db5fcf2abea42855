"""A fine-tuned network in a predictor: as one of its models, and in a pool with the others.

The model is an ONNX file, whatever source the network came from.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.final import FinalHead, fit_pool
from oodzoo.combining.pool import predict_with_heads
from oodzoo.combining.predictions import SHARES, Head, HeadPredictions
from oodzoo.core.errors import InputError
from oodzoo.core.events import Listeners
from oodzoo.core.io import explaining_disk_errors
from oodzoo.data.dataset import ImageDomains
from oodzoo.extraction.config import ExtractionConfig
from oodzoo.extraction.extract import run_extraction
from oodzoo.extraction.source import StoreSource
from oodzoo.linear.heads.outputs import outputs_of
from oodzoo.predictor.models import PredictorModel, file_digests, remove_at_exit
from oodzoo.store.feature_store import FeatureStore
from oodzoo.tuning.domainbed import ErmTuned
from oodzoo.tuning.tuner import Tuned
from oodzoo.zoo import ModelSpec
from oodzoo.zoo.onnx_model import fingerprint
from oodzoo.zoo.preprocessing import square

FEATURES = "features"
"""The output of the file."""


def tuned_model(
    original: PredictorModel,
    name: str,
    write_onnx: Callable[[Path], None],
    domains: Sequence[str],
) -> PredictorModel:
    """Write a fine-tuned network, and describe it as a model of a predictor.

    The file is removed when the process ends.

    Parameters
    ----------
    original : PredictorModel
        The model before: preprocessing, number of features, licence and cost are the same.
    name : str
        Name of the fine-tuned model.
    write_onnx : callable
        Writes the network to a file, see :class:`oodzoo.zoo.model.Trainable`.
    domains : sequence of str
        The domains that it was tuned on.
    """
    folder = remove_at_exit(Path(tempfile.mkdtemp(prefix="oodzoo-tuned-")))
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


TUNED = "tuned"
"""The kind of the head of a fine-tuned model, trained together with it."""


def require_left_out(choose_by: str) -> None:
    """Raise InputError if a rule gives no predictions of left-out domains."""
    if choose_by != "leave-one-domain-out":
        raise InputError(
            f"choose_by={choose_by!r} leaves no domain out, but a predictor of several "
            "models pools them by their predictions of left-out domains; use "
            "leave-one-domain-out, or fit a predictor of one model"
        )


def extract_models(
    images: ImageDomains,
    models: Sequence[PredictorModel],
    folder: Path,
    device: str,
    listener: Listeners,
) -> FeatureStore:
    """Extract the features of models of a predictor into a store; those that it has are kept."""
    for precision in sorted({model.precision for model in models}):
        specs = [model.spec for model in models if model.precision == precision]
        config = ExtractionConfig(device=device, precision=precision)
        _, extraction = run_extraction(images, specs, folder, config, listener=listener)
        for name, reason in extraction.failed.items():
            context = "" if reason.startswith("model ") else f"model {name!r}: "
            raise InputError(f"{context}{reason}")
    return FeatureStore(folder)


def fit_tuned_pool(
    source: StoreSource, images: ImageDomains, name: str, tuned: Tuned | ErmTuned
) -> FinalHead:
    """Choose a pool among all heads of the other models and that of the tuned one.

    Parameters
    ----------
    source : StoreSource
        Features of all models.
    images : ImageDomains
        The images that the model was tuned on, in the order of its outputs.
    name : str
        Name of the tuned model in the source.
    tuned : Tuned or ErmTuned
    """
    others = StoreSource(source.store, [model for model in source.models if model != name])
    heads = predict_with_heads(others)[None]
    head = Head(name, TUNED, SHARES[-1])
    predictions = HeadPredictions(0, left_out_outputs(source, images, tuned.left_out))
    heads = replace(
        heads,
        candidates=heads.candidates | {head: predictions},
        milliseconds=heads.milliseconds | {name: source.facts(name).milliseconds},
    )
    return fit_pool(source, heads, given={head: tuned.head})


def left_out_outputs(
    source: StoreSource, images: ImageDomains, logits: Mapping[str, NDArray[Any]]
) -> list[NDArray[np.float64]]:
    """Outputs for each domain, as in :mod:`oodzoo.linear.heads.outputs`, in the order of the store.

    `logits` are of the images of each domain, in the order of the data set.
    """
    pooled = outputs_of(source.task.kind).pooled  # of a single head, it normalises
    result = []
    for domain in source.domains:
        paths = [sample.path for sample in images.samples if sample.domain == domain]
        positions = {path: at for at, path in enumerate(paths)}
        rows = [positions[path] for path in source.store.paths(domain)]
        result.append(pooled(logits[domain][rows][None], [1.0]))
    return result

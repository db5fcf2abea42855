"""A pool of the models of a predictor and a fine-tuned one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.combination.final import FinalHead, fit_pool
from oodzoo.combination.heads import predict_with_heads
from oodzoo.combination.predictions import SHARES, Head, HeadPredictions
from oodzoo.data.dataset import ImageDomains
from oodzoo.errors import InputError
from oodzoo.events import Listeners
from oodzoo.features.config import ExtractionConfig
from oodzoo.features.extract import run_extraction
from oodzoo.features.source import StoreSource
from oodzoo.heads.outputs import outputs_of
from oodzoo.predictor.models import PredictorModel
from oodzoo.store.feature_store import FeatureStore
from oodzoo.tuning.domainbed import ErmTuned
from oodzoo.tuning.tuner import Tuned

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
    """Outputs for each domain, as in :mod:`oodzoo.heads.outputs`, in the order of the store.

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

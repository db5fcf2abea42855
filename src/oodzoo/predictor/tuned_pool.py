"""A pool of the models of a predictor and a fine-tuned one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from oodzoo.combination.final import FinalHead, fit_pool
from oodzoo.combination.heads import Head, predict_with_heads
from oodzoo.combination.predictions import HeadPredictions
from oodzoo.data.dataset import ImageDomains
from oodzoo.errors import InputError
from oodzoo.events import Listeners
from oodzoo.features.config import ExtractionConfig
from oodzoo.features.extract import run_extraction
from oodzoo.features.source import StoreSource
from oodzoo.heads.outputs import outputs_of
from oodzoo.predictor.models import PredictorModel
from oodzoo.store.feature_store import FeatureStore
from oodzoo.tuning.settings import TuneSettings
from oodzoo.tuning.tuner import Tuned

TUNED = "tuned"
"""The kind of the head of a fine-tuned model, trained together with it."""


def require_left_out(settings: TuneSettings) -> None:
    """Raise InputError if the settings give no predictions of left-out domains."""
    if settings.choose_by != "leave-one-domain-out":
        raise InputError(
            f"choose_by={settings.choose_by!r} leaves no domain out, but a predictor of several "
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


def fit_tuned_pool(source: StoreSource, images: ImageDomains, name: str, tuned: Tuned) -> FinalHead:
    """Choose a pool among all heads of the other models and that of the tuned one.

    Parameters
    ----------
    source : StoreSource
        Features of all models.
    images : ImageDomains
        The images that the model was tuned on, in the order of its outputs.
    name : str
        Name of the tuned model in the source.
    tuned : Tuned
    """
    others = StoreSource(source.store, [model for model in source.models if model != name])
    heads = predict_with_heads(others)[None]
    head = Head(name, TUNED)
    pooled = outputs_of(heads.kind).pooled  # of a single head, it normalises
    out_of_fold = []
    for domain in heads.domains:
        positions = _positions(images, domain)
        rows = [positions[path] for path in source.store.paths(domain)]
        out_of_fold.append(pooled(tuned.left_out[domain][rows][None], [1.0]))
    heads = replace(
        heads,
        candidates=heads.candidates | {head: HeadPredictions(0, out_of_fold)},
        milliseconds=heads.milliseconds | {name: source.facts(name).milliseconds},
    )
    return fit_pool(source, heads, given={head: tuned.head})


def _positions(images: ImageDomains, domain: str) -> dict[str, int]:
    """Position of each image of a domain among them, by path."""
    paths = [sample.path for sample in images.samples if sample.domain == domain]
    return {path: at for at, path in enumerate(paths)}

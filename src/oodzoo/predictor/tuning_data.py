"""What a predictor can be fine-tuned on: images with its classes, of two or more domains."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from oodzoo.core.errors import InputError
from oodzoo.core.events import Progress
from oodzoo.core.text import count, did_you_mean
from oodzoo.data.dataset import ImageDomains
from oodzoo.predictor.models import PredictorModel
from oodzoo.predictor.parts import Provenance, hashed_images
from oodzoo.predictor.predictor import Predictor
from oodzoo.tuning.problem import require_images_to_hold_out


def model_to_tune(predictor: Predictor, name: str | None) -> PredictorModel:
    """Find the model to fine-tune: the named one, or the best one of the predictor.

    The best one has the largest weight in a pool, then the highest score of the ranking.
    """
    if predictor.features_only:
        raise InputError(
            "the models of the predictor have features only; fine-tuning needs models that can be "
            f"loaded, got {', '.join(model.name for model in predictor.models)}"
        )
    if predictor.modality == "text":
        raise InputError(
            "the models of the predictor take texts; only models of images can be fine-tuned"
        )
    models = {model.name: model for model in predictor.loadable_models}
    if name is not None:
        if name not in models:
            hint = did_you_mean(name, models) or f"it has {', '.join(models)}"
            raise InputError(f"the predictor has no model {name!r}; {hint}")
        return models[name]
    provenance = predictor.provenance

    def merit(model: PredictorModel) -> tuple[float, float]:
        return (
            provenance.pool.get(model.name, 0.0),
            provenance.scores.get(model.name, float("-inf")),
        )

    return max(models.values(), key=merit)


def open_to_tune(data: Any, predictor: Predictor) -> ImageDomains:
    """Open the data, without reading the images, and check that the predictor is for them."""
    is_open = isinstance(data, ImageDomains)
    found: ImageDomains = data if is_open else ImageDomains(data, task=predictor.task.kind)
    if found.modality != "image":
        raise InputError(f"{found.name!r} has {found.modality}s; the predictor takes images")
    _require_same_task(found, predictor)
    _require_images_to_hold_out(found)  # here, and again without those that cannot be read
    return found


def readable_to_tune(
    data: ImageDomains, predictor: Predictor, progress: Progress | None = None
) -> ImageDomains:
    """Read all images; those that cannot be read are left out, with a warning.

    Warns if they are not the images and labels that the predictor was trained on. Raises an
    InputError if a model of the predictor was fine-tuned on one of their domains: it would predict
    that domain too well when it is left out.
    """
    found = _readable(data, progress)
    _require_not_tuned(predictor, found.domains)
    if different := _difference(predictor.provenance, found):
        warnings.warn(
            f"{found.name!r} is not the data that the predictor was trained on: {different}; its "
            "models were chosen on other data",
            stacklevel=3,
        )
    return found


def hashed_images_of(data: ImageDomains) -> str:
    """The images and labels of a data set that can be read, for the provenance."""
    pairs = zip(data.digests, data.samples, strict=True)
    return hashed_images((image, sample.label) for image, sample in pairs if image is not None)


def _difference(provenance: Provenance, data: ImageDomains) -> str:
    """How many images are missing, added or labelled differently; empty if none is."""
    trained = provenance.hashed_labels()
    given = replace(provenance, images=hashed_images_of(data)).hashed_labels()
    relabelled = [image for image in trained.keys() & given if trained[image] != given[image]]
    parts = {
        "missing": len(trained.keys() - given),
        "added": len(given.keys() - trained),
        "labelled differently": len(relabelled),
    }
    return ", ".join(f"{count(n, 'image')} {what}" for what, n in parts.items() if n)


def _require_not_tuned(predictor: Predictor, domains: Sequence[str]) -> None:
    name = (predictor.provenance.tuning or {}).get("tuned")
    seen = [domain for domain in domains if domain in predictor.provenance.domains]
    if seen and name in [model.name for model in predictor.models]:
        raise InputError(
            f"model {name!r} of the predictor was fine-tuned on the domain {seen[0]!r}, so that "
            "leaving it out says nothing about the model; tune the predictor from before instead, "
            "with other settings"
        )


def _require_same_task(data: ImageDomains, predictor: Predictor) -> None:
    kind = predictor.task.kind
    if data.task.kind != kind:
        raise InputError(
            f"{data.name!r} has labels for {data.task.kind!r}, but the predictor is for {kind!r}"
        )
    known = [str(label) for label in predictor.classes_.tolist()]
    what = {"classification": "class", "regression": "number", "multilabel": "label"}[kind]
    for names, others, text in (
        (data.classes, known, f"{data.name!r} has the {what} {{}}, which the predictor has not"),
        (known, data.classes, f"{data.name!r} has no {what} {{}}, which the predictor has"),
    ):
        if extra := [name for name in names if name not in others]:
            more = f" and {count(len(extra) - 1, 'more', 'more')}" if len(extra) > 1 else ""
            raise InputError(
                f"{text.format(repr(extra[0]) + more)}; give images of the same "
                f"{'classes' if what == 'class' else what + 's'}, or fit a new predictor"
            )


def _readable(data: ImageDomains, progress: Progress | None) -> ImageDomains:
    """The images that can be read, of domains that have any."""
    unreadable = data.summary(progress).unreadable or {}
    if unreadable:
        first, reason = next(iter(unreadable.items()))
        warnings.warn(
            f"left out {count(len(unreadable), 'image')} that cannot be read; the first is "
            f"{first!r}: {reason}",
            stacklevel=4,
        )
        rows = [at for at, each in enumerate(data.samples) if each.path not in unreadable]
        data = data.only(rows)
    if len(data.domains) < 2:
        names = ", ".join(map(repr, data.domains)) or "no domain"
        raise InputError(
            f"{data.name!r} has images of one domain, {names}; fine-tuning needs two or more, "
            "because its settings are chosen by leaving one domain out"
        )
    _require_images_to_hold_out(data)
    return data


def _require_images_to_hold_out(data: ImageDomains) -> None:
    groups: dict[str, list[str | None]] = {domain: [] for domain in data.domains}
    for sample in data.samples:
        groups[sample.domain].append(sample.group)
    for domain, each in groups.items():
        require_images_to_hold_out(domain, each)

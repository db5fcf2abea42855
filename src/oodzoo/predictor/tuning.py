"""Fine-tune a model of a predictor on images with its classes, and return the predictor with it.

The tuned model is an ONNX file, whatever the source of the original, so that the predictor needs
PyTorch no more than before. What is trained and how its settings are chosen is described in
:mod:`oodzoo.tuning.tuner`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from oodzoo.core.backend import require_device
from oodzoo.core.errors import InputError
from oodzoo.core.events import Listeners, Progress, Stage
from oodzoo.core.io import locked
from oodzoo.core.text import count, did_you_mean, duration
from oodzoo.data.dataset import ImageDomains
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.source import StoreSource
from oodzoo.predictor.gaussian import fit_gaussian
from oodzoo.predictor.models import PredictorModel
from oodzoo.predictor.parts import Provenance, hashed_images
from oodzoo.predictor.predictor import Predictor, load
from oodzoo.predictor.tuned import (
    extract_models,
    fit_tuned_pool,
    require_left_out,
    tuned_model,
    tuned_name,
)
from oodzoo.tuning.choice import CANDIDATES, str_of
from oodzoo.tuning.domainbed import ErmSettings, ErmTuned, ErmTuner
from oodzoo.tuning.network import import_torch
from oodzoo.tuning.problem import TuneSettings, opened, require_images_to_hold_out
from oodzoo.tuning.tuner import Tuned, Tuner
from oodzoo.zoo.sources import load_trainable


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


CPU_HOURS = 3.0
"""Longest fine-tuning on the CPU, unless a limit is given."""

LINEAR_HEAD = str_of(CANDIDATES[0])
"""Name of the linear head on the model as it was, among the candidates."""

_RUNS, _FEATURES, _LOCK = "runs", "features", ".lock"
_SETTINGS: dict[str, type[TuneSettings | ErmSettings]] = {
    "lp-ft": TuneSettings,
    "domainbed": ErmSettings,
}


def tune(
    predictor: Predictor | str | os.PathLike[str],
    data: Any,
    *,
    model: str | None = None,
    protocol: str = "lp-ft",
    device: str = "auto",
    folder: str | os.PathLike[str] | None = None,
    max_hours: float | None = None,
    listener: Listeners | None = None,
    **settings: Any,
) -> Predictor:
    """Fine-tune a model of a predictor, and return a predictor with the tuned model.

    The training starts from a linear head. The weights after it, their average along the path, and
    mixtures of both with the weights before are compared on domains that are left out in turn,
    together with the linear head on the model as it was. If that head is best, the predictor is
    returned as it was. Needs the extra `tune`.

    Parameters
    ----------
    predictor : Predictor or path
        Of images; with one model, or with several, of which one is tuned.
    data : ImageDomains, path, URL or object
        Images with the classes (or numbers, or labels) of the predictor, of two or more domains:
        best those that the predictor was trained on. With two domains, the runs that choose the
        weights train on one domain each, and the choice is less reliable.
    model : str, optional
        The model to tune; by default the one with the largest weight in a pool, or else the highest
        score.
    protocol : {"lp-ft", "domainbed"}
        How to train: as described above, or by empirical risk minimisation with DomainBed's random
        search, which is not compared with the linear head; classification only.
    device : str, default "auto"
        "cpu", "cuda", "cuda:1", "mps"; "auto" chooses the fastest one available.
    folder : path, optional
        Folder for checkpoints: the same call with the same folder resumes a call that was
        interrupted. It is not removed. By default nothing is kept.
    max_hours : float, optional
        Raise an InputError if the training would take longer. By default there is a limit on the
        CPU only, of 3 hours.
    listener : Listener or sequence of Listener, optional
        Receives the events of the stage "tuning".
    **settings
        See :class:`oodzoo.tuning.problem.TuneSettings`: learning_rates, steps, batch_size,
        weight_decay, schedule, start, lora, augment, choose_by, seed. For DomainBed's protocol, see
        :class:`oodzoo.tuning.domainbed.ErmSettings`: draws, steps, search_space, choose_by, seed.

    Returns
    -------
    Predictor
        Of one model, the tuned one with its head. Of several, a pool of which the tuned model is a
        candidate besides the others; it may get no weight. `provenance.tuning` records what was
        done, and the metrics on left-out domains that the weights were chosen by.
    """
    before = predictor if isinstance(predictor, Predictor) else load(predictor)
    chosen = tune_settings(protocol, **settings)
    if max_hours is not None and not max_hours > 0:
        raise InputError(f"max_hours must be positive, got {max_hours}")
    require_device(device)
    original = model_to_tune(before, model)
    import_torch()
    if len(before.models) > 1:
        require_left_out(chosen.choose_by)
    listed = open_to_tune(data, before)
    facts = {"models": [original.name], "domains": list(listed.domains), "images": len(listed)}
    facts |= {"protocol": protocol, **chosen.to_dict()}
    with _work_folder(folder) as work, Stage(listener, "tuning", **facts) as stage:
        images = readable_to_tune(listed, before, stage.progress)
        _warn_of_two_domains(images, chosen)
        fresh = not (work / _RUNS).exists()
        with opened(images, original.preprocessing.geometry) as problem:
            tuner = _tuner(chosen)(
                lambda: load_trainable(original.spec, original.preprocessing),
                problem,
                chosen,
                device=device,
                folder=work / _RUNS,
                stage=stage,
            )
            with _removed_if_refused(work, fresh):
                _require_time(tuner, original.name, max_hours)
            if len(before.models) > 1:  # first, because it may fail
                models = before.loadable_models
                extract_models(images, models, work / _FEATURES, before.device, stage.events)
            tuned = tuner.tuned()
        record = {
            "model": original.name,
            "tuned": None,
            "weight": None,
            "protocol": protocol,
            **_choice(tuned),
            "settings": chosen.to_dict(),
            "seconds": round(tuned.seconds, 3),
            "device": tuner.device,
        }
        if record["choice"]["name"] == LINEAR_HEAD:  # on the model as it was
            after = _with_record(before, record)
        else:
            after = _assembled(before, original, images, tuned, record, work / _FEATURES, stage)
        stage.finish(after, _means(after))
    return after


def tune_settings(protocol: str = "lp-ft", **settings: Any) -> TuneSettings | ErmSettings:
    """Check settings by name; a single learning rate may be a number."""
    kind = _SETTINGS.get(protocol)
    if kind is None:
        raise InputError(f"protocol must be one of {', '.join(_SETTINGS)}, got {protocol!r}")
    names = {each: [f.name for f in dataclasses.fields(_SETTINGS[each])] for each in _SETTINGS}
    known = names[protocol]
    for name in settings:
        if name in known:
            continue
        if other := next((each for each in names if name in names[each]), None):
            raise InputError(
                f"{name} is only used with the protocol {other!r} (--protocol {other}); leave it "
                "out"
            )
        hint = did_you_mean(name, known) or f"expected one of {', '.join(known)}"
        raise InputError(f"unknown setting {name!r} of the protocol {protocol!r}; {hint}")
    rates = settings.get("learning_rates")
    if isinstance(rates, int | float):
        settings["learning_rates"] = (float(rates),)
    elif rates is not None:
        settings["learning_rates"] = tuple(map(float, rates))
    return kind(**settings)


def remove_checkpoints(folder: Path) -> None:
    """Remove what :func:`tune` has written into a folder, and the folder if it is empty then."""
    for name in (_RUNS, _FEATURES):
        shutil.rmtree(folder / name, ignore_errors=True)
    _remove_if_empty(folder)


def require_checkpoint_folder(folder: Path) -> None:
    """Raise InputError if a folder has files of others."""
    if not folder.exists():
        return
    known = {_RUNS, _FEATURES, _LOCK}
    if not folder.is_dir() or {each.name for each in folder.iterdir()} - known:
        raise InputError(
            f"{str(folder)!r} exists and is not a folder of checkpoints; choose another folder"
        )


@contextlib.contextmanager
def _work_folder(folder: str | os.PathLike[str] | None) -> Iterator[Path]:
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="oodzoo-") as temporary:
            yield Path(temporary)
        return
    path = Path(folder)
    require_checkpoint_folder(path)
    with locked(path):
        try:
            yield path
        finally:
            _remove_if_empty(path)


def _remove_if_empty(folder: Path) -> None:
    """Remove a folder that has nothing but a lock."""
    with contextlib.suppress(OSError):  # on Windows, a lock in use is not removed
        if not {each.name for each in folder.iterdir()} - {_LOCK}:
            (folder / _LOCK).unlink(missing_ok=True)
            folder.rmdir()


@contextlib.contextmanager
def _removed_if_refused(folder: Path, fresh: bool) -> Iterator[None]:
    """Remove a folder without finished steps, so that the next call may have other settings."""
    try:
        yield
    except InputError:
        if fresh:
            remove_checkpoints(folder)
        raise


def _warn_of_two_domains(images: ImageDomains, settings: TuneSettings | ErmSettings) -> None:
    if len(images.domains) == 2 and settings.choose_by == "leave-one-domain-out":
        warnings.warn(
            f"{images.name!r} has two domains, so that the runs that choose the weights train on "
            "one domain each; three or more domains make the choice more reliable",
            stacklevel=3,
        )


def _tuner(settings: TuneSettings | ErmSettings) -> Callable[..., Tuner | ErmTuner]:
    return Tuner if isinstance(settings, TuneSettings) else ErmTuner


def _choice(tuned: Tuned | ErmTuned) -> dict[str, Any]:
    """What was chosen, and the metrics of all candidates by domain, for JSON."""
    if isinstance(tuned, ErmTuned):
        record = tuned.record
        return {
            "choice": {
                "name": "erm",
                "learning_rate": record.hyperparameters.lr,
                "draw": record.draw,
                "step": record.step,
                "hyperparameters": dataclasses.asdict(record.hyperparameters),
            },
            "left_out": {"erm": tuned.accuracy},
        }
    choice = tuned.choice
    return {
        "choice": {
            "name": str_of(choice.candidate),
            "learning_rate": choice.learning_rate,
            **dataclasses.asdict(choice.candidate),
        },
        "left_out": choice.metrics,
    }


def _require_time(tuner: Tuner | ErmTuner, name: str, max_hours: float | None) -> None:
    """Raise InputError if the training would take too long."""
    on_cpu = tuner.device == "cpu"
    if max_hours is None and not on_cpu:
        return
    limit = CPU_HOURS if max_hours is None else max_hours
    seconds = tuner.estimated_seconds()
    if seconds > 3600 * limit:
        advice = ["use a GPU (--device cuda)"] if on_cpu else []
        if isinstance(tuner.settings, TuneSettings) and tuner.settings.lora is None:
            advice.append("train adapters only (--lora 8)")
        raise InputError(
            f"fine-tuning {name!r} would take about {duration(seconds)} on {tuner.device}: "
            f"{count(tuner.planned_steps(), 'step')}; {', '.join([*advice, 'take fewer --steps'])},"
            f" or allow it with --max-hours {math.ceil(seconds / 3600 * 1.2)}"
        )


def _assembled(
    before: Predictor,
    original: PredictorModel,
    images: ImageDomains,
    tuned: Tuned | ErmTuned,
    record: dict[str, Any],
    store: Path,
    stage: Stage,
) -> Predictor:
    """The predictor with the tuned model; of several models, a pool."""
    name = tuned_name(original.name, [each.name for each in before.models])
    model = tuned_model(original, name, tuned.trainable.write_onnx, images.domains)
    features = extract_models(images, [model], store, before.device, stage.events)
    models = (*before.loadable_models, model) if len(before.models) > 1 else (model,)
    source = StoreSource(features, [each.name for each in models])
    pool: dict[str, float] = {}
    adaptive = None
    if len(models) == 1:
        columns, head = Columns.all_of(source, [name]), tuned.head
    else:
        final = fit_tuned_pool(source, images, name, tuned)
        columns, head, pool, adaptive = final.columns, final.head, final.weights, final.adaptive
    samples = columns.samples(source, source.domains)
    groups = [source.groups(domain) for domain in source.domains]
    by_name = {each.name: each for each in models}
    return Predictor(
        [by_name[each] for each in columns.models],
        columns,
        source.classes,
        head,
        fit_gaussian(samples, groups, source.task.kind),
        Provenance(
            domains=source.domains,
            n_images=len(images),
            data=images.fingerprint,
            images=hashed_images_of(images),
            scores=before.provenance.scores,
            n_features=len(Columns.all_of(source, source.models)),
            threshold=None,
            choice="pool" if pool else "tuned",
            pool=pool,
            tuning=record | {"tuned": name, "weight": pool.get(name, 0.0) if pool else 1.0},
            name=images.short_name,
            score=before.provenance.score,
        ),
        adaptive,
        device=before.device,
        batch_size=before.batch_size,
    )


def _with_record(predictor: Predictor, record: dict[str, Any]) -> Predictor:
    """The predictor as it was, with a record of the fine-tuning."""
    return Predictor(
        predictor.models,
        predictor.columns,
        predictor.classes_.tolist(),
        predictor.head,
        predictor.gaussian,
        dataclasses.replace(predictor.provenance, tuning=record),
        predictor.adaptive,
        predictor.left_out,
        device=predictor.device,
        batch_size=predictor.batch_size,
    )


def _means(predictor: Predictor) -> dict[str, float]:
    """Mean over the domains of the metric of the linear head, and of what was chosen."""
    record = predictor.provenance.tuning or {}
    metric, left_out = predictor.task.metric, record["left_out"]
    return {
        f"{metric}_of_{what}": sum(left_out[name].values()) / len(left_out[name])
        for what, name in (("linear_head", LINEAR_HEAD), ("tuned", record["choice"]["name"]))
        if name in left_out
    }

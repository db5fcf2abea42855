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
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from oodzoo.combining.combination import FinalHead
from oodzoo.combining.pool import POOL, fit_pool
from oodzoo.combining.pool_weights import choose_pool
from oodzoo.combining.predictions import SHARES, Head, HeadPredictions, predict_with_heads
from oodzoo.core.backend import require_device
from oodzoo.core.errors import InputError
from oodzoo.core.events import Listeners, Stage, advance
from oodzoo.core.io import explaining_disk_errors, locked
from oodzoo.core.text import count, did_you_mean, duration
from oodzoo.data.dataset import ImageDomains
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.extract import run_extraction
from oodzoo.extraction.features import StoreSource
from oodzoo.extraction.outcome import ExtractionConfig
from oodzoo.predictor.fitting import assemble
from oodzoo.predictor.models import (
    PredictorModel,
    file_digests,
    remove_at_exit,
    stated_preprocessing,
)
from oodzoo.predictor.parts import TUNED, Provenance, hashed_images
from oodzoo.predictor.predictor import Predictor, load
from oodzoo.store.feature_store import FeatureStore
from oodzoo.tuning.domainbed import ErmSettings, ErmTuner
from oodzoo.tuning.network import import_torch
from oodzoo.tuning.problem import TuneSettings, opened, require_images_to_hold_out
from oodzoo.tuning.tuner import CANDIDATES, Tuned, Tuner
from oodzoo.zoo import ModelSpec
from oodzoo.zoo.onnx_model import fingerprint
from oodzoo.zoo.preprocessing import Decode
from oodzoo.zoo.sources import load_trainable

LINEAR_HEAD = CANDIDATES[0].name
"""Name of the linear head on the model as it was, among the candidates."""

_OUTPUT = "features"
"""The output of the ONNX file."""
_HEAD = "tuned"
"""The kind of the head of a fine-tuned model, trained together with it."""
_RUNS, _FEATURES, _LOCK = "runs", "features", ".lock"
_SETTINGS: dict[str, type[TuneSettings | ErmSettings]] = {
    "lp-ft": TuneSettings,
    "domainbed": ErmSettings,
}
_TUNERS: dict[type, Any] = {TuneSettings: Tuner, ErmSettings: ErmTuner}


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
        done, and the metrics on held-out domains that the weights were chosen by.
    """
    before = predictor if isinstance(predictor, Predictor) else load(predictor)
    chosen = tune_settings(protocol, **settings)
    if max_hours is not None and not max_hours > 0:
        raise InputError(f"max_hours must be positive, got {max_hours}")
    require_device(device)
    original = model_to_tune(before, model)
    import_torch()
    if len(before.models) > 1 and not chosen.by_domain:
        raise InputError(
            f"choose_by={chosen.choose_by!r} leaves no domain out, but a predictor of several "
            "models pools them by their predictions of held-out domains; use "
            "leave-one-domain-out, or fit a predictor of one model"
        )
    listed = open_to_tune(data, before)
    facts = {"models": [original.name], "domains": list(listed.domains), "images": len(listed)}
    facts |= {"protocol": protocol, **chosen.to_dict()}
    with _work_folder(folder) as work, Stage(listener, "tuning", **facts) as stage:
        with stage.whole.between(0.0, 0.05):
            images = readable_to_tune(listed, before)
        if len(images.domains) == 2 and chosen.by_domain:
            warnings.warn(
                f"{images.name!r} has two domains, so that the runs that choose the weights train "
                "on one domain each; three or more domains make the choice more reliable",
                stacklevel=2,
            )
        fresh = not (work / _RUNS).exists()
        with opened(images, original.preprocessing.geometry) as problem:
            tuner: Tuner | ErmTuner = _TUNERS[type(chosen)](
                lambda: load_trainable(original.spec, original.preprocessing),
                problem,
                chosen,
                device=device,
                folder=work / _RUNS,
                stage=stage,
            )
            try:
                _require_time(tuner, original.name, max_hours)
            except InputError:
                if fresh:  # so that the next call may have other settings
                    remove_checkpoints(work)
                raise
            if len(before.models) > 1:  # first, because it may fail
                models = before.loadable_models
                extract_models(images, models, work / _FEATURES, before.device, stage.events)
            with stage.whole.between(0.05, 0.9):
                tuned = tuner.tuned()
        record = {
            "model": original.name,
            "tuned": None,
            "weight": None,
            "protocol": protocol,
            "choice": tuned.choice,
            "left_out": tuned.metrics,
            "settings": chosen.to_dict(),
            "seconds": round(tuned.seconds, 3),
            "device": tuner.device,
        }
        if tuned.choice["name"] == LINEAR_HEAD:  # on the model as it was
            after = replace(before, provenance=replace(before.provenance, tuning=record))
        else:
            with stage.whole.between(0.9, 1.0):
                after = _assembled(before, original, images, tuned, record, work / _FEATURES, stage)
        metrics = {}
        for what, name in (("linear_head", LINEAR_HEAD), ("tuned", tuned.choice["name"])):
            if found := tuned.metrics.get(name):
                metrics[f"{before.task.metric}_of_{what}"] = sum(found.values()) / len(found)
        stage.finish(after, metrics)
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


# --- the model, and the images it is tuned on --------------------------------------------------


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
    weights, scores = predictor.provenance.pool, predictor.provenance.scores
    best = max(models, key=lambda each: (weights.get(each, 0.0), scores.get(each, -math.inf)))
    return models[best]


def open_to_tune(data: Any, predictor: Predictor) -> ImageDomains:
    """Open the data, without reading the images, and check that the predictor is for them."""
    task = predictor.task
    is_open = isinstance(data, ImageDomains)
    found: ImageDomains = data if is_open else ImageDomains(data, task=task.kind)
    if found.modality != "image":
        raise InputError(f"{found.name!r} has {found.modality}s; the predictor takes images")
    if found.task.kind != task.kind:
        raise InputError(
            f"{found.name!r} has labels for {found.task.kind!r}, but the predictor is for "
            f"{task.kind!r}"
        )
    known = [str(label) for label in predictor.classes]
    for names, others, text in (
        (found.classes, known, f"has the {task.noun} {{}}, which the predictor has not"),
        (known, found.classes, f"has no {task.noun} {{}}, which the predictor has"),
    ):
        if extra := [name for name in names if name not in others]:
            more = f" and {count(len(extra) - 1, 'more', 'more')}" if len(extra) > 1 else ""
            raise InputError(
                f"{found.name!r} {text.format(repr(extra[0]) + more)}; give images of the same "
                f"{task.nouns}, or fit a new predictor"
            )
    _require_images_to_hold_out(found)  # here, and again without those that cannot be read
    return found


def readable_to_tune(data: ImageDomains, predictor: Predictor) -> ImageDomains:
    """Read all images; those that cannot be read are left out, with a warning.

    Warns if they are not the images and labels that the predictor was trained on. Raises an
    InputError if a model of the predictor was fine-tuned on one of their domains: it would predict
    that domain too well when it is left out.
    """
    unreadable = data.summary(advance).unreadable or {}
    if unreadable:
        first, reason = next(iter(unreadable.items()))
        warnings.warn(
            f"left out {count(len(unreadable), 'image')} that cannot be read; the first is "
            f"{first!r}: {reason}",
            stacklevel=3,
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
    provenance = predictor.provenance
    tuned = (provenance.tuning or {}).get("tuned")
    seen = [domain for domain in data.domains if domain in provenance.domains]
    if seen and tuned in [model.name for model in predictor.models]:
        raise InputError(
            f"model {tuned!r} of the predictor was fine-tuned on the domain {seen[0]!r}, so that "
            "leaving it out says nothing about the model; tune the predictor from before instead, "
            "with other settings"
        )
    trained = provenance.hashed_labels()
    given = replace(provenance, images=_hashed(data)).hashed_labels()
    numbers = {
        "missing": len(trained.keys() - given),
        "added": len(given.keys() - trained),
        "labelled differently": sum(trained[i] != given[i] for i in trained.keys() & given),
    }
    if any(numbers.values()):
        texts = (f"{count(n, 'image')} {what}" for what, n in numbers.items() if n)
        warnings.warn(
            f"{data.name!r} is not the data that the predictor was trained on: {', '.join(texts)}; "
            "its models were chosen on other data",
            stacklevel=3,
        )
    return data


def _hashed(data: ImageDomains) -> str:
    """The images and labels of a data set that can be read, for the provenance."""
    pairs = zip(data.digests, data.samples, strict=True)
    return hashed_images((image, sample.label) for image, sample in pairs if image is not None)


def _require_images_to_hold_out(data: ImageDomains) -> None:
    groups: dict[str, list[str | None]] = {domain: [] for domain in data.domains}
    for sample in data.samples:
        groups[sample.domain].append(sample.group)
    for domain, each in groups.items():
        require_images_to_hold_out(domain, each)


# --- the work, and what came of it -------------------------------------------------------------


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


def _require_time(tuner: Tuner | ErmTuner, name: str, max_hours: float | None) -> None:
    """Raise InputError if the training would take too long."""
    limit = tuner.hours_allowed(max_hours)
    if limit == math.inf:
        return
    seconds = tuner.estimated_seconds()
    if seconds > 3600 * limit:
        advice = ["use a GPU (--device cuda)"] if tuner.device == "cpu" else []
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
    tuned: Tuned,
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
    final = FinalHead(Columns.all_of(source, [name]), tuned.head)
    if len(models) > 1:
        final = fit_tuned_pool(source, images, name, tuned)
    by_name, pool = {each.name: each for each in models}, final.weights
    provenance = Provenance(
        domains=source.domains,
        n_images=len(images),
        data=images.fingerprint,
        images=_hashed(images),
        scores=before.provenance.scores,
        n_features=len(Columns.all_of(source, source.models)),
        threshold=None,
        choice=POOL.name if pool else TUNED,
        pool=pool,
        tuning=record | {"tuned": name, "weight": pool.get(name, 0.0) if pool else 1.0},
        name=images.short_name,
        score=before.provenance.score,
    )
    used = [by_name[each] for each in final.columns.models]
    return assemble(source, used, final, provenance, **before.get_params())


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
    before = original.spec
    pretraining = before.pretraining or "pre-trained"
    spec = ModelSpec(
        name=name,
        source=f"onnx/{file.name}",
        **stated_preprocessing(original.preprocessing),
        features=_OUTPUT,
        feature_dim=original.feature_dim,
        parameters=original.parameters,
        pretraining=f"{pretraining}, fine-tuned on {', '.join(domains)}",
        architecture=before.architecture,
        licence=before.licence,
        origin=before.origin,
        folder=folder,
    )
    digests = list(file_digests(spec).values())
    return replace(
        original,
        spec=replace(spec, sha256=digests[0]),
        precision="float32",
        fingerprint=fingerprint(digests, [_OUTPUT]),
        files={},
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


def extract_models(
    images: ImageDomains,
    models: Sequence[PredictorModel],
    folder: Path,
    device: str,
    listener: Listeners,
) -> FeatureStore:
    """Extract the features of models of a predictor into a store; those that it has are kept."""
    groups: dict[tuple[str, Decode], list[ModelSpec]] = defaultdict(list)
    for model in models:
        groups[model.precision, model.preprocessing.geometry.decode].append(model.spec)
    for (precision, decode), specs in groups.items():
        config = ExtractionConfig(device=device, precision=precision, decode=decode)
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
    head = Head(name, _HEAD, SHARES[-1])
    pooled = source.task.pooled  # of a single head, it normalises
    outputs = []
    for domain in source.domains:
        paths = [sample.path for sample in images.samples if sample.domain == domain]
        positions = {path: at for at, path in enumerate(paths)}
        rows = [positions[path] for path in source.store.paths(domain)]
        outputs.append(pooled(tuned.left_out[domain][rows][None], [1.0]))
    heads = replace(
        heads,
        candidates=heads.candidates | {head: HeadPredictions(0, outputs)},
        milliseconds=heads.milliseconds | {name: source.facts(name).milliseconds},
    )
    return fit_pool(source, heads, choose_pool(heads), given={head: tuned.head})

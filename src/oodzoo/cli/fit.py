"""`oodzoo fit`, `tune` and `export`: make a predictor."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oodzoo.cli.app import FILES_COMPLETE, command
from oodzoo.cli.extract import stored_target
from oodzoo.cli.options import (
    ArrayCompute,
    DomainOptions,
    TrackingOptions,
    compute_device,
    listening,
    open_data,
    rates_of,
    top_k_of,
    warn_of_limits,
)
from oodzoo.cli.terminal import Terminal
from oodzoo.core.errors import InputError
from oodzoo.core.events import Events
from oodzoo.core.limits import Limits
from oodzoo.core.remote.location import parse_location
from oodzoo.core.text import count, duration, typed

if TYPE_CHECKING:
    from oodzoo.predictor import Predictor
    from oodzoo.store.feature_store import FeatureStore


@command("fit", example="oodzoo fit features/ --out model/", interrupted=FILES_COMPLETE)
def fit(
    terminal: Terminal,
    store: str,
    out: str,
    decided: Path | None = None,
    choose: str | None = None,
    top_k: str | None = None,
    models: str | None = None,
    score: str = "unseen",
    target: str | None = None,
    *,
    limits: Limits,
    method: str = "consistent",
    threshold: float | None = None,
    zoo: str | None = None,
    compute: ArrayCompute,
    tracking: TrackingOptions,
) -> None:
    """Train a predictor on all domains of a feature store and save it with its models.

    Options
    -------
    out : PATH
        Folder or URL for the predictor.
    choose : HOW; default auto; with --top-k or --models ensemble
        How to combine the models: single, pool, ensemble or selection; auto takes what the
        evaluation recommends.
    top_k; default 3
    models : NAME,…
        Use only these models, separated by commas; without --choose and --top-k, all their
        features.
    zoo
        New location of the models, if they moved. {zoo}
    """
    from oodzoo.predictor import fit as fit_store
    from oodzoo.predictor.fitting import require_fittable
    from oodzoo.predictor.remote import require_free_location
    from oodzoo.store.feature_store import FeatureStore

    require_free_location(out)  # before the work
    opened = FeatureStore(store)
    number = None if top_k is None else top_k_of(top_k)
    asked: dict[str, Any] = {
        "choose": choose,
        "top_k": number,
        "models": None if models is None else [name.strip() for name in models.split(",")],
        "score": score,
        **vars(limits),
        "method": method,
        "threshold": threshold,
    }
    if decided is not None:
        asked = _decided(decided, opened, asked)
    named = models is not None and choose in (None, "ensemble") and top_k is None
    if target is not None and named:
        raise InputError(
            "--target is only used to rank the models and to fit a pool; leave it out with "
            "--models, or add --choose pool"
        )
    if models is None:
        warn_of_limits(terminal, opened, limits)
    others = tracking.listeners()
    if target is not None:
        require_fittable(opened, **asked)  # before its images are extracted
        target = stored_target(
            terminal, store, target, asked.get("score", score), zoo, compute.device
        )
        opened = FeatureStore(store)  # it may have been added
    with listening(terminal, "Fitting", others) as listener:
        predictor = fit_store(
            opened,
            **asked,
            target=target,
            zoo=zoo,
            device=compute_device(compute.device),
            engine=compute.engine,
            address=compute.address,
            listener=listener,
        )
    predictor.save(out)
    if predictor.provenance.choice == "ensemble" and not isinstance(number, int | None):
        best = count(len(predictor.models), "model")
        terminal.say(f"--top-k {top_k}: the best {best}, chosen on held-out domains")
    location = parse_location(out)
    if isinstance(location, Path):
        Events(others).artifact("predictor", location)
    _show_predictor(terminal, predictor, str(location))


def _decided(path: Path, store: FeatureStore, asked: dict[str, Any]) -> dict[str, Any]:
    """What a file says to fit; options that say it as well are rejected."""
    defaults = {"score": "unseen", "method": "consistent"}
    for name, value in asked.items():
        if value != defaults.get(name):
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"--from {str(path)!r} says what to fit; leave out {option}")
    return read_decision(path, store)


def _show_predictor(terminal: Terminal, predictor: Predictor, folder: str) -> None:
    from oodzoo.combining.statements import shown_choice

    provenance = predictor.provenance
    weights = provenance.pool if len(predictor.models) > 1 else {}
    terminal.table(
        ["model", "features", "kept", *(["weight"] if weights else [])],
        [
            [
                model.name,
                model.feature_dim,
                len(predictor.columns.by_model[model.name]),
                *([f"{weights.get(model.name, 0):.2f}"] if weights else []),
            ]
            for model in predictor.models
        ],
    )
    metric = predictor.task.metric
    measured = "" if metric == "accuracy" else f"{metric.replace('_', ' ')} "
    if provenance.accuracy is not None:
        choice = shown_choice(provenance.choice, predictor.models)
        terminal.line(
            f"{choice}: {provenance.accuracy:.1f} % {measured}measured on unseen domains, with the "
            "choice made without each of them"
        )
    terminal.line(
        f"{predictor.task.count_outputs(len(predictor.classes_))} from "
        f"{count(len(predictor.columns), 'feature')}, trained on "
        f"{count(provenance.n_images, predictor.modality or 'row')} of "
        f"{count(len(provenance.domains), 'domain')}; saved in {folder}"
    )
    takes = {"image": "IMAGE|FOLDER ...", "text": "TEXTS.csv|.txt", None: "FEATURES.npz"}[
        predictor.modality
    ]
    terminal.say(f"Predict with: oodzoo predict {typed(folder)} {takes}")
    terminal.say(f"Model card: {folder}/README.md")
    terminal.document(
        {
            "model": folder,
            "choice": provenance.choice,
            "task": predictor.task.kind,
            metric: provenance.accuracy,
            f"{metric}_interval": provenance.accuracy_interval,
            "pool": provenance.pool,
            "target": provenance.target,
            "cost": vars(predictor.cost),
            "models": [model.name for model in predictor.models],
            "features_only": predictor.features_only,
            "n_features": provenance.n_features,
            "n_selected": len(predictor.columns),
            "classes": predictor.classes_.tolist(),
            "domains": list(provenance.domains),
            "images": provenance.n_images,
            "C": predictor.head.C,
            "out_of_domain": vars(predictor.gaussian.scalars()),
        }
    )


@command("export", example="oodzoo export model/ model.onnx", interrupted=FILES_COMPLETE)
def export(
    terminal: Terminal,
    model: str,
    file: Path | None = None,
    out: Path | None = None,
    head_only: bool = False,
    raw: bool = False,
) -> None:
    """Write a predictor as one ONNX file, from pixels to probabilities or numbers.

    Models are ONNX files or PyTorch models. The file needs neither oodzoo nor PyTorch.

    Arguments
    ---------
    file : FILE
        The ONNX file to write, or --out.

    Options
    -------
    out : FILE
        The ONNX file to write.
    head_only
        Write only the head, from the features of each model; the only form if the models have
        features only.
    raw
        Take one RGB image of any size, and resize it in the file; pixels may differ a little
        from Pillow's.
    """
    from oodzoo.predictor import load

    if file is not None and out is not None:
        raise InputError(f"the file is given twice: {str(file)!r} and --out {str(out)!r}")
    path = file or out
    if path is None:
        raise InputError("give the file to write: oodzoo export MODEL FILE, or --out FILE")
    predictor = load(model, device="cpu")
    predictor.export(path, head_only=head_only, raw=raw)
    terminal.line(f"{path}")
    inputs = predictor.export_inputs(head_only=head_only, raw=raw)
    dtype = "float32" if head_only or predictor.features_only else "uint8"
    batch = () if raw else ("n",)
    for name, shape in inputs.items():
        terminal.line(f"input {name}: {dtype} ({', '.join(map(str, batch + shape))})")
    probable = predictor.task.has_probabilities
    output = "probabilities: float32" if probable else "numbers: float64"
    terminal.line(f"output {output} ({'1' if raw else 'n'}, {len(predictor.classes_)})")
    terminal.document({"file": str(path), "inputs": inputs, "classes": predictor.classes_.tolist()})


_MOST_DOMAINS = 8
"""A table with a column for each domain has at most this many."""


@command(
    "tune",
    example="oodzoo tune model/ photos/ --out tuned/",
    interrupted="checkpoints are kept, rerun the command to resume",
)
def tune(
    terminal: Terminal,
    predictor: str,
    data: str,
    out: str,
    model: str | None = None,
    protocol: str = "lp-ft",
    learning_rate: str | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    weight_decay: float | None = None,
    schedule: str | None = None,
    lora: int | None = None,
    augment: bool = True,
    draws: int | None = None,
    search_space: str | None = None,
    choose_by: str | None = None,
    seed: int | None = None,
    device: str = "auto",
    max_hours: float | None = None,
    *,
    options: DomainOptions,
    checkpoints: Path | None = None,
    tracking: TrackingOptions,
) -> None:
    """Fine-tune a model of a predictor on images, and keep what is best on held-out domains.

    Options
    -------
    out : PATH
        Folder or URL for the tuned predictor.
    model; default the one with the largest weight or the highest score
        The model to tune, if the predictor has several.
    protocol : HOW
        How to train: lp-ft (from a linear head, with averaged weights), or domainbed (empirical
        risk minimisation with DomainBed's random search).
    learning_rate : RATE,…; default 1e-4,1e-3
        Learning rate of AdamW; one of several is chosen on held-out domains.
    steps; default 300; domainbed: 5001
        Steps of each training run.
    batch_size : N; default 32
        Images of each domain in a step.
    weight_decay; default 1e-4
        Weight decay of AdamW.
    schedule : NAME; default cosine
        Course of the learning rate: cosine (falls to zero), or constant.
    lora : RANK
        Train LoRA adapters of this rank, not all weights.
    augment
        Augment the images as DomainBed does.
    draws; default 20
        domainbed only: number of hyper-parameter draws.
    choose_by : RULE; default leave-one-domain-out
        Where weights and learning rate are chosen: leave-one-domain-out, or training-domain (on
        a fifth of the images of each domain; faster, less reliable).
    seed; default 0
        Random seed.
    device
        Device for the training: auto, cpu, cuda, cuda:1, mps.
    max_hours; default 3 on the CPU
        Refuse to start a training that would take longer.
    checkpoints : DIR; default OUT.tuning
        Folder for checkpoints, removed at the end.
    """
    from oodzoo.predictor import load
    from oodzoo.predictor.remote import require_free_location
    from oodzoo.predictor.tuning import (
        remove_checkpoints,
        require_checkpoint_folder,
        tune_settings,
    )
    from oodzoo.predictor.tuning import tune as tune_predictor

    _require_another(predictor, out)
    require_free_location(out)  # before the work
    folder = _checkpoint_folder(out) if checkpoints is None else checkpoints
    require_checkpoint_folder(folder)
    given: dict[str, Any] = {
        "learning_rates": None if learning_rate is None else rates_of(learning_rate),
        "steps": steps,
        "batch_size": batch_size,
        "weight_decay": weight_decay,
        "schedule": schedule,
        "lora": lora,
        "augment": None if augment else False,
        "draws": draws,
        "search_space": search_space,
        "choose_by": choose_by,
        "seed": seed,
    }
    settings = {name: value for name, value in given.items() if value is not None}
    tune_settings(protocol, **settings)
    others = tracking.listeners()
    before = load(predictor)
    images = open_data(data, options, before.task.kind)
    with listening(terminal, "Tuning", others) as listener:
        after = tune_predictor(
            before,
            images,
            model=model,
            protocol=protocol,
            device=device,
            folder=folder,
            max_hours=max_hours,
            listener=listener,
            **settings,
        )
    after.save(out)
    remove_checkpoints(folder)
    location = parse_location(out)
    if isinstance(location, Path):
        Events(others).artifact("tuning", location)
    _show(terminal, after, str(location))


def _require_another(predictor: str, out: str) -> None:
    """Reject the predictor to tune as the place of the tuned one, which would replace it."""
    before, after = parse_location(predictor), parse_location(out)
    if isinstance(before, Path) and isinstance(after, Path):
        before, after = before.resolve(), after.resolve()
    if before == after:
        raise InputError(
            f"--out {out!r} is the predictor to tune, which it would replace; choose another folder"
        )


def _checkpoint_folder(out: str) -> Path:
    """The folder next to the predictor; for a URL, one in the cache."""
    from oodzoo.core.remote.cache import cache_folder

    location = parse_location(out)
    if isinstance(location, Path):
        return location.with_name(f"{location.resolve().name}.tuning")
    return cache_folder() / "tuning" / hashlib.sha256(str(location).encode()).hexdigest()[:16]


def _show(terminal: Terminal, predictor: Predictor, folder: str) -> None:
    from oodzoo.predictor.tuning import LINEAR_HEAD

    provenance = predictor.provenance
    record: dict[str, Any] = provenance.tuning or {}
    metric = predictor.task.metric
    chosen, left_out = record["choice"]["name"], record["left_out"]
    by_domain = record["settings"]["choose_by"] == "leave-one-domain-out"
    where = "held-out domains" if by_domain else "held-out images"
    _show_candidates(terminal, left_out, chosen, f"{metric.replace('_', ' ')} on {where}, %")
    name, original = record["tuned"], record["model"]
    if name is None:
        terminal.line(
            f"the linear head on {original!r} as it was is best on {where}: the predictor is "
            "unchanged"
        )
    else:
        terminal.line(
            f"{name}: {_words(chosen)}, learning rate {record['choice']['learning_rate']:.3g}, "
            f"chosen by {_criterion(predictor)} on {where}; the {metric.replace('_', ' ')} above "
            "is on the same images, and slightly too high"
        )
        if record["weight"] == 0:
            terminal.line(f"the pool is better without {name}: it has the weight 0")
    if len(provenance.pool) > 1:
        weights = provenance.pool.items()
        terminal.line("pool: " + ", ".join(f"{each} {weight:.2f}" for each, weight in weights))
    terminal.line(
        f"{predictor.task.count_outputs(len(predictor.classes_))}, trained on "
        f"{count(provenance.n_images, 'image')} of {count(len(provenance.domains), 'domain')}; "
        f"fine-tuning took {duration(record['seconds'])} on {record['device']}; saved in {folder}"
    )
    terminal.say(f"Predict with: oodzoo predict {typed(folder)} IMAGE|FOLDER ...")
    head = left_out.get(LINEAR_HEAD, {})
    terminal.document(
        {
            "model": folder,
            "original": original,
            **{key: record[key] for key in ("tuned", "weight", "protocol", "choice", "settings")},
            "metric": metric,
            "left_out": {
                domain: {"head": head.get(domain), "tuned": value}
                for domain, value in left_out[chosen].items()
            },
            "candidates": left_out,
            "pool": provenance.pool,
            "seconds": record["seconds"],
            "device": record["device"],
        }
    )


def _show_candidates(
    terminal: Terminal, left_out: dict[str, dict[str, float]], chosen: str, title: str
) -> None:
    """A table of the linear head, the last weights, the average, and what was chosen."""
    shown = [name for name in ("linear head", "last 1", "average 1") if name in left_out]
    domains = list(left_out[chosen])
    columns = domains if len(domains) <= _MOST_DOMAINS else []
    terminal.table(
        ["weights", *columns, "mean", ""],
        [
            [
                _words(name),
                *(f"{left_out[name][domain]:.1f}" for domain in columns),
                f"{sum(left_out[name].values()) / len(domains):.1f}",
                "chosen" if name == chosen else "",
            ]
            for name in dict.fromkeys([*shown, chosen])
        ],
        title=title,
    )


def _criterion(predictor: Predictor) -> str:
    """What the weights were chosen by: not the metric of the table, except for DomainBed's."""
    if (predictor.provenance.tuning or {})["protocol"] == "domainbed":
        return "the accuracy"
    likelihood = predictor.task.has_probabilities
    return "the likelihood of the labels" if likelihood else "the squared error"


def _words(candidate: str) -> str:
    """Describe a candidate of :mod:`oodzoo.tuning.tuner`.

    Examples
    --------
    >>> _words("last 1"), _words("average 0.5"), _words("erm")
    ('last weights', 'average, mixed 0.5', 'empirical risk minimisation')
    """
    weights, _, mixing = candidate.partition(" ")
    words = {"last": "last weights", "average": "average", "erm": "empirical risk minimisation"}
    what = words.get(weights, candidate)
    return (
        what if weights not in ("last", "average") or mixing == "1" else f"{what}, mixed {mixing}"
    )


def read_decision(path: Path, store: FeatureStore) -> dict[str, Any]:
    """Read what was decided about the models of a store, as options of :func:`oodzoo.fit`."""
    from oodzoo.combining.evaluation.result import Recommended, require_no_oracle
    from oodzoo.combining.selection import SelectionSummary
    from oodzoo.core.io import read_json, structured

    what = f"the result {str(path)!r}"
    document: dict[str, Any] = {}
    try:
        document = read_json(path, "the result")
    except InputError:  # another kind of file is not a damaged result
        if path.suffix.lower() == ".json" or not path.is_file():
            raise
    kind = _kind(document)
    if kind not in ("evaluation", "selection"):
        raise InputError(
            f"{str(path)!r} is {kind}; --from takes what oodzoo evaluate or oodzoo select has "
            "written with --out"
        )
    made_of, options = document.get("store"), document.get("options")
    if not isinstance(made_of, dict) or not isinstance(options, dict):
        raise InputError(
            f"{str(path)!r} does not say which data it is of; write it again with --out"
        )
    if made_of.get("data") != store.data_fingerprint:
        raise InputError(
            f"{str(path)!r} is of other images or labels ({made_of.get('name')!r}) than the store "
            f"{store.location!r} has now; run oodzoo "
            f"{'evaluate' if kind == 'evaluation' else 'select'} on this store"
        )
    if kind == "selection":
        return {"selection": structured(document, SelectionSummary, what), **_of(options, "score")}
    require_no_oracle(document.get("rule"))
    return {
        "recommended": structured(document["recommended"], Recommended, what),
        **_of(options, "score", "models", "max_models", "max_ms"),
    }


def _kind(document: Mapping[str, Any]) -> str:
    """What a document is."""
    if {"stages", "settings"} <= document.keys():
        return "the record of a run, whose predictor is in its folder model"
    if {"recommended", "single", "pool"} <= document.keys():
        return "evaluation"
    if {"per_model", "n_selected"} <= document.keys():
        return "selection"
    return "a ranking" if "ranking" in document else "no result of oodzoo"


def _of(options: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: options[name] for name in names if options.get(name) is not None}

"""`oodzoo tune`: fine-tune a model of a predictor."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oodzoo.cli.app import command
from oodzoo.cli.options import (
    DomainOptions,
    TrackingOptions,
    listening,
    open_data,
    rates_of,
)
from oodzoo.cli.terminal import Terminal
from oodzoo.core.errors import InputError
from oodzoo.core.events import Events
from oodzoo.core.remote.location import parse_location
from oodzoo.core.text import count, duration, typed

if TYPE_CHECKING:
    from oodzoo.predictor import Predictor

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
    """Fine-tune a model of a predictor on images, and keep what is best on left-out domains.

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
        Learning rate of AdamW; one of several is chosen on left-out domains.
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
    where = "left-out domains" if by_domain else "held-out images"
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
    regression = predictor.task.kind == "regression"
    return "the squared error" if regression else "the likelihood of the labels"


def _words(candidate: str) -> str:
    """Describe a candidate of :mod:`oodzoo.tuning.choice`.

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

"""`oodzoo tune`: fine-tune a model of a predictor."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oodzoo._text import count, duration
from oodzoo.cli.app import command
from oodzoo.cli.listening import listeners, listening
from oodzoo.cli.options import (
    ColumnsOption,
    DataArgument,
    DomainsOption,
    LogFileOption,
    MLflowOption,
    PredictorArgument,
    RootOption,
    TensorBoardOption,
    open_data,
)
from oodzoo.cli.terminal import Terminal
from oodzoo.errors import InputError
from oodzoo.events import Events
from oodzoo.remote.location import parse_location

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
    predictor: PredictorArgument,
    data: DataArgument,
    out: Annotated[str, typer.Option(help="Folder or URL for the tuned predictor.")],
    model: Annotated[
        str | None,
        typer.Option(
            help="The model to tune, if the predictor has several.",
            show_default="the one with the largest weight or the highest score",
        ),
    ] = None,
    learning_rate: Annotated[
        str | None,
        typer.Option(
            metavar="RATE,…",
            help="Learning rate of AdamW; one of several is chosen on left-out domains.",
            show_default="3e-5",
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Steps of each training run.", show_default="300")
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Images of each domain in a step.", show_default="32"),
    ] = None,
    weight_decay: Annotated[float | None, typer.Option(show_default="1e-4")] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            metavar="cosine|constant", help="Course of the learning rate.", show_default="cosine"
        ),
    ] = None,
    lora: Annotated[
        int | None,
        typer.Option(metavar="RANK", help="Train LoRA adapters of this rank, not all weights."),
    ] = None,
    augment: Annotated[bool, typer.Option(help="Augment the images as DomainBed does.")] = True,
    choose_by: Annotated[
        str | None,
        typer.Option(
            metavar="leave-one-domain-out|training-domain",
            help="Where weights and learning rate are chosen: on left-out domains, or on a fifth "
            "of the images of each domain.",
            show_default="leave-one-domain-out",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.", show_default="0")] = None,
    device: Annotated[
        str, typer.Option(help="Device for the training: auto, cpu, cuda, cuda:1, mps.")
    ] = "auto",
    max_hours: Annotated[
        float | None,
        typer.Option(
            help="Refuse to start a training that would take longer.",
            show_default="3 on the CPU",
        ),
    ] = None,
    root: RootOption = None,
    columns: ColumnsOption = None,
    domains: DomainsOption = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for checkpoints, removed at the end.",
            show_default="OUT.tuning",
        ),
    ] = None,
    log_file: LogFileOption = None,
    mlflow: MLflowOption = None,
    tensorboard: TensorBoardOption = None,
) -> None:
    """Fine-tune a model of a predictor on images, and keep what is best on left-out domains."""
    from oodzoo.predictor import load
    from oodzoo.predictor.remote import require_free_location
    from oodzoo.predictor.tuning import (
        remove_checkpoints,
        require_checkpoint_folder,
        tune_settings,
    )
    from oodzoo.predictor.tuning import tune as tune_predictor

    require_free_location(out)  # before the work
    folder = _checkpoint_folder(out) if checkpoints is None else checkpoints
    require_checkpoint_folder(folder)
    given = {
        "learning_rates": None if learning_rate is None else _rates(learning_rate),
        "steps": steps,
        "batch_size": batch_size,
        "weight_decay": weight_decay,
        "schedule": schedule,
        "lora": lora,
        "augment": augment,
        "choose_by": choose_by,
        "seed": seed,
    }
    settings = {name: value for name, value in given.items() if value is not None}
    tune_settings(**settings)
    others = listeners(log_file, mlflow, tensorboard)
    before = load(predictor)
    images = open_data(data, root, columns, domains, before.task.kind)
    with listening(terminal, "Tuning", others) as listener:
        after = tune_predictor(
            before,
            images,
            model=model,
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


def _rates(text: str) -> list[float]:
    """Read the value of --learning-rate."""
    rates = []
    for part in text.split(","):
        try:
            rates.append(float(part))
        except ValueError:
            raise InputError(
                f"--learning-rate must be one or more numbers, such as 1e-5,3e-5, got {part!r}"
            ) from None
    return rates


def _checkpoint_folder(out: str) -> Path:
    """The folder next to the predictor; for a URL, one in the cache."""
    from oodzoo.remote.cache import cache_folder

    location = parse_location(out)
    if isinstance(location, Path):
        return location.with_name(f"{location.resolve().name}.tuning")
    return cache_folder() / "tuning" / hashlib.sha256(str(location).encode()).hexdigest()[:16]


def _show(terminal: Terminal, predictor: Predictor, folder: str) -> None:
    provenance = predictor.provenance
    record: dict[str, Any] = provenance.tuning or {}
    metric = predictor.task.metric
    chosen, left_out = record["choice"]["name"], record["left_out"]
    where = "left-out domains"
    if record["settings"]["choose_by"] != "leave-one-domain-out":
        where = "held-out images"
    _show_candidates(terminal, left_out, chosen, f"{metric.replace('_', ' ')} on {where}, %")
    mean = {name: sum(each.values()) / len(each) for name, each in left_out.items()}
    gain = f"{mean[chosen]:.1f} % against {mean['linear head']:.1f} % of the linear head"
    name, original = record["tuned"], record["model"]
    if name is None:
        terminal.line(
            f"the linear head on {original!r} as it was is best on {where}: the predictor is "
            "unchanged"
        )
    else:
        terminal.line(
            f"{name}: {chosen}, learning rate {record['choice']['learning_rate']:g}; {gain}. "
            "These numbers have chosen the weights, so they are a little too high"
        )
        if record["weight"] == 0:
            terminal.line(f"the pool is better without {name}: it has the weight 0")
    if provenance.pool:
        terminal.line(
            "pool: " + ", ".join(f"{each} {w:.2f}" for each, w in provenance.pool.items())
        )
    terminal.line(
        f"{predictor.task.count_outputs(len(predictor.classes_))}, trained on "
        f"{count(provenance.n_images, 'image')} of {count(len(provenance.domains), 'domain')} in "
        f"{duration(record['seconds'])} on {record['device']}; saved in {folder}"
    )
    terminal.say(f"Predict with: oodzoo predict {folder} IMAGE|FOLDER ...")
    terminal.document(
        {
            "model": folder,
            **{key: record[key] for key in ("tuned", "weight", "choice", "settings")},
            "original": original,
            "metric": metric,
            "left_out": {
                domain: {"head": left_out["linear head"][domain], "tuned": left_out[chosen][domain]}
                for domain in left_out[chosen]
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
    names = dict.fromkeys(["linear head", "last 1", "average 1", chosen])
    domains = list(left_out[chosen])
    shown = domains if len(domains) <= _MOST_DOMAINS else []
    terminal.table(
        ["weights", *shown, "mean", ""],
        [
            [
                _words(name),
                *(f"{left_out[name][domain]:.1f}" for domain in shown),
                f"{sum(left_out[name].values()) / len(domains):.1f}",
                "chosen" if name == chosen else "",
            ]
            for name in names
        ],
        title=title,
    )


def _words(candidate: str) -> str:
    """Describe a candidate of :mod:`oodzoo.tuning.choice`.

    Examples
    --------
    >>> _words("last 1"), _words("average 0.5")
    ('last weights', 'average, mixed 0.5')
    """
    weights, _, mixing = candidate.partition(" ")
    if weights == "linear":
        return candidate
    what = "last weights" if weights == "last" else "average"
    return what if mixing == "1" else f"{what}, mixed {mixing}"

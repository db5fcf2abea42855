"""`oodzoo fit` and `oodzoo export`: train a predictor, write it as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oodzoo._text import count
from oodzoo.cli.app import FILES_COMPLETE, command
from oodzoo.cli.options import (
    ZOO_HELP,
    ComputeOption,
    PredictorArgument,
    ScoreOption,
    StoreArgument,
    ThresholdOption,
    compute_device,
)
from oodzoo.cli.target import TargetOption, stored_target
from oodzoo.cli.terminal import Terminal
from oodzoo.errors import InputError

if TYPE_CHECKING:
    from oodzoo.predictor import Predictor


@command("fit", example="oodzoo fit features/ --out model/", interrupted=FILES_COMPLETE)
def fit(
    terminal: Terminal,
    store: StoreArgument,
    out: Annotated[Path, typer.Option(help="Folder for the predictor.")],
    top_k: Annotated[int, typer.Option(help="Number of top models to combine.")] = 3,
    models: Annotated[
        str | None, typer.Option(help="Use these models instead, separated by commas.")
    ] = None,
    score: ScoreOption = "unseen",
    target: TargetOption = None,
    select: Annotated[bool, typer.Option(help="Keep only informative features, or all.")] = True,
    threshold: ThresholdOption = 0.5,
    zoo: Annotated[
        str | None,
        typer.Option(
            help="New location of the models, if they moved. Required for stores written by "
            f"version 0.1. {ZOO_HELP}"
        ),
    ] = None,
    device: ComputeOption = "cpu",
) -> None:
    """Train a predictor on all domains of a feature store and save it with its models."""
    from oodzoo.predictor import fit as fit_store
    from oodzoo.predictor.folder import require_free

    require_free(out)  # before the work
    if target is not None and models is not None:
        raise InputError("--target is only used to rank the models; leave it out with --models")
    target = stored_target(terminal, store, target, score, zoo, device)
    with terminal.progress("Ranking") as progress:
        predictor = fit_store(
            store,
            top_k=top_k,
            models=None if models is None else [name.strip() for name in models.split(",")],
            score=score,
            target=target,
            select=select,
            threshold=threshold,
            zoo=zoo,
            device=compute_device(device),
            progress=progress,
        )
    predictor.save(out)
    _show_predictor(terminal, predictor, out)


def _show_predictor(terminal: Terminal, predictor: Predictor, folder: Path) -> None:
    provenance = predictor.provenance
    terminal.table(
        ["model", "features", "kept"],
        [
            [model.name, model.feature_dim, len(predictor.columns.by_model[model.name])]
            for model in predictor.models
        ],
    )
    terminal.line(
        f"{count(len(predictor.classes_), 'class', 'classes')} from "
        f"{count(len(predictor.columns), 'feature')}, trained on "
        f"{count(provenance.n_images, 'image')} of {count(len(provenance.domains), 'domain')}; "
        f"saved in {folder}"
    )
    terminal.say(f"Predict with: oodzoo predict {folder} IMAGE|FOLDER ...")
    terminal.document(
        {
            "model": str(folder),
            "models": [model.name for model in predictor.models],
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
    model: PredictorArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The ONNX file to write.")],
) -> None:
    """Write a predictor as one ONNX file, from pixels to class probabilities."""
    from oodzoo.predictor import load
    from oodzoo.predictor.export import input_names

    predictor = load(model, device="cpu")
    predictor.export(file)
    terminal.line(f"{file}")
    inputs = {name: [*geometry.crop, 3] for name, geometry in input_names(predictor.models).items()}
    for name, (height, width, channels) in inputs.items():
        terminal.line(f"input {name}: uint8 (n, {height}, {width}, {channels})")
    terminal.line(f"output probabilities: float32 (n, {len(predictor.classes_)})")
    terminal.document({"file": str(file), "inputs": inputs, "classes": predictor.classes_.tolist()})

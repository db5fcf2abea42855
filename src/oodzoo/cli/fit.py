"""`oodzoo fit` and `oodzoo export`: a model of the best models of a store, and as one ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oodzoo.cli.app import command
from oodzoo.cli.extract import StoreArgument
from oodzoo.cli.models import ZOO_HELP
from oodzoo.cli.terminal import Terminal

if TYPE_CHECKING:
    from oodzoo.predictor import Predictor

ModelArgument = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Folder of a predictor, made by oodzoo fit.")
]


@command("fit", example="oodzoo fit features/ --out model/")
def fit(
    terminal: Terminal,
    store: StoreArgument,
    out: Annotated[Path, typer.Option(help="Folder for the predictor.")],
    top_k: Annotated[int, typer.Option(help="How many of the best models to take.")] = 3,
    models: Annotated[
        str | None, typer.Option(help="These models instead, separated by commas.")
    ] = None,
    select: Annotated[
        bool, typer.Option(help="Keep only features that say something about a class, or all.")
    ] = True,
    threshold: Annotated[
        float, typer.Option(help="Keep features with a greater inclusion probability.")
    ] = 0.5,
    zoo: Annotated[
        str | None,
        typer.Option(help=f"Where the models lie, if not where they lay. {ZOO_HELP}"),
    ] = None,
    device: Annotated[
        str, typer.Option(help="Where to compute: cpu (NumPy), or cuda with PyTorch.")
    ] = "cpu",
) -> None:
    """Train a predictor on all domains of a store; its folder holds all that it needs."""
    from oodzoo.predictor import fit as fit_store
    from oodzoo.predictor.folder import require_free

    require_free(out)  # now rather than after the work
    with terminal.progress("Ranking") as progress:
        predictor = fit_store(
            store,
            top_k=top_k,
            models=None if models is None else [name.strip() for name in models.split(",")],
            select=select,
            threshold=threshold,
            zoo=zoo,
            device=None if device == "cpu" else device,
            progress=progress,
        )
    predictor.save(out)
    show_predictor(terminal, predictor, out)
    terminal.document(predictor_document(predictor, out))


def predictor_document(predictor: Predictor, folder: Path) -> dict[str, Any]:
    """A predictor for machines."""
    origin = predictor.origin
    return {
        "model": str(folder),
        "models": [network.name for network in predictor.models],
        "n_features": origin.n_features,
        "n_selected": len(predictor.columns),
        "classes": predictor.classes_.tolist(),
        "domains": list(origin.domains),
        "images": origin.n_images,
        "strength": predictor.head.C,
        "out_of_domain": predictor.gaussian.facts(),
    }


def show_predictor(terminal: Terminal, predictor: Predictor, folder: Path) -> None:
    """A predictor for people."""
    origin = predictor.origin
    terminal.table(
        ["model", "features", "kept"],
        [
            [network.name, network.feature_dim, len(predictor.columns.by_model[network.name])]
            for network in predictor.models
        ],
    )
    terminal.line(
        f"{len(predictor.classes_)} classes from {len(predictor.columns)} features, trained on "
        f"{origin.n_images} images of {len(origin.domains)} domains; saved in {folder}"
    )
    terminal.say(f"Predict with: oodzoo predict {folder} IMAGE|FOLDER ...")


@command("export", example="oodzoo export model/ model.onnx")
def export(
    terminal: Terminal,
    model: ModelArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The ONNX file to write.")],
) -> None:
    """Write a predictor as one ONNX file, from pixels to probabilities."""
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

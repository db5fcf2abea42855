"""`oodzoo fit` and `oodzoo export`: train a predictor, write it as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oodzoo.cli.app import FILES_COMPLETE, command
from oodzoo.cli.extract import TargetOption, stored_target
from oodzoo.cli.options import (
    TOP_K_HELP,
    ZOO_HELP,
    ArrayCompute,
    MethodOption,
    PredictorArgument,
    ScoreOption,
    StoreArgument,
    ThresholdOption,
    TrackingOptions,
    compute_device,
    listening,
    top_k_of,
    warn_of_limits,
)
from oodzoo.cli.results import FromOption, read_decision
from oodzoo.cli.terminal import Terminal
from oodzoo.core.errors import InputError
from oodzoo.core.events import Events
from oodzoo.core.options import Limits
from oodzoo.core.remote.location import parse_location
from oodzoo.core.text import count, typed

if TYPE_CHECKING:
    from oodzoo.predictor import Predictor
    from oodzoo.store.feature_store import FeatureStore


@command("fit", example="oodzoo fit features/ --out model/", interrupted=FILES_COMPLETE)
def fit(
    terminal: Terminal,
    store: StoreArgument,
    out: Annotated[str, typer.Option(help="Folder or URL for the predictor.")],
    decided: FromOption = None,
    choose: Annotated[
        str | None,
        typer.Option(
            help="How to combine the models: single, pool, ensemble or selection; auto takes what "
            "the evaluation recommends.",
            show_default="auto; with --top-k or --models ensemble",
        ),
    ] = None,
    top_k: Annotated[
        str | None,
        typer.Option("--top-k", metavar="N,…|auto", help=TOP_K_HELP, show_default="3"),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(
            help="Use only these models, separated by commas; without --choose and --top-k, all "
            "their features."
        ),
    ] = None,
    score: ScoreOption = "unseen",
    target: TargetOption = None,
    *,
    limits: Limits,
    method: MethodOption = "consistent",
    threshold: ThresholdOption = None,
    zoo: Annotated[
        str | None,
        typer.Option(help=f"New location of the models, if they moved. {ZOO_HELP}"),
    ] = None,
    compute: ArrayCompute,
    tracking: TrackingOptions,
) -> None:
    """Train a predictor on all domains of a feature store and save it with its models."""
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
        terminal.say(f"--top-k {top_k}: the best {best}, chosen on left-out domains")
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
    model: PredictorArgument,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The ONNX file to write, or --out.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The ONNX file to write.")
    ] = None,
    head_only: Annotated[
        bool,
        typer.Option(
            "--head-only",
            help="Write only the head, from the features of each model; the only form if the "
            "models have features only.",
        ),
    ] = False,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Take one RGB image of any size, and resize it in the file; pixels may differ a "
            "little from Pillow's.",
        ),
    ] = False,
) -> None:
    """Write a predictor as one ONNX file, from pixels to probabilities or numbers.

    Models are ONNX files or PyTorch models. The file needs neither oodzoo nor PyTorch.
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
    numbers = predictor.task.kind == "regression"
    output = "numbers: float64" if numbers else "probabilities: float32"
    terminal.line(f"output {output} ({'1' if raw else 'n'}, {len(predictor.classes_)})")
    terminal.document({"file": str(path), "inputs": inputs, "classes": predictor.classes_.tolist()})

"""`oodzoo fit` and `oodzoo export`: train a predictor, write it as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from oodzoo.cli.app import FILES_COMPLETE, command
from oodzoo.cli.extract import stored_target
from oodzoo.cli.options import (
    ArrayCompute,
    TrackingOptions,
    compute_device,
    listening,
    top_k_of,
    warn_of_limits,
)
from oodzoo.cli.results import read_decision
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
    numbers = predictor.task.kind == "regression"
    output = "numbers: float64" if numbers else "probabilities: float32"
    terminal.line(f"output {output} ({'1' if raw else 'n'}, {len(predictor.classes_)})")
    terminal.document({"file": str(path), "inputs": inputs, "classes": predictor.classes_.tolist()})

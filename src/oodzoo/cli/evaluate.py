"""`oodzoo evaluate`: what the models chosen without a domain reach on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import typer

from oodzoo.cli.app import command
from oodzoo.cli.extract import StoreArgument
from oodzoo.cli.terminal import Terminal

_WIDTH = 80
_NARROWEST = 5  # of a column: 100.0


@command("evaluate", example="oodzoo evaluate features/ --top-k 1,3,5,7")
def evaluate(
    terminal: Terminal,
    store: StoreArgument,
    top_k: Annotated[
        str,
        typer.Option(
            help="How many models to put side by side; several, such as 1,3,5,7, to compare "
            "them; or auto, to let the training domains choose."
        ),
    ] = "3",
    protocol: Annotated[
        str, typer.Option(help="How heads are trained: fast, or domainbed for its random search.")
    ] = "fast",
    score: Annotated[str, typer.Option(help="What models are ranked by, as in rank.")] = "zood",
    trials: Annotated[
        int | None,
        typer.Option(
            help="Repetitions with other splits, for a standard error; 1 for fast, 3 for domainbed "
            "if not given.",
            show_default=False,
        ),
    ] = None,
    draws: Annotated[int, typer.Option(help="Of domainbed: hyper-parameters to try.")] = 10,
    steps: Annotated[int, typer.Option(help="Of domainbed: steps to train.")] = 5001,
    seed: Annotated[int, typer.Option(help="Of random features and of domainbed.")] = 0,
    baselines: Annotated[
        bool,
        typer.Option(help="Train single models and random features too, to compare with."),
    ] = True,
    peers: Annotated[
        str | None,
        typer.Option(
            help="Scores whose best model is shown beside the others, such as logme,sfda, or "
            "all; the fast ones if not given.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(help="Where to compute: cpu (NumPy), or cuda with PyTorch.")
    ] = "cpu",
) -> None:
    """Test on each domain of a store in turn what the others have chosen without it."""
    from oodzoo.evaluation import evaluate as evaluate_store
    from oodzoo.features.store import FeatureStore

    result = evaluate_store(
        FeatureStore(store),
        top_k=top_k_of(top_k),
        protocol=protocol,  # type: ignore[arg-type]
        score=score,
        trials=trials,
        draws=draws,
        steps=steps,
        seed=seed,
        baselines=_peers(peers) if baselines and peers is not None else baselines,
        device=None if device == "cpu" else device,
        progress=terminal.say,
    )
    document = result.to_dict()
    show_evaluation(terminal, document)
    terminal.document(document)


def top_k_of(text: str) -> int | list[int] | Literal["auto"]:
    """What `--top-k` says: a number, several, or auto."""
    if text == "auto":
        return "auto"
    from oodzoo.errors import InputError

    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--top-k is {text!r}; give a number, several such as 1,3,5,7, or auto"
        ) from None
    return numbers[0] if len(numbers) == 1 else numbers


def _peers(text: str) -> list[str]:
    from oodzoo import scores

    return list(scores.names()) if text == "all" else text.split(",")


def show_evaluation(terminal: Terminal, document: Mapping[str, Any]) -> None:
    """The document of an evaluation for people, in 80 columns."""
    rows = [
        ("Single", document["single"]),
        ("Ensemble", document["ensemble"]),
        ("F. Selection", document["selection"]),
    ]
    beside = [(_label(name), document["baselines"][name]) for name in _order(document["baselines"])]
    first = max(len("F. Selection"), *(len(name) for name, _ in beside), 0)
    domains, names = _columns(document["domains"], first)
    ratio = document["feature_ratio"]
    shares = [f"{100 * ratio['domains'][d]:.1f}" for d in domains]
    terminal.table(
        ["accuracy %", "average", *names],
        [
            *(_cells(name, row, domains) for name, row in rows),
            ["F. Ratio", f"{100 * ratio['average']:.1f}", *shares],
            *(_cells(name, row, domains) for name, row in beside),
        ],
    )
    if "ablation" in document:
        terminal.table(
            ["models", "Ensemble", "F. Selection", "F. Ratio"],
            [
                [
                    each["top_k"],
                    f"{each['ensemble']['average']:.1f}",
                    f"{each['selection']['average']:.1f}",
                    f"{100 * each['feature_ratio']['average']:.1f}",
                ]
                for each in document["ablation"]
            ],
        )
    selection = document["selection"]
    balanced, calibration = selection["balanced"], selection["calibration_error"]
    measured = (
        f"F. Selection: {balanced['average']:.1f} % class-balanced, "
        f"calibration error {calibration['average']:.1f} %."
    )
    lines = [measured]
    if (error := selection["error"]) is not None:
        lines.append(
            f"Standard error of its average over {document['trials']} trials: "
            f"{error['average']:.1f}."
        )
    if isinstance(document["top_k"], dict):
        chosen = ", ".join(f"{k} without {domain}" for domain, k in document["top_k"].items())
        lines.append(f"Models side by side, as the training domains chose: {chosen}.")
    for line in [*lines, *document["findings"]]:
        terminal.line(line)


def _cells(name: str, row: Mapping[str, Any], domains: Sequence[str]) -> list[object]:
    accuracy = row["domains"]
    return [name, f"{row['average']:.1f}", *(f"{accuracy[domain]:.1f}" for domain in domains)]


def _order(baselines: Mapping[str, Any]) -> list[str]:
    """Random features and the oracle first, whatever order a file had them in."""
    return sorted(baselines, key=lambda name: (name != "random_features", name != "oracle", name))


def _label(name: str) -> str:
    return name.replace("best_by_", "best by ").replace("_features", " features")


def _columns(domains: Sequence[str], first: int) -> tuple[list[str], list[str]]:
    """The domains there is room for, and their names cut to fit."""
    room = _WIDTH - first - len("average") - 2
    shown = list(domains)[: room // (_NARROWEST + 1)]
    widest = room // len(shown) - 1
    while sum(min(len(d), widest + 1) + 1 for d in shown) <= room and widest < room:
        widest += 1
    return shown, [d if len(d) <= widest else d[: widest - 1] + "…" for d in shown]

"""`oodzoo select`: select features of the models of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oodzoo._text import count
from oodzoo.cli.app import MODELS_CACHED, command
from oodzoo.cli.options import (
    ComputeOption,
    ScoreOption,
    StoreArgument,
    compute_device,
)
from oodzoo.cli.rank import ranked
from oodzoo.cli.terminal import Terminal

if TYPE_CHECKING:
    from oodzoo.selection.select import SelectionSummary

_WIDTH = 100


@command("select", example="oodzoo select features/", interrupted=MODELS_CACHED)
def select(
    terminal: Terminal,
    store: StoreArgument,
    top_k: Annotated[
        str | None,
        typer.Option(
            metavar="N|all",
            help="Number of best models to select from: by default all, with --method paper 3.",
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="consistent: features that help to predict left-out domains. "
            "paper: spike and slab over all domains together."
        ),
    ] = "consistent",
    score: ScoreOption = "unseen",
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Keep features whose inclusion probability is above this, by default 0.5; "
            "--method paper only."
        ),
    ] = None,
    device: ComputeOption = "cpu",
) -> None:
    """Select the features of a feature store that are useful for unseen domains."""
    from oodzoo.errors import InputError
    from oodzoo.features.source import StoreSource
    from oodzoo.selection.select import METHODS, select_features
    from oodzoo.store.feature_store import FeatureStore

    if method not in METHODS:
        raise InputError(f"--method must be one of {', '.join(METHODS)}, got {method!r}")
    if threshold is not None and method != "paper":
        raise InputError(f"--threshold {threshold} only applies to --method paper")
    number = _number(top_k, method)
    models = list(FeatureStore(store).models)
    if number is not None:
        ranking = ranked(terminal, store, score, device=device)
        if number > len(ranking):
            terminal.warn(
                f"the store has only {count(len(ranking), 'model')}, fewer than {number}; using all"
            )
        models = [row.model for row in ranking.rows[:number]]
    source = StoreSource(FeatureStore(store), models)
    shown = ", ".join(models) if len(models) <= 3 else count(len(models), "model")
    terminal.say(f"Selecting features of {shown}")
    selection = select_features(
        source, models, method=method, threshold=threshold, device=compute_device(device)
    )
    summary = selection.summary()
    show_selection(terminal, summary)
    terminal.document(summary.to_dict())


def _number(top_k: str | None, method: str) -> int | None:
    """Number of models to select from; None for all."""
    from oodzoo.errors import InputError

    if top_k is None:
        return 3 if method == "paper" else None
    if top_k == "all":
        return None
    if not top_k.isdecimal() or int(top_k) < 1:
        raise InputError(f"--top-k must be 1 or more, or all, got {top_k}")
    return int(top_k)


def show_selection(terminal: Terminal, summary: SelectionSummary) -> None:
    """Print how many features were kept, by model and class."""
    classes = summary.per_class
    width = max(len(row.model) for row in summary.per_model) + len(" features kept")
    if width + sum(max(len(label), 4) + 1 for label in classes) > _WIDTH:
        classes = {}  # too many columns to read; the JSON document has them
    terminal.table(
        ["model", "features", "kept", *classes],
        [
            [row.model, row.n_features, row.n_selected]
            + [counts.per_model[row.model] for counts in classes.values()]
            for row in summary.per_model
        ],
    )
    from oodzoo.task.words import WORDS

    output = WORDS[summary.task].output
    counts = f"--json lists the counts per {output}"
    kept = f"Kept {summary.n_selected} of {count(summary.n_features, 'feature')} "
    kept += f"({100 * summary.ratio:.1f} %)"
    if summary.method == "paper":
        kept += f", each for at least one {output}"
        if classes:
            counts = f"The {output} columns count the features kept for each {output}"
    elif classes:
        counts = (
            f"The {output} columns count each feature for the {output} that it contributes most to"
        )
    terminal.line(f"{kept}. {counts}.")

"""`oodzoo select`: select features of the models of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oodzoo.cli.app import MODELS_CACHED, command
from oodzoo.cli.options import (
    LogOptions,
    compute_device,
    listening,
    top_k_of,
    warn_of_limits,
)
from oodzoo.cli.results import OutFileOption, show_document
from oodzoo.cli.terminal import Terminal
from oodzoo.core.errors import InputError
from oodzoo.core.options import Limits
from oodzoo.core.text import count

if TYPE_CHECKING:
    from oodzoo.combining.selection import SelectionSummary
    from oodzoo.ranking.constraints import TopK

_WIDTH = 100


@command("select", example="oodzoo select features/", interrupted=MODELS_CACHED)
def select(
    terminal: Terminal,
    store: str,
    top_k: str | None = None,
    method: str = "consistent",
    score: str = "unseen",
    *,
    limits: Limits,
    threshold: float | None = None,
    device: str = "cpu",
    out: OutFileOption = None,
    log: LogOptions,
) -> None:
    """Select the features of a feature store that are useful for unseen domains.

    Options
    -------
    top_k; default all; with --method paper 3
    device
        Compute device: cpu (NumPy) or cuda (PyTorch).
    """
    from oodzoo.combining.selection import METHODS, select_features
    from oodzoo.core.events import Stage, extent
    from oodzoo.extraction.source import as_source
    from oodzoo.store.feature_store import FeatureStore

    if method not in METHODS:
        raise InputError(f"--method must be one of {', '.join(METHODS)}, got {method!r}")
    if threshold is not None and method != "paper":
        raise InputError(f"--threshold {threshold} only applies to --method paper")
    number = _number(top_k, method)
    if score != "unseen" and number is None and not limits.of_combinations:
        raise InputError(
            f"--score {score} orders the models for --top-k, --max-models and --max-ms; give one "
            "of them, or leave it out"
        )
    opened = FeatureStore(store)
    models = warn_of_limits(terminal, opened, limits)
    if isinstance(number, int) and number > len(models):
        terminal.warn(
            f"the store has only {count(len(models), 'model')}, fewer than {number}; using all"
        )
    terminal.say(f"Selecting features of {count(len(models), 'model')}")
    with (
        listening(terminal, "Selecting", log.listeners()) as listener,
        Stage(listener, "selection", **extent(as_source(opened))) as stage,
    ):
        selection = select_features(
            opened,
            method=method,
            threshold=threshold,
            top_k=number,
            score=score,
            **vars(limits),
            device=compute_device(device),
            progress=stage.progress,
        )
        summary = selection.summary()
        stage.finish(summary, {})
    if number is not None and not isinstance(number, int):
        best = count(len(summary.models), "model")
        terminal.say(f"--top-k {top_k}: the best {best}, chosen on left-out domains")
    show_selection(terminal, summary)
    show_document(terminal, summary.to_dict(), opened, out, {"score": score})


def _number(top_k: str | None, method: str) -> TopK | None:
    """Number of models to select from; None for all."""
    if top_k is None:
        return 3 if method == "paper" else None
    return None if top_k == "all" else top_k_of(top_k)


def kept_features(summary: SelectionSummary) -> str:
    """How many features were kept."""
    share = f"({100 * summary.ratio:.1f} %)"
    return f"Kept {summary.n_selected:,} of {count(summary.n_features, 'feature')} {share}"


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
    from oodzoo.tasks import task_of

    output = task_of(summary.task).output_noun
    counts = f"--json lists the counts per {output}"
    kept = kept_features(summary)
    if summary.method == "paper":
        kept += f", each for at least one {output}"
        if classes:
            counts = f"The {output} columns count the features kept for each {output}"
    elif classes:
        counts = (
            f"The {output} columns count each feature for the {output} that it contributes most to"
        )
    terminal.line(f"{kept}. {counts}.")

"""`oodzoo select`: select features of the best models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oodzoo._text import count
from oodzoo.cli.app import MODELS_CACHED, command
from oodzoo.cli.options import (
    ComputeOption,
    ScoreOption,
    StoreArgument,
    ThresholdOption,
    compute_device,
)
from oodzoo.cli.rank import ranked
from oodzoo.cli.terminal import Terminal

if TYPE_CHECKING:
    from oodzoo.selection.select import SelectionSummary

_WIDTH = 100


@command("select", example="oodzoo select features/ --top-k 3", interrupted=MODELS_CACHED)
def select(
    terminal: Terminal,
    store: StoreArgument,
    top_k: Annotated[int, typer.Option(help="Number of models to concatenate.")] = 3,
    score: ScoreOption = "unseen",
    threshold: ThresholdOption = 0.5,
    device: ComputeOption = "cpu",
) -> None:
    """Select informative features among those of the best models of a feature store."""
    from oodzoo.errors import InputError
    from oodzoo.features.source import StoreSource
    from oodzoo.selection.select import select_features
    from oodzoo.store.feature_store import FeatureStore

    if top_k < 1:
        raise InputError(f"--top-k must be 1 or more, got {top_k}")
    ranking = ranked(terminal, store, score, device=device)
    if top_k > len(ranking):
        terminal.warn(
            f"the store has only {count(len(ranking), 'model')}, fewer than {top_k}; using all"
        )
    models = [row.model for row in ranking.rows[:top_k]]
    source = StoreSource(FeatureStore(store), models)
    terminal.say(f"Selecting features of {', '.join(models)}")
    selection = select_features(source, models, threshold=threshold, device=compute_device(device))
    summary = selection.summary()
    show_selection(terminal, summary)
    terminal.document(summary.to_dict())


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
    counts = "--json lists the counts per class"
    if classes:
        counts = "The class columns count the features kept for each class"
    terminal.line(
        f"Kept {summary.n_selected} of {count(summary.n_features, 'feature')} "
        f"({100 * summary.ratio:.1f} %), each for at least one class. {counts}."
    )

"""`oodzoo select`: which features of the best models to keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from oodzoo.cli.app import command
from oodzoo.cli.extract import StoreArgument
from oodzoo.cli.rank import ranked
from oodzoo.cli.terminal import Terminal

_WIDTH = 100


@command("select", example="oodzoo select features/ --top-k 3")
def select(
    terminal: Terminal,
    store: StoreArgument,
    top_k: Annotated[int, typer.Option(help="How many models to put side by side.")] = 3,
    threshold: Annotated[
        float, typer.Option(help="Keep features with a greater inclusion probability.")
    ] = 0.5,
    device: Annotated[
        str, typer.Option(help="Where to compute: cpu (NumPy), or cuda with PyTorch.")
    ] = "cpu",
) -> None:
    """Select features of the best models of a store, put side by side."""
    from oodzoo.errors import InputError
    from oodzoo.features.source import StoreSource
    from oodzoo.features.store import FeatureStore
    from oodzoo.selection.select import select_features

    if top_k < 1:
        raise InputError(f"--top-k must be 1 or more, not {top_k}")
    ranking = ranked(terminal, store, device=device)
    if top_k > len(ranking):
        terminal.warn(f"the store has {len(ranking)} models, fewer than {top_k}; all are taken")
    models = [row.model for row in ranking.rows[:top_k]]
    source = StoreSource(FeatureStore(store), models)
    terminal.say(f"Selecting among the features of {', '.join(models)}")
    where = None if device == "cpu" else device
    selection = select_features(source, models, threshold=threshold, device=where)
    document = selection.to_dict()
    show_selection(terminal, document)
    terminal.document(document)


def show_selection(terminal: Terminal, document: Mapping[str, Any]) -> None:
    """The document of a selection for people: what was kept, by model and class."""
    classes = document["per_class"]
    width = max(len(row["model"]) for row in document["per_model"]) + len(" features kept")
    if width + sum(max(len(label), 4) + 1 for label in classes) > _WIDTH:
        classes = {}  # as many columns as classes would not be read; the document has them
    terminal.table(
        ["model", "features", "kept", *classes],
        [
            [row["model"], row["n_features"], row["n_selected"]]
            + [counts["per_model"][row["model"]] for counts in classes.values()]
            for row in document["per_model"]
        ],
    )
    terminal.line(
        f"{document['n_selected']} of {document['n_features']} features are kept "
        f"({100 * document['ratio']:.1f} %), each for at least one class"
        + ("; the columns count them by class." if classes else "; --json counts them by class.")
    )

"""`zood select`: which features of the best networks to keep."""

from __future__ import annotations

from typing import Annotated

import typer

from zood.cli.app import command
from zood.cli.extract import StoreArgument
from zood.cli.rank import ranked
from zood.terminal import Terminal


@command("select", example="zood select features/ --top-k 3")
def select(
    terminal: Terminal,
    store: StoreArgument,
    top_k: Annotated[int, typer.Option(help="How many networks to put side by side.")] = 3,
    threshold: Annotated[
        float, typer.Option(help="Keep features with a greater inclusion probability.")
    ] = 0.5,
    device: Annotated[
        str, typer.Option(help="Where to compute: cpu (NumPy), or cuda with PyTorch.")
    ] = "cpu",
) -> None:
    """Select features of the best networks of a store, put side by side."""
    from zood.access import StoreSource
    from zood.concatenation import concatenated_moments
    from zood.errors import InputError
    from zood.features.store import FeatureStore
    from zood.selection import SpikeSlabSelector

    if top_k < 1:
        raise InputError(f"--top-k must be 1 or more, not {top_k}")
    where = None if device == "cpu" else device
    ranking = ranked(terminal, store, device=device)
    if top_k > len(ranking):
        terminal.warn(f"the store has {len(ranking)} networks, fewer than {top_k}; all are taken")
    models = [row.model for row in ranking.rows[:top_k]]
    source = StoreSource(FeatureStore(store), models)
    terminal.say(f"Selecting among the features of {', '.join(models)}")
    moments = concatenated_moments(source, models, device=where)
    selector = SpikeSlabSelector(threshold=threshold, device=where)
    selector.fit_moments(moments, classes=source.classes)

    support = selector.get_support()
    dims = [source.facts(model).feature_dim for model in models]
    ends = [sum(dims[: at + 1]) for at in range(len(dims))]
    columns = {m: slice(end - d, end) for m, d, end in zip(models, dims, ends, strict=True)}
    by_class = {
        str(label): {m: int(mask[columns[m]].sum()) for m in models}
        for label, mask in zip(source.classes, selector.target_support_, strict=True)
    }
    by_model = [
        {"model": m, "n_features": d, "n_selected": int(support[columns[m]].sum())}
        for m, d in zip(models, dims, strict=True)
    ]
    kept, total = int(support.sum()), len(support)
    terminal.table(
        ["network", "features", "kept", *map(str, source.classes)],
        [
            [row["model"], row["n_features"], row["n_selected"]]
            + [by_class[str(label)][str(row["model"])] for label in source.classes]
            for row in by_model
        ],
    )
    terminal.line(
        f"{kept} of {total} features are kept ({100 * kept / total:.1f} %), each for at least one "
        "class; the columns count them by class."
    )
    terminal.document(
        {
            "models": models,
            "n_features": total,
            "n_selected": kept,
            "ratio": kept / total,
            "per_model": by_model,
            "per_class": {
                label: {"n_selected": sum(counts.values()), "per_model": counts}
                for label, counts in by_class.items()
            },
            "iterations": selector.n_iter_,
            "converged": selector.converged_,
        }
    )

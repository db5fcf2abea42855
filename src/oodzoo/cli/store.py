"""`oodzoo store …` and `oodzoo import`: looking after a store, filling it by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodzoo.cli.app import app, command
from oodzoo.cli.extract import StoreArgument
from oodzoo.cli.terminal import Terminal

group = typer.Typer(
    help="Look after a feature store.",
    epilog="Example: oodzoo store check features/",
    no_args_is_help=True,
)
app.add_typer(group, name="store")


@command("check", example="oodzoo store check features/", group=group)
def check(
    terminal: Terminal,
    store: StoreArgument,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Remove what is damaged; oodzoo extract makes it again."),
    ] = False,
) -> None:
    """Verify every checksum of a store and say what to do."""
    from oodzoo.errors import InputError
    from oodzoo.features.checking import check_store

    with terminal.progress("Verifying") as progress:
        found = check_store(store, repair=repair, progress=progress)
    for damage in found.damage:
        terminal.warn(f"{damage.path}: {damage.problem}")
    for name in found.unfinished:
        terminal.warn(f"model {name!r} is not finished; run the same oodzoo extract again")
    terminal.document(
        {
            "files": found.files,
            "damaged": [{"path": d.path, "problem": d.problem} for d in found.damage],
            "unfinished": list(found.unfinished),
            "repaired": repair and bool(found.damage),
        }
    )
    terminal.line(f"{found.files} files verified, {len(found.damage)} damaged")
    if found.damage and not repair:
        raise InputError(
            f"{len(found.damage)} files of {str(store)!r} are damaged; `oodzoo store check --repair` "
            "removes them, the same `oodzoo extract` then makes them again"
        )


@command("import", example="oodzoo import resnet50.npy vit.npy --table rows.csv --store features/")
def import_(
    terminal: Terminal,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FEATURES", help="One .npz or .parquet file, or .npy files."),
    ],
    store: Annotated[Path, typer.Option(help="Folder of the store; made where missing.")],
    table: Annotated[
        Path | None,
        typer.Option(help="For .npy files: CSV of their rows, domain,label[,group][,path]."),
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="In which features are stored: float32 or float16.")
    ] = "float32",
) -> None:
    """Make a store from features computed elsewhere."""
    from oodzoo.features.importing import import_features

    made = import_features(files, store, table=table, dtype=dtype)
    terminal.line(f"{len(made.models)} models, {made.n_images} rows, {len(made.domains)} domains")
    terminal.document(
        {
            "store": str(store),
            "models": list(made.models),
            "rows": made.n_images,
            "domains": list(made.domains),
        }
    )

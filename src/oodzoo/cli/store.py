"""`oodzoo store …` and `oodzoo import`: maintain a feature store, import features."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from oodzoo._text import count
from oodzoo.cli.app import app, command
from oodzoo.cli.options import DtypeOption, NewStoreOption, StoreArgument
from oodzoo.cli.terminal import Terminal

group = typer.Typer(
    help="Maintain a feature store.",
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
        typer.Option(
            "--repair", help="Remove damaged files; rerun oodzoo extract to compute them again."
        ),
    ] = False,
) -> None:
    """Verify every checksum of a feature store."""
    from oodzoo.errors import InputError
    from oodzoo.features.checking import check_store

    with terminal.progress("Verifying") as progress:
        found = check_store(store, repair=repair, progress=progress)
    for damage in found.damage:
        terminal.warn(f"{damage.path}: {damage.problem}")
    for name in found.unfinished:
        terminal.warn(f"model {name!r} is incomplete; rerun oodzoo extract to finish it")
    terminal.document(
        {
            "files": found.files,
            "damaged": msgspec.to_builtins(found.damage),
            "unfinished": list(found.unfinished),
            "repaired": repair and bool(found.damage),
        }
    )
    terminal.line(f"{count(found.files, 'file')} verified, {len(found.damage)} damaged")
    if found.damage and not repair:
        raise InputError(
            f"{str(store)!r} has {count(len(found.damage), 'damaged file')}; remove them with "
            "`oodzoo store check --repair`, then rerun `oodzoo extract`"
        )


@command("import", example="oodzoo import resnet50.npy vit.npy --table rows.csv --store features/")
def import_(
    terminal: Terminal,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FEATURES", help="One .npz or .parquet file, or .npy files."),
    ],
    store: NewStoreOption,
    table: Annotated[
        Path | None,
        typer.Option(help="For .npy files: CSV of their rows, domain,label[,group][,path]."),
    ] = None,
    dtype: DtypeOption = "float32",
) -> None:
    """Import features computed elsewhere into a feature store."""
    from oodzoo.features.importing import import_features

    made = import_features(files, store, table=table, dtype=dtype)
    terminal.line(
        f"{count(len(made.models), 'model')}, {count(made.n_images, 'row')}, "
        f"{count(len(made.domains), 'domain')}"
    )
    terminal.document(
        {
            "store": str(store),
            "models": list(made.models),
            "rows": made.n_images,
            "domains": list(made.domains),
        }
    )

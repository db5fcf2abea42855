"""`oodzoo import`: features computed elsewhere into a feature store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodzoo._text import count
from oodzoo.cli.app import FEATURES_KEPT, command
from oodzoo.cli.options import DtypeOption, NewStoreOption
from oodzoo.cli.terminal import Terminal


@command(
    "import",
    example="oodzoo import resnet50.npy vit.npy --table rows.csv --store features/",
    interrupted=FEATURES_KEPT,
)
def import_(
    terminal: Terminal,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FEATURES", help="One .npz, .parquet or .csv file, or .npy files."),
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
            "store": store,
            "models": list(made.models),
            "rows": made.n_images,
            "domains": list(made.domains),
        }
    )

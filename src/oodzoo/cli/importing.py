"""`oodzoo import`: features computed elsewhere into a feature store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodzoo._text import count
from oodzoo.cli.app import FEATURES_KEPT, command
from oodzoo.cli.options import ColumnsOption, DtypeOption, NewStoreOption, TaskOption
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
    columns: ColumnsOption = None,
    task: TaskOption = None,
    dtype: DtypeOption = "float32",
) -> None:
    """Import features computed elsewhere into a feature store."""
    from oodzoo.data.listing import counted_outputs
    from oodzoo.data.sources.columns import parse_columns
    from oodzoo.features.importing import import_features

    mapping = None if columns is None else parse_columns(columns)
    made = import_features(files, store, table=table, dtype=dtype, columns=mapping, task=task)
    terminal.line(
        f"{count(len(made.models), 'model')}, {count(made.n_images, 'row')}, "
        f"{count(len(made.domains), 'domain')}, "
        f"{counted_outputs(made.task, len(made.classes))}"
    )
    terminal.document(
        {
            "store": store,
            "models": list(made.models),
            "rows": made.n_images,
            "domains": list(made.domains),
            "task": made.task.kind,
            "classes": list(made.classes),
        }
    )

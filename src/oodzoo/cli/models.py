"""`oodzoo models`: the models of a zoo."""

from __future__ import annotations

from typing import Annotated

import typer

from oodzoo.cli.app import command
from oodzoo.cli.inputs import select_zoo, show_models
from oodzoo.cli.options import ZOO_HELP, LicenceOption, MaxParametersOption
from oodzoo.cli.terminal import Terminal


@command("models", example="oodzoo models modern --name '*vit*' --max-parameters 100M")
def models(
    terminal: Terminal,
    zoo: Annotated[str, typer.Argument(metavar="ZOO", help=ZOO_HELP)] = "demo",
    name: Annotated[
        str | None, typer.Option(help="Only models whose name matches, e.g. '*vit*'.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Only models from this source, e.g. timm.")
    ] = None,
    max_parameters: MaxParametersOption = None,
    pretraining: Annotated[
        str | None, typer.Option(help="Only models whose pre-training mentions this.")
    ] = None,
    licence: LicenceOption = None,
) -> None:
    """List the models of a zoo, and which of them must be downloaded."""
    from oodzoo.core.errors import InputError
    from oodzoo.zoo import load_zoo, zoo_names
    from oodzoo.zoo.catalogue import filter_models, missing
    from oodzoo.zoo.sources import source_kinds

    if source is not None and source not in source_kinds():
        raise InputError(f"unknown source {source!r}; expected one of {', '.join(source_kinds())}")
    specs = filter_models(load_zoo(zoo), pattern=name, source=source, pretraining=pretraining)
    models = select_zoo(terminal, specs, licence, max_parameters)
    documents = show_models(terminal, models)
    absent = missing(zoo) if zoo in zoo_names() else []
    for entry in absent:
        terminal.say(f"not available: {entry.name}: {entry.missing}")
    terminal.document(
        {
            "models": documents,
            "missing": [{"name": entry.name, "reason": entry.missing} for entry in absent],
        }
    )

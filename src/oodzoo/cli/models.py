"""`oodzoo models`: the models of a zoo."""

from __future__ import annotations

from typing import Annotated

import typer

from oodzoo._text import count
from oodzoo.cli.app import command
from oodzoo.cli.options import ZOO_HELP
from oodzoo.cli.terminal import Terminal


@command("models", example="oodzoo models modern --name '*vit*' --max-parameters 100")
def models(
    terminal: Terminal,
    zoo: Annotated[str, typer.Argument(metavar="[ZOO]", help=ZOO_HELP)] = "demo",
    name: Annotated[
        str | None, typer.Option(help="Only models whose name matches, e.g. '*vit*'.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Only models from onnx, timm, torchvision, hf or open_clip.")
    ] = None,
    max_parameters: Annotated[
        float | None, typer.Option(help="Only models of at most this many million parameters.")
    ] = None,
    pretraining: Annotated[
        str | None, typer.Option(help="Only models whose pre-training mentions this.")
    ] = None,
    licence: Annotated[
        str | None, typer.Option(help="Only models whose licence mentions this.")
    ] = None,
) -> None:
    """List the models of a zoo."""
    from oodzoo.errors import InputError
    from oodzoo.zoo import load_zoo, zoo_names
    from oodzoo.zoo.catalogue import filter_models, missing
    from oodzoo.zoo.spec import SOURCES

    if source is not None and source not in SOURCES:
        raise InputError(f"unknown source {source!r}; expected one of {', '.join(SOURCES)}")
    if max_parameters is not None and not 0 <= max_parameters < 1e9:
        raise InputError(f"--max-parameters must be a number of millions, got {max_parameters}")
    specs = filter_models(
        load_zoo(zoo),
        pattern=name,
        source=source,
        max_parameters=None if max_parameters is None else int(max_parameters * 1e6),
        pretraining=pretraining,
        licence=licence,
    )
    terminal.table(
        ["name", "source", "pretraining", "d", "parameters"],
        [
            [
                spec.name,
                spec.kind,
                spec.pretraining or "-",
                spec.feature_dim or "-",
                "-" if spec.parameters is None else f"{spec.parameters / 1e6:.2f} M",
            ]
            for spec in specs
        ],
        left=3,
    )
    terminal.line(count(len(specs), "model"))
    absent = missing(zoo) if zoo in zoo_names() else []
    for entry in absent:
        terminal.say(f"not available: {entry.name}: {entry.missing}")
    terminal.document(
        {
            "models": [spec.to_dict() for spec in specs],
            "missing": [{"name": entry.name, "reason": entry.missing} for entry in absent],
        }
    )

"""The option `--plot`: the picture of a result as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from oodzoo.cli.terminal import Terminal

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _known_format(path: Path | None) -> Path | None:
    """Refuse a picture that cannot be written before anything is computed."""
    if path is not None and path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise typer.BadParameter(f"{str(path)!r} must end in .png, .svg or .pdf")
    return path


PlotOption = Annotated[
    Path | None,
    typer.Option(
        help="Draw the result into this file: .png, .svg or .pdf.", callback=_known_format
    ),
]


class Plotted(Protocol):
    def plot(self) -> Figure: ...


def save_plot(terminal: Terminal, result: Plotted, path: Path | None) -> None:
    """Write the picture of a result, if one is wanted."""
    if path is None:
        return
    from oodzoo.report.plots import save_figure

    save_figure(result.plot(), path)
    terminal.say(f"the picture is in {path}")

"""The option `--plot`: a result as a figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from oodzoo.cli.terminal import Terminal

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _known_format(path: Path | None) -> Path | None:
    """Reject an unknown file format before anything is computed."""
    if path is not None and path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise typer.BadParameter(f"{str(path)!r} must end in .png, .svg or .pdf")
    return path


PlotOption = Annotated[
    Path | None,
    typer.Option(
        help="Also write the result as a figure: a .png, .svg or .pdf file.", callback=_known_format
    ),
]


class Plotted(Protocol):
    def plot(self) -> Figure: ...


def save_plot(terminal: Terminal, result: Plotted, path: Path | None) -> None:
    """Write a result as a figure, if a path is given."""
    if path is None:
        return
    from oodzoo.report.figures import save_figure

    save_figure(result.plot(), path)
    terminal.say(f"figure written to {path}")

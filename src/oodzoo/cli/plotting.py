"""The option `--plot`: a result as a figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from oodzoo.cli.terminal import Terminal
from oodzoo.errors import InputError

if TYPE_CHECKING:
    from oodzoo.report.figures import Plot


def _known_format(path: Path | None) -> Path | None:
    """Reject an unknown file format before anything is computed."""
    if path is not None:
        from oodzoo.report.figures import check_suffix

        try:
            check_suffix(path)
        except InputError as error:
            raise typer.BadParameter(str(error)) from None
    return path


PlotOption = Annotated[
    Path | None,
    typer.Option(help="Also write the result as a figure: an .svg file.", callback=_known_format),
]


class Plotted(Protocol):
    def plot(self) -> Plot: ...


def save_plot(terminal: Terminal, result: Plotted, path: Path | None) -> None:
    """Write a result as a figure, if a path is given."""
    if path is not None:
        result.plot().save(path)
        terminal.say(f"figure written to {path}")

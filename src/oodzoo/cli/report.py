"""`oodzoo report`: write the report of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodzoo.cli.app import FILES_COMPLETE, command
from oodzoo.cli.terminal import Terminal


@command("report", example="oodzoo report job/ --figures", interrupted=FILES_COMPLETE)
def report(
    terminal: Terminal,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run (with run.json).")],
    figures: Annotated[
        bool, typer.Option("--figures", help="Also write the charts as SVG files in DIR/figures.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write the page to.", show_default="DIR/report.html"),
    ] = None,
) -> None:
    """Write the report of a run: one self-contained HTML page."""
    from oodzoo.record import read_run
    from oodzoo.report import write_report

    run = read_run(folder)
    written: list[Path] = []
    if figures:
        from oodzoo.report.figures import write_figures

        written = write_figures(run, folder / "figures")
    page = write_report(folder, out, run=run)
    for path in (page, *written):
        terminal.line(f"{path}")
    terminal.document({"report": str(page), "figures": [str(path) for path in written]})

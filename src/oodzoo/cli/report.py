"""`oodzoo report`: write the report of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodzoo.cli.app import FILES_COMPLETE, command
from oodzoo.cli.terminal import Terminal


@command("report", example="oodzoo report job/ --format png", interrupted=FILES_COMPLETE)
def report(
    terminal: Terminal,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run (with run.json).")],
    format: Annotated[  # noqa: A002 - the name of the option
        str | None, typer.Option(help="Also write the figures as files: png, svg or pdf.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write the page to; DIR/report.html by default.")
    ] = None,
) -> None:
    """Write the report of a run: one self-contained HTML page."""
    from oodzoo.record import read_run
    from oodzoo.report import write_report

    run = read_run(folder)
    figures: list[Path] = []
    if format is not None:
        from oodzoo.report.figures import write_figures

        figures = write_figures(run, folder / "figures", format)
    page = write_report(folder, out, run=run)
    for path in (page, *figures):
        terminal.line(f"{path}")
    terminal.document({"report": str(page), "figures": [str(path) for path in figures]})

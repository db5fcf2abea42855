"""`oodzoo report`: the page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodzoo.cli.app import command
from oodzoo.cli.terminal import Terminal


@command("report", example="oodzoo report job/ --format png")
def report(
    terminal: Terminal,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of a run, which holds run.json.")
    ],
    format: Annotated[  # noqa: A002 - the name of the option
        str | None, typer.Option(help="Also write the pictures as files: png, svg or pdf.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write the page; DIR/report.html by default.")
    ] = None,
) -> None:
    """Write the report of a run: one HTML page that needs nothing beside itself."""
    from oodzoo.report import write_report
    from oodzoo.report.document import read_run
    from oodzoo.report.pictures import require_format, write_pictures

    if format is not None:
        require_format(format)
    page = write_report(folder, out)
    terminal.line(f"{page}")
    pictures = []
    if format is not None:
        pictures = write_pictures(read_run(folder), folder / "pictures", format)
        for picture in pictures:
            terminal.line(f"{picture}")
    terminal.document({"report": str(page), "pictures": [str(path) for path in pictures]})

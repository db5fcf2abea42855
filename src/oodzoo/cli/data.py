"""`oodzoo data`: the contents of a data set and its problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from oodzoo._text import count
from oodzoo.cli.app import command
from oodzoo.cli.options import DataArgument, RootOption
from oodzoo.cli.terminal import Terminal

if TYPE_CHECKING:
    from oodzoo.data.dataset import ImageDomains


def show_counts(terminal: Terminal, dataset: ImageDomains) -> None:
    """Show the number of images by class and domain."""
    counts = dataset.counts()
    if len(dataset.domains) <= len(dataset.classes):  # columns for whichever is fewer
        columns = ["class", *dataset.domains]
        rows: list[list[Any]] = [
            [label, *(counts[d][label] for d in dataset.domains)] for label in dataset.classes
        ]
    else:
        columns = ["domain", *dataset.classes]
        rows = [[d, *(counts[d][label] for label in dataset.classes)] for d in dataset.domains]
    sums = [sum(column) for column in list(zip(*rows, strict=True))[1:]]
    terminal.table(columns, [*rows, ["all", *sums]])
    terminal.line(
        f"{count(len(dataset), 'image')}, {count(len(dataset.domains), 'domain')}, "
        f"{count(len(dataset.classes), 'class', 'classes')}"
    )


@command("data", example="oodzoo data photos/")
def data(
    terminal: Terminal,
    source: DataArgument,
    root: RootOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only count; do not open the images.")
    ] = False,
) -> None:
    """Count the images of each domain and class, and report problems."""
    from oodzoo.data.dataset import ImageDomains

    dataset = ImageDomains(source, root=root)
    if quick:
        issues = dataset.quick_check()
    else:
        with terminal.progress("Reading images") as progress:
            issues = dataset.check(progress)
    show_counts(terminal, dataset)
    for issue in issues:
        terminal.warn(issue.message)
    terminal.document(
        {
            "images": len(dataset),
            "domains": list(dataset.domains),
            "classes": list(dataset.classes),
            "counts": dataset.counts(),
            "groups": len({s.group for s in dataset} - {None}),
            "fingerprint": None if quick else dataset.fingerprint,
            "warnings": msgspec.to_builtins(issues),
        }
    )

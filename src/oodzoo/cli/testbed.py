"""`oodzoo testbed`: compare scores with the accuracy of models on test domains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oodzoo.cli.app import MODELS_CACHED, command
from oodzoo.cli.plotting import PlotOption, save_plot
from oodzoo.cli.terminal import Terminal
from oodzoo.cli.testbed_tables import (
    comparison_document,
    paper_document,
    show_bed,
    show_comparison,
    show_paper,
)
from oodzoo.errors import InputError

if TYPE_CHECKING:
    from oodzoo.testbed import TestBed


@command("testbed", example="oodzoo testbed paper", interrupted=MODELS_CACHED)
def compare_scores(
    terminal: Terminal,
    target: Annotated[
        str,
        typer.Argument(
            metavar="paper|STORE|compare",
            help="paper: the results published in the ZooD paper; STORE: a feature store; compare: "
            "several result files. (For a store named paper, pass ./paper.)",
        ),
    ],
    results: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RESULT", help="compare only: files written with --out."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="STORE only: write the result to this JSON file.")
    ] = None,
    plot: PlotOption = None,
    protocol: Annotated[
        str,
        typer.Option(
            help="STORE only: all computes scores on all domains; unseen computes them without "
            "the test domain, for each test domain."
        ),
    ] = "all",
    values: Annotated[
        Path | None,
        typer.Option(
            help="STORE only: CSV file of external scores, such as model,source_accuracy.",
        ),
    ] = None,
) -> None:
    """Compare scores by their rank correlation with model accuracy."""
    if target not in ("paper", "compare"):
        _reject(target, {"RESULT": results})
        bed = _run(terminal, Path(target), protocol, values, out)
        save_plot(terminal, bed, plot)
        return
    computed = protocol if protocol != "all" else None
    _reject(target, {"--out": out, "--values": values, "--protocol": computed})
    if target == "paper":
        _reject(target, {"RESULT": results})
        _paper(terminal, plot)
    else:
        _compare(terminal, results or [], plot)


def _reject(target: str, given: dict[str, object]) -> None:
    """Reject options that do not apply."""
    for option, value in given.items():
        if value:
            shown = " ".join(map(str, value)) if isinstance(value, list) else value
            raise InputError(f"oodzoo testbed {target} does not take {option}, got {shown}")


def _run(
    terminal: Terminal, store: Path, protocol: str, values: Path | None, out: Path | None
) -> TestBed:
    from oodzoo.store.feature_store import FeatureStore
    from oodzoo.testbed import run, save
    from oodzoo.testbed.external import read_values

    opened = FeatureStore(store)
    external = None if values is None else read_values(values)
    with terminal.progress("Test bed") as progress:
        bed = run(opened, protocol=protocol, values=external, progress=progress)  # type: ignore[arg-type]
    show_bed(terminal, bed)
    if out is not None:
        save(bed, out)
        terminal.say(f"Result: {out}")
    terminal.document(bed.to_dict())
    return bed


def _paper(terminal: Terminal, plot: Path | None) -> None:
    from oodzoo.testbed import compare, paper

    tables = {"": compare(paper()), "_with_head": compare(paper(with_head=True))}
    show_paper(terminal, tables)
    terminal.document(paper_document(tables))
    save_plot(terminal, tables[""], plot)


def _compare(terminal: Terminal, results: list[Path], plot: Path | None) -> None:
    from oodzoo.testbed import compare, load

    if not results:
        raise InputError(
            "oodzoo testbed compare needs results; write them with: oodzoo testbed STORE --out FILE"
        )
    beds = [load(path) for path in results]
    names = [bed.name for bed in beds]
    labels = [
        name if names.count(name) == 1 else f"{name} ({path.stem})"
        for name, path in zip(names, results, strict=True)
    ]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(f"two results are named {label!r}; rename one of the files")
    protocols = dict.fromkeys(str(bed.data.get("protocol", "unknown")) for bed in beds)
    if len(protocols) > 1:
        terminal.warn(f"the results use different protocols: {', '.join(protocols)}")
    comparison = compare(dict(zip(labels, beds, strict=True)))
    show_comparison(terminal, comparison)
    terminal.document(comparison_document(comparison))
    save_plot(terminal, comparison, plot)

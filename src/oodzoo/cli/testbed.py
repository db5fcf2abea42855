"""`oodzoo testbed`: compare scores with the accuracy of models on test domains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oodzoo.cli.app import MODELS_CACHED, command
from oodzoo.cli.listening import listeners, listening
from oodzoo.cli.options import (
    ComputeOption,
    LogFileOption,
    MLflowOption,
    TensorBoardOption,
    compute_device,
)
from oodzoo.cli.results import PlotOption, save_plot
from oodzoo.cli.terminal import Terminal
from oodzoo.cli.testbed_tables import (
    comparison_document,
    paper_document,
    show_bed,
    show_comparison,
    show_domains,
    show_paper,
)
from oodzoo.core.errors import InputError
from oodzoo.core.events import Events, Listener

if TYPE_CHECKING:
    from oodzoo.ranking.testbed import TestBed


@command("testbed", example="oodzoo testbed features/", interrupted=MODELS_CACHED)
def compare_scores(
    terminal: Terminal,
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="paper|STORE…|compare RESULT…",
            help="paper: the results published in the ZooD paper; STORE…: one or more feature "
            "stores; compare RESULT…: files written with --out. (For a store named paper, pass "
            "./paper.)",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="One STORE only: write the result to this JSON file.")
    ] = None,
    plot: PlotOption = None,
    protocol: Annotated[
        str,
        typer.Option(
            help="STORE only: unseen computes the scores for each test domain on the other "
            "domains; all computes them once on all domains."
        ),
    ] = "unseen",
    values: Annotated[
        Path | None,
        typer.Option(help="STORE only: CSV file of external scores, such as model,my_score."),
    ] = None,
    timm_results: Annotated[
        Path | None,
        typer.Option(
            help="STORE only: timm's results-imagenet.csv, for the score source_accuracy."
        ),
    ] = None,
    device: ComputeOption = "cpu",
    log_file: LogFileOption = None,
    mlflow: MLflowOption = None,
    tensorboard: TensorBoardOption = None,
) -> None:
    """Compare scores by how well they order models by their accuracy on unseen domains."""
    target, *others = targets
    if target not in ("paper", "compare"):
        if out is not None and others:
            raise InputError(
                f"--out takes one store, got {len(targets)}; run the command once for each"
            )
        from oodzoo.ranking.testbed.external import read_values

        options = {
            "protocol": protocol,
            "values": None if values is None else read_values(values),
            "timm_results": timm_results,
            "device": compute_device(device),
        }
        tracked_by = listeners(log_file, mlflow, tensorboard)
        _stores(terminal, targets, options, out, plot, tracked_by)
        return
    computed = protocol if protocol != "unseen" else None
    _reject(target, {"--out": out, "--values": values, "--protocol": computed})
    where = device if device != "cpu" else None
    _reject(target, {"--timm-results": timm_results, "--device": where})
    _reject(target, {"--log-file": log_file, "--mlflow": mlflow, "--tensorboard": tensorboard})
    if target == "paper":
        _reject(target, {"other arguments": others})
        _paper(terminal, plot)
    else:
        _compare(terminal, [Path(path) for path in others], plot)


def _reject(target: str, given: dict[str, object]) -> None:
    """Reject options that do not apply."""
    for option, value in given.items():
        if value:
            shown = " ".join(map(str, value)) if isinstance(value, list) else value
            raise InputError(f"oodzoo testbed {target} does not take {option}, got {shown}")


def _stores(
    terminal: Terminal,
    paths: list[str],
    options: dict[str, Any],
    out: Path | None,
    plot: Path | None,
    tracked_by: Sequence[Listener],
) -> None:
    from oodzoo.ranking.testbed import compare, run, save
    from oodzoo.store.feature_store import FeatureStore

    stores = [FeatureStore(path) for path in paths]
    beds = []
    for store in stores:
        with listening(terminal, f"Test bed {store.name}", tracked_by) as listener:
            beds.append(run(store, **options, listener=listener))
    if len(beds) == 1:
        show_bed(terminal, beds[0])
        show_domains(terminal, beds[0])
        if out is not None:
            save(beds[0], out)
            Events(tracked_by).artifact("testbed", out)
            terminal.say(f"Result: {out}")
        terminal.document(beds[0].to_dict())
        save_plot(terminal, beds[0], plot)
        return
    comparison = compare(_labelled(beds, [str(path) for path in paths]))
    show_comparison(terminal, comparison)
    terminal.document(comparison_document(comparison))
    save_plot(terminal, comparison, plot)


def _labelled(beds: Sequence[TestBed], origins: Sequence[str]) -> dict[str, TestBed]:
    """Label each test bed by its name; if several have it, also by its origin."""
    names = [bed.name for bed in beds]
    labels = [
        name if names.count(name) == 1 else f"{name} ({origin})"
        for name, origin in zip(names, origins, strict=True)
    ]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(f"two results are named {label!r}; rename one of them")
    return dict(zip(labels, beds, strict=True))


def _paper(terminal: Terminal, plot: Path | None) -> None:
    from oodzoo.ranking.testbed import compare, paper

    tables = {"": compare(paper()), "_with_head": compare(paper(with_head=True))}
    show_paper(terminal, tables)
    terminal.document(paper_document(tables))
    save_plot(terminal, tables[""], plot)


def _compare(terminal: Terminal, results: list[Path], plot: Path | None) -> None:
    from oodzoo.ranking.testbed import compare, load

    if not results:
        raise InputError(
            "oodzoo testbed compare needs results; write them with: oodzoo testbed STORE --out FILE"
        )
    beds = [load(path) for path in results]
    protocols = dict.fromkeys(str(bed.data.get("protocol", "unknown")) for bed in beds)
    if len(protocols) > 1:
        terminal.warn(f"the results use different protocols: {', '.join(protocols)}")
    if len({bool(bed.accuracy_by_domain) for bed in beds}) > 1:
        terminal.warn("some results have no values by test domain; their taus are of the means")
    comparison = compare(_labelled(beds, [path.stem for path in results]))
    show_comparison(terminal, comparison)
    terminal.document(comparison_document(comparison))
    save_plot(terminal, comparison, plot)

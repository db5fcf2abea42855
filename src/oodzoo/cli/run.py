"""`oodzoo run`: the whole job in one folder."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oodzoo.cli.app import command
from oodzoo.cli.data import DataArgument, RootOption, show_counts
from oodzoo.cli.evaluate import show_evaluation, top_k_of
from oodzoo.cli.extract import DeviceOption, extraction_progress
from oodzoo.cli.models import ZooOption
from oodzoo.cli.rank import show_ranking
from oodzoo.cli.select import show_selection
from oodzoo.cli.terminal import Terminal

if TYPE_CHECKING:
    from oodzoo.data.dataset import ImageDomains
    from oodzoo.pipeline.stages import RunConfig
    from oodzoo.zoo import ModelSpec


@command("run", example="oodzoo run photos/ --zoo modern --out job/")
def run(
    terminal: Terminal,
    source: DataArgument,
    zoo: ZooOption,
    out: Annotated[Path, typer.Option(help="Folder for everything that the job makes.")],
    root: RootOption = None,
    top_k: Annotated[
        str,
        typer.Option(
            help="How many models to put side by side; several, such as 1,3,5,7, to compare them "
            "(the predictor takes 3 if it is among them, else the smallest); or auto."
        ),
    ] = "3",
    score: Annotated[str, typer.Option(help="What models are ranked by, as in rank.")] = "zood",
    protocol: Annotated[
        str, typer.Option(help="How heads are judged: fast, or domainbed for its random search.")
    ] = "fast",
    baselines: Annotated[
        bool, typer.Option(help="Judge single models, random features and other scores, too.")
    ] = True,
    device: DeviceOption = "auto",
    precision: Annotated[
        str, typer.Option(help="In which PyTorch models compute: float32, bfloat16, float16.")
    ] = "float32",
    limit: Annotated[
        int | None, typer.Option(help="Only this many images, for a quick look.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the sample, and of all that is drawn.")] = 0,
) -> None:
    """Do the whole job: extract, rank, select, evaluate, fit a predictor, and report.

    Stopped or repeated, the same command does only what is missing or has changed.
    """
    from oodzoo.data.dataset import ImageDomains
    from oodzoo.features.extract import Settings
    from oodzoo.pipeline.stages import RunConfig
    from oodzoo.zoo import load_zoo

    config = RunConfig(
        top_k=top_k_of(top_k),
        score=score,
        protocol=protocol,  # type: ignore[arg-type]
        baselines=baselines,
        seed=seed,
        extraction=Settings(device=device, precision=precision),
    )
    dataset = ImageDomains(source, root=root)
    if limit is not None:
        dataset = dataset.sample(limit, seed=seed)
    job(terminal, dataset, load_zoo(zoo), out, config)


def job(
    terminal: Terminal,
    dataset: ImageDomains,
    zoo: Sequence[ModelSpec],
    out: Path,
    config: RunConfig,
) -> None:
    """The whole job, each stage shown when it has ended."""
    from oodzoo._io import locked
    from oodzoo.pipeline.stages import Job
    from oodzoo.ranking.result import Ranking

    show_counts(terminal, dataset)
    for issue in dataset.leaks():
        terminal.warn(issue.message)
    with locked(out):
        work = Job(dataset, zoo, out, config, shlex.join(["oodzoo", *sys.argv[1:]]))
        stages = _Stages(terminal)
        stages.begin(f"Features of {len(zoo)} models")
        with extraction_progress(terminal) as reporter:
            extraction = stages.end(*work.extract(reporter))
        _show_losses(terminal, extraction)

        stages.begin("Ranking: each domain is left out in turn, nothing is fine-tuned")
        with terminal.progress("Ranking") as progress:
            ranking = Ranking.from_dict(stages.end(*work.rank(progress)))
        show_ranking(terminal, ranking)

        stages.begin("Selection of features of the best models")
        show_selection(terminal, stages.end(*work.select()))

        if work.can_evaluate:
            stages.begin("Evaluation: each domain in turn as one that nobody has seen")
            show_evaluation(terminal, stages.end(*work.evaluate(terminal.say)))
        else:
            terminal.warn(
                "no evaluation: it takes three domains, two to rank by and one to test on"
            )

        stages.begin("Predictor of all domains")
        predictor = stages.end(*work.fit())
        terminal.line(f"{out / predictor['folder']}: {', '.join(predictor['models'])}")

        if config.baselines and not work.can_judge:
            terminal.warn("no test bed: to judge an order takes three models")
        elif config.baselines:
            from oodzoo.cli.testbed_tables import show_bed
            from oodzoo.testbed import from_dict

            stages.begin("Test bed: how well each score orders these models")
            with terminal.progress("Judging") as progress:
                bed = stages.end(*work.judge(progress))
            show_bed(terminal, from_dict(bed))
        page = work.report()
    terminal.say(f"Report: {page}")
    terminal.say(f"Predict with: oodzoo predict {out / predictor['folder']} IMAGE|FOLDER ...")
    terminal.document({**work.record.document, "report": str(page)})


class _Stages:
    """Numbers the stages, and says which of them had been done already."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._number = 0

    def begin(self, title: str) -> None:
        self._number += 1
        self._terminal.say(f"{self._number}. {title}")

    def end(self, document: dict[str, Any], skipped: bool) -> dict[str, Any]:
        if skipped:
            self._terminal.say("   done before, and nothing has changed since")
        return document


def _show_losses(terminal: Terminal, extraction: dict[str, Any]) -> None:
    for path, reason in extraction["skipped"].items():
        terminal.warn(f"skipped {path!r}: {reason}")
    for name, reason in extraction["failed"].items():
        terminal.warn(f"model {name!r} is left out: {reason}")

"""`oodzoo run`: the whole pipeline in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodzoo.cli.app import FEATURES_KEPT, command
from oodzoo.cli.domains import announce_proposed
from oodzoo.cli.evaluate import top_k_of
from oodzoo.cli.listening import listeners
from oodzoo.cli.options import (
    AddressOption,
    BudgetOption,
    ClassNamesOption,
    ColumnsOption,
    DataArgument,
    DeviceOption,
    DomainsOption,
    EngineOption,
    LicenceOption,
    LimitOption,
    LogFileOption,
    MaxModelsOption,
    MaxParametersOption,
    MLflowOption,
    PrecisionOption,
    PromptOption,
    PromptsOption,
    ProtocolOption,
    PublishedOption,
    RaceOption,
    RootOption,
    ScoreOption,
    TaskOption,
    TensorBoardOption,
    TotalMsOption,
    ZooOption,
    open_data,
    prompts_of,
)
from oodzoo.cli.run_display import run_and_show
from oodzoo.cli.target import TargetFolderOption
from oodzoo.cli.terminal import Terminal
from oodzoo.cli.zoo import YesOption, announce_download, select_zoo
from oodzoo.errors import InputError


@command("run", example="oodzoo run photos/ --zoo modern --out job/", interrupted=FEATURES_KEPT)
def run(
    terminal: Terminal,
    source: DataArgument,
    zoo: ZooOption,
    out: Annotated[Path, typer.Option(help="Folder for all results.")],
    licence: LicenceOption = None,
    max_parameters: MaxParametersOption = None,
    root: RootOption = None,
    columns: ColumnsOption = None,
    task: TaskOption = None,
    domains: DomainsOption = None,
    top_k: Annotated[
        str,
        typer.Option(
            help="Number of models of an ensemble; or several to compare, such as 1,3,5,7; or "
            "auto, to choose on the training domains."
        ),
    ] = "3",
    score: ScoreOption = "unseen",
    target: TargetFolderOption = None,
    protocol: ProtocolOption = "fast",
    baselines: Annotated[
        bool, typer.Option(help="Also evaluate single models, random features and other scores.")
    ] = True,
    max_models: MaxModelsOption = None,
    max_ms: TotalMsOption = None,
    published: PublishedOption = None,
    device: DeviceOption = "auto",
    engine: EngineOption = "local",
    address: AddressOption = None,
    precision: PrecisionOption = "float32",
    class_names: ClassNamesOption = None,
    prompt: PromptOption = None,
    prompts: PromptsOption = None,
    race: RaceOption = False,
    budget: BudgetOption = None,
    limit: LimitOption = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    yes: YesOption = False,
    log_file: LogFileOption = None,
    mlflow: MLflowOption = None,
    tensorboard: TensorBoardOption = None,
) -> None:
    """Run the whole pipeline: extract, rank, select, evaluate, fit a predictor, and report.

    Rerun the same command to resume: only what is missing or has changed is computed.
    """
    from oodzoo.data.unlabelled import parse_unlabelled
    from oodzoo.features.config import ExtractionConfig
    from oodzoo.pipeline import RunConfig
    from oodzoo.zoo import load_zoo

    config = RunConfig(
        top_k=top_k_of(top_k),
        score=score,
        protocol=protocol,  # type: ignore[arg-type]
        baselines=baselines,
        seed=seed,
        max_models=max_models,
        max_ms=max_ms,
        published=published,
        engine=engine,
        address=address,
        extraction=ExtractionConfig(
            device=device, precision=precision, prompts=prompts_of(class_names, prompt, prompts)
        ),
        race=race,
        budget=budget,
    )
    dataset = open_data(source, root, columns, domains, task)
    config.require_possible(dataset.task, target=target is not None)
    announce_proposed(terminal.say, dataset, domains, clusters=True)
    if limit is not None:
        dataset = dataset.sample(limit, seed=seed)
    images = None if target is None else parse_unlabelled(target)
    models = select_zoo(terminal, load_zoo(zoo), licence, max_parameters)
    _require_outside(out, {"--log-file": log_file, "--tensorboard": tensorboard})
    others = listeners(log_file, mlflow, tensorboard)
    announce_download(terminal, models, yes=yes)
    specs = [model.spec for model in models]
    run_and_show(terminal, dataset, specs, out, config, images, others)


def _require_outside(out: Path, given: dict[str, Path | None]) -> None:
    """Reject other files in the folder of the run, which would then not be taken for a run."""
    for option, path in given.items():
        if path is not None and path.resolve().is_relative_to(out.resolve()):
            raise InputError(
                f"{option} {str(path)!r} is inside the folder of the run, {str(out)!r}; choose "
                "another place"
            )

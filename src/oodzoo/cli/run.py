"""`oodzoo run`: the whole pipeline in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodzoo.cli.app import RUN_CONTINUES, command
from oodzoo.cli.config import WritesConfig, file_options, load_options
from oodzoo.cli.domains import announce_proposed
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
    MaxMsOption,
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
    TopKOption,
    ZooOption,
    open_data,
    prompts_of,
    top_k_of,
)
from oodzoo.cli.run_display import require_outside, run_and_show
from oodzoo.cli.target import TargetFolderOption
from oodzoo.cli.terminal import Terminal
from oodzoo.cli.zoo import YesOption, announce_download, open_zoo, select_zoo


def _load(context: typer.Context, path: Path | None) -> Path | None:
    return load_options(context, path, lambda: file_options(run, leave_out="config_file"))


@command("run", example="oodzoo run photos/ --zoo modern --out job/", interrupted=RUN_CONTINUES)
def run(
    terminal: Terminal,
    context: typer.Context,
    source: DataArgument,
    zoo: ZooOption,
    out: Annotated[Path, typer.Option(help="Folder for all results.")],
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE.toml",
            help="Take options that are not given here from a file, as DIR/oodzoo.toml of a run.",
            is_eager=True,
            callback=_load,
        ),
    ] = None,
    licence: LicenceOption = None,
    max_parameters: MaxParametersOption = None,
    root: RootOption = None,
    columns: ColumnsOption = None,
    task: TaskOption = None,
    domains: DomainsOption = None,
    top_k: TopKOption = "3",
    score: ScoreOption = "unseen",
    target: TargetFolderOption = None,
    protocol: ProtocolOption = "fast",
    baselines: Annotated[
        bool, typer.Option(help="Also evaluate single models, random features and other scores.")
    ] = True,
    testbed: Annotated[
        bool, typer.Option("--testbed", help="Also compare how well each score orders the models.")
    ] = False,
    max_models: MaxModelsOption = None,
    max_ms: MaxMsOption = None,
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

    config = RunConfig(
        top_k=top_k_of(top_k),
        score=score,
        protocol=protocol,  # type: ignore[arg-type]
        baselines=baselines,
        testbed=testbed,
        seed=seed,
        max_models=max_models,
        max_ms=max_ms,
        max_parameters=max_parameters,
        licence=licence,
        published=published,
        engine=engine,
        address=address,
        extraction=ExtractionConfig(
            device=device, precision=precision, prompts=prompts_of(class_names, prompt, prompts)
        ),
        race=race,
        budget=budget,
    )
    specs = open_zoo(zoo, engine)
    dataset = open_data(source, root, columns, domains, task)
    config.require_possible(dataset.task, target=target is not None)
    announce_proposed(terminal.say, dataset, domains, clusters=True)
    if limit is not None:
        dataset = dataset.sample(limit, seed=seed)
    images = None if target is None else parse_unlabelled(target)
    models = select_zoo(terminal, specs, licence, max_parameters)
    require_outside(out, {"--log-file": log_file, "--tensorboard": tensorboard})
    options = file_options(run, leave_out="config_file")
    others = [WritesConfig(out, options, context.params), *listeners(log_file, mlflow, tensorboard)]
    announce_download(terminal, models, yes=yes)
    members = [model.spec for model in models]
    run_and_show(terminal, dataset, members, out, config, images, others)

"""`oodzoo run`, `demo` and `report`: the whole pipeline in one folder; its options as a file."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from oodzoo.cli.app import COMMON, FILES_COMPLETE, RUN_CONTINUES, command, with_options
from oodzoo.cli.data import (
    announce_download,
    announce_proposed,
    counted,
    images_used,
    open_zoo,
    read_images,
    select_zoo,
    show_counts,
    show_near_duplicates,
    show_problems,
)
from oodzoo.cli.evaluate import show_evaluation, show_main_rows
from oodzoo.cli.extract import extraction_progress, show_summary
from oodzoo.cli.options import (
    DataOptions,
    LogOptions,
    ModelCompute,
    PromptOptions,
    RaceOptions,
    TrackingOptions,
    listening,
    open_data,
    top_k_of,
)
from oodzoo.cli.rank import kept_features, show_ranking, show_selection, show_top
from oodzoo.cli.terminal import Terminal
from oodzoo.cli.testbed import show_bed, show_best_score
from oodzoo.core.errors import InputError
from oodzoo.core.events import Events, Listener
from oodzoo.core.limits import Limits
from oodzoo.core.packages import install_hint
from oodzoo.core.tables import aligned
from oodzoo.core.text import count, duration, typed

if TYPE_CHECKING:
    from oodzoo.data.dataset import ImageDomains
    from oodzoo.data.sources.folder import UnlabelledImages
    from oodzoo.pipeline import RunConfig
    from oodzoo.pipeline.config import FileOption, Value
    from oodzoo.report.record import PredictorSummary, Run
    from oodzoo.zoo import ModelSpec

_SEVERAL = {"zoo", "top_k", "licence"}
"""Texts of several parts, separated by commas."""

_KINDS: dict[Any, Any] = {
    str: "text",
    Path: "text",
    int: "integer",
    float: "number",
    bool: "flag",
    list[str]: "texts",
}


def file_options(body: Callable[..., None], leave_out: str) -> dict[str, FileOption]:
    """The options of a command as they are in a file, by the names of its parameters.

    Parameters
    ----------
    body : callable
        A function registered with :func:`oodzoo.cli.app.command`.
    leave_out : str
        The option that names the file.
    """
    from oodzoo.pipeline.config import FileOption

    options = {}
    for name, parameter in with_options(body)[0].parameters.items():
        if name == leave_out or not (annotated := get_args(parameter.annotation)):
            continue  # the context is not annotated
        kind, info = annotated
        if info.hidden or name in COMMON:
            continue
        (plain,) = [kind] if kind in _KINDS else [k for k in get_args(kind) if k is not NoneType]
        is_argument = isinstance(info, typer.models.ArgumentInfo)
        key = str(info.metavar).lower() if is_argument else name
        options[name] = FileOption(key, _KINDS[plain], info.help or "", name in _SEVERAL)
    return options


def load_options(
    context: typer.Context, path: Path | None, options: Callable[[], Mapping[str, FileOption]]
) -> Path | None:
    """Take what a file gives for options that the command line does not give."""
    if path is None or context.resilient_parsing:
        return path
    from oodzoo.pipeline.config import CONFIG_FILE, read_config

    if path.is_dir():
        inside = path / CONFIG_FILE
        meant = (
            f"; did you mean {str(inside)!r}?" if inside.is_file() else f" without {CONFIG_FILE}"
        )
        raise typer.BadParameter(f"{str(path)!r} is a folder{meant}")
    known = options()
    try:
        values = read_config(path, list(known.values()))
    except InputError as error:
        raise typer.BadParameter(str(error)) from None
    names = {option.key: name for name, option in known.items()}
    context.default_map = {names[key]: value for key, value in values.items()}
    return path


class WritesConfig(Listener):
    """Writes the options of a run into its folder, so that it can be repeated.

    That is when it starts. If the folder has an earlier run, it is when the first stage ends: a run
    of other data is refused before, and the options of the earlier run stay with its results.
    """

    def __init__(
        self, out: Path, options: Mapping[str, FileOption], given: Mapping[str, Any]
    ) -> None:
        self._out = out
        self._options = list(options.values())
        self._values = {option.key: _plain(given.get(name)) for name, option in options.items()}
        self._written = False

    def start(self, stage: str, **facts: Any) -> None:
        from oodzoo.report.record import is_run

        if stage == "run" and not is_run(self._out):
            self._write()

    def end(self, stage: str, **facts: Any) -> None:
        if facts.get("status") in ("done", "reused"):
            self._write()

    def _write(self) -> None:
        from oodzoo.pipeline.config import CONFIG_FILE, write_config

        if not self._written:
            write_config(self._out / CONFIG_FILE, self._options, self._values)
            self._written = True


def _plain(value: Any) -> Value | None:
    """A value of an option as a file has it; an empty list is none."""
    if isinstance(value, list | tuple):
        return [str(each) for each in value] or None
    plain: Value | None = str(value) if isinstance(value, Path) else value
    return plain


# --- what is printed ------------------------------------------------------------------------------


def run_and_show(
    terminal: Terminal,
    dataset: ImageDomains,
    zoo: Sequence[ModelSpec],
    out: Path,
    config: RunConfig,
    target: UnlabelledImages | None = None,
    others: Sequence[Listener] = (),
    more_steps: Sequence[tuple[str, str]] = (),
) -> None:
    """Run the whole pipeline, show what each stage finds, and end with the verdict.

    `more_steps` are what else to do next, each with a command.
    """
    from oodzoo.pipeline import run as run_pipeline
    from oodzoo.report.recommendation import verdict

    if terminal.verbose:
        show_counts(terminal, dataset)
    else:
        terminal.line(counted(dataset))
    read_images(terminal, dataset, dataset.name)
    for issue in [*dataset.similar_classes(), *dataset.leaks()]:
        terminal.warn(str(issue))
    with ExitStack() as bars:
        listener = [_Shown(terminal, bars, out, len(zoo), dataset), *others]
        typed = _typed_command(sys.argv[1:], out, zoo)
        result = run_pipeline(
            dataset, zoo, out, target=target, config=config, listener=listener, command=typed
        )
    terminal.line("")
    for line in verdict(result, terminal.prose_width):
        terminal.line(line)
    terminal.say("Next:")
    texts = dataset.modality == "text"
    for line in aligned([*next_steps(result, out, zoo, texts=texts), *more_steps]):
        terminal.say(line)
    if terminal.json:
        terminal.document({**result.to_dict(), "report": str(out / "report.html")})


def next_steps(
    run: Run, out: Path, zoo: Sequence[ModelSpec], *, texts: bool
) -> list[tuple[str, str]]:
    """What can be done with the results, and how."""
    model = typed(out / "model")
    steps = [("look at the report", str(out / "report.html"))]
    if run.predictor is not None:
        takes = "TEXTS.csv|.txt" if texts else "IMAGE|FOLDER ..."
        steps += [
            ("predict", f"oodzoo predict {model} {takes}"),
            ("test on labelled data", f"oodzoo test {model} DATA"),
        ]
        tunable = {spec.name for spec in zoo if spec.kind != "onnx"}
        if not texts and tunable.intersection(run.predictor.models):
            tuned = typed(f"{out.resolve().name}-tuned")
            steps.append(("fine-tune", f"oodzoo tune {model} DATA --out {tuned}"))
    return steps


def require_outside(out: Path, given: dict[str, Path | None]) -> None:
    """Reject other files in the folder of the run, which would then not be taken for a run."""
    for option, path in given.items():
        if path is not None and path.resolve().is_relative_to(out.resolve()):
            raise InputError(
                f"{option} {str(path)!r} is inside the folder of the run, {str(out)!r}; choose "
                "another place"
            )


def _typed_command(arguments: Sequence[str], out: Path, zoo: Sequence[ModelSpec]) -> str:
    """The command line for the record: files and folders without the folders above them."""
    from oodzoo.zoo import ModelSpec
    from oodzoo.zoo.sources import portable_source
    from oodzoo.zoo.zoos import is_pattern

    shared = ["oodzoo"]
    for argument in arguments:
        value = _without_folders(argument, out)
        parts = [part.strip() for part in re.split("[,=]", argument)]
        patterns = [ModelSpec("", part) for part in parts if is_pattern(part)]
        for spec in (*zoo, *patterns):
            value = value.replace(spec.source, portable_source(spec))
        shared.append(value)
    return shlex.join(shared)


def _without_folders(argument: str, out: Path) -> str:
    """An argument `PATH`, `--option=PATH` or `NAME=PATH` without the folders above the path.

    Of a URI, only the scheme stays: it may have a password.
    """
    if uri := re.match(r"[a-z][a-z0-9+.-]*://", argument):
        return f"{uri.group()}…"
    path = Path(argument)
    exists = os.path.exists(path)  # noqa: PTH110 - Path.exists raises on a name too long
    if exists or path == out or path.is_absolute():
        return path.name or argument
    name, equals, rest = argument.partition("=")
    return name + equals + _without_folders(rest, out) if equals else argument


class _Shown(Listener):
    """Shows a progress bar of each stage and, when it ends, its result."""

    def __init__(
        self, terminal: Terminal, bars: ExitStack, out: Path, n_models: int, dataset: ImageDomains
    ) -> None:
        self._terminal = terminal
        self._bars = bars
        self._out = out
        self._dataset = dataset
        self._models = count(n_models, "model")
        self._number = 0
        self._inner = Listener()

    def start(self, stage: str, **facts: Any) -> None:
        if stage == "run":
            return
        self._number += 1
        title = _STAGES[stage].title.format(models=self._models)
        self._terminal.say(f"{self._number}. {title}")
        if stage == "extraction":
            if facts:
                self._inner = self._bars.enter_context(extraction_progress(self._terminal))
        else:
            bar = listening(self._terminal, _STAGES[stage].name)
            self._inner = Events(self._bars.enter_context(bar))
        self._inner.start(stage, **facts)

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        self._inner.progress(stage, done, total, **facts)

    def end(self, stage: str, **facts: Any) -> None:
        self._bars.close()
        self._inner = Listener()
        status = facts["status"]
        if status == "skipped":
            self._terminal.warn(f"{_STAGES[stage].name.lower()} skipped: {facts['reason']}")
        if status == "reused":
            self._terminal.say("   reused from an earlier run: nothing has changed")
        if stage == "run" or status not in ("done", "reused"):
            return
        if status == "done":
            self._terminal.detail(f"   {duration(facts['seconds'])}")
        result, view = facts["result"], _STAGES[stage]
        if self._terminal.verbose and view.show_all is not None:
            view.show_all(self._terminal, result)
        else:
            view.show(self._terminal, result, self._out)
        if stage == "extraction" and (text := images_used(self._dataset, result.images)):
            self._terminal.line(text)


@dataclass(frozen=True)
class _StageView:
    """How a stage is called, and what is shown of its result.

    Attributes
    ----------
    name, title : str
    show : callable
        A few lines; the last argument is the folder of the run.
    show_all : callable, optional
        With `--verbose`.
    """

    name: str
    title: str
    show: Callable[[Terminal, Any, Path], None]
    show_all: Callable[[Terminal, Any], None] | None = None


def _show_predictor(terminal: Terminal, found: PredictorSummary, out: Path) -> None:
    from oodzoo.combining.statements import shown_choice

    choice = shown_choice(found.choice, found.models)
    terminal.line(f"{out / found.folder}: {choice} of {', '.join(found.models)}")


_PAIRS = "The pairs are in the report; oodzoo data DATA --store STORE lists them."

_STAGES = {
    "extraction": _StageView(
        "Extraction",
        "Extract features of {models}",
        lambda terminal, found, _: show_summary(terminal, found),
        show_summary,
    ),
    "leaks": _StageView(
        "Near-duplicates",
        "Compare the images (near-duplicates)",
        lambda terminal, found, _: show_problems(terminal, found, _PAIRS),
        show_near_duplicates,
    ),
    "ranking": _StageView(
        "Ranking",
        "Rank the models (leave-one-domain-out)",
        lambda terminal, found, out: show_top(terminal, found, out / "store"),
        show_ranking,
    ),
    "selection": _StageView(
        "Selection",
        "Select features of all models",
        lambda terminal, found, _: terminal.line(kept_features(found)),
        show_selection,
    ),
    "evaluation": _StageView(
        "Evaluation",
        "Evaluate (leave-one-domain-out)",
        lambda terminal, found, _: show_main_rows(terminal, found),
        show_evaluation,
    ),
    "predictor": _StageView("Predictor", "Fit a predictor on all domains", _show_predictor),
    "testbed": _StageView(
        "Test bed",
        "Test bed: how well each score orders these models",
        lambda terminal, found, out: show_best_score(terminal, found, out / "store"),
        show_bed,
    ),
}


# --- oodzoo run -----------------------------------------------------------------------------------


def _load(context: typer.Context, path: Path | None) -> Path | None:
    return load_options(context, path, lambda: file_options(run, leave_out="config_file"))


@command("run", example="oodzoo run photos/ --zoo modern --out job/", interrupted=RUN_CONTINUES)
def run(
    terminal: Terminal,
    context: typer.Context,
    source: str,
    zoo: str,
    out: Path,
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
    *,
    limits: Limits,
    options: DataOptions,
    top_k: str = "3",
    score: str = "unseen",
    target: str | None = None,
    protocol: str = "fast",
    baselines: bool = True,
    testbed: bool = False,
    published: str | None = None,
    compute: ModelCompute,
    precision: str = "float32",
    decode: str = "reduced",
    texts: PromptOptions,
    early: RaceOptions,
    limit: int | None = None,
    seed: int = 0,
    yes: bool = False,
    tracking: TrackingOptions,
) -> None:
    """Run the whole pipeline: extract, rank, select, evaluate, fit a predictor, and report.

    Rerun the same command to resume: only what is missing or has changed is computed.

    Options
    -------
    out : PATH
        Folder for all results.
    target : FOLDER
        Rank for these unlabelled images of the target domain: FOLDER or NAME=FOLDER.
    testbed
        Also compare how well each score orders the models.
    """
    from oodzoo.data.sources.folder import parse_unlabelled
    from oodzoo.extraction.outcome import ExtractionConfig
    from oodzoo.pipeline import RunConfig

    config = RunConfig(
        top_k=top_k_of(top_k),
        score=score,
        protocol=protocol,  # type: ignore[arg-type]
        baselines=baselines,
        testbed=testbed,
        seed=seed,
        published=published,
        extraction=ExtractionConfig(
            compute.device,
            precision=precision,
            prompts=texts.read(),
            decode=decode,  # type: ignore[arg-type]
        ),
        engine=compute.engine,
        address=compute.address,
        **vars(limits),
        **vars(early),
    )
    specs = open_zoo(zoo, compute.engine)
    dataset = open_data(source, options)
    config.require_possible(dataset.task, target=target is not None)
    announce_proposed(terminal.say, dataset, options.domains, clusters=True)
    if limit is not None:
        dataset = dataset.sample(limit, seed=seed)
    images = None if target is None else parse_unlabelled(target)
    models = select_zoo(terminal, specs, limits)
    require_outside(out, {"--log-file": tracking.log_file, "--tensorboard": tracking.tensorboard})
    written = WritesConfig(out, file_options(run, leave_out="config_file"), context.params)
    others = [written, *tracking.listeners()]
    announce_download(terminal, models, yes=yes)
    members = [model.spec for model in models]
    run_and_show(terminal, dataset, members, out, config, images, others)


# --- oodzoo demo ----------------------------------------------------------------------------------

_PER_CLASS = 10
"""A third of the digits, so that the demo takes less than a minute."""


@command("demo", example="oodzoo demo --out demo/", interrupted=RUN_CONTINUES)
def demo(
    terminal: Terminal,
    out: Path = Path("oodzoo-demo"),
    *,
    log: LogOptions,
) -> None:
    """Run the whole pipeline on embedded data: handwritten digits and a zoo of tiny models.

    Options
    -------
    out : PATH
        Folder for all results.
    """
    from oodzoo.core.io import explaining_disk_errors
    from oodzoo.data.dataset import ImageDomains
    from oodzoo.demo import write_digits
    from oodzoo.extraction.outcome import ExtractionConfig
    from oodzoo.pipeline import RunConfig
    from oodzoo.zoo import load_zoo
    from oodzoo.zoo.sources import extras_of

    require_outside(out, {"--log-file": log.log_file})
    others = log.listeners()
    _require_demo_folder(out / "data")
    with explaining_disk_errors(out / "data"):
        dataset = ImageDomains(write_digits(out / "data", per_class=_PER_CLASS))
    terminal.say(
        "A third of scikit-learn's handwritten digits, rendered in six domains, and tiny models "
        "that were not trained on them."
    )
    # the test bed takes as long as everything else
    config = RunConfig(extraction=ExtractionConfig(device="cpu"))
    needed = install_hint(*extras_of(load_zoo("modern")))
    photos = "oodzoo run photos/ --zoo modern --out job/" + (f"  # {needed}" if needed else "")
    own = [
        ("compare all scores", f"oodzoo testbed {typed(out / 'store')}"),
        ("look at every stage", f"oodzoo demo --out {typed(out)} --verbose"),
        ("your own photos", photos),
        ("", "with photos/<domain>/<class>/<image>"),
    ]
    run_and_show(terminal, dataset, load_zoo("demo"), out, config, others=others, more_steps=own)


def _require_demo_folder(folder: Path) -> None:
    """Reject a folder that contains anything but the data of the demo."""
    from oodzoo.demo.digits import DOMAINS

    if folder.is_dir():
        foreign = sorted({entry.name for entry in folder.iterdir()} - set(DOMAINS))
        if foreign:
            raise InputError(
                f"{str(folder)!r} contains {foreign[0]!r}, which was not written by the demo; "
                "choose another folder with --out"
            )


# --- oodzoo report --------------------------------------------------------------------------------


@command("report", example="oodzoo report job/ --figures", interrupted=FILES_COMPLETE)
def report(
    terminal: Terminal,
    folder: Path,
    figures: bool = False,
    out: Path | None = None,
) -> None:
    """Write the report of a run: one self-contained HTML page.

    Arguments
    ---------
    folder : DIR
        Folder of a run (with run.json).

    Options
    -------
    figures
        Also write the charts as SVG files in DIR/figures.
    out : PATH; default DIR/report.html
        File to write the page to.
    """
    from oodzoo.report import write_report
    from oodzoo.report.record import read_run

    run = read_run(folder)
    written: list[Path] = []
    if figures:
        from oodzoo.report.figures import write_figures

        written = write_figures(run, folder / "figures")
    page = write_report(folder, out, run=run)
    for path in (page, *written):
        terminal.line(f"{path}")
    terminal.document({"report": str(page), "figures": [str(path) for path in written]})

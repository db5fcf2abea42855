"""Options that several commands share, and what listens to a command.

A parameter of a command that is annotated with one of the dataclasses stands for their fields, see
:func:`oodzoo.cli.app.command`. What follows is shown of parameters of these names, unless the
docstring of the command or dataclass says something else.

Arguments
---------
data : DATA
    Folder root/domain/class/image, table (.csv, .parquet), .tar files, URL, or
    hf://datasets/NAME.
model : MODEL
    Folder or URL of a predictor, written by oodzoo fit, or folder of a run.
predictor : MODEL
    Folder or URL of a predictor, written by oodzoo fit, or folder of a run.
source : DATA
    Folder root/domain/class/image, table (.csv, .parquet), .tar files, URL, or
    hf://datasets/NAME.
store : STORE
    Folder or URL of a feature store, or folder of a run.

Options
-------
baselines
    Also evaluate single models, random features and other scores.
batch_size : N
    Images in one forward pass; chosen for the device if not given.
columns : ROLE=NAME,…
    Columns of a table that have other names: path=file,label=y; several numbers or labels as
    label=age+height.
decided (--from) : FILE.json
    Fit what oodzoo evaluate recommends, or the features that oodzoo select has selected: the
    file that their --out has written.
decode : HOW
    How large JPEG images are decoded: reduced, to no less than twice the size that a model
    resizes them to, or full.
device
    Device for the models: auto, cpu, cuda, cuda:1, mps; several, as cuda:0,cuda:1, or all
    (GPUs): a process each.
domain_weight : NAME=W
    Weight of a domain in means over domains, 1 unless given; repeatable.
dtype
    Stored feature type: float32 or float16.
limit
    Use only this many images, stratified by domain and class.
method : HOW
    How features are selected. consistent: those that help to predict held-out domains. paper:
    spike and slab over all domains together.
precision
    Compute precision (PyTorch models): float32, bfloat16 or float16.
protocol : HOW
    How heads are trained: fast (ridge regression; logistic for several labels) or domainbed
    (DomainBed's random search).
published : DATASET
    Which data set this is (PACS, VLCS, OfficeHome, TerraIncognita or DomainNet), to show the
    results among published ones.
score : NAME
    Score to rank by; oodzoo rank --help lists them.
search_space : NAME; default default
    domainbed only: distribution of the draws, default or DomainNet.
seed
    Random seed.
target : NAME|FOLDER
    Rank for these unlabelled images of the target domain: an unlabelled domain of the store, or
    FOLDER or NAME=FOLDER, which is first extracted into the store.
task : TASK
    What the labels are: classification (classes), regression (numbers) or multilabel (several
    labels per sample); by default, what they look like.
threshold; default 0.5
    --method paper only: keep features with a higher inclusion probability.
top_k : N,…|auto
    Number of best models to concatenate; several, as 1,3,5, or auto (1, 3, 5 or 7): an
    evaluation compares them, else the best on held-out domains is taken.
unlabelled : FOLDER
    Images without labels, as a domain of their own; FOLDER or NAME=FOLDER, repeatable.
yes (--yes, -y)
    Download models without asking, and without a check of free space.
zoo
    A named zoo (demo, paper, modern), a zoo file (.toml), or ONNX files and model specs such as
    timm/resnet50 or 'timm/vit_small*', separated by commas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from oodzoo.cli.terminal import Meter, Terminal
from oodzoo.core.errors import InputError
from oodzoo.core.events import Listener, Log
from oodzoo.core.limits import Limits
from oodzoo.core.options import DEVICE, Compute
from oodzoo.core.remote.location import url_of_path
from oodzoo.core.text import duration

if TYPE_CHECKING:
    from oodzoo.data.dataset import ImageDomains
    from oodzoo.ranking.constraints import TopK
    from oodzoo.report.figures import Plot
    from oodzoo.store.feature_store import FeatureStore
    from oodzoo.zoo.prompts import Prompts


# --- data -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableOptions:
    """How a table of samples is read.

    Options
    -------
    root : PATH
        Folder or URL that the paths of a table are relative to.
    """

    root: str | None = None
    columns: str | None = None

    @property
    def mapping(self) -> dict[str, Any] | None:
        """The value of --columns."""
        from oodzoo.data.sources.column_roles import parse_columns

        return None if self.columns is None else parse_columns(self.columns)


@dataclass(frozen=True)
class DomainOptions(TableOptions):
    """How a table is read, and its domains.

    Options
    -------
    domains : DOMAINS
        Data without domains: propose (the best column), one (a single domain), or a column
        (column:camera, column:taken:year).
    """

    domains: str | None = None

    def require_request(self) -> None:
        """Reject a value of --domains that is none."""
        from oodzoo.data.proposals import is_request

        if self.domains is not None and not is_request(self.domains):
            raise InputError(f"--domains must be propose, one or column:NAME, got {self.domains!r}")


@dataclass(frozen=True)
class _TaskOptions(TableOptions):
    task: str | None = None


@dataclass(frozen=True)
class DataOptions(DomainOptions, _TaskOptions):
    """How a data set is read."""


def open_data(source: str, options: TableOptions, task: str | None = None) -> ImageDomains:
    """Open the data set that DATA, --root, --columns, --domains and --task name."""
    from oodzoo.data.dataset import ImageDomains

    domains = None
    if isinstance(options, DomainOptions):
        options.require_request()
        domains = options.domains
    if isinstance(options, DataOptions):
        task = options.task
    mapping, root = options.mapping, options.root
    return ImageDomains(source, root=root, columns=mapping, domains=domains, task=task)


@dataclass(frozen=True)
class PromptOptions:
    """Texts of classes, for zero-shot predictions.

    Options
    -------
    class_names : TEXTS|FILE
        Text of each class (n01=dog,n02=cat), for zero-shot predictions of CLIP-like models; or
        a file with a line for each. By default the classes, with underscores as blanks.
    prompt : TEMPLATE
        Template for these texts, 'a photo of a {}.'; repeatable. By default some of CLIP's.
    prompts : FILE
        File with a template on each line.
    """

    class_names: str | None = None
    prompt: list[str] | None = None
    prompts: Path | None = None

    def read(self) -> Prompts:
        from oodzoo.zoo.prompts import Prompts, parse_class_names, read_prompts

        if self.prompt and self.prompts is not None:
            raise InputError(
                f"--prompt {self.prompt[0]!r} and --prompts {str(self.prompts)!r} both give "
                "templates; leave one out"
            )
        names = None if self.class_names is None else parse_class_names(self.class_names)
        if self.prompts is not None:
            return Prompts(names, read_prompts(self.prompts))
        return Prompts(names, tuple(self.prompt) if self.prompt else None)


# --- models ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RaceOptions:
    """Whether models are dropped early.

    Options
    -------
    race
        Drop models early, after a look at a sample: about 35 % of the time.
    budget : DURATION
        Race within this time for the extraction, such as 30m or 1h30m.
    """

    race: bool = False
    budget: str | None = None


def warn_of_left_out(terminal: Terminal, left_out: Mapping[str, str], what: str) -> None:
    """Warn of models that are left out, by their reasons; `what` says what is not done to them."""
    for reason in dict.fromkeys(left_out.values()):
        names = [repr(name) for name, why in left_out.items() if why == reason]
        subject = f"model {names[0]} is" if len(names) == 1 else f"models {', '.join(names)} are"
        terminal.warn(f"{subject} not {what}: {reason}")


def warn_of_limits(terminal: Terminal, store: FeatureStore, limits: Limits) -> tuple[str, ...]:
    """Return the models that are within the limits; warn of the others, before the work."""
    from oodzoo.extraction.features import StoreSource
    from oodzoo.ranking.constraints import apply

    models, left_out = apply(StoreSource(store), limits)
    warn_of_left_out(terminal, left_out, "used")
    return models


# --- where to compute -----------------------------------------------------------------------------


@dataclass(frozen=True)
class ArrayCompute(Compute):
    """Where to compute on arrays."""

    device: Annotated[str, DEVICE] = "cpu"


@dataclass(frozen=True)
class ModelCompute(Compute):
    """Where to run models."""

    device: str = "auto"


def compute_device(device: str | None) -> str | None:
    """The device of :func:`oodzoo.core.backend.backend`: None, which is NumPy, for cpu."""
    return None if device == "cpu" else device


# --- ranking and evaluation -----------------------------------------------------------------------


def domain_weights(values: list[str] | None) -> dict[str, float] | None:
    """Read the values of --domain-weight, NAME=W."""
    if not values:
        return None
    weights: dict[str, float] = {}
    for value in values:
        name, equals, number = value.rpartition("=")
        if not equals or not name:
            raise InputError(f"--domain-weight must be NAME=W, got {value!r}")
        if name in weights:
            raise InputError(f"--domain-weight names the domain {name!r} twice")
        try:
            weights[name] = float(number)
        except ValueError:
            raise InputError(f"--domain-weight {value!r}: {number!r} is not a number") from None
    return weights


def top_k_of(text: str) -> TopK:
    """Parse the value of `--top-k`: an integer, several, or auto."""
    if text == "auto":
        return "auto"
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise InputError(
            f"--top-k must be 1 or more, several such as 1,3,5,7, or auto; got {text!r}"
        )
    numbers = [int(part) for part in parts]
    return numbers[0] if len(numbers) == 1 else numbers


def rates_of(text: str) -> list[float]:
    """Read the value of --learning-rate."""
    rates = []
    for part in text.split(","):
        try:
            rates.append(float(part))
        except ValueError:
            raise InputError(
                f"--learning-rate must be one or more numbers, such as 1e-5,3e-5, got {part!r}"
            ) from None
    return rates


# --- what listens ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class LogOptions:
    """A file of events.

    Options
    -------
    log_file : FILE
        Append a line for each event to this file: JSON if it is named *.jsonl, else text.
    """

    log_file: Path | None = None

    def listeners(self) -> list[Listener]:
        """What the options ask for."""
        from oodzoo.core.events import LogFile

        return [] if self.log_file is None else [LogFile(self.log_file)]


@dataclass(frozen=True)
class TrackingOptions(LogOptions):
    """Where a command is tracked.

    Options
    -------
    mlflow : URI
        Track in MLflow: sqlite:///mlflow.db, or the address of a server.
    tensorboard : DIR
        Write event files for TensorBoard.
    """

    mlflow: str | None = None
    tensorboard: Path | None = None

    def listeners(self) -> list[Listener]:
        from oodzoo.core.events import MLflowListener, TensorBoardListener

        found = super().listeners()
        if self.mlflow is not None:
            found.append(MLflowListener(self.mlflow))
        if self.tensorboard is not None:
            found.append(TensorBoardListener(self.tensorboard))
        return found


@contextmanager
def listening(
    terminal: Terminal, title: str, others: Sequence[Listener] = ()
) -> Iterator[list[Listener]]:
    """Show the progress of work; yields its listener, unless the terminal is quiet, and others."""
    with terminal.progress(title) as meter:
        yield [*([] if meter is None else [Bar(meter, terminal.detail)]), *others]


class Bar(Listener):
    """Shows the progress of a stage, and of those within it, in one bar.

    Stages within a stage that counts its own steps are part of such a step.
    """

    def __init__(self, meter: Meter, say: Log = lambda _: None) -> None:
        self._meter = meter
        self._say = say
        self._counting: str | None = None

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        if "message" in facts:
            self._say(facts["message"])
        if total and self._counting in (None, stage):
            if self._counting is None:
                self._meter.restart()
            self._counting = stage
            self._meter(done, total, facts.get("share"))

    def end(self, stage: str, **facts: Any) -> None:
        if "seconds" in facts:
            self._say(f"{stage}: {duration(facts['seconds'])}")
        if stage == self._counting:
            self._counting = None


def _json_file(path: Path | None) -> Path | None:
    """Reject a file that cannot be written before anything is computed."""
    if path is None or url_of_path(str(path)) is not None:  # a URL is refused with all others
        return path
    if path.suffix.lower() != ".json":
        raise typer.BadParameter(f"{str(path)!r} must end in .json")
    if path.is_dir():
        raise typer.BadParameter(f"{str(path)!r} is a folder")
    if not (nearest := next(each for each in path.parents if each.exists())).is_dir():
        raise typer.BadParameter(f"{str(path)!r} is in no folder: {str(nearest)!r} is a file")
    from oodzoo.store.format import MANIFEST

    if any((folder / MANIFEST).is_file() for folder in path.resolve().parents):
        raise typer.BadParameter(f"{str(path)!r} is inside a feature store; choose another place")
    return path


OutFileOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE.json",
        help="Also write the result to this file, as --json prints it.",
        callback=_json_file,
    ),
]


def show_document(
    terminal: Terminal,
    document: Mapping[str, Any],
    store: FeatureStore,
    out: Path | None,
    options: Mapping[str, Any],
) -> None:
    """Print a result as JSON, if asked for, and write it to a file, with what it was made of.

    Parameters
    ----------
    terminal : Terminal
    document : dict
    store : FeatureStore
    out : path, optional
    options : dict
        Options that :func:`read_decision` needs.
    """
    from oodzoo.core.io import explaining_disk_errors, write_json

    made_of = {"name": store.name, "data": store.data_fingerprint}
    whole = {**document, "store": made_of, "options": dict(options)}
    if out is not None:
        with explaining_disk_errors(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            write_json(out, whole)
        terminal.say(f"Result: {out}")
    terminal.document(whole)


# --- the option --plot ----------------------------------------------------------------------------


def _known_format(path: Path | None) -> Path | None:
    """Reject an unknown file format before anything is computed."""
    if path is not None:
        from oodzoo.report.figures import check_suffix

        try:
            check_suffix(path)
        except InputError as error:
            raise typer.BadParameter(str(error)) from None
    return path


PlotOption = Annotated[
    Path | None,
    typer.Option(help="Also write the result as a figure: an .svg file.", callback=_known_format),
]


class Plotted(Protocol):
    def plot(self) -> Plot: ...


def save_plot(terminal: Terminal, result: Plotted, path: Path | None) -> None:
    """Write a result as a figure, if a path is given."""
    if path is not None:
        result.plot().save(path)
        terminal.say(f"figure written to {path}")

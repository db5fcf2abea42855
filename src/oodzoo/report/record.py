"""The result of a run as typed objects, and its files `run.json` and `local.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from oodzoo.combining.evaluation.result import Evaluation
from oodzoo.combining.selection import SelectionSummary
from oodzoo.combining.statements import shown_choice
from oodzoo.core.errors import InputError
from oodzoo.core.io import read_json, require_schema, structured, write_bytes
from oodzoo.core.tables import Table
from oodzoo.core.text import count, short_name, some_of
from oodzoo.data.files import StoredFile
from oodzoo.data.issues import Spread
from oodzoo.ranking.racing import Dropped
from oodzoo.ranking.ranking import Ranking
from oodzoo.ranking.testbed.bed import TestBed
from oodzoo.store.format import RUN, sealed, unsealed
from oodzoo.store.leaks.similar import NearDuplicates
from oodzoo.tasks import Kind, task_of

SCHEMA = 5
NAME = RUN
LOCAL = "local.json"

Document = dict[str, Any]


@dataclass(frozen=True)
class Example:
    """An image of the run; the path is relative to the root of its data set."""

    path: str
    label: str


@dataclass(frozen=True)
class DomainLabels:
    """The images of a domain and their labels, where these are not classes.

    Attributes
    ----------
    images : int
    without_label : int or None
        Images without any label, if images can have several.
    numbers : dict of str to Spread
        Mean, spread and range of each number, if numbers are predicted.
    """

    images: int
    without_label: int | None = None
    numbers: dict[str, Spread] = field(default_factory=dict)


@dataclass(frozen=True)
class DataSummary:
    """The images of a run.

    Attributes
    ----------
    path : str
        Name of the folder or table, without the folders above it: a record can be shared.
    fingerprint : str
    images : int
    classes : tuple of str
        The classes, or the names of the labels or numbers.
    domains : dict
        Number of images by domain and class, or by domain and label.
    skipped : int
        Images that could not be read.
    examples : dict
        A few images of each domain, of different classes, with different labels, or with small and
        large numbers.
    domains_proposed : str or None
        What the domains were proposed by; None if they were given.
    task : {"classification", "regression", "multilabel"}
    labels : dict
        The labels of each domain; empty for classes.
    """

    path: str
    fingerprint: str
    images: int
    classes: tuple[str, ...]
    domains: dict[str, dict[str, int]]
    skipped: int = 0
    examples: dict[str, tuple[Example, ...]] = field(default_factory=dict)
    domains_proposed: str | None = None
    task: Kind = "classification"
    labels: dict[str, DomainLabels] = field(default_factory=dict)

    def __repr__(self) -> str:
        size = f"{count(self.images, 'image')}, {count(len(self.domains), 'domain')}"
        outputs = task_of(self.task, self.classes)
        return (
            f"DataSummary({short_name(self.path)!r}: {size}, "
            f"{outputs.count_outputs(len(self.classes))})"
        )


@dataclass(frozen=True)
class ExtractionSummary:
    """The features of a run.

    Attributes
    ----------
    models : tuple of str
    failed : dict
        Models without features, and why.
    outdated : tuple of str
        Models of the store that lack images of this run.
    images : int
    skipped : dict
        Images that could not be read, and why.
    store : str
        Fingerprint of the store.
    dropped : dict of str to Dropped
        Models that a race has dropped: when, and why.
    """

    models: tuple[str, ...]
    failed: dict[str, str]
    outdated: tuple[str, ...]
    images: int
    skipped: dict[str, str]
    store: str
    dropped: dict[str, Dropped] = field(default_factory=dict)

    def __repr__(self) -> str:
        lost = len(self.failed) + len(self.dropped)
        more = f", {lost} failed or dropped" if lost else ""
        models = count(len(self.models), "model")
        return f"ExtractionSummary({models} on {count(self.images, 'image')}{more})"


@dataclass(frozen=True)
class PredictorSummary:
    """The predictor of a run.

    Attributes
    ----------
    folder : str
        Relative to that of the run.
    models : tuple of str
    digest : str
    choice : str
        How the models are combined, as in :class:`~oodzoo.combining.evaluation.result.Recommended`.
    """

    folder: str
    models: tuple[str, ...]
    digest: str
    choice: str = "named"

    def __repr__(self) -> str:
        choice = shown_choice(self.choice, self.models)
        return f"PredictorSummary({choice} of {some_of(self.models)}, in {self.folder!r})"


@dataclass(frozen=True)
class Stage:
    """A stage of a run: how long it took, and whether an earlier result was reused.

    `inputs` is a digest of everything that the result depends on.
    """

    name: str
    seconds: float
    reused: bool
    inputs: str


@dataclass(frozen=True, repr=False)
class Run:
    """The result of :func:`oodzoo.run`; the result of a stage that has not run is None.

    Attributes
    ----------
    command : str
        The command line or call that started the run.
    settings : dict
    versions, machine : dict
        Of the packages in use, and cores and system of the machine.
    stages : tuple of Stage
    data : DataSummary
    extraction : ExtractionSummary
    leaks : NearDuplicates
    ranking : Ranking
    selection : SelectionSummary
    evaluation : Evaluation
    predictor : PredictorSummary
    testbed : TestBed
    """

    command: str
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    stages: tuple[Stage, ...] = ()
    data: DataSummary | None = None
    extraction: ExtractionSummary | None = None
    leaks: NearDuplicates | None = None
    ranking: Ranking | None = None
    selection: SelectionSummary | None = None
    evaluation: Evaluation | None = None
    predictor: PredictorSummary | None = None
    testbed: TestBed | None = None

    def __repr__(self) -> str:
        best = "no ranking yet"
        if self.evaluation is not None:
            best = f"recommended {self.evaluation.recommended.brief}"
        elif self.ranking is not None:
            best = f"best model {short_name(self.ranking.best)}"
        stages = ", ".join(stage.name for stage in self.stages)
        return f"Run({short_name(self.command, 80)!r}: {best}; stages: {stages})"

    def _repr_html_(self) -> str:
        names = ["data", *(stage.name for stage in self.stages)]
        parts = {name: part for name in names if (part := getattr(self, name, None)) is not None}
        return Table.of(
            ["stage", "result"],
            [
                [name, repr(part).partition("(")[2].removesuffix(")")]
                for name, part in parts.items()
            ],
            caption=self.command,
            notes=[] if self.evaluation is None else self.evaluation.findings()[:1],
            left=("result",),
        ).html()

    def to_dict(self) -> Document:
        """Convert the run to a JSON document."""
        document: Document = {"schema": SCHEMA}
        for name in (part.name for part in fields(self)):
            part = getattr(self, name)
            if hasattr(part, "to_dict"):
                document[name] = part.to_dict()
            elif part is not None:
                document[name] = msgspec.to_builtins(part)
        if self.data is not None:
            document["task"], document["metric"] = self.data.task, task_of(self.data.task).metric
        if self.evaluation is not None:
            document["recommended"] = self.evaluation.recommended.to_dict()
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], what: str = "the record of a run") -> Run:
        """Restore a run from :meth:`to_dict`; `what` names it in error messages."""
        parts = {
            name: part_from_dict(name, document[name], what)
            for name in PARTS
            if document.get(name) is not None
        }
        plain = {name: value for name, value in document.items() if name not in PARTS}
        return replace(structured(plain, cls, what), **parts)


PARTS: dict[str, Callable[[Document], Any]] = {
    "data": lambda document: msgspec.convert(document, DataSummary),
    "extraction": lambda document: msgspec.convert(document, ExtractionSummary),
    "leaks": NearDuplicates.from_dict,
    "ranking": Ranking.from_dict,
    "selection": SelectionSummary.from_dict,
    "evaluation": Evaluation.from_dict,
    "predictor": lambda document: msgspec.convert(document, PredictorSummary),
    "testbed": TestBed.from_dict,
}
"""How each part of a run is read."""


def part_from_dict(name: str, document: Document, what: str = "the record of a run") -> Any:
    """Restore one part of the document of :meth:`Run.to_dict`."""
    try:
        part = PARTS[name](document)
        structured(msgspec.to_builtins(part), type(part), name)  # checks the types of all parts
        return part
    except (AttributeError, KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
        problem = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{what} is damaged: {name}: {problem}") from error


def write_local(folder: Path, files: Mapping[str, StoredFile]) -> None:
    """Write where the images are that a report shows to `local.json`, not meant to be shared."""
    write_bytes(folder / LOCAL, sealed({"files": msgspec.to_builtins(files)}))


def image_files(folder: Path) -> dict[str, StoredFile]:
    """Return where the images are that the report of a run shows, as far as it is known here."""
    what = "the location of the images"
    try:
        found = unsealed(read_json(folder / LOCAL, what), what).get("files", {})
        return structured(found, dict[str, StoredFile], what)
    except InputError:
        return {}


def is_run(folder: Path) -> bool:
    """Whether a folder has a record that some version of oodzoo has written."""
    path = folder / NAME
    content = path.read_bytes() if path.is_file() else b""
    return b'"schema"' in content and b'"stages"' in content  # it may be damaged elsewhere


def read_run(folder: str | Path) -> Run:
    """Read `run.json` of a folder.

    Raises
    ------
    InputError
        If it is missing, damaged, or has another schema.
    """
    path = Path(folder) / NAME
    if not path.is_file():
        raise InputError(
            f"{str(folder)!r} has no {NAME}; give the folder that `oodzoo run … --out` wrote"
        )
    what = f"the record of a run {str(path)!r}"
    advice = "run `oodzoo run` again with the same --out: the features are reused"
    try:
        document = read_json(path, "the record of a run")
        if document.get("schema") == SCHEMA:
            document = unsealed(document, what)
    except InputError as error:
        raise InputError(f"{error}; {advice}") from error
    require_schema(document, SCHEMA, what, advice)
    return Run.from_dict(document, what)

"""Test beds of a feature store and of the ZooD paper: accuracies of heads, scores of all kinds.

Two protocols:

``unseen``
    For each test domain, the scores are computed on the other domains, and compared with the
    accuracy on the test domain. This is what a user of the ranking meets. It needs at least three
    domains.
``all``
    Each score is computed once on all domains, as in `oodzoo rank`, and compared with the accuracy
    on each test domain. The scores have seen the labels of the test domains.

The accuracy is the same in both: that of a linear head trained on the other domains.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

import oodzoo
from oodzoo.core.backend import Array
from oodzoo.core.errors import InputError
from oodzoo.core.events import Listeners, Progress, Stage, extent
from oodzoo.core.packages import import_torchvision, torchvision_installed
from oodzoo.core.text import count
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.source import (
    Arrays,
    Facts,
    Features,
    FeatureSource,
    Shard,
    StoreSource,
    as_source,
    groups_of,
)
from oodzoo.linear.heads.linear import fit_head
from oodzoo.linear.heads.paths import C_GRID
from oodzoo.linear.heads.samples import require_classes_to_tell_apart
from oodzoo.ranking import scores
from oodzoo.ranking.ranker import rank, rank_for_test_domains
from oodzoo.ranking.scores import Score
from oodzoo.ranking.scores.registry import compute_score, is_own
from oodzoo.ranking.terms import FOLD_SCORES
from oodzoo.ranking.testbed.agreement import Values
from oodzoo.ranking.testbed.bed import RESAMPLES, SEED, Column, TestBed, judge
from oodzoo.ranking.testbed.published import read_table
from oodzoo.ranking.zood import Stability
from oodzoo.store.class_embeddings import ClassEmbeddings
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.format import ModelRecord

Protocol = Literal["unseen", "all"]
Reasons = dict[str, dict[str, str]]

BASELINES = ("parameters", "feature_dim")
PAPER = "zood_paper"
TITLES = {
    "unseen": "Score for an unseen domain",
    "transfer": "Transfer between domains",
    "zood": "ZooD",
    PAPER: "ZooD, as printed in the paper",
    "discriminability": "Discriminability",
    "stability": "Stability",
    "accuracy": "Expected accuracy on an unseen domain",
    "balanced_accuracy": "Expected class-balanced accuracy on an unseen domain",
    "parameters": "Number of parameters",
    "feature_dim": "Number of features",
    "source_accuracy": "Published accuracy on ImageNet",
}

HEAD = "logistic regression, C chosen on the training domains"


def head_accuracy(
    source: FeatureSource, model: str, test: str, *, tested: FeatureSource | None = None
) -> float:
    """Measure the accuracy on a test domain, in percent, of a head trained on the other domains.

    The head is a linear probe, a logistic regression (:func:`oodzoo.linear.heads.linear.fit_head`),
    with C chosen on the training domains. The accuracy is cached in the store.

    Parameters
    ----------
    source : FeatureSource
    model, test : str
        Name of the model and of the test domain.
    tested : FeatureSource, optional
        Source of the samples to test on, if it is another one; with the same classes.
    """

    def compute() -> dict[str, np.ndarray]:
        return {"accuracy": np.array(_measured_accuracy(source, model, test, tested or source))}

    found = source.cached("head-accuracy", [model], compute, settings=f"{test!r}, {C_GRID}")
    return float(found["accuracy"])


def _measured_accuracy(
    source: FeatureSource, model: str, test: str, tested: FeatureSource
) -> float:
    training = [domain for domain in source.domains if domain != test]
    columns = Columns.all_of(source, [model])
    samples = columns.samples(source, training)
    present = np.unique(samples.labels)
    if len(present) < 2:
        raise InputError(
            f"the domains other than {test!r} have only the class {source.classes[present[0]]!r}; "
            "a head needs at least two classes to train on"
        )
    head = fit_head(samples, len(source.classes), groups=groups_of(source, training))
    unseen = columns.samples(tested, [test])
    right = head.logits(unseen.features).argmax(axis=1) == unseen.labels
    return 100 * float(np.mean(right))


class MemoisedSource(FeatureSource):
    """A view of a source for several rankings, in which the folds of a model are computed once.

    Features in memory have no cache, and folds that give a warning are not kept in that of a store.
    Moments, which are large, are not kept in memory.
    """

    def __init__(self, source: FeatureSource) -> None:
        self._source = source
        self.models = source.models
        self.domains = source.domains
        self.classes = source.classes
        self.task = source.task
        self._results: dict[tuple[str, ...], Arrays] = {}

    def shards(self, model: str, domain: str) -> Iterator[Shard]:
        return self._source.shards(model, domain)

    def labels(self, domain: str) -> NDArray[np.int64]:
        return self._source.labels(domain)

    def groups(self, domain: str) -> Sequence[str | None] | None:
        return self._source.groups(domain)

    def logits(self, model: str, domain: str) -> NDArray[Any] | None:
        return self._source.logits(model, domain)

    def class_embeddings(self, model: str) -> ClassEmbeddings | None:
        return self._source.class_embeddings(model)

    def facts(self, model: str) -> Facts:
        return self._source.facts(model)

    @property
    def provenance(self) -> dict[str, str]:
        return self._source.provenance

    def only(self, domains: Sequence[str]) -> FeatureSource:
        return self._source.only(domains)

    def cached(
        self,
        kind: str,
        models: Sequence[str],
        compute: Callable[[], Arrays],
        *,
        domains: Sequence[str] | None = None,
        settings: str = "",
        keep: Callable[[Arrays], bool] = lambda _: True,
    ) -> Arrays:
        def read() -> Arrays:
            return self._source.cached(
                kind, models, compute, domains=domains, settings=settings, keep=keep
            )

        if kind == "moments":
            return read()
        key = (kind, settings, *models, *(domains or self.domains))
        if key not in self._results:
            self._results[key] = read()
        return self._results[key]


@dataclass(frozen=True)
class Measurement:
    """Accuracies and scores of all models.

    Attributes
    ----------
    accuracy : dict
        Accuracy of each model on each test domain, in percent.
    columns : dict
        Scores by name.
    left_out : dict
        For each score, the models that lack it and the reason.
    """

    accuracy: dict[str, dict[str, float]]
    columns: dict[str, Column]
    left_out: Reasons

    @property
    def mean_accuracy(self) -> dict[str, float]:
        """Accuracy of each model, averaged over test domains."""
        models = next(iter(self.accuracy.values()))
        return {m: float(np.mean([there[m] for there in self.accuracy.values()])) for m in models}


def measure(
    source: FeatureSource,
    protocol: Protocol = "unseen",
    *,
    tested: FeatureSource | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> Measurement:
    """Compute the accuracies of heads and every score, or read them from the cache of the source.

    Parameters
    ----------
    source : FeatureSource
        What the scores are computed on, and the heads are trained on.
    protocol : {"unseen", "all"}
        Compute scores for each test domain on the other domains, or once on all domains.
    tested : FeatureSource, optional
        What the heads are tested on, if it is another source.
    device : str, optional
        Compute with NumPy if None, else with PyTorch on this device ("cuda").
    progress : callable, optional
        Called with the numbers of steps done and in total.
    """
    memoised = MemoisedSource(source)
    own = (*FOLD_SCORES, PAPER)
    steps = _steps(len(source.models) + len(own), progress)
    accuracy: dict[str, dict[str, float]] = {domain: {} for domain in source.domains}
    peers = _Peers(source, protocol, device)
    for model in source.models:
        next(steps)
        for domain, accuracies in accuracy.items():
            accuracies[model] = head_accuracy(source, model, domain, tested=tested)
        peers.compute(model)
    columns = {}
    for score in own:
        next(steps)
        columns[score] = _own_column(memoised, score, protocol, device)
    columns |= peers.columns() | _baselines(source)
    return Measurement(accuracy, columns, peers.left_out)


def _own_column(
    source: FeatureSource, score: str, protocol: Protocol, device: str | None
) -> Column:
    """Compute a score of a ranking for all models at once: it may depend on all of them."""
    stability: Stability = "paper" if score == PAPER else "robust"
    name = "zood" if score == PAPER else score
    title = TITLES.get(score, score)
    if protocol == "all":
        ranking = rank(source, score=name, stability=stability, device=device)
        return Column({row.model: row.score for row in ranking.rows}, title)
    rankings = rank_for_test_domains(source, score=name, stability=stability, device=device)
    by_domain = {t: {row.model: row.score for row in r.rows} for t, r in rankings.items()}
    return Column.averaged(by_domain, title)


class _Peers:
    """Registered scores of one model after the other."""

    def __init__(self, source: FeatureSource, protocol: Protocol, device: str | None) -> None:
        self._source = source
        self._device = device
        self._unseen = protocol == "unseen"
        # the domains that scores are computed on, for each test domain or for all of them
        self._training = {"": tuple(source.domains)}
        if self._unseen:
            self._training = {t: tuple(d for d in source.domains if d != t) for t in source.domains}
        self._scores = [scores.get(name) for name in scores.names()]
        self._values: dict[str, dict[str, dict[str, float | None]]] = {
            score.name: {test: {} for test in self._training} for score in self._scores
        }
        self.left_out: Reasons = {}

    def compute(self, model: str) -> None:
        """Compute all scores of a model, or note why one cannot be computed."""
        for score in self._scores:
            found: dict[str, float | None]
            try:
                values = self._values_of(score, model)
                found = dict(zip(self._training, values, strict=True))
            except InputError as error:
                self.left_out.setdefault(score.name, {})[model] = str(error)
                found = dict.fromkeys(self._training)
            for test, value in found.items():
                self._values[score.name][test][model] = value

    def columns(self) -> dict[str, Column]:
        """Return all scores that at least one model has."""
        columns = {}
        for score in self._scores:
            title = score.title or score.name
            column = Column.averaged(self._values[score.name], title)
            if not self._unseen:
                column = Column(column.values, title)
            if any(value is not None for value in column.values.values()):
                columns[score.name] = column
        return columns

    def _values_of(self, score: Score, model: str) -> list[float]:
        """The score on the training domains of each test domain."""

        def compute() -> dict[str, Any]:
            training = self._training.values()
            values = [compute_score(self._source, score, model, d, self._device) for d in training]
            return {"values": np.array(values)}

        if not is_own(score):  # its code may change from one run to the next
            return [float(value) for value in compute()["values"]]
        settings = "unseen" if self._unseen else "all"
        if score.needs == "class_embeddings":
            embeddings = self._source.class_embeddings(model)
            settings += "" if embeddings is None else f" {embeddings.digest}"
        kind = f"testbed-{score.name}"
        found = self._source.cached(kind, [model], compute, settings=settings)
        return [float(value) for value in found["values"]]


def _baselines(source: FeatureSource) -> dict[str, Column]:
    columns = {}
    for name in BASELINES:
        facts = {model: getattr(source.facts(model), name) for model in source.models}
        values = {model: None if n is None else float(n) for model, n in facts.items()}
        if any(value is not None for value in values.values()):
            columns[name] = Column(values, TITLES[name])
    return columns


def _steps(total: int, progress: Progress | None) -> Iterator[None]:
    """Report progress at each step."""
    for done in range(total):
        if progress is not None:
            progress(done, total)
        yield


def run(
    features: Features,
    y: Sequence[Any] | Array | None = None,
    domains: Sequence[Any] | Array | None = None,
    *,
    groups: Sequence[Any] | None = None,
    protocol: Protocol = "unseen",
    values: Mapping[str, Values] | None = None,
    timm_results: str | Path | None = None,
    name: str | None = None,
    device: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    listener: Listeners | None = None,
) -> TestBed:
    """Compare every available score with the accuracy of linear heads on unseen domains.

    The scores are those of a ranking, ZooD as printed in the paper, all registered scores (see
    :mod:`oodzoo.ranking.scores`), and trivial baselines: the numbers of parameters and of features,
    and the published accuracy on ImageNet. Results are cached in the store, so an interrupted run
    is resumed.

    Parameters
    ----------
    features : mapping, FeatureStore, path or FeatureSource
        A feature store; or features (n, d) of each model by name, with `y` and `domains`.
    y, domains : sequence
        Class and domain of each row, strings or integers; for arrays only.
    groups : sequence, optional
        Group of each row (a patient, a video); for arrays only.
    protocol : {"unseen", "all"}
        Compute scores for each test domain on the other domains, or once on all domains.
    values : mapping, optional
        External scores by name: a number or None for each model.
    timm_results : str or Path, optional
        timm's file `results-imagenet.csv`, for `source_accuracy` of timm models. That of
        torchvision models is known.
    name : str, optional
        Name of the data; the folder of the store if None.
    device : str, optional
        Compute with NumPy if None, else with PyTorch on this device ("cuda").
    resamples, seed : int
        Number and seed of the bootstrap resamples.
    listener : Listener or sequence of Listener, optional
        Receives the events of the stage "testbed", see :mod:`oodzoo.core.events`.
    """
    source = as_source(features, y, domains, groups)
    if not source.task.is_classification:
        raise InputError(
            f"a test bed compares accuracies, but the task is {source.task.kind!r}; rank or "
            "evaluate instead"
        )
    _require_enough(source, protocol)
    require_classes_to_tell_apart(source)
    external = dict(values or {})
    computed = (*FOLD_SCORES, PAPER, *scores.names(), *BASELINES)
    require_valid(external, source.models, reserved=computed)
    published, unpublished = _source_accuracy(source, timm_results)
    data = _data(source, protocol, name)
    facts = extent(source) | {"data": data["name"], "protocol": protocol}
    with Stage(listener, "testbed", **facts) as stage:
        measured = measure(source, protocol, device=device, progress=stage.progress)
        given = {n: Column(v, TITLES.get(n, n)) for n, v in external.items()}
        bed = judge(
            data,
            measured.mean_accuracy,
            measured.columns | published | given,
            by_domain=measured.accuracy,
            left_out=measured.left_out
            | {n: why for n, why in unpublished.items() if n not in given},
            resamples=resamples,
            seed=seed,
        )
        stage.finish(bed, bed.metrics)
    return bed


def _require_enough(source: FeatureSource, protocol: str) -> None:
    if protocol not in get_args(Protocol):
        raise InputError(
            f"unknown protocol {protocol!r}; expected one of {', '.join(get_args(Protocol))}"
        )
    if protocol == "unseen" and len(source.domains) < 3:
        raise InputError(
            f"the protocol 'unseen' needs at least 3 domains, got {len(source.domains)}; with 2, "
            "use the protocol 'all'"
        )
    if len(source.domains) < 2:
        raise InputError(f"the protocol 'all' needs at least 2 domains, got {len(source.domains)}")
    if len(source.models) < 3:
        raise InputError(f"a test bed needs at least 3 models, got {len(source.models)}")


def _source_accuracy(
    source: FeatureSource, timm_results: str | Path | None
) -> tuple[dict[str, Column], Reasons]:
    """The published accuracies, if any model has one, and why others have none."""
    results = None if timm_results is None else read_timm_results(timm_results)
    if not isinstance(source, StoreSource):
        return {}, {}
    values, reasons = published_accuracies(source.store, source.models, results)
    if all(value is None for value in values.values()):
        return {}, {}
    name = "source_accuracy"
    return {name: Column(values, TITLES[name])}, {name: reasons} if reasons else {}


def _data(source: FeatureSource, protocol: Protocol, name: str | None) -> dict[str, Any]:
    data: dict[str, Any] = {
        **source.provenance,
        "domains": list(source.domains),
        "classes": len(source.classes),
        "samples": sum(len(source.labels(domain)) for domain in source.domains),
        "protocol": protocol,
        "head": HEAD,
        "oodzoo": oodzoo.__version__,
    }
    return data if name is None else data | {"name": name}


PUBLISHED_TITLES = {
    "leep": "Log expected empirical prediction",
    "nce": "Negative conditional entropy",
    "h_score": "H-Score",
    "knn": "k nearest neighbours",
    "logme": "Log maximum evidence",
    "zood": "ZooD",
}
HEAD_SCORES = ("leep", "nce")
"""Scores that 10 of the 35 models lack: they were pre-trained without a classifier head."""


def paper(
    *, with_head: bool = False, resamples: int = RESAMPLES, seed: int = SEED
) -> dict[str, TestBed]:
    """Return the paper's test bed for each of its data sets: 35 models, 7 data sets, 6 scores.

    The figures are those of the tables in the appendix of Q. Dong, A. Muhammad, F. Zhou, C. Xie,
    T. Hu, Y. Yang, S.-H. Bae, Z. Li, ZooD: Exploiting Model Zoo for Out-of-Distribution
    Generalization, NeurIPS 2022.

    Parameters
    ----------
    with_head : bool
        If true, the 25 models with a classifier head and all six scores; otherwise all 35 models
        and the four scores that need no head.
    resamples, seed : int
        Number and seed of the bootstrap resamples.

    Examples
    --------
    >>> beds = paper()
    >>> round(beds["PACS"].scores["zood"].weighted_tau, 2)
    0.91
    >>> len(paper(with_head=True)["PACS"].models)
    25
    """
    names = {
        row["model"]: f"{row['model']} {row['architecture']}, {row['pretraining_method']}"
        for row in read_table("models")
    }
    rows = read_table("scores")
    beds = {}
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        here = [row for row in rows if row["dataset"] == dataset]
        if with_head:
            here = [row for row in here if all(row[score] for score in HEAD_SCORES)]
        scores = [score for score in PUBLISHED_TITLES if with_head or score not in HEAD_SCORES]
        columns = {
            score: Column(
                {names[row["model"]]: float(row[score]) for row in here}, PUBLISHED_TITLES[score]
            )
            for score in scores
        }
        accuracy = {names[row["model"]]: float(row["accuracy"]) for row in here}
        data = {"name": dataset, "source": "ZooD, NeurIPS 2022"}
        beds[dataset] = judge(data, accuracy, columns, resamples=resamples, seed=seed)
    return beds


Row = TypeVar("Row")


def read_values(path: Path) -> dict[str, Values]:
    """Read a CSV file with a column `model` and one column per score; empty cells are missing."""
    context = f"the table {str(path)!r}"
    table = csv.reader(_lines(path, context))
    rows = [row for row in _parsed(table, context) if any(cell.strip() for cell in row)]
    if not rows or rows[0][0].strip() != "model" or len(rows[0]) < 2:
        found = ",".join(rows[0]) if rows else ""
        raise InputError(f"{context} must start with the line model,SCORE,…, got {found!r}")
    _, *names = (cell.strip() for cell in rows[0])
    if len(set(names)) < len(names):
        raise InputError(f"{context} has duplicate score names: {', '.join(names)}")
    values: dict[str, dict[str, float | None]] = {name: {} for name in names}
    for number, (model, *cells) in enumerate(rows[1:], start=2):
        if len(cells) != len(names):
            raise InputError(
                f"{context}, row {number}: expected {count(len(rows[0]), 'cell')}, "
                f"got {len(cells) + 1}"
            )
        for name, cell in zip(names, cells, strict=True):
            if model in values[name]:
                raise InputError(f"{context}, row {number}: duplicate model {model!r}")
            values[name][model] = _number(cell.strip(), f"{context}, row {number}")
    return dict(values)


def _lines(path: Path, context: str) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise InputError(f"cannot read {context}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{context} is not a CSV file: {error}") from error


def _parsed(table: Iterable[Row], context: str) -> list[Row]:
    try:
        return list(table)
    except csv.Error as error:
        raise InputError(f"{context} is not a CSV file: {error}") from error


def _number(cell: str, context: str) -> float | None:
    if not cell:
        return None
    try:
        value = float(cell)
    except ValueError as error:
        raise InputError(f"{context}: {cell!r} is not a number") from error
    if not math.isfinite(value):
        raise InputError(f"{context}: {cell!r} is not a finite number")
    return value


def require_valid(
    external: Mapping[str, Values], models: Collection[str], reserved: Collection[str]
) -> None:
    """Reject scores with a reserved name, unknown models, or values that are not finite."""
    for name, values in external.items():
        if name in reserved:
            raise InputError(f"the score name {name!r} is reserved; rename the external score")
        if not name.isidentifier():
            raise InputError(
                f"a score name must consist of letters, digits and underscores, got {name!r}"
            )
        for model, value in values.items():
            if model not in models:
                raise InputError(f"score {name!r}: no such model: {model!r}")
            if value is not None and not math.isfinite(value):
                raise InputError(f"score {name!r}: the value of {model!r} is not finite: {value}")


class UnpublishedError(Exception):
    """No source publishes the accuracy of a model; the message says why."""


def published_accuracies(
    store: FeatureStore, models: Sequence[str], timm_results: dict[str, float] | None
) -> tuple[dict[str, float | None], dict[str, str]]:
    """Look up the top-1 accuracy of models on ImageNet-1k, in percent.

    Returns
    -------
    values : dict
        For each model; None if it is not published.
    reasons : dict
        Why models have no value.
    """
    values: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for name in models:
        try:
            values[name] = _accuracy(store.model(name), timm_results)
        except UnpublishedError as reason:
            values[name], reasons[name] = None, str(reason)
    return values, reasons


def _accuracy(record: ModelRecord, timm_results: dict[str, float] | None) -> float:
    kind, _, identifier = record.source.partition("/")
    if (record.spec or {}).get("pretrained") is False:
        raise UnpublishedError("its weights are random")
    if kind == "torchvision":
        return _of_torchvision(identifier, record.pretraining)
    if kind == "timm":
        return _of_timm(identifier, timm_results)
    raise UnpublishedError("its accuracy on ImageNet is not published by torchvision or timm")


def _of_torchvision(identifier: str, pretraining: str | None) -> float:
    if not torchvision_installed():
        raise UnpublishedError("torchvision, which publishes its accuracy, is not installed")
    name, _, version = identifier.partition(".")
    try:
        torchvision = import_torchvision(extra="torchvision", purpose="source_accuracy")
        known = torchvision.models.get_model_weights(name).__members__
        # the weights that were loaded: the default may be another one in this version
        chosen = version or (pretraining if pretraining in known else "DEFAULT")
        return float(known[chosen].meta["_metrics"]["ImageNet-1K"]["acc@1"])
    except (InputError, KeyError, ValueError) as error:
        raise UnpublishedError(
            f"torchvision publishes no accuracy on ImageNet for {identifier!r}"
        ) from error


def _of_timm(identifier: str, results: dict[str, float] | None) -> float:
    if results is None:
        raise UnpublishedError("pass timm's results-imagenet.csv, which has its accuracy")
    name = identifier.removeprefix("hf-hub:").removeprefix("timm/")
    matches = [name] if name in results else [row for row in results if _is_tagged(row, name)]
    if len(matches) == 1:
        return results[matches[0]]
    if matches:
        raise UnpublishedError(f"timm's results have several weights of {name!r}; name one of them")
    raise UnpublishedError(f"timm's results do not contain {name!r}")


def _is_tagged(row: str, architecture: str) -> bool:
    return "." not in architecture and row.partition(".")[0] == architecture


def read_timm_results(path: str | Path) -> dict[str, float]:
    """Read the top-1 accuracy of each model, in percent, from timm's `results-imagenet.csv`."""
    context = f"timm's results {str(path)!r}"
    lines = _lines(Path(path), context)
    rows = _parsed(csv.DictReader(lines), context)
    if not rows or not {"model", "top1"} <= set(rows[0]):
        header = lines[0].strip()[:80] if lines else ""
        raise InputError(f"{context} must have the columns model and top1, got {header!r}")
    results = {}
    for number, row in enumerate(rows, start=2):
        results[str(row["model"])] = _percent(row["top1"], f"{context}, row {number}")
    return results


def _percent(cell: str | None, context: str) -> float:
    try:
        value = float(cell or "")
    except ValueError:
        value = math.nan
    if not 0 <= value <= 100:
        raise InputError(f"{context}: top1 must be a percentage, got {cell!r}")
    return value

"""Test beds of a feature store and of the ZooD paper: accuracies of heads, scores of all kinds.

Two protocols:

``unseen``
    For each held-out domain, the scores are computed on the other domains, and compared with the
    accuracy on the held-out domain. This is what a user of the ranking meets. It needs at least
    three domains.
``all``
    Each score is computed once on all domains, as in `oodzoo rank`, and compared with the accuracy
    on each held-out domain. The scores have seen the labels of the held-out domains.

The accuracy is the same in both: that of a linear head trained on the other domains.

Scores that were computed elsewhere are read from a CSV file. The published accuracy on ImageNet is
a trivial baseline. It is read from torchvision's description of its weights, and from the file
`results-imagenet.csv` that timm publishes beside its code (columns `model` and `top1`; it is not
part of the installed package). A model that neither of them lists has no value.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np

import oodzoo
from oodzoo.core.backend import Array
from oodzoo.core.errors import InputError
from oodzoo.core.events import Listeners, Progress, Stage, extent, part, tracked
from oodzoo.core.packages import import_torchvision, torchvision_installed
from oodzoo.core.text import count
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.features import (
    Arrays,
    Features,
    FeatureSource,
    StoreSource,
    as_source,
    groups_of,
    head_costs,
)
from oodzoo.linear.heads.linear import fit_head
from oodzoo.linear.heads.paths import C_GRID
from oodzoo.linear.heads.samples import require_classes_to_tell_apart
from oodzoo.ranking import scores
from oodzoo.ranking.ranker import ModelTerms, warn_of_noise
from oodzoo.ranking.scores import Score
from oodzoo.ranking.scores.catalogue import compute_score, is_own
from oodzoo.ranking.terms import FOLD_SCORES, Terms, score_table
from oodzoo.ranking.testbed.agreement import Values
from oodzoo.ranking.testbed.bed import RESAMPLES, SEED, Column, TestBed, judge
from oodzoo.ranking.testbed.published import read_table
from oodzoo.ranking.transfer import SharedGroups
from oodzoo.ranking.zood import Stability
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
    """Measure the accuracy in percent on a held-out domain of a head trained on the others.

    The head is a linear probe, a logistic regression (:func:`oodzoo.linear.heads.linear.fit_head`),
    with C chosen on the training domains. The accuracy is cached in the store.

    Parameters
    ----------
    source : FeatureSource
    model, test : str
        Name of the model and of the held-out domain.
    tested : FeatureSource, optional
        Source of the samples to test on, if it is another one; with the same classes.
    """

    def compute() -> Arrays:
        training = [domain for domain in source.domains if domain != test]
        columns = Columns.all_of(source, [model])
        samples = columns.samples(source, training)
        present = np.unique(samples.labels)
        if len(present) < 2:
            raise InputError(
                f"the domains other than {test!r} have only the class "
                f"{source.classes[present[0]]!r}; a head needs at least two classes to train on"
            )
        head = fit_head(samples, len(source.classes), groups=groups_of(source, training))
        unseen = columns.samples(tested or source, [test])
        right = head.logits(unseen.features).argmax(axis=1) == unseen.labels
        return {"accuracy": np.array(100 * float(np.mean(right)))}

    found = source.cached("head-accuracy", [model], compute, settings=f"{test!r}, {C_GRID}")
    return float(found["accuracy"])


@dataclass(frozen=True)
class BedMeasurement:
    """Accuracies and scores of all models.

    Attributes
    ----------
    accuracy : dict
        Accuracy of each model on each held-out domain, in percent.
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
        """Accuracy of each model, averaged over held-out domains."""
        models = next(iter(self.accuracy.values()))
        return {m: float(np.mean([there[m] for there in self.accuracy.values()])) for m in models}


def measure(
    source: FeatureSource,
    protocol: Protocol = "unseen",
    *,
    tested: FeatureSource | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> BedMeasurement:
    """Compute the accuracies of heads and every score, or read them from the cache of the source.

    Parameters
    ----------
    source : FeatureSource
        What the scores are computed on, and the heads are trained on.
    protocol : {"unseen", "all"}
        Compute scores for each held-out domain on the other domains, or once on all domains.
    tested : FeatureSource, optional
        What the heads are tested on, if it is another source.
    device : str, optional
        Compute with NumPy if None, else with PyTorch on this device ("cuda").
    progress : callable, optional
        Called with the numbers of steps done and in total.
    """
    # the domains that scores are computed on, for each held-out domain or for all of them
    training = {"": tuple(source.domains)}
    if protocol == "unseen":
        training = {t: tuple(d for d in source.domains if d != t) for t in source.domains}
    registered = [scores.get(name) for name in scores.names()]
    values: dict[str, dict[str, dict[str, float | None]]] = {
        score.name: {test: {} for test in training} for score in registered
    }
    left_out: Reasons = {}
    accuracy: dict[str, dict[str, float]] = {domain: {} for domain in source.domains}
    own = (*FOLD_SCORES, PAPER)
    total = len(source.models) + len(own)
    models = tracked(
        source.models, total, weights=head_costs(source, source.models) + [0.1] * len(own)
    )
    for number, model in enumerate(models):
        if progress is not None:
            progress(number, total)
        with part(0.0, 0.5):
            for domain in tracked(source.domains):
                accuracy[domain][model] = head_accuracy(source, model, domain, tested=tested)
        for score in tracked(registered):
            found: Sequence[float | None]
            try:
                found = _registered_score(source, score, model, training, device)
            except InputError as error:
                left_out.setdefault(score.name, {})[model] = str(error)
                found = [None] * len(training)
            for by_model, value in zip(values[score.name].values(), found, strict=True):
                by_model[model] = value
    SharedGroups(source).warn(held_out_together=1 + (protocol == "unseen"))
    terms: dict[Stability, dict[str, dict[str, Terms]]] = {}
    for number, name in enumerate(own, start=len(source.models)):
        if progress is not None:
            progress(number, total)
        stability: Stability = "paper" if name == PAPER else "robust"
        if stability not in terms:  # the terms of a model are the same for all of its scores
            terms[stability] = {}
            for model in source.models:
                of_model = ModelTerms(source, model, device, stability)
                terms[stability][model] = {test: of_model.all(test or None) for test in training}
        if protocol == "all" and name in ("zood", "discriminability", PAPER):
            warn_of_noise({model: found[""] for model, found in terms[stability].items()})
        values[name] = {}
        for test, domains in training.items():
            of_models = [found[test] for found in terms[stability].values()]
            weights = np.full(len(domains), 1 / len(domains))
            table = score_table(of_models, "zood" if name == PAPER else name, weights)
            values[name][test] = dict(zip(source.models, table.totals.tolist(), strict=True))
    for name in BASELINES:
        sizes = {model: getattr(source.facts(model), name) for model in source.models}
        values[name] = {"": {model: None if n is None else float(n) for model, n in sizes.items()}}
    titles = TITLES | {score.name: score.title or score.name for score in registered}
    columns = {}
    for name in (*own, *(score.name for score in registered), *BASELINES):
        column = Column.averaged(values[name], titles.get(name, name))
        if "" in values[name]:  # not of a held-out domain
            column = Column(column.values, column.title)
        if name in own or any(value is not None for value in column.values.values()):
            columns[name] = column
    return BedMeasurement(accuracy, columns, left_out)


def _registered_score(
    source: FeatureSource,
    score: Score,
    model: str,
    training: Mapping[str, Sequence[str]],
    device: str | None,
) -> list[float]:
    """A score of a model without each held-out domain; cached, if it is oodzoo's."""

    def compute() -> Arrays:
        values = [compute_score(source, score, model, d, device) for d in training.values()]
        return {"values": np.array(values)}

    if not is_own(score):  # its code may change from one run to the next
        return [float(value) for value in compute()["values"]]
    settings = "all" if "" in training else "unseen"
    if score.needs == "class_embeddings":
        embeddings = source.class_embeddings(model)
        settings += "" if embeddings is None else f" {embeddings.digest}"
    found = source.cached(f"testbed-{score.name}", [model], compute, settings=settings)
    return [float(value) for value in found["values"]]


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
        Compute scores for each held-out domain on the other domains, or once on all domains.
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
    if not source.task.one_class:
        raise InputError(
            f"a test bed compares accuracies, but the task is {source.task.kind!r}; rank or "
            "evaluate instead"
        )
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
    require_classes_to_tell_apart(source)
    external = dict(values or {})
    computed = (*FOLD_SCORES, PAPER, *scores.names(), *BASELINES)
    require_valid(external, source.models, reserved=computed)
    results = None if timm_results is None else read_timm_results(timm_results)
    published: dict[str, Column] = {}
    unpublished: Reasons = {}
    if isinstance(source, StoreSource):
        known, reasons = published_accuracies(source.store, source.models, results)
        if any(value is not None for value in known.values()):
            published = {"source_accuracy": Column(known, TITLES["source_accuracy"])}
            unpublished = {"source_accuracy": reasons} if reasons else {}
    data: dict[str, Any] = {
        **source.provenance,
        "domains": list(source.domains),
        "classes": len(source.classes),
        "samples": sum(len(source.labels(domain)) for domain in source.domains),
        "protocol": protocol,
        "head": HEAD,
        "oodzoo": oodzoo.__version__,
    }
    if name is not None:
        data["name"] = name
    facts = extent(source) | {"data": data["name"], "protocol": protocol}
    with Stage(listener, "testbed", **facts) as stage:
        with stage.whole.between(0.0, 0.95):
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


Line = TypeVar("Line")


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


def _parsed(table: Iterable[Line], context: str) -> list[Line]:
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
    values: dict[str, float | None] = dict.fromkeys(models)
    reasons: dict[str, str] = {}
    for name in models:
        found = _published_accuracy(store.model(name), timm_results)
        if isinstance(found, str):
            reasons[name] = found
        else:
            values[name] = found
    return values, reasons


def _published_accuracy(record: ModelRecord, timm_results: dict[str, float] | None) -> float | str:
    """The accuracy of a model, or why there is none."""
    kind, _, identifier = record.source.partition("/")
    if (record.spec or {}).get("pretrained") is False:
        return "its weights are random"
    if kind == "torchvision":
        if not torchvision_installed():
            return "torchvision, which publishes its accuracy, is not installed"
        name, _, version = identifier.partition(".")
        try:
            torchvision = import_torchvision(extra="torchvision", purpose="source_accuracy")
            known = torchvision.models.get_model_weights(name).__members__
            # the weights that were loaded: the default may be another one in this version
            chosen = version or (record.pretraining if record.pretraining in known else "DEFAULT")
            return float(known[chosen].meta["_metrics"]["ImageNet-1K"]["acc@1"])
        except (InputError, KeyError, ValueError):
            return f"torchvision publishes no accuracy on ImageNet for {identifier!r}"
    if kind != "timm":
        return "its accuracy on ImageNet is not published by torchvision or timm"
    if timm_results is None:
        return "pass timm's results-imagenet.csv, which has its accuracy"
    name = identifier.removeprefix("hf-hub:").removeprefix("timm/")
    matches = [name]
    if name not in timm_results:  # an architecture, of which there can be several weights
        tagged = [row for row in timm_results if row.partition(".")[0] == name]
        matches = [] if "." in name else tagged
    if len(matches) == 1:
        return timm_results[matches[0]]
    if matches:
        return f"timm's results have several weights of {name!r}; name one of them"
    return f"timm's results do not contain {name!r}"


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

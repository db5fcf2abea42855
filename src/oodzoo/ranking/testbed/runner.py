"""Test beds of a feature store and of the ZooD paper: scores compared with accuracy.

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

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import oodzoo
from oodzoo.core.backend import Array
from oodzoo.core.errors import InputError
from oodzoo.core.events import Listeners, Stage, extent
from oodzoo.extraction.source import Features, FeatureSource, StoreSource, as_source
from oodzoo.linear.heads.classes import require_classes_to_tell_apart
from oodzoo.ranking import scores
from oodzoo.ranking.terms import FOLD_SCORES
from oodzoo.ranking.testbed.agreement import Values
from oodzoo.ranking.testbed.bed import RESAMPLES, SEED, Column, TestBed, judge
from oodzoo.ranking.testbed.external import published_accuracies, read_timm_results, require_valid
from oodzoo.ranking.testbed.measurement import (
    BASELINES,
    HEAD,
    PAPER,
    TITLES,
    Protocol,
    Reasons,
    measure,
)
from oodzoo.ranking.testbed.published import read_table


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

"""Run a test bed on a feature store: every available score, compared with linear probes.

Two protocols:

``all``
    Each score is computed once on all domains, as in `oodzoo rank`. Scores that leave domains out
    themselves use the labels of every domain, like all others.
``unseen``
    For each domain t, the score is computed on the other domains and compared with the accuracy on
    t. Scores and accuracies are averaged over t, as in the paper. It needs at least three domains,
    and takes as many times longer as there are domains.

The accuracy is the same in both: that of linear probes, leaving one domain out.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

import oodzoo
from oodzoo import scores
from oodzoo.backend import Array
from oodzoo.errors import InputError
from oodzoo.events import Progress
from oodzoo.features.source import Features, FeatureSource, as_source
from oodzoo.heads.classes import require_classes_to_tell_apart
from oodzoo.moments import moments_of_domain
from oodzoo.ranking.folds import leave_one_domain_out, leave_two_domains_out
from oodzoo.ranking.ranker import FOLD_SCORES, fold_scores
from oodzoo.scores import Score
from oodzoo.scores.compute import compute_score, is_own
from oodzoo.testbed.bed import RESAMPLES, SEED, Column, TestBed, Values, judge
from oodzoo.testbed.probe import PROBE_C, probe_accuracy

Protocol = Literal["all", "unseen"]
Numbers = dict[str, float]

TITLES = {
    "zood": "ZooD",
    "discriminability": "Discriminability",
    "stability": "Stability",
    "accuracy": "Expected accuracy on an unseen domain",
    "parameters": "Number of parameters",
    "feature_dim": "Number of features",
    "source_accuracy": "Accuracy on the pre-training data",
}


def run(
    features: Features,
    y: Sequence[Any] | Array | None = None,
    domains: Sequence[Any] | Array | None = None,
    *,
    protocol: Protocol = "all",
    values: Mapping[str, Values] | None = None,
    name: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    progress: Progress | None = None,
) -> TestBed:
    """Compare every available score with the accuracy of linear probes.

    The scores are ZooD and its two terms, the expected accuracy, all registered scores (see
    :mod:`oodzoo.scores`), and two trivial baselines: the numbers of parameters and of features.
    Results are cached in the store, so an interrupted run is resumed.

    Parameters
    ----------
    features : mapping, FeatureStore, path or FeatureSource
        A feature store; or features (n, d) of each model by name, with `y` and `domains`.
    y, domains : sequence
        Class and domain of each row, strings or integers; for arrays only.
    protocol : {"all", "unseen"}
        Compute scores on all domains, or for each domain on the others.
    values : mapping, optional
        External scores by name, such as `source_accuracy`: a number or None for each model.
    name : str, optional
        Name of the data; the folder of the store if None.
    resamples, seed : int
        Number and seed of the bootstrap resamples.
    progress : callable, optional
        Called with the numbers of models done and in total.
    """
    source = as_source(features, y, domains)
    _require_enough(source, protocol)
    require_classes_to_tell_apart(source)
    peers = [scores.get(name) for name in scores.names()]
    external = _external(source, values or {})
    bench = _Bench(source, protocol)
    accuracy: Numbers = {}
    for done, model in enumerate(source.models):
        if progress is not None:
            progress(done, len(source.models))
        bench.own(model)
        for peer in peers:
            bench.peer(peer, model)
        probe = functools.partial(probe_accuracy, source, model)
        probes = bench.cached(model, "probe", source.domains, probe)
        accuracy[model] = float(np.mean(list(probes.values())))
    columns = bench.columns({peer.name: peer.title for peer in peers})
    columns |= _baselines(source) | external
    return judge(
        _data(source, protocol, name),
        accuracy,
        columns,
        left_out=bench.left_out,
        resamples=resamples,
        seed=seed,
    )


class _Bench:
    """Computes scores and the time that each takes."""

    def __init__(self, source: FeatureSource, protocol: Protocol) -> None:
        self._source = source
        self._protocol = protocol
        # the score is computed on each set of domains, and averaged
        self._views: list[tuple[str, ...]] = [tuple(source.domains)]
        if protocol == "unseen":
            self._views = [tuple(d for d in source.domains if d != t) for t in source.domains]
        self.values: dict[str, dict[str, float | None]] = {}
        self.seconds: Numbers = {}
        self.left_out: dict[str, dict[str, str]] = {}

    def own(self, model: str) -> None:
        """Compute ZooD's score, its terms and the expected accuracy, from the same folds."""
        compute = _timed(functools.partial(self._folds, model))
        kind = f"testbed-zood-{self._protocol}"
        found = self.cached(model, kind, self._source.domains, compute)
        for name in FOLD_SCORES:
            self._note(name, model, found[name], found["seconds"])

    def peer(self, score: Score, model: str) -> None:
        """Compute a registered score, or note why it cannot be computed."""
        found = []
        for domains in self._views:
            compute = _timed(functools.partial(self._peer, score, model, domains))
            try:
                # scores of other packages may change from one run to the next
                if is_own(score):
                    found.append(self.cached(model, f"testbed-{score.name}", domains, compute))
                else:
                    found.append(compute())
            except InputError as error:
                self.left_out.setdefault(score.name, {})[model] = str(error)
                self._note(score.name, model, None, 0.0)
                return
        value = float(np.mean([one["value"] for one in found]))
        self._note(score.name, model, value, sum(one["seconds"] for one in found))

    def cached(
        self, model: str, kind: str, domains: Sequence[str], compute: Callable[[], Numbers]
    ) -> Numbers:
        """Return numbers from the cache of the source, or compute and cache them."""
        arrays = self._source.cached(
            kind,
            [model],
            lambda: {name: np.asarray(value) for name, value in compute().items()},
            domains=domains,
        )
        return {name: float(value) for name, value in arrays.items()}

    def columns(self, titles: Mapping[str, str]) -> dict[str, Column]:
        """Return all scores that at least one model has."""
        return {
            name: Column(values, TITLES.get(name) or titles[name], self.seconds[name])
            for name, values in self.values.items()
            if any(value is not None for value in values.values())
        }

    def _note(self, name: str, model: str, value: float | None, seconds: float) -> None:
        self.values.setdefault(name, {})[model] = value
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def _folds(self, model: str) -> Numbers:
        # not from the cache of rankings: the time of all the work is measured
        source = self._source
        moments = {domain: moments_of_domain(source, model, domain) for domain in source.domains}
        shards = functools.partial(source.shards, model)
        n_classes = len(source.classes)
        if self._protocol == "all":
            return fold_scores(leave_one_domain_out(moments, shards), n_classes)
        by_test = leave_two_domains_out(moments, shards)
        each = [fold_scores(folds, n_classes) for folds in by_test.values()]
        return {name: float(np.mean([one[name] for one in each])) for name in FOLD_SCORES}

    def _peer(self, score: Score, model: str, domains: Sequence[str]) -> Numbers:
        return {"value": compute_score(self._source, score, model, domains)}


def _timed(compute: Callable[[], Numbers]) -> Callable[[], Numbers]:
    def timed() -> Numbers:
        start = time.perf_counter()
        numbers = compute()
        return numbers | {"seconds": time.perf_counter() - start}

    return timed


def _require_enough(source: FeatureSource, protocol: str) -> None:
    if protocol not in get_args(Protocol):
        raise InputError(
            f"unknown protocol {protocol!r}; expected one of {', '.join(get_args(Protocol))}"
        )
    least = 3 if protocol == "unseen" else 2
    if len(source.domains) < least:
        raise InputError(
            f"the protocol {protocol!r} needs at least {least} domains, got {len(source.domains)}"
        )
    if len(source.models) < 3:
        raise InputError(f"a test bed needs at least 3 models, got {len(source.models)}")


def _baselines(source: FeatureSource) -> dict[str, Column]:
    columns = {}
    for name in ("parameters", "feature_dim"):
        facts = {model: getattr(source.facts(model), name) for model in source.models}
        values = {model: None if n is None else float(n) for model, n in facts.items()}
        if any(value is not None for value in values.values()):
            columns[name] = Column(values, TITLES[name])
    return columns


def _external(source: FeatureSource, external: Mapping[str, Values]) -> dict[str, Column]:
    computed = (*FOLD_SCORES, *scores.names(), "parameters", "feature_dim")
    for name, values in external.items():
        if name in computed:
            raise InputError(f"the score name {name!r} is reserved; rename the external score")
        if not name.isidentifier():
            raise InputError(
                f"a score name must consist of letters, digits and underscores, got {name!r}"
            )
        for model, value in values.items():
            if model not in source.models:
                raise InputError(f"score {name!r}: no such model: {model!r}")
            if value is not None and not np.isfinite(value):
                raise InputError(f"score {name!r}: the value of {model!r} is not finite: {value}")
    return {
        name: Column({m: values.get(m) for m in source.models}, TITLES.get(name, name))
        for name, values in external.items()
    }


def _data(source: FeatureSource, protocol: Protocol, name: str | None) -> dict[str, Any]:
    data: dict[str, Any] = {
        **source.provenance,
        "domains": list(source.domains),
        "classes": len(source.classes),
        "samples": sum(len(source.labels(domain)) for domain in source.domains),
        "protocol": protocol,
        "probe": f"logistic regression, C = {PROBE_C}, leaving one domain out",
        "oodzoo": oodzoo.__version__,
    }
    return data if name is None else data | {"name": name}

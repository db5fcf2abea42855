"""The test bed on a store: every score that it allows, judged by linear probes.

Two protocols:

``all``
    Each score is computed once, on all domains, as `oodzoo rank` does it. Scores that leave domains
    out themselves see the labels of every domain, as those do that do not.
``unseen``
    Each domain t is taken away first; the score is computed on the others and stands against the
    accuracy on t. Scores and accuracies are averaged over t, as in the paper. It needs three
    domains, and as many times the work as there are domains.

The accuracy is the same in both: that of linear probes that leave one domain out.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

import oodzoo
from oodzoo import scores
from oodzoo.errors import InputError
from oodzoo.events import Progress
from oodzoo.features.source import FeatureSource, as_source
from oodzoo.features.store import FeatureStore
from oodzoo.moments import Moments
from oodzoo.ranking.folds import leave_one_domain_out, leave_two_domains_out
from oodzoo.ranking.ranker import FOLD_SCORES, fold_scores
from oodzoo.scores import Score
from oodzoo.scores.compute import is_own, compute_score
from oodzoo.testbed.bed import RESAMPLES, SEED, Column, TestBed, Values, judge
from oodzoo.testbed.probing import STRENGTH, probe_accuracy

Protocol = Literal["all", "unseen"]
Numbers = dict[str, float]

TITLES = {
    "zood": "ZooD",
    "discriminability": "Discriminability",
    "stability": "Stability",
    "accuracy": "Expected accuracy on an unseen domain",
    "parameters": "Number of parameters",
    "feature_dim": "Number of features",
    "source_accuracy": "Accuracy on the data of pre-training",
}


def run(
    store: FeatureStore | FeatureSource,
    *,
    protocol: Protocol = "all",
    values: Mapping[str, Values] | None = None,
    name: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    progress: Progress | None = None,
) -> TestBed:
    """Judge every score that a store allows by the accuracy of linear probes.

    Scores are ZooD's with its two terms, expected accuracy, all registered ones (see
    :mod:`oodzoo.scores`), and the baselines that cost nothing: numbers of parameters and features.
    What has been computed is kept in the store, so an interrupted run goes on where it was.

    Parameters
    ----------
    store : FeatureStore
        Or a source of features, such as :class:`oodzoo.features.source.ArraySource`.
    protocol : {"all", "unseen"}
        On all domains, or for each domain on the others.
    values : mapping, optional
        Further columns by name, such as `source_accuracy`: a number for each model, or None.
    name : str, optional
        Of the data; the name of the store's folder if None.
    resamples, seed : int
        For the intervals.
    progress : callable, optional
        Called with how many models are done, and how many there are.
    """
    source = as_source(store)
    _require(source, protocol)
    peers = [scores.get(name) for name in scores.names()]
    given = _given(source, values or {})
    bench = _Bench(source, protocol)
    accuracy: Numbers = {}
    for number, model in enumerate(source.models):
        if progress is not None:
            progress(number, len(source.models))
        bench.own(model)
        for peer in peers:
            bench.peer(peer, model)
        probe = functools.partial(probe_accuracy, source, model)
        probes = bench.kept(model, "probe", source.domains, probe)
        accuracy[model] = float(np.mean(list(probes.values())))
    columns = bench.columns({peer.name: peer.title for peer in peers})
    columns |= _baselines(source) | given
    return judge(
        _data(source, protocol, name),
        accuracy,
        columns,
        left_out=bench.left_out,
        resamples=resamples,
        seed=seed,
    )


class _Bench:
    """Scores as they are computed, with the time that each takes."""

    def __init__(self, source: FeatureSource, protocol: Protocol) -> None:
        self._source = source
        self._protocol = protocol
        # on which domains a score is computed; its value is the mean over these
        self._views: list[tuple[str, ...]] = [tuple(source.domains)]
        if protocol == "unseen":
            self._views = [tuple(d for d in source.domains if d != t) for t in source.domains]
        self.values: dict[str, dict[str, float | None]] = {}
        self.seconds: Numbers = {}
        self.left_out: dict[str, dict[str, str]] = {}

    def own(self, model: str) -> None:
        """ZooD's score, its terms and the expected accuracy come from the same folds."""
        kind = f"testbed-zood-{self._protocol}"
        found = self.kept(
            model, kind, self._source.domains, _timed(functools.partial(self._folds, model))
        )
        for name in FOLD_SCORES:
            self._note(name, model, found[name], found["seconds"])

    def peer(self, score: Score, model: str) -> None:
        """A registered score; where it cannot be computed, the reason is noted."""
        found = []
        for domains in self._views:
            compute = _timed(functools.partial(self._peer, score, model, domains))
            try:
                # what others wrote may change from one run to the next
                kept = is_own(score)
                kind = f"testbed-{score.name}"
                found.append(self.kept(model, kind, domains, compute) if kept else compute())
            except InputError as error:
                self.left_out.setdefault(score.name, {})[model] = str(error)
                self._note(score.name, model, None, 0.0)
                return
        value = float(np.mean([one["value"] for one in found]))
        self._note(score.name, model, value, sum(one["seconds"] for one in found))

    def kept(
        self, model: str, kind: str, domains: Sequence[str], compute: Callable[[], Numbers]
    ) -> Numbers:
        """Numbers from the store where it has them, computed and kept otherwise."""
        arrays = self._source.cached(
            kind,
            [model],
            lambda: {name: np.asarray(value) for name, value in compute().items()},
            domains=domains,
        )
        return {name: float(value) for name, value in arrays.items()}

    def columns(self, titles: Mapping[str, str]) -> dict[str, Column]:
        """All scores that any model has."""
        return {
            name: Column(values, TITLES.get(name) or titles[name], self.seconds[name])
            for name, values in self.values.items()
            if any(value is not None for value in values.values())
        }

    def _note(self, name: str, model: str, value: float | None, seconds: float) -> None:
        self.values.setdefault(name, {})[model] = value
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def _folds(self, model: str) -> Numbers:
        # not from the cache of rankings: what is timed is all the work
        source = self._source
        moments = {
            domain: Moments.stream(
                source.shards(model, domain),
                len(source.classes),
                context=f"model {model!r}, domain {domain!r}",
            )
            for domain in source.domains
        }
        shards = functools.partial(source.shards, model)
        n_classes = len(source.classes)
        if self._protocol == "all":
            return fold_scores(leave_one_domain_out(moments, shards), n_classes)
        each = [
            fold_scores(folds, n_classes)
            for folds in leave_two_domains_out(moments, shards).values()
        ]
        return {name: float(np.mean([one[name] for one in each])) for name in FOLD_SCORES}

    def _peer(self, score: Score, model: str, domains: Sequence[str]) -> Numbers:
        return {"value": compute_score(self._source, score, model, domains)}


def _timed(compute: Callable[[], Numbers]) -> Callable[[], Numbers]:
    def run() -> Numbers:
        start = time.perf_counter()
        numbers = compute()
        return numbers | {"seconds": time.perf_counter() - start}

    return run


def _require(source: FeatureSource, protocol: str) -> None:
    if protocol not in get_args(Protocol):
        raise InputError(
            f"unknown protocol {protocol!r}; known are {', '.join(get_args(Protocol))}"
        )
    least = 3 if protocol == "unseen" else 2
    if len(source.domains) < least:
        raise InputError(
            f"there are {len(source.domains)} domains, and the protocol {protocol!r} needs {least}"
        )
    if len(source.models) < 3:
        raise InputError(
            f"there are {len(source.models)} models; to judge an order takes three at least"
        )


def _baselines(source: FeatureSource) -> dict[str, Column]:
    facts = {model: source.facts(model) for model in source.models}
    columns = {
        "parameters": {model: _number(fact.parameters) for model, fact in facts.items()},
        "feature_dim": {model: _number(fact.feature_dim) for model, fact in facts.items()},
    }
    return {
        name: Column(values, TITLES[name])
        for name, values in columns.items()
        if any(value is not None for value in values.values())
    }


def _number(value: int | None) -> float | None:
    return None if value is None else float(value)


def _given(source: FeatureSource, given: Mapping[str, Values]) -> dict[str, Column]:
    computed = (*FOLD_SCORES, *scores.names(), "parameters", "feature_dim")
    for name, values in given.items():
        if name in computed:
            raise InputError(f"a score {name!r} is computed already; give yours another name")
        if not name.isidentifier():
            raise InputError(
                f"a score is named by letters, digits and underscores, and not {name!r}"
            )
        for model, value in values.items():
            if model not in source.models:
                raise InputError(f"score {name!r}: there is no model {model!r}")
            if value is not None and not np.isfinite(value):
                raise InputError(f"score {name!r}: the value of {model!r} is {value}, no number")
    return {
        name: Column({m: values.get(m) for m in source.models}, TITLES.get(name, name))
        for name, values in given.items()
    }


def _data(source: FeatureSource, protocol: Protocol, name: str | None) -> dict[str, Any]:
    data: dict[str, Any] = {
        **source.provenance,
        "domains": list(source.domains),
        "classes": len(source.classes),
        "samples": sum(len(source.labels(domain)) for domain in source.domains),
        "protocol": protocol,
        "probe": f"logistic regression, C = {STRENGTH}, leaving one domain out",
        "oodzoo": oodzoo.__version__,
    }
    return data if name is None else data | {"name": name}

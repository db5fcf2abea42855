"""What a race loses, and what it saves: regret in points, and the share of the time.

    python benchmarks/racing.py STORE [STORE ...] [--seeds 8] [--simulated 300]

The stores have features of all models. A race is replayed with them and with the measured time of
each model per image: models are ranked on samples, dropped, and the rest is ranked on all images.
Regret is the accuracy of the first model of the ranking of all models on all images, minus that of
the first model after the race. The accuracy is that of a linear head on each domain, trained on the
other domains. Loading and decoding are not counted. Tables show the mean over seeds of the sample,
and the worst seed:

- with budgets of several shares of the time of all models on all images;
- without references, that is without the fast models that are never dropped;
- for many simulated models: a real model of which only some features, 16 to 256, are used, and
  whose time is multiplied by a random factor of 1/2 to 2. Here the accuracy is that of the ridge
  regression of the ranking.

Results are cached in the stores: a second run takes seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import oodzoo
from oodzoo.combining.predictions import model_predictions
from oodzoo.core.backend import to_numpy
from oodzoo.data.listing import Sample, stratified_sample
from oodzoo.extraction.features import Arrays, FeatureSource, ModelFacts, Shard, StoreSource
from oodzoo.ranking.policy import SHARE, Costs, Policy, first_sample, race_rounds
from oodzoo.ranking.racing import IMAGES_PER_CELL
from oodzoo.ranking.ranking import Ranking

SHARES = (SHARE, 0.2)


class Simulated(NamedTuple):
    """Some features of a real model."""

    model: str
    columns: NDArray[np.int64]
    seconds: float


class Part(FeatureSource):
    """Some images of a store, with some of its models or simulated ones."""

    def __init__(
        self,
        full: StoreSource,
        rows: dict[str, NDArray[np.int64]] | None,
        key: str,
        simulated: dict[str, Simulated] | None = None,
    ) -> None:
        self.models = tuple(simulated or full.models)
        self.domains, self.classes = full.domains, full.classes
        self._full = full
        self._rows = rows
        self._key = key
        self._simulated = simulated or {}

    def with_models(self, models: Sequence[str]) -> Part:
        """Return the same images with some of the models."""
        part = Part(self._full, self._rows, self._key, self._simulated)
        part.models = tuple(models)
        return part

    def shards(self, model: str, domain: str) -> Iterator[Shard]:
        simulated = self._simulated.get(model)
        real = simulated.model if simulated else model
        features = np.concatenate([to_numpy(some) for some, _ in self._full.shards(real, domain)])
        if self._rows is not None:
            features = features[self._rows[domain]]
        yield features[:, simulated.columns] if simulated else features, self.labels(domain)

    def labels(self, domain: str) -> NDArray[np.int64]:
        labels = self._full.labels(domain)
        return labels if self._rows is None else labels[self._rows[domain]]

    def groups(self, domain: str) -> Sequence[str | None] | None:
        groups = self._full.groups(domain)
        if groups is None or self._rows is None:
            return groups
        return [groups[row] for row in self._rows[domain].tolist()]

    def logits(self, model: str, domain: str) -> NDArray[Any] | None:
        return None

    def facts(self, model: str) -> ModelFacts:
        simulated = self._simulated.get(model)
        return ModelFacts(len(simulated.columns)) if simulated else self._full.facts(model)

    @property
    def provenance(self) -> dict[str, str]:
        return self._full.provenance

    def only(self, domains: Sequence[str]) -> FeatureSource:
        raise NotImplementedError

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
        if kind != "folds":
            return compute()  # small enough to compute again
        simulated = self._simulated.get(models[0])
        if simulated is None and self._rows is None:
            return self._full.cached(kind, models, compute, settings=settings, keep=keep)
        real = [simulated.model] if simulated else models
        own = f"{settings}, {self._key}, {models[0] if simulated else ''}"
        return self._full.cached("racing", real, compute, domains=domains, settings=own, keep=keep)


class Bed:
    """The models of a store, or simulated ones: their times, accuracies and rankings."""

    def __init__(self, path: Path, n_simulated: int = 0) -> None:
        store = oodzoo.FeatureStore(path)
        self.name = path.name
        self.source = StoreSource(store)
        self.samples = [
            Sample(name, domain, store.classes[label], group)
            for domain in self.source.domains
            for name, label, group in zip(
                store.paths(domain), store.labels(domain), store.groups(domain), strict=True
            )
        ]
        seconds = {m: (store.milliseconds_per_image(m) or 1.0) / 1000 for m in store.models}
        self.simulated = _simulate(store, seconds, n_simulated) if n_simulated else {}
        self.costs = Costs({m: s.seconds for m, s in self.simulated.items()} or seconds)
        self.smallest = IMAGES_PER_CELL * len({(s.domain, s.label) for s in self.samples})
        self.whole = self._rank_all(tuple(self.costs.seconds))
        self.accuracies = {
            row.model: fmean(fold.accuracy for fold in row.folds)
            if self.simulated
            else self._head_accuracy(row.model)
            for row in self.whole.rows
        }

    def race(self, policy: Policy, seed: int) -> tuple[Ranking, float]:
        """Return the ranking after a race, and the share of the time that it took."""
        n = len(self.samples)

        def rank_sample(models: Sequence[str], images: int) -> Ranking:
            return oodzoo.rank(self._sample(images, seed).with_models(sorted(models)))

        models, costs = tuple(self.costs.seconds), self.costs
        first = first_sample(policy.share, n, self.smallest)
        for played in race_rounds(policy, models, first, rank_sample):
            models = played.decision.kept
        time = played.planned + costs.total(models, n - played.images)
        return self._rank_all(models), time / costs.total(costs.seconds, n)

    def _sample(self, images: int, seed: int) -> Part:
        chosen = np.array(stratified_sample(self.samples, images, seed))
        rows, start = {}, 0
        for domain in self.source.domains:
            end = start + len(self.source.labels(domain))
            rows[domain] = chosen[(chosen >= start) & (chosen < end)] - start
            start = end
        return Part(self.source, rows, f"{images} images, seed {seed}", self.simulated)

    def _rank_all(self, models: Sequence[str]) -> Ranking:
        return oodzoo.rank(Part(self.source, None, "all", self.simulated).with_models(models))

    def _head_accuracy(self, model: str) -> float:
        predicted, _ = model_predictions(self.source, model)
        right = []
        for domain in self.source.domains:
            test = predicted[domain].test
            assert test is not None
            right.append(float((test.argmax(axis=1) == self.source.labels(domain)).mean()))
        return 100 * fmean(right)


class WithoutReferences(Policy):
    """The rule without references."""

    references = ()


def _simulate(
    store: oodzoo.FeatureStore, seconds: dict[str, float], n: int
) -> dict[str, Simulated]:
    random = np.random.default_rng(0)
    found = {}
    for number in range(n):
        model = store.models[random.integers(len(store.models))]
        d = store.model(model).feature_dim
        kept = min(d, int(2 ** random.uniform(4, 8)))
        columns = np.sort(random.choice(d, kept, replace=False))
        factor = float(2 ** random.uniform(-1, 1))
        found[f"{number:03}"] = Simulated(model, columns, factor * seconds[model])
    return found


def _line(bed: Bed, seeds: int, share: float, kind: type[Policy] = Policy) -> list[str]:
    """Race with several samples; return a row of the table."""
    n = len(bed.samples)
    regrets, shares, kept, references = [], [], [], 0
    for seed in range(seeds):
        policy = kind(bed.costs, n, share * bed.costs.total(bed.costs.seconds, n))
        ranking, time = bed.race(policy, seed)
        regrets.append(bed.accuracies[bed.whole.best] - bed.accuracies[ranking.best])
        shares.append(time)
        references = len(policy.references)
        kept.append(len(ranking.rows) - references)
    return [
        f"{fmean(regrets):.2f}",
        f"{max(regrets):.2f}",
        f"{100 * fmean(shares):.1f} %",
        f"{100 * max(shares):.1f} %",
        f"{min(kept)} to {max(kept)} + {references}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", type=Path)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--simulated", type=int, default=300)
    options = parser.parse_args()
    if not options.stores:
        print("no store given: nothing to measure")
        return
    _print("store", "rule", "regret", "worst", "time", "at most", "models + references")
    _print(*["---"] * 7)
    for path in options.stores:
        bed = Bed(path)
        rules = [(f"{share:.0%} of the time", share, Policy) for share in SHARES]
        rules.append((f"{SHARE:.0%}, no references", SHARE, WithoutReferences))
        for name, share, kind in rules:
            _print(bed.name, name, *_line(bed, options.seeds, share, kind))
    for path in options.stores if options.simulated else ():
        bed = Bed(path, options.simulated)
        for share in SHARES:
            row = _line(bed, max(1, options.seeds // 4), share)
            _print(bed.name, f"{options.simulated} simulated models, {share:.0%}", *row)


def _print(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()

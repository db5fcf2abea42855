"""Compare scores and rules for the thresholds of prediction sets on held-out domains.

    python benchmarks/prediction_sets.py [STORE...] [--simulate]

Each domain is predicted by the pool that the other domains choose, with heads trained without it. A
threshold is computed from all domains but one, and coverage and size are measured on that one, as a
predictor does it: with the predictions for which it chose nothing, the regularisation either.

- scores: minus the probability of the class (LAC); the sum of the probabilities down to it (APS).
- rules: one quantile of all domains, which weigh alike; that quantile at a raised level, as oodzoo
  does; the largest of the quantiles of the single domains.

Then everything is repeated without each domain, as if there were one domain less: heads, their
regularisation, the pool or the most likely single model, the thresholds.

With --simulate, scores of domains with random shifts, too, and the coverage of one more domain.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from oodzoo.combining.pool_weights import choose_pool, left_out_pools, qualities
from oodzoo.combining.predictions import Heads, predict_with_heads
from oodzoo.extraction.features import StoreSource
from oodzoo.predictor.prediction_sets import (
    LEVELS,
    PooledScores,
    class_scores,
    class_sets,
    set_coverage,
    threshold,
)
from oodzoo.store.feature_store import FeatureStore

Floats = NDArray[np.float64]

RULES: dict[str, Callable[[Sequence[Floats], float], float]] = {
    "one quantile": lambda scores, level: PooledScores(scores).quantile(level),
    "raised level": threshold,
    "largest": lambda scores, level: max(PooledScores([s]).quantile(level) for s in scores),
}


def lac(p: Floats) -> Floats:
    """Minus the probability of each class."""
    return -p


def aps(p: Floats) -> Floats:
    """The sum of the probabilities of a class and of all that are more probable."""
    order = np.argsort(-p, axis=1, kind="stable")
    sums = np.cumsum(np.take_along_axis(p, order, axis=1), axis=1)
    result = np.empty_like(p)
    np.put_along_axis(result, order, sums, axis=1)
    return result


def measure(store: str) -> None:
    """Print coverage and size of the sets of a pool."""
    source = StoreSource(FeatureStore(store))
    heads = predict_with_heads(source)
    probabilities = [np.exp(each.astype(np.float64)) for each in left_out_pools(heads[None])[0]]
    chosen = [choose_pool(heads[domain]).test for domain in source.domains]
    measured = [np.exp(np.asarray(each, np.float64)) for each in chosen]
    labels = [source.labels(domain) for domain in source.domains]
    print(f"{store}: {len(source.domains)} domains, {len(source.models)} models")
    print("level  score  rule           mean  worst  classes")
    for level in LEVELS:
        for name, score in (("LAC", lac), ("APS", aps)):
            scores = [score(p) for p in probabilities]
            true = [s[np.arange(len(y)), y] for s, y in zip(scores, labels, strict=True)]
            for rule, find in RULES.items():
                covered, sizes = [], []
                for at, (p, y) in enumerate(zip(measured, labels, strict=True)):
                    sets = score(p) <= find(true[:at] + true[at + 1 :], level)
                    sets[np.arange(len(y)), p.argmax(axis=1)] = True
                    covered.append(100 * sets[np.arange(len(y)), y].mean())
                    sizes.append(sets.sum(axis=1).mean())
                print(
                    f"{level:<5}  {name}    {rule:13} {np.mean(covered):5.1f}  {min(covered):5.1f}"
                    f"  {np.mean(sizes):7.2f}"
                )

    fitted_anew(source, heads)


def fitted_anew(source: StoreSource, heads: dict[str | None, Heads]) -> None:
    """Print the coverage of each domain if everything is repeated without it."""
    print("fitted anew without each domain: mean, worst, classes")
    for level in LEVELS:
        for way in ("pool", "single"):
            covered, sizes = [], []
            for test in source.domains:
                known = heads[test]
                if way == "pool":
                    outputs, new = left_out_pools(known).out_of_fold, choose_pool(known).test
                else:
                    every = range(len(known.labels))
                    stacks = [
                        np.stack([each.out_of_fold[at] for each in known.alone.values()])
                        for at in every
                    ]
                    found = qualities(stacks, known.labels, known.task).mean(axis=0)
                    best = list(known.alone.values())[int(found.argmax())]
                    outputs, new = best.out_of_fold, best.test
                pairs = zip(outputs, known.labels, strict=True)
                scores = [class_scores(np.exp(np.asarray(p, np.float64)), y) for p, y in pairs]
                least = -threshold(scores, level)
                sets = class_sets(np.exp(np.asarray(new, np.float64)), least)
                covered.append(set_coverage(sets, source.labels(test)))
                sizes.append(sets.sum(axis=1).mean())
            print(
                f"{level:<5}  {way:6}  {np.mean(covered):5.1f}  {min(covered):5.1f}"
                f"  {np.mean(sizes):7.2f}"
            )


def simulate(repetitions: int = 150, n: int = 100) -> None:
    """Print the coverage of a new domain, if domains are normal with random means."""
    rng = np.random.default_rng(0)
    print("shifts  domains  level  " + "  ".join(RULES))
    for shift in (0.0, 0.3, 1.0):
        for n_domains in (2, 3, 4, 6, 10):
            for level in LEVELS:
                found: dict[str, list[float]] = {rule: [] for rule in RULES}
                for _ in range(repetitions):
                    means = rng.normal(0, shift, n_domains + 1)
                    scores = [rng.normal(mean, 1, n) for mean in means[:-1]]
                    for rule, find in RULES.items():
                        found[rule].append(norm.cdf(find(scores, level) - means[-1]))
                shown = "  ".join(f"{100 * np.mean(each):12.1f}" for each in found.values())
                print(f"{shift:6}  {n_domains:7}  {level:5}  {shown}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*")
    parser.add_argument("--simulate", action="store_true")
    options = parser.parse_args()
    for each in options.stores:
        measure(each)
    if options.simulate:
        simulate()

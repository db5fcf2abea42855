"""How well scores order models for a test domain that they have not seen.

    python benchmarks/ranking_quality.py STORE [STORE ...] [--scores zood,accuracy,logme]

Each domain is the test domain once. Scores are computed on the other domains, and compared with the
accuracy on the test domain of linear heads that were trained on the other domains. For every store
the table shows the weighted tau and the regret (accuracy of the best model minus that of the top
model under the score, in points), both computed per test domain and averaged; then the mean and the
worst over stores.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.stats import weightedtau
from threadpoolctl import threadpool_limits

import oodzoo
from oodzoo.features.columns import Columns
from oodzoo.features.source import StoreSource
from oodzoo.heads.linear import fit_head
from oodzoo.ranking import rank_for_test_domains

SCORES = "accuracy,logme,lda,knn,discriminability,zood,h_score"

Accuracies = dict[str, dict[str, float]]
"""Accuracy in percent by test domain and model."""


def head_accuracies(source: StoreSource) -> Accuracies:
    """Measure, for each test domain, a head of each model that was trained on the others."""
    found: Accuracies = {test: {} for test in source.domains}
    for model in source.models:
        columns = Columns.all_of(source, [model])
        for test, accuracies in found.items():
            training = [domain for domain in source.domains if domain != test]
            head = fit_head(columns.samples(source, training), len(source.classes))
            samples = columns.samples(source, [test])
            right = head.logits(samples.features).argmax(axis=1) == samples.labels
            accuracies[model] = 100 * float(np.mean(right))
    return found


def quality(source: StoreSource, score: str, truth: Accuracies) -> tuple[float, float]:
    """Compute the weighted tau and the regret of a score, averaged over test domains."""
    taus, regrets = [], []
    for test, ranking in rank_for_test_domains(source, score=score).items():
        measured = [truth[test][row.model] for row in ranking.rows]
        taus.append(weightedtau([row.score for row in ranking.rows], measured).statistic)
        regrets.append(max(truth[test].values()) - measured[0])
    return float(np.mean(taus)), float(np.mean(regrets))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stores", nargs="*", type=Path, help="feature stores")
    parser.add_argument("--scores", default=SCORES, help="scores, separated by commas")
    options = parser.parse_args()
    if not options.stores:
        print("no store given: nothing to measure")
        return
    names = options.scores.split(",")
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    with threadpool_limits(1):
        for path in options.stores:
            source = StoreSource(oodzoo.FeatureStore(path))
            truth = head_accuracies(source)
            for name in names:
                results[name].append(quality(source, name, truth))
                tau, regret = results[name][-1]
                print(f"{path.name:<16}{name:<18}{tau:8.3f}{regret:8.1f}", flush=True)
    print(f"\n{'score':<18}{'tau':>8}{'worst':>8}{'regret':>8}")
    for name, found in results.items():
        tau, regret = np.mean(found, axis=0)
        print(f"{name:<18}{tau:8.3f}{min(found)[0]:8.3f}{regret:8.1f}")


if __name__ == "__main__":
    main()

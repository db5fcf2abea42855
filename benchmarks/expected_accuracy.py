"""Rankings with and without images of the target, and the accuracy that they promise.

    python benchmarks/expected_accuracy.py STORE [STORE ...] [--markdown]

Each domain is the held-out domain once. The models are ranked without it: from the labelled domains
alone, and together with the images of the held-out domain, without their labels. For the first
model of each ranking, the expected accuracy is compared with the accuracy on the held-out domain of
a linear head that was trained on the other domains. The reference is the mean accuracy of heads of
the same model on the other domains, each trained without the domain that it is tested on.

Printed for each store: regret and weighted tau of the ranking, averaged over held-out domains; mean
accuracy of the first model, measured and expected; mean absolute error per held-out domain, and
that of the reference; the number of held-out domains in the 90 % interval, and its mean width.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy.stats import weightedtau
from threadpoolctl import threadpool_limits

import oodzoo
from oodzoo.core.backend import to_numpy
from oodzoo.extraction.features import FeatureSource, StoreSource
from oodzoo.extraction.target import Target
from oodzoo.ranking.ranker import rank_for_test_domains
from oodzoo.ranking.ranking import Ranking
from oodzoo.ranking.testbed.runner import head_accuracy

HEADER = [
    "store", "images", "regret", "w. tau", "measured", "expected", "error", "reference",
    "in interval", "width",
]  # fmt: skip


def as_target(source: FeatureSource, domain: str) -> Target:
    """The images of a domain without their labels."""

    def blocks(model: str):  # type: ignore[no-untyped-def]
        return (to_numpy(features) for features, _ in source.shards(model, domain))

    return Target(domain, len(source.labels(domain)), blocks, lambda model: f"{model} {domain}")


def line(
    name: str, images: str, rankings: Mapping[str, Ranking], source: FeatureSource
) -> list[str]:
    """One row of the table, from the ranking for each held-out domain."""
    regrets, taus, measured, reference = [], [], [], []
    for test, ranking in rankings.items():
        accuracy = {row.model: head_accuracy(source, row.model, test) for row in ranking.rows}
        scores = [row.score for row in ranking.rows]
        taus.append(weightedtau(scores, list(accuracy.values())).statistic)
        measured.append(accuracy[ranking.best])
        regrets.append(max(accuracy.values()) - measured[-1])
        others = [domain for domain in source.domains if domain != test]
        reference.append(np.mean([head_accuracy(source, ranking.best, d) for d in others]))
    firsts = [ranking.rows[0] for ranking in rankings.values()]
    expected = [row.expected_accuracy for row in firsts]
    ends = np.array([row.accuracy_interval for row in firsts])
    inside = (ends[:, 0] <= measured) & (measured <= ends[:, 1])
    return [
        name,
        images,
        f"{np.mean(regrets):.1f}",
        f"{np.mean(taus):.3f}",
        f"{np.mean(measured):.1f}",
        f"{np.mean(expected):.1f}",
        f"{np.mean(np.abs(np.subtract(expected, measured))):.1f}",
        f"{np.mean(np.abs(np.subtract(reference, measured))):.1f}",
        f"{inside.sum()} of {len(inside)}",
        f"{np.mean(ends[:, 1] - ends[:, 0]):.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stores", nargs="*", type=Path, help="feature stores")
    parser.add_argument("--markdown", action="store_true", help="print a table as Markdown")
    options = parser.parse_args()
    if not options.stores:
        print("no store given: nothing to measure")
        return
    rows = [HEADER]
    with threadpool_limits(1):
        for path in options.stores:
            source = StoreSource(oodzoo.FeatureStore(path))
            rows.append(line(path.name, "labelled", rank_for_test_domains(source), source))
            rankings = {}
            for test in source.domains:
                others = source.only([d for d in source.domains if d != test])
                rankings[test] = oodzoo.rank(others, target=as_target(source, test))
            rows.append(line(path.name, "and target", rankings, source))
    if options.markdown:
        rows.insert(1, ["---"] * len(HEADER))
        print("\n".join(f"| {' | '.join(row)} |" for row in rows))
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print(*(cell.rjust(width) for cell, width in zip(row, widths, strict=True)), sep="  ")


if __name__ == "__main__":
    main()

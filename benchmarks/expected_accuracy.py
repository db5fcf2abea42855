"""How well the expected accuracy of the first-ranked model predicts its accuracy.

    python benchmarks/expected_accuracy.py STORE [STORE ...] [--markdown]

Each domain is the test domain once. The models are ranked without it: from the labelled domains
alone, and together with the images of the test domain, without their labels. For the first model of
each ranking, the expected accuracy is compared with the accuracy on the test domain of a linear
head that was trained on the other domains. The reference is the mean accuracy of heads of the same
model on the other domains, each trained without the domain that it is tested on.

Printed for each store: mean accuracy measured and expected, mean absolute error per test domain,
that of the reference, and the share of test domains in the 90 % interval, with its width.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import oodzoo
from oodzoo.backend import to_numpy
from oodzoo.features.source import FeatureSource, StoreSource
from oodzoo.features.target import Target
from oodzoo.ranking.ranker import rank_for_test_domains
from oodzoo.ranking.result import Row
from oodzoo.testbed.truth import head_accuracy

HEADER = [
    "store", "images", "measured", "expected", "error", "reference", "in interval", "width"
]  # fmt: skip


def as_target(source: FeatureSource, domain: str) -> Target:
    """The images of a domain without their labels."""

    def blocks(model: str):  # type: ignore[no-untyped-def]
        return (to_numpy(features) for features, _ in source.shards(model, domain))

    return Target(domain, len(source.labels(domain)), blocks, lambda model: f"{model} {domain}")


def line(
    name: str, images: str, firsts: Sequence[tuple[str, Row]], source: FeatureSource
) -> list[str]:
    measured = [head_accuracy(source, row.model, test) for test, row in firsts]
    reference = [
        np.mean([head_accuracy(source, row.model, d) for d in source.domains if d != test])
        for test, row in firsts
    ]
    expected = [row.expected_accuracy for _, row in firsts]
    ends = np.array([row.accuracy_interval for _, row in firsts])
    inside = (ends[:, 0] <= measured) & (measured <= ends[:, 1])
    return [
        name,
        images,
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
            rankings = rank_for_test_domains(source)
            firsts = [(test, ranking.rows[0]) for test, ranking in rankings.items()]
            rows.append(line(path.name, "labelled", firsts, source))
            firsts = []
            for test in source.domains:
                others = source.only([d for d in source.domains if d != test])
                firsts.append((test, oodzoo.rank(others, target=as_target(source, test)).rows[0]))
            rows.append(line(path.name, "and target", firsts, source))
    if options.markdown:
        rows.insert(1, ["---"] * len(HEADER))
        print("\n".join(f"| {' | '.join(row)} |" for row in rows))
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print(*(cell.rjust(width) for cell, width in zip(row, widths, strict=True)), sep="  ")


if __name__ == "__main__":
    main()

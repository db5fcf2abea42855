"""How accurate single models and their combinations are on domains that they have not seen.

    python benchmarks/combination.py STORE [STORE ...] [--per-cell 10] [--markdown]

Each domain is the test domain once; everything is chosen and trained on the others
(:func:`oodzoo.evaluate`). The table shows the accuracy minus that of the oracle, the single model
that is most accurate on the test domain, in points: for each store, the mean and the worst store.
In the row with target images, the images of the test domain are known without labels. With
`--per-cell`, only so many random images per class and domain are used, to train and to test.

Results are cached in the stores: a second run takes seconds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from ranking_quality import Sampled  # type: ignore[import-not-found]

import oodzoo
from oodzoo.features.source import FeatureSource, StoreSource

ROWS = {
    "recommended": "recommended",
    "pool": "pool of heads",
    "target": "pool of heads, target images",
    "selection": "selection, from all models",
    "random_features": "random features, as many",
    "paper_selection": "selection of the paper, from 3",
    "ensemble": "ensemble of 3",
    "single": "single, first of the ranking",
}


def differences(source: FeatureSource) -> tuple[dict[str, float], float]:
    """Average accuracies minus that of the oracle, by row, and that of the oracle."""
    result = oodzoo.evaluate(source, baselines=(), with_target=True)
    assert result.oracle is not None
    found = {name: row.average for name, row in result.rows.items()}
    found |= {
        "recommended": result.recommended.average,
        "target": result.with_target["pool"].average,
    }
    oracle = result.oracle.average
    return {name: found[name] - oracle for name in ROWS}, oracle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", type=Path)
    parser.add_argument("--per-cell", type=int)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    if not options.stores:
        print("no store given: nothing to measure")
        return
    columns, oracles = {}, []
    for path in options.stores:
        source: FeatureSource = StoreSource(oodzoo.FeatureStore(path))
        if options.per_cell:
            source = Sampled(source, options.per_cell)
        columns[path.name], oracle = differences(source)
        oracles.append(oracle)
    names = list(columns)
    lines = [["accuracy - oracle", *names, "mean", "worst"]]
    for name, title in ROWS.items():
        values = np.array([columns[store][name] for store in names])
        shown = [*values, values.mean(), values.min()]
        lines.append([title, *(f"{value:+.1f}" for value in shown)])
    lines.append(
        ["oracle, accuracy %", *(f"{o:.1f}" for o in oracles), f"{np.mean(oracles):.1f}", ""]
    )
    if options.markdown:
        lines.insert(1, ["---"] * len(lines[0]))
        for line in lines:
            print("| " + " | ".join(line) + " |")
        return
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    for line in lines:
        first, *rest = line
        print(first.ljust(widths[0]), *(v.rjust(w) for v, w in zip(rest, widths[1:], strict=True)))


if __name__ == "__main__":
    main()

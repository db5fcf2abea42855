"""How accurate single models and their combinations are on domains that they have not seen.

    python benchmarks/combination.py STORE [STORE ...] [--per-cell 10] [--markdown]

Each domain is the held-out domain once; everything is chosen and trained on the others
(:func:`oodzoo.evaluate`). The table shows the accuracy minus that of the oracle, the single model
that is most accurate on the held-out domain, in points: for each store, the mean and the worst
store. In the row with target images, the images of the held-out domain are known without labels.
With `--per-cell`, only so many random images per class and domain are used to train and to choose,
and the heads are tested on all images of the held-out domain (a few test images would favour the
oracle: the best of many models by chance). This is done for pools and single models, `--draws`
times.

Results with all images are cached in the stores: a second run takes seconds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import oodzoo
from oodzoo.combining.pool_weights import choose_pool, qualities
from oodzoo.combining.predictions import SHARES, Head, HeadPredictions, Heads
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.features import FeatureSource, StoreSource
from oodzoo.linear.heads.kinds import PATHS, ByDomain, split_without

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


def differences_of_few(
    source: FeatureSource, per_cell: int, seed: int
) -> tuple[dict[str, float], float]:
    """The same for the pool and single models, trained on a few images of each class and domain."""
    domains, task = source.domains, source.task
    labels = np.concatenate([source.labels(domain) for domain in domains])
    numbers = np.repeat(np.arange(len(domains)), [len(source.labels(d)) for d in domains])
    kept, rng = np.zeros(len(labels), np.bool_), np.random.default_rng(seed)
    for cell in np.unique(np.stack([numbers, labels]), axis=1).T:
        rows = np.flatnonzero((numbers == cell[0]) & (labels == cell[1]))
        kept[rng.permutation(rows)[:per_cell]] = True
    alone: list[dict[str, HeadPredictions]] = [{} for _ in domains]
    candidates: list[dict[Head, HeadPredictions]] = [{} for _ in domains]
    known: list[list[NDArray[np.int64]]] = [[] for _ in domains]
    for model in source.models:
        samples = Columns.all_of(source, [model]).samples(source, domains)
        splits = [split_without(task, samples, None, test, kept) for test in range(len(domains))]
        found = PATHS[task.link].predict(samples, len(source.classes), splits)
        for test, (split, predicted) in enumerate(zip(splits, found, strict=True)):
            each = ByDomain.of(samples, split, predicted)
            assert each.within is not None
            here = numbers[~split.training] == test
            for share, at in zip(SHARES, each.best_settings(task, SHARES), strict=True):
                candidates[test][Head(model, share=share)] = HeadPredictions(
                    at,
                    [part[at] for part in each.left_out],
                    [part[at] for part in each.within],
                    predicted.rest[at][here],
                )
            alone[test][model] = candidates[test][Head(model)]
            known[test] = each.labels
    gains: dict[str, list[float]] = {"pool": [], "single": []}
    oracles = []
    for test in range(len(domains)):
        truth, milliseconds = labels[numbers == test], dict.fromkeys(source.models)
        others = tuple(domain for at, domain in enumerate(domains) if at != test)
        heads = Heads(others, known[test], alone[test], candidates[test], {**milliseconds})
        members = list(alone[test].values())
        right = [_accuracy(each.test, truth) for each in members]
        quality = np.zeros(len(members))
        for name in ("out_of_fold", "within"):
            every = range(len(known[test]))
            outputs = [np.stack([getattr(m, name)[at] for m in members]) for at in every]
            quality += qualities(outputs, known[test], task).mean(axis=0)
        oracles.append(max(right))
        gains["pool"].append(_accuracy(choose_pool(heads).test, truth) - oracles[-1])
        gains["single"].append(right[int(np.argmax(quality))] - oracles[-1])
    return {name: float(np.mean(each)) for name, each in gains.items()}, float(np.mean(oracles))


def _accuracy(outputs: NDArray[np.float64] | None, labels: NDArray[np.int64]) -> float:
    assert outputs is not None
    return 100 * float(np.mean(outputs.argmax(axis=1) == labels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", type=Path)
    parser.add_argument("--per-cell", type=int)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    if not options.stores:
        print("no store given: nothing to measure")
        return
    columns: dict[str, dict[str, float]] = {}
    oracles = []
    for path in options.stores:
        source = StoreSource(oodzoo.FeatureStore(path))
        if options.per_cell:
            drawn = [differences_of_few(source, options.per_cell, s) for s in range(options.draws)]
            columns[path.name] = {
                name: float(np.mean([gains[name] for gains, _ in drawn])) for name in drawn[0][0]
            }
            oracles.append(float(np.mean([oracle for _, oracle in drawn])))
        else:
            columns[path.name], oracle = differences(source)
            oracles.append(oracle)
    names = list(columns)
    lines = [["accuracy - oracle", *names, "mean", "worst"]]
    for name, title in ROWS.items():
        if name not in columns[names[0]]:
            continue
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

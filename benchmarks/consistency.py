"""Compare features selected from all models with other choices of features, on held-out domains.

    python benchmarks/consistency.py STORE... [--images-per-class 10] [--draws 2]

For each domain of each store, everything is decided on the other domains: the ranking, the selected
features, and C of a linear head. The columns are the accuracies of this head on

selected: features that contribute most to held-out training domains (`select_features`);
random: as many random features of all models, the mean of some draws;
all: all features of all models;
top 3: all features of the three best models of the default ranking;
oracle: the best single model, chosen with the labels of the held-out domain.

With --images-per-class, only so many images of each class and training domain are used.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import oodzoo
from oodzoo.combining.selection import select_features
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.features import ArraySource, FeatureSource, as_source
from oodzoo.linear.heads.linear import fit_head


def held_out_accuracies(
    source: FeatureSource, test: str, per_class: int | None = None, draws: int = 2
) -> dict[str, float]:
    """Accuracies on a held-out domain in percent, and the percentage of features selected."""
    training = _training(source, test, per_class)
    rng = np.random.default_rng(0)

    def accuracy(columns: Columns) -> float:
        samples = columns.samples(training, training.domains)
        head = fit_head(samples, len(training.classes))
        outputs = head.logits(columns.samples(source, [test]).features)
        predicted = np.array(training.classes)[outputs.argmax(axis=1)]
        return 100 * float(np.mean(predicted == np.array(source.classes)[source.labels(test)]))

    selected = select_features(training)
    every = Columns.all_of(training, training.models)

    def drawn() -> Columns:
        mask = np.zeros(len(every), np.bool_)
        mask[rng.choice(len(every), len(selected.columns), replace=False)] = True
        return Columns.by_mask(training, training.models, mask)

    best = [row.model for row in oodzoo.rank(training).rows[:3]]
    return {
        "kept %": 100 * selected.ratio,
        "selected": accuracy(selected.columns),
        "random": float(np.mean([accuracy(drawn()) for _ in range(draws)])),
        "all": accuracy(every),
        "top 3": accuracy(Columns.all_of(training, best)),
        "oracle": max(accuracy(Columns.all_of(training, [m])) for m in training.models),
    }


def _training(source: FeatureSource, test: str, per_class: int | None) -> FeatureSource:
    """The other domains, with all or some images of each class."""
    others = [domain for domain in source.domains if domain != test]
    if per_class is None:
        return source.only(others)
    rng = np.random.default_rng(0)
    labels = [source.labels(domain) for domain in others]
    rows: list[NDArray[np.int64]] = []
    for domain, values in enumerate(labels):
        start = sum(map(len, labels[:domain]))
        for label in np.unique(values):
            cell = start + np.flatnonzero(values == label)
            rows.append(rng.permutation(cell)[:per_class])
    chosen = np.sort(np.concatenate(rows))
    every = {m: Columns.all_of(source, [m]).samples(source, others) for m in source.models}
    names = np.array(source.classes)[np.concatenate(labels)[chosen]]
    domains = np.repeat(others, list(map(len, labels)))[chosen]
    return ArraySource({m: s.features[chosen] for m, s in every.items()}, names, domains)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stores", nargs="*", type=Path, metavar="STORE")
    parser.add_argument("--images-per-class", type=int, metavar="N")
    parser.add_argument("--draws", type=int, default=2, help="random sets of features")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    means: list[list[float]] = []
    for path in options.stores:
        source = as_source(path)
        rows = []
        for test in source.domains:
            found = held_out_accuracies(source, test, options.images_per_class, options.draws)
            rows.append(list(found.values()))
            if not means and len(rows) == 1:
                print("| store | held out | " + " | ".join(found) + " |\n" + "|---" * 8 + "|")
            print(_line(path.name, test, rows[-1]), flush=True)
        means.append(np.mean(rows, axis=0).tolist())
        print(_line(path.name, "mean", means[-1]), flush=True)
    print(_line("mean", "", np.mean(means, axis=0).tolist()))


def _line(store: str, test: str, values: list[float]) -> str:
    return f"| {store} | {test} | " + " | ".join(f"{value:.1f}" for value in values) + " |"


if __name__ == "__main__":
    main()

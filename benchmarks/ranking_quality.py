"""How well scores order models for a held-out domain that they have not seen.

    python benchmarks/ranking_quality.py STORE [STORE ...] [--per-cell 10,20] [--markdown]

Each domain is the held-out domain once. Scores are computed on the other domains, and compared with
the accuracy on the held-out domain of linear heads that were trained on the other domains. Regret
(accuracy of the best model minus that of the top model under the score, in points) and weighted tau
are computed on each held-out domain and averaged. The tables show their mean and worst value over
stores, and both for every store: with all images, and with random samples of a few images per class
and domain, on which the scores are computed and the heads are trained (the heads are tested on all
images).

Everything is cached in the stores: a second run takes seconds. Nothing is cached in a read-only
store.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from oodzoo import FeatureStore
from oodzoo.core.backend import to_numpy
from oodzoo.core.text import count
from oodzoo.extraction.features import Arrays, FeatureSource, ModelFacts, Shard, StoreSource
from oodzoo.ranking.testbed.runner import BedMeasurement, measure
from oodzoo.testbed import Comparison, TestBed, compare, judge

RESAMPLES = 1000
SEED = 0


class Sampled(FeatureSource):
    """A few random samples of each class and domain of a source."""

    def __init__(
        self, full: FeatureSource, per_cell: int, rows: dict[str, NDArray[np.int64]] | None = None
    ) -> None:
        self.models, self.domains, self.classes = full.models, full.domains, full.classes
        self._full = full
        self._per_cell = per_cell
        self._rows = rows or {d: _sample(full.labels(d), per_cell) for d in full.domains}

    def shards(self, model: str, domain: str) -> Iterator[Shard]:
        parts = [to_numpy(part) for part, _ in self._full.shards(model, domain)]
        yield np.concatenate(parts)[self._rows[domain]], self.labels(domain)

    def labels(self, domain: str) -> NDArray[np.int64]:
        return self._full.labels(domain)[self._rows[domain]]

    def groups(self, domain: str) -> Sequence[str | None] | None:
        groups = self._full.groups(domain)
        return None if groups is None else [groups[row] for row in self._rows[domain]]

    def logits(self, model: str, domain: str) -> NDArray[Any] | None:
        logits = self._full.logits(model, domain)
        return None if logits is None else logits[self._rows[domain]]

    def facts(self, model: str) -> ModelFacts:
        return self._full.facts(model)

    @property
    def provenance(self) -> dict[str, str]:
        return self._full.provenance

    def only(self, domains: Sequence[str]) -> FeatureSource:
        return Sampled(self._full.only(domains), self._per_cell, self._rows)

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
        settings = f"{settings}, {self._per_cell} per class and domain, seed {SEED}"
        return self._full.cached(
            kind, models, compute, domains=domains, settings=settings, keep=keep
        )


def _sample(labels: NDArray[np.int64], per_cell: int) -> NDArray[np.int64]:
    """Draw the rows of each class; all of them where there are fewer."""
    rng = np.random.default_rng(SEED)
    rows = [rng.permutation(np.flatnonzero(labels == c))[:per_cell] for c in np.unique(labels)]
    return np.sort(np.concatenate(rows))


def source(path: Path, per_cell: int | None, models: Sequence[str] | None = None) -> FeatureSource:
    """Open a store; `per_cell` is None for all images."""
    full = StoreSource(FeatureStore(path), models)
    return full if per_cell is None else Sampled(full, per_cell)


def measured(
    path: Path, per_cell: int | None, models: Sequence[str] | None = None
) -> BedMeasurement:
    """Compute all scores on a store, and the accuracies of heads, or read them from its cache."""
    return measure(source(path, per_cell, models), tested=source(path, None, models))


def fill_cache(path: Path, per_cell: int | None, model: str) -> None:
    """Compute what the tables need of one model."""
    with threadpool_limits(1):
        measured(path, per_cell, [model])


def judged(path: Path, per_cell: int | None) -> TestBed:
    """Compare all scores on a store."""
    found = measured(path, per_cell)
    return judge(
        {"name": path.name},
        found.mean_accuracy,
        found.columns,
        by_domain=found.accuracy,
        left_out=found.left_out,
        resamples=RESAMPLES,
    )


def show(comparison: Comparison, markdown: bool) -> None:
    """Print the table of a comparison, the score with the highest mean tau first."""
    best = next(iter(comparison.means))
    header = ["score", "regret, mean", "worst", "w. tau, mean", "worst", "averaged first"]
    rows = [[*header, *comparison.beds]]
    for name, mean in comparison.means.items():
        mark = "~" if comparison.tied(name, best) else ""
        each = [bed.scores.get(name) for bed in comparison.beds.values()]
        rows.append(
            [
                f"`{name}`" if markdown else name,
                number(mean.regret, 1),
                number(mean.worst_regret, 1),
                number(mean.weighted_tau, 3) + mark,
                number(mean.worst_weighted_tau, 2),
                number(mean.averaged_weighted_tau, 2),
                *(
                    f"{number(r.regret, 1)} / {number(r.weighted_tau, 2)}" if r else "-"
                    for r in each
                ),
            ]
        )
    if markdown:
        rows.insert(1, ["---"] * len(rows[0]))
        print("\n".join(f"| {' | '.join(row)} |" for row in rows))
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        print(name.ljust(widths[0]), *padded, sep="  ")


def number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:z.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stores", nargs="*", type=Path, help="feature stores")
    parser.add_argument(
        "--per-cell", default="10,20", help="images per class and domain, separated by commas"
    )
    parser.add_argument("--markdown", action="store_true", help="print tables as Markdown")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes")
    options = parser.parse_args()
    if not options.stores:
        print("no store given: nothing to measure")
        return
    start = time.perf_counter()
    sizes = [None, *(int(size) for size in options.per_cell.split(",") if size)]
    writable = [path for path in options.stores if os.access(path, os.W_OK)]
    tasks = [
        (path, size, model)
        for path, size in product(writable, sizes)
        for model in FeatureStore(path).models
    ]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        list(pool.map(fill_cache, *zip(*tasks, strict=True)) if tasks else ())
    for size in sizes:
        images = "all images" if size is None else f"{size} images per class and domain"
        comparison = compare({path.name: judged(path, size) for path in options.stores})
        print(f"\n{'### ' if options.markdown else ''}{images.capitalize()}\n")
        show(comparison, options.markdown)
    print(
        f"\nRegret in points / weighted tau of {count(len(options.stores), 'store')}. ~: "
        "statistically tied with the first score, corrected for the number of scores."
    )
    print(f"It took {(time.perf_counter() - start) / 60:.1f} minutes.")


if __name__ == "__main__":
    main()

"""Similar pairs among many samples: which are compared, in blocks of the similarity matrix.

Time and memory are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.events import Progress
from oodzoo.store.leaks.space import Features, FeatureSpace, Positions, Samples

BUDGET = 1e12
"""Multiplications of a search that chooses its pairs itself; about a minute on two cores."""

SCOPES = ("auto", "all", "class")


@dataclass(frozen=True)
class Task:
    """Images to compare: all of `rows` with each other, or with `columns`, which are others."""

    rows: Positions
    columns: Positions | None = None

    @property
    def pairs(self) -> float:
        n = len(self.rows)
        return n * (n - 1) / 2 if self.columns is None else n * len(self.columns)


@dataclass(frozen=True)
class Plan:
    """The pairs to compare; see :class:`~oodzoo.store.leaks.pairs.NearDuplicates` for `scope`."""

    tasks: list[Task]
    scope: str

    @property
    def pairs(self) -> float:
        return sum(task.pairs for task in self.tasks)


def plan_pairs(
    labels: NDArray[np.integer], width: int, scope: str = "auto", budget: float = BUDGET
) -> Plan:
    """Choose the pairs of images to compare.

    Parameters
    ----------
    labels : array of int, shape (n,)
        The class of each image; -1 for an image without a label.
    width : int
        Number of features that are compared.
    scope : {"auto", "all", "class"}
        All pairs; or those of one class and those with an image without a label. By default all
        pairs if they take at most `budget` multiplications, else those of a class, as many of
        them as the budget allows.
    budget : float
    """
    if scope not in SCOPES:
        raise InputError(f"unknown pairs to compare: {scope!r}; expected {', '.join(SCOPES)}")
    everything = Plan([Task(np.arange(len(labels)))], "all")
    if scope == "all" or (scope == "auto" and everything.pairs * width <= budget):
        return everything
    by_class = Plan(_class_tasks(labels), "class")
    if scope == "class" or by_class.pairs * width <= budget:
        return by_class
    return Plan(_part(by_class.tasks, budget / width), "part")


def _class_tasks(labels: NDArray[np.integer]) -> list[Task]:
    order = np.argsort(labels, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    tasks = [Task(group) for group in groups]
    unlabelled, labelled = np.flatnonzero(labels < 0), np.flatnonzero(labels >= 0)
    if len(unlabelled) and len(labelled):
        tasks.append(Task(unlabelled, labelled))
    return [task for task in tasks if task.pairs]


def _part(tasks: list[Task], most: float) -> list[Task]:
    """Return random tasks of at most so many pairs; the last one has a sample of its images."""
    rng = np.random.default_rng(0)
    part = []
    for at in rng.permutation(len(tasks)):
        task = tasks[at]
        if task.pairs > most:
            share = np.sqrt(most / task.pairs)
            columns = None if task.columns is None else _sample(task.columns, share, rng)
            part.append(Task(_sample(task.rows, share, rng), columns))
            break
        part.append(task)
        most -= task.pairs
    return part


def _sample(rows: Positions, share: float, rng: np.random.Generator) -> Positions:
    return np.sort(rng.choice(rows, int(len(rows) * share), replace=False))


# --- comparing ---------------------------------------------------------------------------------

KEPT = 10_000
"""Most similar pairs of each kind that are kept."""

BLOCK = 2048
"""Samples of a block."""

_MEMORY = 1 << 30
"""Bytes of blocks that are kept, so that they are not loaded again."""


class TopPairs:
    """The most similar pairs.

    Attributes
    ----------
    similarities : array of float
        Descending.
    places : array of int, shape (n, 2)
        Positions of the two samples of each pair, the smaller first.
    """

    def __init__(self) -> None:
        self.similarities = np.empty(0, np.float32)
        self.places = np.empty((0, 2), np.intp)

    def add(self, similarities: Features, first: Positions, second: Positions) -> None:
        """Add pairs, and drop the least similar ones of too many."""
        places = np.stack([np.minimum(first, second), np.maximum(first, second)], axis=1)
        values = np.concatenate([self.similarities, similarities])
        places = np.concatenate([self.places, places])
        order = np.lexsort((places[:, 1], places[:, 0], -values))[:KEPT]
        self.similarities, self.places = values[order], places[order]


class Search:
    """Compares the pairs of a plan.

    Parameters
    ----------
    space : FeatureSpace
    samples : Samples
    low : float
        Smallest similarity of pairs that are kept.
    threshold : float
        Smallest similarity of pairs that are counted.

    Attributes
    ----------
    across, within : TopPairs
        Pairs of different domains, and of one domain; the latter without those of one group.
    n_across : int
        Pairs of different domains with a similarity of at least `threshold`.
    nearest : array of float, shape (n,)
        The largest similarity of each sample to another one of its domain, not of its group; -1
        for a sample that was compared with none.
    """

    def __init__(
        self,
        space: FeatureSpace,
        samples: Samples,
        low: float,
        threshold: float,
    ) -> None:
        self._space = space
        self._samples = samples
        self._low = low
        self._threshold = threshold
        self.across = TopPairs()
        self.within = TopPairs()
        self.n_across = 0
        self.nearest = np.full(len(samples), -1, np.float32)

    def run(self, plan: Plan, progress: Progress | None = None) -> None:
        """Compare all pairs of a plan."""
        total = int(sum(task.pairs for task in plan.tasks))
        done = 0.0
        for task in plan.tasks:
            for rows, columns, similarities in self._blocks(task):
                self._compare(rows, columns, similarities)
                done += similarities.size / (2 if rows is columns else 1)
                if progress is not None:
                    progress(min(int(done), total), total)

    def _blocks(self, task: Task) -> Iterator[tuple[Positions, Positions, Features]]:
        """Yield blocks of the similarity matrix, only those on and above the diagonal."""
        rows = _Blocks(self._space, task.rows)
        if task.columns is None:
            for i in range(len(rows)):
                loaded = rows.load(i)
                for j in range(i, len(rows)):
                    other = loaded if i == j else rows.load(j)
                    yield rows.parts[i], rows.parts[j], loaded @ other.T
        else:
            columns = _Blocks(self._space, task.columns)
            for i in range(len(rows)):
                loaded = rows.load(i)
                for j in range(len(columns)):
                    yield rows.parts[i], columns.parts[j], loaded @ columns.load(j).T

    def _compare(self, rows: Positions, columns: Positions, similarities: Features) -> None:
        samples, on_diagonal = self._samples, rows is columns
        same_domain = samples.domains[rows][:, None] == samples.domains[columns]
        groups = samples.groups[rows][:, None]
        comparable = (groups != samples.groups[columns]) | (groups < 0)
        if on_diagonal:
            np.fill_diagonal(comparable, val=False)
        inner = np.where(same_domain & comparable, similarities, np.float32(-1))
        self.nearest[rows] = np.maximum(self.nearest[rows], inner.max(axis=1))
        if not on_diagonal:
            self.nearest[columns] = np.maximum(self.nearest[columns], inner.max(axis=0))
        similar = similarities >= self._low
        if on_diagonal:
            similar &= rows[:, None] < columns
        self.n_across += int((similar & ~same_domain & (similarities >= self._threshold)).sum())
        for top, mask in (
            (self.across, similar & ~same_domain),
            (self.within, similar & same_domain & comparable),
        ):
            at = np.nonzero(mask)
            if len(at[0]):
                top.add(similarities[at], rows[at[0]], columns[at[1]])


class _Blocks:
    """Rows of samples in blocks, as many of them kept as the memory allows."""

    def __init__(self, space: FeatureSpace, positions: Positions) -> None:
        self._space = space
        self._kept: dict[int, Features] = {}
        self._most = max(1, _MEMORY // (4 * BLOCK * space.width))
        starts = range(0, len(positions), BLOCK)
        self.parts: list[NDArray[np.intp]] = [positions[at : at + BLOCK] for at in starts]

    def __len__(self) -> int:
        return len(self.parts)

    def load(self, at: int) -> Features:
        if at in self._kept:
            return self._kept[at]
        loaded = self._space.rows(self.parts[at])
        if len(self._kept) < self._most:
            self._kept[at] = loaded
        return loaded

"""Similar pairs among many samples: blocks of the similarity matrix, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from oodzoo.events import Progress
from oodzoo.leaks.planning import Plan, Task
from oodzoo.leaks.space import FeatureSpace, Positions, Samples
from oodzoo.leaks.whitening import Features

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

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self.similarities = np.empty(0, np.float32)
        self.places = np.empty((0, 2), np.intp)

    def add(self, similarities: Features, first: Positions, second: Positions) -> None:
        """Add pairs, and drop the least similar ones of too many."""
        places = np.stack([np.minimum(first, second), np.maximum(first, second)], axis=1)
        values = np.concatenate([self.similarities, similarities])
        places = np.concatenate([self.places, places])
        order = np.lexsort((places[:, 1], places[:, 0], -values))[: self._most]
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
    block : int

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
        block: int = BLOCK,
    ) -> None:
        self._space = space
        self._samples = samples
        self._low = low
        self._threshold = threshold
        self._block = block
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
        rows = _Blocks(self._space, task.rows, self._block)
        if task.columns is None:
            for i in range(len(rows)):
                loaded = rows.load(i)
                for j in range(i, len(rows)):
                    other = loaded if i == j else rows.load(j)
                    yield rows.parts[i], rows.parts[j], loaded @ other.T
        else:
            columns = _Blocks(self._space, task.columns, self._block)
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

    def __init__(self, space: FeatureSpace, positions: Positions, block: int) -> None:
        self._space = space
        self._kept: dict[int, Features] = {}
        self._most = max(1, _MEMORY // (4 * block * space.width))
        starts = range(0, len(positions), block)
        self.parts: list[NDArray[np.intp]] = [positions[at : at + block] for at in starts]

    def __len__(self) -> int:
        return len(self.parts)

    def load(self, at: int) -> Features:
        if at in self._kept:
            return self._kept[at]
        loaded = self._space.rows(self.parts[at])
        if len(self._kept) < self._most:
            self._kept[at] = loaded
        return loaded

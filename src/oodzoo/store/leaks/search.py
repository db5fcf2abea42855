"""The search for similar pairs: the space where images are compared, in blocks of a matrix.

Time and memory are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from oodzoo.core.errors import InputError
from oodzoo.core.events import Progress
from oodzoo.store.feature_store import FeatureStore

MODELS = 8
"""Models whose features are compared, by default."""

_SAMPLE = 4096
"""Images that a whitening is computed from."""

_NOISE_SAMPLE = 1024
"""Images that the noise is computed from."""

USELESS = 0.25
"""Noise of features that hardly tell images apart."""

Positions = NDArray[np.intp]
Features = NDArray[np.float32]

SHRINKAGE = 0.1
"""Added to every variance, relative to the mean variance."""

PROBES = 1024
"""Images of a domain that its typical nearest neighbours are computed from."""

WIDEST = 4096
"""Features of a model that are used; evenly spaced ones of a model with more."""


@dataclass(frozen=True)
class SampleColumns:
    """The samples of a store, as columns of equal length; numbers are positions in the lists.

    `labels` is -1 for a sample without a label, `groups` for a sample without a group. Pairs of one
    stratum are compared first: of one class, or see :meth:`oodzoo.tasks.Task.strata`.
    """

    images: list[str]
    paths: list[str]
    domains: NDArray[np.intp]
    labels: NDArray[np.intp]
    strata: NDArray[np.intp]
    groups: NDArray[np.intp]
    domain_names: tuple[str, ...]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def probes(self) -> NDArray[np.bool_]:
        """Up to 1,024 samples of each domain, whose nearest neighbours stand for those of all."""
        chosen = np.zeros(len(self), np.bool_)
        rng = np.random.default_rng(0)
        for domain in np.unique(self.domains):
            own = np.flatnonzero(self.domains == domain)
            chosen[own if len(own) <= PROBES else rng.choice(own, PROBES, replace=False)] = True
        return chosen

    def place(self, at: int) -> tuple[str, str, str | None]:
        """Return the path, the domain and the label of a sample."""
        label = self.labels[at]
        name = None if label < 0 else self.classes[label]
        return self.paths[at], self.domain_names[self.domains[at]], name


def choose_models(store: FeatureStore) -> tuple[str, ...]:
    """Choose models from the narrowest to the widest features, which see different details.

    Those with features of all domains without labels, if there are any.
    """
    complete = [
        name for name in store.models if all(store.has_features(name, d) for d in store.unlabelled)
    ]
    known = complete or list(store.models)
    known.sort(key=lambda name: (store.model(name).widths["features"], name))
    at = np.linspace(0, len(known) - 1, min(MODELS, len(known))).round().astype(int)
    return tuple(known[i] for i in at)


def list_samples(
    store: FeatureStore, models: Sequence[str], images: Collection[str] | None = None
) -> SampleColumns:
    """List the samples that all these models have features of, or those of some images."""
    unlabelled = [d for d in store.unlabelled if all(store.has_features(m, d) for m in models)]
    names = (*store.domains, *unlabelled)
    rows = [
        (image, path, at, label, group)
        for at, domain in enumerate(names)
        for image, path, label, group in zip(
            store.images(domain),
            store.paths(domain),
            [None] * len(store.paths(domain))
            if domain in unlabelled
            else store.label_texts(domain),
            store.groups(domain),
            strict=True,
        )
        if images is None or image in images
    ]
    texts = [row[3] for row in rows if row[3] is not None]
    strata = iter(store.task.strata_of(texts))
    by_row = [None if row[3] is None else next(strata) for row in rows]
    labels = [None if row[3] is None else store.task.shown(row[3]) for row in rows]
    classes, codes = _coded(labels)
    numbers = {group: at for at, group in enumerate({row[4] for row in rows} - {None})}
    return SampleColumns(
        images=[row[0] for row in rows],
        paths=[row[1] for row in rows],
        domains=np.array([row[2] for row in rows], np.intp),
        labels=codes,
        strata=_coded(by_row)[1],
        groups=np.array([numbers.get(row[4], -1) for row in rows], np.intp),
        domain_names=names,
        classes=classes,
    )


def _coded(names: Sequence[str | None]) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    """Return the names, sorted, and the position of each; -1 for None."""
    known = tuple(sorted({name for name in names if name is not None}))
    position = {name: at for at, name in enumerate(known)}
    return known, np.array([-1 if n is None else position[n] for n in names], np.intp)


@dataclass(frozen=True)
class Whitening:
    r"""A linear map of features to coordinates of equal variance, and then to unit length.

    With the mean :math:`\mu` and the covariance :math:`C` of a sample of images,

    .. math:: z = L^{-1} (x - \mu), \quad L L^\top = C + \lambda I, \quad
              \lambda = 0.1 \, \frac{\operatorname{tr} C}{\min(d, n - 1)}

    The inner product of two rows :math:`z / |z|` is the cosine similarity in the metric of the
    data set: what all images of a domain or a class share counts little, what only few of them
    have counts much. :math:`\lambda` keeps directions without signal from counting most.
    """

    columns: NDArray[np.intp]
    mean: NDArray[np.float64]
    transform: Features
    """The inverse of L; zeros if all images have the same features."""

    @classmethod
    def fit(cls, features: NDArray[np.floating]) -> Whitening:
        """Compute the map from the features (n, d) of a sample of the images."""
        n, width = features.shape
        columns = np.linspace(0, width - 1, min(width, WIDEST)).round().astype(np.intp)
        sample = np.asarray(features, np.float64)[:, columns]
        mean = sample.mean(axis=0)
        centred = sample - mean
        d = len(columns)
        total = float(np.square(centred).sum()) / n
        if total == 0:
            return cls(columns, mean, np.zeros((d, d), np.float32))
        scaled = (centred * np.sqrt(d / total)).astype(np.float32)  # the trace is d
        covariance = (scaled.T @ scaled).astype(np.float64) / n
        covariance[np.diag_indices(d)] += SHRINKAGE * d / min(d, n - 1)
        lower = np.linalg.cholesky(covariance)
        inverse = solve_triangular(lower, np.eye(d), lower=True) * np.sqrt(d / total)
        return cls(columns, mean, inverse.astype(np.float32))

    @property
    def width(self) -> int:
        return len(self.columns)

    def unit_rows(self, features: NDArray[np.floating]) -> Features:
        """Whiten features (n, d) and scale each row to unit length; zeros stay zeros."""
        centred = (features[:, self.columns] - self.mean).astype(np.float32)
        rows: Features = centred @ self.transform.T
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        return rows


class FeatureSpace:
    r"""Whitened unit rows of several models, concatenated: inner products are mean similarities.

    Attributes
    ----------
    models : tuple of str
        Those that are used; of several models, not those whose features hardly tell images apart.
    noise : float
        :math:`\sigma = 1.4826 \operatorname{median} |s|` of the similarities :math:`s` of images
        of different domains, which is the standard deviation of a normal distribution. Few
        near-duplicates hardly change a median.
    """

    def __init__(self, store: FeatureStore, models: Sequence[str], samples: SampleColumns) -> None:
        self._store = store
        self._images = samples.images
        order = np.random.default_rng(0).permutation(len(samples))
        few = order[:_NOISE_SAMPLE]
        # pairs of different domains; all, if there is only one domain
        different = samples.domains[few][:, None] != samples.domains[few]
        pairs = np.triu(different if different.any() else ~different, 1)
        fitted: dict[str, Whitening] = {}
        similar: dict[str, Features] = {}
        for name in models:
            sample = self._features(name, np.sort(order[:_SAMPLE]))
            fitted[name] = Whitening.fit(sample)
            rows = fitted[name].unit_rows(self._features(name, few))
            similar[name] = (rows @ rows.T)[pairs]
        noise = {name: _noise(values) for name, values in similar.items()}
        used = [name for name in models if noise[name] <= USELESS] or [min(noise, key=noise.get)]  # type: ignore[arg-type]
        self.models = tuple(used)
        self.noise = _noise(np.mean([similar[name] for name in used], axis=0))
        self._whitenings = [fitted[name] for name in used]

    @property
    def width(self) -> int:
        return sum(whitening.width for whitening in self._whitenings)

    def rows(self, positions: Positions) -> Features:
        """Load the rows of some samples."""
        parts = [
            whitening.unit_rows(self._features(name, positions))
            for name, whitening in zip(self.models, self._whitenings, strict=True)
        ]
        return np.concatenate(parts, axis=1) / np.float32(np.sqrt(len(parts)))

    def _features(self, model: str, positions: Positions) -> NDArray[np.floating]:
        images = [self._images[at] for at in positions.tolist()]
        return self._store.gather(model, images, "features")


def _noise(similarities: Features) -> float:
    return 1.4826 * float(np.median(np.abs(similarities))) if similarities.size else 0.0


# --- a short form of the rows, which excludes most pairs --------------------------------------

SKETCH = 512
"""Coordinates of a sketch."""

_SIGMAS = 6
"""Standard deviations by which a sketch may be wrong."""

_SMALL = 1e10
"""Multiplications of an exact search for which no sketch pays."""

_MOST_CANDIDATES = 1 << 22
"""Positions of candidates that wait to be compared by whole rows."""

_CHECK = 16
"""Cost of a multiplication for a single pair, relative to one of a block."""


class Sketch:
    r"""Short rows, the inner product of which is an upper bound of the similarity of two images.

    A unit row :math:`x` is divided into its coordinates :math:`Px` along the 256 principal axes of
    a sample, and the rest :math:`r`, of which :math:`m = 255` random orthonormal directions
    :math:`R` are kept. For two images,

    .. math:: x \cdot y = Px \cdot Py + r \cdot s \quad\text{and}\quad
              r \cdot s \approx \tfrac{d - 256}{m} \, Rr \cdot Rs,

    with a standard deviation, over the draw of :math:`R`, of at most
    :math:`|r| |s| \sqrt{(1 + \cos^2) / m}`. One more coordinate, :math:`\sqrt{6 / \sqrt m} \, |r|`,
    adds :math:`6 |r| |s| / \sqrt m` to the inner product: 6 standard deviations for rests without
    anything in common, 4.2 for equal ones. A pair at the very threshold is lost with a probability
    between 1e-9 and 1e-5, any more similar one with a smaller one.

    Attributes
    ----------
    cost : float
        Multiplications per pair, those of the exact similarities of candidates included.
    """

    def __init__(self, sample: Features, low: float) -> None:
        width = sample.shape[1]
        rng = np.random.default_rng(0)
        axes = rng.normal(size=(width, SKETCH // 2)).astype(np.float32)
        for _ in range(3):  # subspace iteration: the axes need not be exact
            axes = np.linalg.qr(sample.T @ (sample @ axes))[0]
        m = SKETCH - SKETCH // 2 - 1
        directions = rng.normal(size=(width, m)).astype(np.float32)
        directions = np.linalg.qr(directions - axes @ (axes.T @ directions))[0]
        self._n_axes = axes.shape[1]
        self._base = np.hstack([axes, directions * np.float32(np.sqrt((width - len(axes.T)) / m))])
        self._margin = np.float32(np.sqrt(_SIGMAS / np.sqrt(m)))
        short = self.rows(sample[:: max(1, len(sample) // _NOISE_SAMPLE)])
        bounds = (short @ short.T)[np.triu_indices(len(short), 1)]
        share = float((bounds >= low).mean()) if bounds.size else 1.0
        self.cost = SKETCH + share * _CHECK * width

    @classmethod
    def if_cheaper(cls, space: FeatureSpace, n: int, low: float) -> Sketch | None:
        """Return a sketch for all pairs of n images; None if comparing whole rows costs less."""
        few = n * n / 2 * space.width <= _SMALL or 4 * n * SKETCH > _MEMORY
        if few or space.width <= SKETCH:
            return None
        positions = np.sort(np.random.default_rng(1).choice(n, min(n, BLOCK), replace=False))
        sketch = cls(space.rows(positions), low)
        # of each image: its sketch, and the comparison with the probes of its domain
        sketch.cost += 2 * (SKETCH + min(PROBES, n)) * space.width / n
        return sketch if sketch.cost < space.width else None

    def rows(self, rows: Features) -> Features:
        """Return the sketch of rows."""
        short = rows @ self._base
        lengths = np.square(rows).sum(axis=1) - np.square(short[:, : self._n_axes]).sum(axis=1)
        rest = self._margin * np.sqrt(np.maximum(lengths, 0))
        return np.hstack([short, rest[:, None]])


BUDGET = 1e12
"""Multiplications of a search that chooses its pairs itself; about a minute on two cores."""

SCOPES = ("auto", "all", "class")


@dataclass(frozen=True)
class PairTask:
    """Images to compare: all of `rows` with each other, or with `columns`, which are others."""

    rows: Positions
    columns: Positions | None = None

    @property
    def pairs(self) -> float:
        n = len(self.rows)
        return n * (n - 1) / 2 if self.columns is None else n * len(self.columns)


@dataclass(frozen=True)
class PairPlan:
    """The pairs to compare; see :class:`~oodzoo.store.leaks.similar.NearDuplicates` for `scope`."""

    tasks: list[PairTask]
    scope: str

    @property
    def pairs(self) -> float:
        return sum(task.pairs for task in self.tasks)


def plan_pairs(
    labels: NDArray[np.integer],
    width: float,
    scope: str = "auto",
    budget: float = BUDGET,
    *,
    between: float | None = None,
) -> PairPlan:
    """Choose the pairs of images to compare.

    Parameters
    ----------
    labels : array of int, shape (n,)
        The class of each image; -1 for an image without a label.
    width : float
        Multiplications per pair.
    between : float, optional
        The same for pairs of an image without a label and one with a label.
    scope : {"auto", "all", "class"}
        All pairs; or those of one class and those with an image without a label. By default all
        pairs if they take at most `budget` multiplications, else those of a class, as many of
        them as the budget allows.
    budget : float
    """
    if scope not in SCOPES:
        raise InputError(f"unknown pairs to compare: {scope!r}; expected {', '.join(SCOPES)}")
    everything = PairPlan([PairTask(np.arange(len(labels)))], "all")
    if scope == "all" or (scope == "auto" and everything.pairs * width <= budget):
        return everything
    by_class = PairPlan(_class_tasks(labels), "class")

    def cost(task: PairTask) -> float:
        return task.pairs * (width if task.columns is None or between is None else between)

    if scope == "class" or sum(map(cost, by_class.tasks)) <= budget:
        return by_class
    return PairPlan(_part(by_class.tasks, budget, cost), "part")


def _class_tasks(labels: NDArray[np.integer]) -> list[PairTask]:
    order = np.argsort(labels, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    tasks = [PairTask(group) for group in groups]
    unlabelled, labelled = np.flatnonzero(labels < 0), np.flatnonzero(labels >= 0)
    if len(unlabelled) and len(labelled):
        tasks.append(PairTask(unlabelled, labelled))
    return [task for task in tasks if task.pairs]


def _part(tasks: list[PairTask], most: float, cost: Callable[[PairTask], float]) -> list[PairTask]:
    """Return random tasks of at most this cost; the last one has a sample of its images."""
    rng = np.random.default_rng(0)
    part = []
    for at in rng.permutation(len(tasks)):
        task = tasks[at]
        if cost(task) > most:
            share = np.sqrt(most / cost(task))
            columns = None if task.columns is None else _sample(task.columns, share, rng)
            part.append(PairTask(_sample(task.rows, share, rng), columns))
            break
        part.append(task)
        most -= cost(task)
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


class PairSearch:
    """Compares the pairs of a plan.

    Parameters
    ----------
    space : FeatureSpace
    samples : SampleColumns
    low : float
        Smallest similarity of pairs that are kept.
    threshold : float
        Smallest similarity of pairs that are counted.
    sketch : Sketch, optional
        Compare sketches first, and whole rows of the pairs that these leave.

    Attributes
    ----------
    across, within : TopPairs
        Pairs of different domains, and of one domain; the latter without those of one group.
    n_across : int
        Pairs of different domains with a similarity of at least `threshold`.
    nearest : array of float, shape (n,)
        The largest similarity of each sample to another one of its domain, not of its group; -1
        for a sample that was compared with none. With a sketch, of the probes only.
    """

    def __init__(
        self,
        space: FeatureSpace,
        samples: SampleColumns,
        low: float,
        threshold: float,
        sketch: Sketch | None = None,
    ) -> None:
        self._space = space
        self._sketch = sketch
        self._samples = samples
        self._low = low
        self._threshold = threshold
        self.across = TopPairs()
        self.within = TopPairs()
        self.n_across = 0
        self.nearest = np.full(len(samples), -1, np.float32)

    def run(self, plan: PairPlan, progress: Progress | None = None) -> None:
        """Compare all pairs of a plan."""
        total = int(sum(task.pairs for task in plan.tasks))
        done = 0.0
        for task in plan.tasks:
            by_sketch = self._sketch is not None and task.columns is None
            for pairs in self._by_sketch(task) if by_sketch else self._exactly(task):
                done += pairs
                if progress is not None:
                    progress(min(int(done), total), total)

    def _exactly(self, task: PairTask) -> Iterator[float]:
        """Compare whole rows, block by block; yield the number of pairs of each."""
        for rows, columns, similarities in self._blocks(task):
            self._compare(rows, columns, similarities)
            yield similarities.size / (2 if rows is columns else 1)

    def _by_sketch(self, task: PairTask) -> Iterator[float]:
        """Compare sketches, and whole rows of pairs that may be similar enough."""
        assert self._sketch is not None
        blocks = _Blocks(self._space, task.rows)
        short = [self._sketch.rows(blocks.load(i)) for i in range(len(blocks))]
        self._find_nearest(task.rows)
        low = self._low - 1e-5  # rounding
        for i, rows in enumerate(blocks.parts):
            candidates: list[NDArray[np.intp]] = []
            for j in range(i, len(blocks)):
                likely = short[i] @ short[j].T >= low
                first, second = np.nonzero(np.triu(likely, 1) if i == j else likely)
                candidates.append(np.stack([first, second + j * BLOCK]))
                if j == len(blocks) - 1 or sum(map(np.size, candidates)) > _MOST_CANDIDATES:
                    first, second = np.concatenate(candidates, axis=1)
                    candidates.clear()
                    if len(first):
                        self._check(rows, blocks.load(i), first, task.rows[second])
                yield likely.size / (2 if i == j else 1)

    def _check(
        self, rows: Positions, loaded: Features, first: Positions, second: Positions
    ) -> None:
        """Compute the similarity of candidates: rows of a block, and positions of samples."""
        others, at = np.unique(second, return_inverse=True)
        for start in range(0, len(others), BLOCK):
            part = others[start : start + BLOCK]
            here = np.flatnonzero((at >= start) & (at < start + BLOCK))
            other, one, two = self._space.rows(part), first[here], at[here] - start
            if len(here) * _CHECK > len(loaded) * len(part):
                values = (loaded @ other.T)[one, two]
            else:
                pairs = [slice(k, k + BLOCK) for k in range(0, len(here), BLOCK)]
                values = np.concatenate(
                    [np.einsum("ij,ij->i", loaded[one[p]], other[two[p]]) for p in pairs]
                )
            kept = values >= self._low
            self._add(rows[one[kept]], part[two[kept]], values[kept])

    def _find_nearest(self, positions: Positions) -> None:
        """Find the nearest neighbours of the probes of each domain among some samples."""
        samples = self._samples
        for domain in np.unique(samples.domains[positions]):
            own = positions[samples.domains[positions] == domain]
            probes = own[samples.probes[own]]
            loaded = self._space.rows(probes)
            others = _Blocks(self._space, own)
            for j, columns in enumerate(others.parts):
                similarities = loaded @ others.load(j).T
                similarities[~self._comparable(probes, columns)] = -1
                best = similarities.max(axis=1)
                self.nearest[probes] = np.maximum(self.nearest[probes], best)

    def _comparable(self, rows: Positions, columns: Positions) -> NDArray[np.bool_]:
        """Whether two samples are different ones, and not of one group."""
        groups = self._samples.groups[rows][:, None]
        apart = (groups != self._samples.groups[columns]) | (groups < 0)
        comparable: NDArray[np.bool_] = apart & (rows[:, None] != columns)
        return comparable

    def _blocks(self, task: PairTask) -> Iterator[tuple[Positions, Positions, Features]]:
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
        inner = same_domain & self._comparable(rows, columns)
        inner_similarities = np.where(inner, similarities, np.float32(-1))
        self.nearest[rows] = np.maximum(self.nearest[rows], inner_similarities.max(axis=1))
        if not on_diagonal:
            best = inner_similarities.max(axis=0)
            self.nearest[columns] = np.maximum(self.nearest[columns], best)
        similar = similarities >= self._low
        if on_diagonal:
            similar &= rows[:, None] < columns
        first, second = np.nonzero(similar)
        self._add(rows[first], columns[second], similarities[first, second])

    def _add(self, first: Positions, second: Positions, similarities: Features) -> None:
        """Count similar pairs, and keep the most similar ones."""
        samples = self._samples
        same = samples.domains[first] == samples.domains[second]
        groups = samples.groups[first]
        together = (groups == samples.groups[second]) & (groups >= 0)
        self.n_across += int((~same & (similarities >= self._threshold)).sum())
        for top, mask in ((self.across, ~same), (self.within, same & ~together)):
            if mask.any():
                top.add(similarities[mask], first[mask], second[mask])


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

"""The search for similar pairs: the space where images are compared, in blocks of a matrix.

Time and memory are bounded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

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

WIDEST = 4096
"""Features of a model that are used; evenly spaced ones of a model with more."""


@dataclass(frozen=True)
class Samples:
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
) -> Samples:
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
    return Samples(
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

    def __init__(self, store: FeatureStore, models: Sequence[str], samples: Samples) -> None:
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
    """The pairs to compare; see :class:`~oodzoo.store.leaks.similar.NearDuplicates` for `scope`."""

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

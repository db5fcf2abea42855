"""Leave-one-domain-out folds: the terms of the ZooD score and the metric on each domain.

There are two protocols. :func:`leave_one_domain_out` is for ranking: each domain is held out once.
:func:`leave_two_domains_out` is for evaluating the score itself: a test domain is set aside first.
Training moments are sums over the training domains, never differences, which would cancel if one
domain is much larger than the others.

The Bayesian linear model has no intercept. Numbers to predict are therefore taken minus their mean
over the training domains, so that evidence and discriminability do not depend on where zero is.
Classes, and zeros and ones, are taken as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import Array, Backend, backend, backend_of, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.extraction.source import Shard
from oodzoo.linear.evidence import (
    Precisions,
    Spectrum,
    decompose,
    decompose_offset,
    log_evidence,
    maximise_evidence,
)
from oodzoo.linear.moments import Moments, blocks, label_matrix, merge
from oodzoo.ranking.inputs import TrainingMoments
from oodzoo.ranking.ridge import RidgePath
from oodzoo.ranking.zood import (
    Density,
    LinearModel,
    PaperDensity,
    RelativeDensity,
    discriminability,
)
from oodzoo.tasks import Kind
from oodzoo.tasks.metrics import contributions, second_metric

Stability = Literal["robust", "paper"]


def require_stability(stability: str) -> None:
    """Raise an InputError for an unknown form of stability."""
    if stability not in get_args(Stability):
        raise InputError(f"unknown stability {stability!r}; expected one of robust, paper")


Shards = Callable[[str], Iterable[Shard]]
"""Returns the features and labels of a domain by name; called once per fold."""


@dataclass(frozen=True, eq=False)
class Fold:
    """Results on one held-out domain.

    Attributes
    ----------
    domain : str
        The held-out domain.
    n : int
        Its number of samples.
    discriminability : float
        Log-density of its labels given the training domains, per sample and averaged over classes.
    stability : float
        -ln k for a domain at k times the distance of the training data ("robust"), or the mean
        log-density of its features ("paper").
    stability_slope : float
        Derivative of `stability` with respect to the mean of `feature_log_density`.
    label_spread, density_spread : float
        Standard deviation of `label_log_density` and of `feature_log_density`.
    metric, second_metric : float
        Metrics (:mod:`oodzoo.tasks.metrics`) of a ridge regression of the training domains on this
        domain: accuracy and balanced accuracy, or those of other tasks, as fractions. A class that
        the training domains lack is never predicted and counts as wrong. The ridge is the one with
        the highest mean skill over the held-out domains (:mod:`oodzoo.ranking.ridge`).
    alpha, beta : array (C,)
        Precisions per class or output; NaN for a skipped one.
    skipped : tuple of int
        Classes absent from the training domains, or outputs that do not vary there; they are
        excluded from `discriminability`.
    unconverged : tuple of int
        Classes whose precisions did not converge; or whose noise the training domains do not
        determine, because the features are as many as the samples. It is then at its bound (see
        :mod:`oodzoo.linear.evidence`).
    ridge : int
        Index of that ridge in :data:`~oodzoo.ranking.ridge.RIDGES`.
    evidence, training_evidence : float
        Highest log evidence of the labels per sample, averaged over classes (LogME), of the
        training domains and the held-out domain together, and of the training domains alone.
    shrinkage : float or None
        Shrinkage of the covariance; None for "paper".
    labels : array (n,) or (n, C)
        Labels in the order of the shards; the arrays below have the same order.
    predicted : array (n,) or (n, C)
        Labels predicted by the ridge regression.
    contributions : array (n,)
        Contribution of each sample to `metric`; their mean is the metric.
    label_log_density, feature_log_density : array (n,)
    """

    domain: str
    n: int
    discriminability: float
    stability: float
    stability_slope: float
    label_spread: float
    density_spread: float
    metric: float
    second_metric: float
    alpha: NDArray[np.float64]
    beta: NDArray[np.float64]
    skipped: tuple[int, ...]
    unconverged: tuple[int, ...]
    ridge: int
    evidence: float
    training_evidence: float
    shrinkage: float | None
    labels: NDArray[Any]
    predicted: NDArray[Any]
    contributions: NDArray[np.float64]
    label_log_density: NDArray[np.float64]
    feature_log_density: NDArray[np.float64]

    @property
    def spread_ratio(self) -> float:
        """The paper's λ, `label_spread` / `density_spread`; zero if all densities are equal."""
        return self.label_spread / self.density_spread if self.density_spread > 0 else 0.0

    @property
    def stability_of_samples(self) -> NDArray[np.float64]:
        """Contribution of each sample to `stability`, to first order and up to a constant."""
        return self.stability_slope * self.feature_log_density


def pack(folds: list[Fold]) -> dict[str, NDArray[Any]]:
    """Convert folds to plain arrays for a cache; :func:`unpack` is the inverse."""
    return {
        f"{number}.{field.name}": np.asarray(
            np.nan if (value := getattr(fold, field.name)) is None else value
        )
        for number, fold in enumerate(folds)
        for field in fields(fold)
    }


def unpack(arrays: Mapping[str, NDArray[Any]]) -> list[Fold]:
    """Restore folds from the arrays of :func:`pack`."""
    folds = []
    for number in range(1 + max(int(name.split(".")[0]) for name in arrays)):
        values: dict[str, Any] = {}
        for field in fields(Fold):
            array = arrays[f"{number}.{field.name}"]
            if field.name in ("skipped", "unconverged"):
                values[field.name] = tuple(int(x) for x in array)
            else:
                values[field.name] = array if array.ndim else array.item()
        if np.isnan(values["shrinkage"]):
            values["shrinkage"] = None
        folds.append(Fold(**values))
    return folds


def leave_one_domain_out(
    domains: Mapping[str, Moments],
    shards: Shards,
    *,
    training: TrainingMoments | None = None,
    n_features: int | None = None,
    stability: Stability = "robust",
    kind: Kind = "classification",
    device: str | None = None,
    known: Known | None = None,
) -> list[Fold]:
    """Compute the fold of each held-out domain (Section 3.1 of the paper).

    For m domains this takes m + 1 eigendecompositions ("paper": m more) and a second pass over the
    features. `shards` returns the features and labels behind the moments; `training` the moments
    of a domain to train on for some held-out domains, if not all of them. `n_features` is the
    number of features, if the moments are of fewer coordinates. `stability` chooses
    :class:`~oodzoo.ranking.zood.RelativeDensity` ("robust") or
    :class:`~oodzoo.ranking.zood.PaperDensity` ("paper"). `kind` is that of the task. `known`
    are eigendecompositions of the same features that were computed before, which computed ones are
    added to.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.tile([0, 1], 30)
    >>> data = {d: (np.stack([y, 1 - y], 1) + 0.1 * rng.normal(size=(60, 2)), y) for d in "abc"}
    >>> domains = {d: Moments.of(*data[d], n_classes=2) for d in data}
    >>> folds = leave_one_domain_out(domains, lambda d: [data[d]])
    >>> [(fold.domain, fold.metric) for fold in folds]
    [('a', 1.0), ('b', 1.0), ('c', 1.0)]
    """
    table = _Domains(domains, shards, training, n_features, stability, kind, device, known, least=2)
    union = table.union([])
    trained = {name: table.train([name]) for name in table.names}
    ridge = table.best_ridge(trained)
    return [table.fold(trained[name], union, name, ridge) for name in table.names]


def leave_two_domains_out(
    domains: Mapping[str, Moments],
    shards: Shards,
    *,
    training: TrainingMoments | None = None,
    n_features: int | None = None,
    stability: Stability = "robust",
    kind: Kind = "classification",
    device: str | None = None,
    known: Known | None = None,
) -> dict[str, list[Fold]]:
    """Compute the folds for each choice of a test domain and a held-out domain.

    This is how the paper evaluates a score (Appendix A.1): the score is to predict the accuracy on
    an unseen test domain. Swapping test domain and held-out domain leaves the training domains the
    same, so m (m - 1) folds take m (m - 1) / 2 + m eigendecompositions, which are held in memory
    together. At least three domains are needed; other parameters are those of
    :func:`leave_one_domain_out`.
    """
    table = _Domains(domains, shards, training, n_features, stability, kind, device, known, least=3)
    others = {test: [name for name in table.names if name != test] for test in table.names}
    unions = {test: table.union([test]) for test in table.names}
    pairs = {frozenset(pair): table.train(pair) for pair in combinations(table.names, 2)}
    folds = {}
    for test in table.names:
        trained = {name: pairs[frozenset((test, name))] for name in others[test]}
        ridge = table.best_ridge(trained)
        folds[test] = [
            table.fold(trained[name], unions[test], name, ridge) for name in others[test]
        ]
    return folds


@dataclass(frozen=True, eq=False)
class _Training:
    """Linear model and density of the training domains, in the basis of their Gram matrix."""

    held_out: tuple[str, ...]
    spectrum: Spectrum
    eigenvectors: Array
    precisions: Precisions
    evidence: float
    model: LinearModel
    path: RidgePath
    density: Density
    classes: Array
    """Indices of the classes present in the training domains, or of the outputs that vary there."""
    label_shift: Array
    """What is subtracted from the labels (C,): zeros for classes, the mean for numbers."""


@dataclass(frozen=True, eq=False)
class _Decomposed:
    """The spectrum of moments, for labels minus any shift.

    Attributes
    ----------
    moments : Moments
    spectrum : Spectrum
        Of the labels as they are.
    eigenvectors : array (d, d)
    origin : array (d,)
        Projections of ones; only for numbers to predict.
    """

    moments: Moments
    spectrum: Spectrum
    eigenvectors: Array
    origin: Array | None

    def about(self, shift: Array) -> Spectrum:
        """The spectrum of the labels minus a shift (C,)."""
        if self.origin is None:
            return self.spectrum
        squares = self.moments.label_squares_about(shift)
        return self.spectrum.about(self.origin, shift, squares)


@dataclass(frozen=True, eq=False)
class _Union:
    """Decomposed moments of several domains together, and their evidence."""

    decomposed: _Decomposed
    evidence: float


Known = dict[frozenset[str], _Decomposed]
"""Decomposed moments of all domains but some."""


class _Domains:
    """The domains of one model, on one backend."""

    def __init__(
        self,
        domains: Mapping[str, Moments],
        shards: Shards,
        training: TrainingMoments | None,
        n_features: int | None,
        stability: Stability,
        kind: Kind,
        device: str | None,
        known: Known | None = None,
        *,
        least: int,
    ) -> None:
        require_stability(stability)
        if len(domains) < least:
            raise InputError(
                f"at least {least} domains are needed to leave one out, got "
                f"{len(domains)}: {', '.join(map(repr, domains)) or 'none'}; oodzoo domains can "
                "propose them for a store"
            )
        first, *others = domains
        for name in others:
            mine, theirs = (domains[key].products.shape for key in (first, name))
            if tuple(mine) != tuple(theirs):
                raise InputError(
                    f"domain {first!r} has {mine[0]} features and {mine[1]} classes, but domain "
                    f"{name!r} has {theirs[0]} and {theirs[1]}; all moments must be of one model"
                )
        self.backend: Backend = backend(device)
        self.moments = {name: moments.to(device) for name, moments in domains.items()}
        self.names = list(domains)
        self.shards = shards
        self.device = device
        self.training = training
        self.n_features = n_features or self.moments[self.names[0]].n_features
        self.stability = stability
        self.kind: Kind = kind
        self.n_classes = self.moments[self.names[0]].n_classes
        self.known: Known = {} if known is None else known

    def union(self, unseen: Sequence[str]) -> _Union:
        """All domains together but the unseen ones, without the groups of these."""
        together = self._without(unseen)
        shift, classes = self._labels(together.moments)
        present = together.about(shift).take(classes)
        return _Union(together, _evidence_per_sample(present, maximise_evidence(present)))

    def _without(self, held_out: Sequence[str]) -> _Decomposed:
        key = frozenset(held_out)
        if key not in self.known:
            self.known[key] = self._decompose(self.without(held_out))
        return self.known[key]

    def without(self, held_out: Sequence[str]) -> Moments:
        """Moments of all domains but some, without the groups of these."""
        names = [name for name in self.names if name not in held_out]
        if self.training is None or not held_out:
            return merge(self.moments[name] for name in names)
        return merge(self.training(name, held_out).to(self.device) for name in names)

    def best_ridge(self, trained: Mapping[str, _Training]) -> int:
        """The ridge with the highest mean skill over held-out domains."""
        by_output = self.kind == "regression"
        skills = np.stack(
            [t.path.skills(self.moments[name], by_output=by_output) for name, t in trained.items()]
        )
        known = skills[~np.isnan(skills[:, 0])]
        return int(np.argmax(known.mean(axis=0))) if len(known) else 0

    def train(self, held_out: Sequence[str]) -> _Training:
        decomposed = self._without(held_out)
        kept = decomposed.moments
        spectrum, eigenvectors = decomposed.spectrum, decomposed.eigenvectors
        density = (
            PaperDensity.of(kept)
            if self.stability == "paper"
            else RelativeDensity.of(kept, spectrum, eigenvectors, self.n_features)
        )
        path = RidgePath.of_spectrum(kept, spectrum, eigenvectors, self.n_features)
        shift, classes = self._labels(kept)
        if not len(classes):
            names = " and ".join(map(repr, held_out))
            what = "numbers to predict" if self.kind == "regression" else "labels"
            raise InputError(
                f"the {what} do not vary in the domains other than {names}; add samples or "
                "domains, or leave these out"
            )
        spectrum = decomposed.about(shift).take(classes)
        precisions = maximise_evidence(spectrum)
        model = LinearModel.of(spectrum, precisions)
        evidence = _evidence_per_sample(spectrum, precisions)
        return _Training(
            tuple(held_out),
            spectrum,
            eigenvectors,
            precisions,
            evidence,
            model,
            path,
            density,
            classes,
            shift,
        )

    def fold(self, training: _Training, union: _Union, name: str, ridge: int) -> Fold:
        labels, predicted, label_density, feature_density = self._second_pass(training, name, ridge)
        each = contributions(self.kind, predicted, labels)
        classes = to_numpy(training.classes)
        stability, slope = training.density.stability(float(feature_density.mean()))
        stopped = to_numpy(training.precisions.converged)
        together = union.decomposed
        if self.training is not None:  # the union has groups that the training domains lack
            together = self._decompose(self.without(training.held_out) + self.moments[name])
        spectrum = together.about(training.label_shift).take(training.classes)
        return Fold(
            domain=name,
            n=self.moments[name].n,
            discriminability=discriminability(training.spectrum, spectrum, training.precisions),
            stability=stability,
            stability_slope=slope,
            label_spread=float(label_density.std()),
            density_spread=float(feature_density.std()),
            metric=float(each.mean()),
            second_metric=second_metric(self.kind, predicted, labels),
            alpha=self._by_class(training.precisions.alpha, classes),
            beta=self._by_class(training.precisions.beta, classes),
            skipped=tuple(sorted(set(range(self.n_classes)) - set(classes.tolist()))),
            unconverged=tuple(classes[~stopped].tolist()),
            ridge=ridge,
            evidence=union.evidence,
            training_evidence=training.evidence,
            shrinkage=getattr(training.density, "shrinkage", None),
            labels=labels,
            predicted=predicted,
            contributions=each,
            label_log_density=label_density,
            feature_log_density=feature_density,
        )

    def _second_pass(self, training: _Training, name: str, ridge: int) -> tuple[NDArray[Any], ...]:
        """Per sample: label, predicted label, log-density of the label and of the features."""
        xp = self.backend.xp
        parts = []
        for features, labels in blocks(
            self.shards(name), self.n_classes, self.backend, context=f"domain {name!r}"
        ):
            if features.shape[1] != training.eigenvectors.shape[0]:
                raise InputError(
                    f"domain {name!r}: the moments have {training.eigenvectors.shape[0]} "
                    f"features, but the shards have {features.shape[1]}"
                )
            projected = features @ training.eigenvectors
            squared = projected**2
            predicted = projected @ training.model.weights
            Y = label_matrix(labels, self.n_classes) - training.label_shift[None, :]
            Y = xp.take(Y, training.classes, axis=1)
            is_class = self.kind == "classification"
            outcome = (
                labels,
                (training.path.predict if is_class else training.path.outputs)(features, ridge),
                training.model.label_log_density(predicted, squared, Y),
                training.density.log_density(features, projected, squared),
            )
            parts.append([to_numpy(array) for array in outcome])
        columns = tuple(np.concatenate(column) for column in zip(*parts, strict=True))
        n = len(columns[0]) if columns else 0
        if n != self.moments[name].n:
            raise InputError(
                f"domain {name!r}: the moments are of {count(self.moments[name].n, 'sample')}, "
                f"but the shards have {n}; return the same shards on every call"
            )
        return columns

    def _labels(self, moments: Moments) -> tuple[Array, Array]:
        """What to subtract from the labels, and the columns that are then not all zero."""
        xp = self.backend.xp
        if self.kind == "regression":
            return moments.label_mean, xp.nonzero(moments.label_varies)[0]
        return xp.zeros_like(moments.label_sum), xp.nonzero(moments.label_sum)[0]

    def _decompose(self, moments: Moments) -> _Decomposed:
        xp, n, centred = self.backend.xp, moments.n, moments.centred
        sums, squares = moments.label_sum, moments.label_squares
        products = moments.products if centred is None else centred.products
        numbers = self.kind == "regression"
        if numbers:  # ones are one more column of labels
            column = moments.feature_sum if centred is None else xp.zeros_like(moments.mean)
            products = xp.concat([products, column[:, None]], axis=1)
            ones = n * xp.ones_like(sums[:1])
            sums, squares = xp.concat([sums, ones]), xp.concat([squares, ones])
        if centred is None:
            spectrum, vectors = decompose(moments.gram, products, squares, n)
        else:
            spectrum, vectors = decompose_offset(
                centred.gram, products, moments.mean, sums, squares, n
            )
        if not numbers:
            return _Decomposed(moments, spectrum, vectors, None)
        labels = spectrum.take(xp.arange(self.n_classes, device=self.backend.device))
        return _Decomposed(moments, labels, vectors, spectrum.projections[-1, :])

    def _by_class(self, values: Array, classes: NDArray[np.int64]) -> NDArray[np.float64]:
        full: NDArray[np.float64] = np.full(self.n_classes, np.nan)
        full[classes] = to_numpy(values)
        return full


def _evidence_per_sample(spectrum: Spectrum, precisions: Precisions) -> float:
    evidence = log_evidence(spectrum, precisions)
    return float(backend_of(evidence).xp.mean(evidence)) / spectrum.n

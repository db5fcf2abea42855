"""Leaving domains out in turn: the terms of the score, and the accuracy, of each fold.

Two protocols: :func:`leave_one_domain_out` for use, where every domain is a training domain, and
:func:`leave_two_domains_out` for evaluating the score itself, where a test domain is set aside
first. Training moments are sums over the domains kept, never differences: with one domain much
larger than the others a difference would cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import combinations
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from oodzoo.backend import Array, Backend, backend, to_numpy
from oodzoo.errors import InputError
from oodzoo.evidence import Precisions, Spectrum, decompose, maximise_evidence
from oodzoo.features.source import Shard
from oodzoo.moments import Moments, blocks, merge
from oodzoo.ranking.discriminability import LinearModel, discriminability
from oodzoo.ranking.stability import Density, PaperDensity, RelativeDensity

Stability = Literal["robust", "paper"]

Shards = Callable[[str], Iterable[Shard]]
"""Gives the features and labels of a domain, by name; called once for each fold."""


@dataclass(frozen=True, eq=False)
class Fold:
    """What one left-out domain says about the features.

    Attributes
    ----------
    domain : str
        The domain left out.
    n : int
        Its number of samples.
    discriminability : float
        Log-density of its labels per sample, mean over classes, given the training domains.
    stability : float
        -ln k, where the domain lies k times as far out as the training data ("robust"), or the
        mean log-density of its features ("paper").
    stability_slope : float
        Its derivative by the mean of `feature_log_density`.
    label_spread, density_spread : float
        Standard deviation over its samples of `label_log_density` and of `feature_log_density`.
    accuracy, balanced_accuracy : float
        Of the Bayesian linear model of the training domains, on this domain: share of samples, and
        mean over its classes of the share of samples. A class that the training domains lack is
        never predicted, and counts as wrong.
    alpha, beta : array (C,)
        Precisions of each class; NaN for a class that was skipped.
    skipped : tuple of int
        Classes absent from the training domains, which have no part in `discriminability`.
    unconverged : tuple of int
        Classes whose precisions did not converge.
    shrinkage : float or None
        Of the covariance; None for "paper".
    labels : array of int (n,)
        Labels, in the order of the shards; the arrays below are in the same order.
    correct : array of bool (n,)
        Whether the model predicts the label.
    label_log_density, feature_log_density : array (n,)
    """

    domain: str
    n: int
    discriminability: float
    stability: float
    stability_slope: float
    label_spread: float
    density_spread: float
    accuracy: float
    balanced_accuracy: float
    alpha: NDArray[np.float64]
    beta: NDArray[np.float64]
    skipped: tuple[int, ...]
    unconverged: tuple[int, ...]
    shrinkage: float | None
    labels: NDArray[np.int64]
    correct: NDArray[np.bool_]
    label_log_density: NDArray[np.float64]
    feature_log_density: NDArray[np.float64]

    @property
    def spread_ratio(self) -> float:
        """The paper's λ, `label_spread` / `density_spread`; zero where all densities are equal."""
        return self.label_spread / self.density_spread if self.density_spread > 0 else 0.0

    @property
    def stability_of_samples(self) -> NDArray[np.float64]:
        """What each sample adds to `stability`, to first order and up to a constant."""
        return self.stability_slope * self.feature_log_density


def pack(folds: list[Fold]) -> dict[str, NDArray[Any]]:
    """Folds as plain arrays, for a cache; :func:`unpack` reverses it."""
    return {
        f"{number}.{field.name}": np.asarray(
            np.nan if (value := getattr(fold, field.name)) is None else value
        )
        for number, fold in enumerate(folds)
        for field in fields(fold)
    }


def unpack(arrays: Mapping[str, NDArray[Any]]) -> list[Fold]:
    """Folds from the arrays of :func:`pack`."""
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
    stability: Stability = "robust",
    device: str | None = None,
) -> list[Fold]:
    """Leave each domain out in turn (Section 3.1 of the paper).

    With m domains this takes m + 1 eigendecompositions ("paper": m more), and a second pass over
    the features.

    Parameters
    ----------
    domains : mapping of str to Moments
        Moments of each domain, for the same features and classes; two domains or more.
    shards : callable
        ``shards(domain)`` gives the features and labels the moments were made of, in shards.
    stability : "robust" or "paper"
        :class:`~oodzoo.ranking.stability.RelativeDensity` or :class:`~oodzoo.ranking.stability.PaperDensity`.
    device : str, optional
        Where to compute: NumPy if None, else PyTorch on this device.

    Returns
    -------
    list of Fold
        In the order of `domains`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.tile([0, 1], 30)
    >>> data = {d: (np.stack([y, 1 - y], 1) + 0.1 * rng.normal(size=(60, 2)), y) for d in "abc"}
    >>> domains = {d: Moments.of(*data[d], n_classes=2) for d in data}
    >>> folds = leave_one_domain_out(domains, lambda d: [data[d]])
    >>> [(fold.domain, fold.accuracy) for fold in folds]
    [('a', 1.0), ('b', 1.0), ('c', 1.0)]
    """
    table = _Domains(domains, shards, stability, device, least=2)
    union = table.union(table.names)
    folds = []
    for name in table.names:
        training = table.train([kept for kept in table.names if kept != name])
        folds.append(table.fold(training, union, name))
    return folds


def leave_two_domains_out(
    domains: Mapping[str, Moments],
    shards: Shards,
    *,
    stability: Stability = "robust",
    device: str | None = None,
) -> dict[str, list[Fold]]:
    """Set each domain aside as the test domain, and leave each of the others out in turn.

    This is how the paper evaluates a score (Appendix A.1): it must foretell the accuracy on a test
    domain that it has not seen. Test domain and left-out domain can change places with the same
    training domains, so m (m - 1) folds take m (m - 1) / 2 + m eigendecompositions.

    Parameters are those of :func:`leave_one_domain_out`; three domains or more.

    Returns
    -------
    dict of str to list of Fold
        For each test domain the folds over the other domains, all in the order of `domains`.
    """
    table = _Domains(domains, shards, stability, device, least=3)
    unions = {
        test: table.union([name for name in table.names if name != test]) for test in table.names
    }
    folds: dict[tuple[str, str], Fold] = {}
    for first, second in combinations(table.names, 2):
        training = table.train([name for name in table.names if name not in (first, second)])
        for test, left_out in ((first, second), (second, first)):
            folds[test, left_out] = table.fold(training, unions[test], left_out)
    return {
        test: [folds[test, name] for name in table.names if name != test] for test in table.names
    }


@dataclass(frozen=True, eq=False)
class _Training:
    """What the training domains have taught, in the basis of their Gram matrix."""

    spectrum: Spectrum
    eigenvectors: Array
    precisions: Precisions
    model: LinearModel
    density: Density
    classes: Array
    """Numbers of the classes the training domains have."""


class _Domains:
    """The domains of one model, on one backend."""

    def __init__(
        self,
        domains: Mapping[str, Moments],
        shards: Shards,
        stability: Stability,
        device: str | None,
        *,
        least: int,
    ) -> None:
        if stability not in get_args(Stability):
            raise InputError(f"stability is {stability!r}; it can be 'robust' or 'paper'")
        if len(domains) < least:
            raise InputError(
                f"{len(domains)} domains are given ({', '.join(map(repr, domains))}), and leaving "
                f"them out in turn takes at least {least}"
            )
        first, *others = domains
        for name in others:
            mine, theirs = (domains[key].class_sums.shape for key in (first, name))
            if tuple(mine) != tuple(theirs):
                raise InputError(
                    f"domain {first!r} has {mine[0]} features and {mine[1]} classes, and domain "
                    f"{name!r} {theirs[0]} and {theirs[1]}; they must be of one model and task"
                )
        self.backend: Backend = backend(device)
        self.moments = {name: moments.to(device) for name, moments in domains.items()}
        self.names = list(domains)
        self.shards = shards
        self.stability = stability
        self.n_classes = self.moments[self.names[0]].n_classes

    def union(self, names: list[str]) -> Spectrum:
        return self._decompose(merge(self.moments[name] for name in names))[0]

    def train(self, names: list[str]) -> _Training:
        xp = self.backend.xp
        kept = merge(self.moments[name] for name in names)
        spectrum, eigenvectors = self._decompose(kept)
        density = (
            PaperDensity.of(kept)
            if self.stability == "paper"
            else RelativeDensity.of(kept, spectrum, eigenvectors)
        )
        (classes,) = xp.nonzero(kept.class_counts)
        spectrum = spectrum.take(classes)
        precisions = maximise_evidence(spectrum)
        model = LinearModel.of(spectrum, precisions)
        return _Training(spectrum, eigenvectors, precisions, model, density, classes)

    def fold(self, training: _Training, union: Spectrum, name: str) -> Fold:
        labels, correct, label_density, feature_density = self._second_pass(training, name)
        classes = to_numpy(training.classes)
        stability, slope = training.density.stability(float(feature_density.mean()))
        recalls = [correct[labels == label].mean() for label in np.unique(labels)]
        stopped = to_numpy(training.precisions.converged)
        return Fold(
            domain=name,
            n=self.moments[name].n,
            discriminability=discriminability(
                training.spectrum, union.take(training.classes), training.precisions
            ),
            stability=stability,
            stability_slope=slope,
            label_spread=float(label_density.std()),
            density_spread=float(feature_density.std()),
            accuracy=float(correct.mean()),
            balanced_accuracy=float(np.mean(recalls)),
            alpha=self._by_class(training.precisions.alpha, classes),
            beta=self._by_class(training.precisions.beta, classes),
            skipped=tuple(sorted(set(range(self.n_classes)) - set(classes.tolist()))),
            unconverged=tuple(classes[~stopped].tolist()),
            shrinkage=getattr(training.density, "shrinkage", None),
            labels=labels,
            correct=correct,
            label_log_density=label_density,
            feature_log_density=feature_density,
        )

    def _second_pass(self, training: _Training, name: str) -> tuple[NDArray[Any], ...]:
        """Labels, whether predicted, log-density of labels and of features of each sample."""
        xp = self.backend.xp
        parts = []
        for features, labels in blocks(
            self.shards(name), self.n_classes, self.backend, context=f"domain {name!r}"
        ):
            if features.shape[1] != training.eigenvectors.shape[0]:
                raise InputError(
                    f"domain {name!r}: the moments are of {training.eigenvectors.shape[0]} "
                    f"features and the second pass found {features.shape[1]}"
                )
            projected = features @ training.eigenvectors
            squared = projected**2
            predicted = training.model.predict(projected)
            one_hot = xp.astype(labels[:, None] == training.classes[None, :], xp.float64)
            outcome = (
                labels,
                xp.take(training.classes, xp.argmax(predicted, axis=1)) == labels,
                training.model.label_log_density(predicted, squared, one_hot),
                training.density.log_density(features, projected, squared),
            )
            parts.append([to_numpy(array) for array in outcome])
        columns = tuple(np.concatenate(column) for column in zip(*parts, strict=True))
        n = len(columns[0]) if columns else 0
        if n != self.moments[name].n:
            raise InputError(
                f"domain {name!r}: the moments are of {self.moments[name].n} samples and the "
                f"second pass found {n}; give the same shards each time they are asked for"
            )
        return columns

    def _decompose(self, moments: Moments) -> tuple[Spectrum, Array]:
        # For one-hot labels the sum of squares of a class is its count.
        return decompose(moments.gram, moments.class_sums, moments.class_counts, moments.n)

    def _by_class(self, values: Array, classes: NDArray[np.int64]) -> NDArray[np.float64]:
        full = np.full(self.n_classes, np.nan)
        full[classes] = to_numpy(values)
        return cast(NDArray[np.float64], full)

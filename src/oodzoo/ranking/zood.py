r"""Leave-one-domain-out folds: the two terms of the ZooD score and the metric on each domain.

For ranking, each domain is held out once; for evaluating a score, a held-out domain is set aside
first. Training moments are sums over the training domains, never differences, which would cancel if
one domain is much larger than the others.

The Bayesian linear model has no intercept. Numbers to predict are therefore taken minus their mean
over the training domains, so that evidence and discriminability do not depend on where zero is.
Classes, and zeros and ones, are taken as they are.

**Discriminability**: how well the labels of the held-out domain are predicted. The paper (Section
3.1, Appendix B.4) takes :math:`\log p(y_i \mid \Phi_i, y_{-i}, \Phi_{-i})` of the Bayesian linear
model, for each domain i with the model of the training domains, -i. It is a difference of two log
evidences, both with the precisions of the training domains, so moments are enough to compute it.

**Stability**: how close its features are to the training domains. The paper fits a Gaussian
:math:`N(\mu, \Sigma)` to the features of the training domains and takes the log-density of the
held-out domain, :meth:`FeatureDensity.paper`. It is not comparable between models: the density
changes by :math:`-d \ln c` when features are scaled by c, and for n close to d the covariance is
nearly singular, which penalises richer features. :meth:`FeatureDensity.robust` shrinks the
covariance and takes the density relative to the average over the training data. The stability of a
domain is the negative logarithm of its distance relative to that of the training data, so that one
distant domain does not dominate the mean. It is invariant to rotation, translation and a common
scale of the features, and a function of the moments of the held-out domain.

The log-densities of single samples of the held-out domain are for the published formula and for
intervals of these two terms only: they take a product of all features and a d × d matrix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import Array, backend, backend_of, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.linear.evidence import (
    Precisions,
    Spectrum,
    decompose,
    decompose_offset,
    log_evidence,
    maximise_evidence,
)
from oodzoo.linear.moments import Moments, blocks, label_matrix, merge, oas_shrinkage
from oodzoo.ranking.transfer import ModelMoments, RidgePath
from oodzoo.tasks import CLASSIFICATION, Task

Stability = Literal["robust", "paper"]


def require_stability(stability: str) -> None:
    """Raise an InputError for an unknown form of stability."""
    if stability not in get_args(Stability):
        raise InputError(f"unknown stability {stability!r}; expected one of robust, paper")


@dataclass(frozen=True, eq=False)
class HeldOutFold:
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
    metric, second_metric : float
        Metrics (:mod:`oodzoo.tasks`) of a ridge regression of the training domains on this
        domain: accuracy and balanced accuracy, or those of other tasks, as fractions. A class that
        the training domains lack is never predicted and counts as wrong. The ridge is the one with
        the highest mean skill over the held-out domains (:mod:`oodzoo.ranking.transfer`).
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
        Index of that ridge in :data:`~oodzoo.ranking.transfer.RIDGES`.
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
        Empty unless they are wanted.
    """

    domain: str
    n: int
    discriminability: float
    stability: float
    stability_slope: float
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
        """The paper's λ: the ratio of the standard deviations of `label_log_density` and
        `feature_log_density`; zero if all densities are equal."""
        spread = float(self.feature_log_density.std())
        return float(self.label_log_density.std()) / spread if spread > 0 else 0.0

    @property
    def stability_of_samples(self) -> NDArray[np.float64]:
        """Contribution of each sample to `stability`, to first order and up to a constant."""
        return self.stability_slope * self.feature_log_density


def pack(folds: list[HeldOutFold]) -> dict[str, NDArray[Any]]:
    """Convert folds to plain arrays for a cache; :func:`unpack` is the inverse."""
    return {
        f"{number}.{field.name}": np.asarray(
            np.nan if (value := getattr(fold, field.name)) is None else value
        )
        for number, fold in enumerate(folds)
        for field in fields(fold)
    }


def unpack(arrays: Mapping[str, NDArray[Any]]) -> list[HeldOutFold]:
    """Restore folds from the arrays of :func:`pack`, which may be among others."""
    folds: list[HeldOutFold] = []
    while f"{(number := len(folds))}.domain" in arrays:
        values: dict[str, Any] = {}
        for field in fields(HeldOutFold):
            array = arrays[f"{number}.{field.name}"]
            if field.name in ("skipped", "unconverged"):
                values[field.name] = tuple(int(x) for x in array)
            else:
                values[field.name] = array if array.ndim else array.item()
        if np.isnan(values["shrinkage"]):
            values["shrinkage"] = None
        folds.append(HeldOutFold(**values))
    return folds


COVARIANCE_FLOOR = 1e-6
"""Lower bound of the eigenvalues of the paper's covariance, relative to the largest."""


@dataclass(frozen=True, eq=False)
class FeatureDensity:
    r"""Log-density of features under a Gaussian fitted to the training domains.

    It is :math:`c - s\,(\phi-\mu)^\top\hat\Sigma^{-1}(\phi-\mu)`, with the squared distance

    .. math:: (\phi-\mu)^\top\hat\Sigma^{-1}(\phi-\mu)
              = \sum_k h_k (\phi-\mu)_k'^2 + r\,\big((\phi-\mu)^\top v\big)^2

    of the coordinates :math:`(\phi-\mu)'` in an orthonormal basis. If the training features are
    constant, the density is defined as zero for every sample.

    Attributes
    ----------
    mean : array (d,)
        :math:`\mu`.
    basis : array (d, d)
    inverse : array (d,)
        The numbers h; zeros if the features are constant.
    direction : array (d,)
        The vector v.
    correction, constant, scale : float
        The numbers r, c and s.
    expected : float or None
        Mean squared distance of the training data; None for the published formula.
    shrinkage : float or None
        Shrinkage of the covariance; None for the published formula.
    """

    mean: Array
    basis: Array
    inverse: Array
    direction: Array
    correction: float = 0.0
    constant: float = 0.0
    scale: float = 0.5
    expected: float | None = None
    shrinkage: float | None = None

    @classmethod
    def paper(cls, kept: Moments) -> FeatureDensity:
        r"""Fit the published log-density, :math:`\log N(\phi; \mu, \Sigma)`.

        Eigenvalues of :math:`\Sigma` below :data:`COVARIANCE_FLOOR` of the largest are raised to
        it, since a singular covariance has no density.
        """
        backend = backend_of(kept.gram)
        xp = backend.xp
        zeros = xp.zeros_like(kept.mean)
        if not kept.varies:
            return cls(kept.mean, kept.gram, zeros, zeros)
        eigenvalues, eigenvectors = backend.eigh(kept.covariance)
        eigenvalues = xp.clip(eigenvalues, min=COVARIANCE_FLOOR * float(eigenvalues[-1]))
        determinant = float(xp.sum(xp.log(eigenvalues)))
        constant = -0.5 * (kept.n_features * math.log(2 * math.pi) + determinant)
        return cls(kept.mean, eigenvectors, 1 / eigenvalues, zeros, constant=constant)

    @classmethod
    def robust(
        cls, kept: Moments, spectrum: Spectrum, eigenvectors: Array, d: int
    ) -> FeatureDensity:
        r"""Fit the log-density relative to the average over the training data, per dimension.

        .. math::

            \frac1d\Big(\log N(\phi;\mu,\hat\Sigma)
                        - \frac1n\sum_j \log N(\phi_j;\mu,\hat\Sigma)\Big)
            = \frac{\operatorname{tr}(\hat\Sigma^{-1}\Sigma)
                    - (\phi-\mu)^\top\hat\Sigma^{-1}(\phi-\mu)}{2d}

        with :math:`\hat\Sigma = (1-\rho)\Sigma + \rho\,\frac{\operatorname{tr}\Sigma}{d} I` and
        :math:`\rho` from :func:`~oodzoo.linear.moments.oas_shrinkage` in scikit-learn's form. An
        average training sample has density zero, a domain at k times their distance about
        (1 - k²)/2.

        In the basis V of the Gram matrix, :math:`\hat\Sigma = K - (1-\rho)uu^\top` with diagonal K
        and :math:`u = V^\top\mu`, so the Sherman–Morrison formula gives the distance, with
        :math:`h = K^{-1}` and :math:`v = VK^{-1}u`; the covariance need not be decomposed, unless
        the features have a large offset, where the correction would cancel.

        d is the number of features. The moments may be of fewer coordinates; no sample varies in
        the other directions.
        """
        xp, mean = backend_of(kept.gram).xp, kept.mean
        zeros = xp.zeros_like(mean)
        if not kept.varies:
            return cls(mean, eigenvectors, zeros, zeros, expected=0.0, shrinkage=1.0)
        covariance = kept.covariance
        shrinkage = oas_shrinkage(covariance, kept.n, n_features=d)
        kept_share = 1 - shrinkage
        ridge = shrinkage * float(xp.linalg.trace(covariance)) / d
        if kept.centred is not None:
            variances, basis = backend_of(covariance).eigh(covariance)
            variances = xp.clip(variances, min=0.0)
            inverse = 1 / (kept_share * variances + ridge)
            direction, correction = zeros, 0.0
            expected = float(xp.sum(variances * inverse))
        else:
            basis, u = eigenvectors, mean @ eigenvectors
            inverse = 1 / (kept_share * spectrum.eigenvalues / kept.n + ridge)
            correction = kept_share / (1 - kept_share * float(xp.sum(u**2 * inverse)))
            direction, expected = basis @ (u * inverse), float(d)
            if kept_share > 0:  # tr(Σ̂⁻¹Σ) by way of tr Σ̂⁻¹, since (1-ρ)Σ = Σ̂ - ridge·I
                trace = float(xp.sum(inverse)) + correction * float(xp.sum((u * inverse) ** 2))
                expected = (kept.n_features - ridge * trace) / kept_share
        constant, scale = expected / (2 * d), 1 / (2 * d)
        return cls(
            mean, basis, inverse, direction, correction, constant, scale, expected, shrinkage
        )

    def of_samples(self, away: Array, turned: Array) -> Array:
        """Compute the log-density of each sample (n,), given its φ - μ and that in the basis."""
        distance = turned**2 @ self.inverse + self.correction * (away @ self.direction) ** 2
        return self.constant - self.scale * distance

    def of_moments(self, moments: Moments) -> float:
        """Compute the mean log-density of samples from their moments."""
        xp = backend_of(moments.gram).xp
        second = moments.about(self.mean).gram / moments.n
        variances = xp.sum(self.basis * (second @ self.basis), axis=0)
        along = float(self.direction @ (second @ self.direction))
        distance = float(variances @ self.inverse) + self.correction * along
        return self.constant - self.scale * distance

    def stability(self, mean: float) -> tuple[float, float]:
        r"""Compute the stability of a domain with this mean log-density, and its derivative.

        For the published formula it is the mean. Otherwise it is :math:`-\ln k`, where
        :math:`k^2` is the ratio of the mean squared distance of the domain to that of the training
        data, and k is at least 1: a domain closer to the centre than the training data (in the
        extreme case a single point) is not rewarded.
        """
        if self.expected is None:
            return mean, 1.0
        if self.expected <= 0:
            return 0.0, 0.0
        ratio = (self.constant - mean) / (self.scale * self.expected)
        if ratio <= 1:
            return 0.0, 0.0
        return -0.5 * math.log(ratio), 0.5 / (ratio * self.scale * self.expected)


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
class _Training:
    """Linear model and density of the training domains, in the basis of their Gram matrix."""

    held_out: tuple[str, ...]
    spectrum: Spectrum
    eigenvectors: Array
    precisions: Precisions
    path: RidgePath
    density: FeatureDensity
    classes: Array
    """Indices of the classes present in the training domains, or of the outputs that vary there."""
    label_shift: Array
    """What is subtracted from the labels (C,): zeros for classes, the mean for numbers."""


class HeldOutDomains:
    """The domains of a model, each held out in turn (Section 3.1 of the paper).

    For m domains this takes m + 1 eigendecompositions ("paper": m more). With a held-out domain set
    aside, as the paper evaluates a score (Appendix A.1), swapping held-out domain and held-out
    domain leaves the training domains the same, so all m (m - 1) folds take m (m - 1) / 2 + m
    eigendecompositions. Those of domains that are trained on together are done once and held in
    memory.

    Parameters
    ----------
    read : ModelMoments
    stability : {"robust", "paper"}
    task : Task
    densities : bool
        Whether to compute the log-densities of single samples, too; always for "paper".

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.tile([0, 1], 30)
    >>> data = {d: (np.stack([y, 1 - y], 1) + 0.1 * rng.normal(size=(60, 2)), y) for d in "abc"}
    >>> domains = {d: Moments.of(*data[d], n_classes=2) for d in data}
    >>> held_out = HeldOutDomains(ModelMoments(domains, lambda d: [data[d]]))
    >>> [(fold.domain, fold.metric) for fold in held_out.folds()]
    [('a', 1.0), ('b', 1.0), ('c', 1.0)]
    """

    def __init__(
        self,
        read: ModelMoments,
        *,
        stability: Stability = "robust",
        task: Task = CLASSIFICATION,
        densities: bool = False,
    ) -> None:
        require_stability(stability)
        self.read, self.stability, self.task = read, stability, task
        self.densities = densities or stability == "paper"
        self.backend = backend(read.device)
        self.moments = {name: moments.to(read.device) for name, moments in read.moments.items()}
        self.decomposed: dict[frozenset[str], _Decomposed] = {}
        self.trained: dict[frozenset[str], _Training] = {}
        if not self.moments:
            return
        first, *others = self.moments
        for name in others:
            mine, theirs = (tuple(self.moments[key].products.shape) for key in (first, name))
            if mine != theirs:
                raise InputError(
                    f"domain {first!r} has {mine[0]} features and {mine[1]} classes, but domain "
                    f"{name!r} has {theirs[0]} and {theirs[1]}; all moments must be of one model"
                )
        self.n_features = read.n_features or self.moments[first].n_features
        self.n_classes = self.moments[first].n_classes

    def folds(self, *test: str) -> list[HeldOutFold]:
        """The folds of each domain but one that is set aside: nothing is computed from it."""
        if len(self.moments) < (least := 2 + len(test)):
            raise InputError(
                f"at least {least} domains are needed to leave one out, got {len(self.moments)}: "
                f"{', '.join(map(repr, self.moments)) or 'none'}; oodzoo domains can propose them "
                "for a store"
            )
        union = self.without(test)
        shift, classes = self._labels(union.moments)
        spectrum = union.about(shift).take(classes)
        evidence = _per_sample(spectrum, maximise_evidence(spectrum))
        trained = {name: self.train((*test, name)) for name in self.moments if name not in test}
        # The ridge with the highest mean skill over held-out domains.
        by_output = not self.task.has_probabilities
        each = [t.path.skills(self.moments[d], by_output=by_output) for d, t in trained.items()]
        skills = np.stack(each)[~np.isnan([some[0] for some in each])]
        ridge = int(np.argmax(skills.mean(axis=0))) if len(skills) else 0
        return [
            self.fold(training, union, evidence, name, ridge) for name, training in trained.items()
        ]

    def without(self, held_out: Sequence[str]) -> _Decomposed:
        """All domains together but some, without the groups of these."""
        key = frozenset(held_out)
        if key not in self.decomposed:
            self.decomposed[key] = self.decompose(self.moments_without(held_out))
        return self.decomposed[key]

    def moments_without(self, held_out: Sequence[str]) -> Moments:
        names = [name for name in self.moments if name not in held_out]
        if not self.read.groups or not held_out:
            return merge(self.moments[name] for name in names)
        return merge(self.read.training(name, held_out).to(self.read.device) for name in names)

    def decompose(self, moments: Moments) -> _Decomposed:
        xp, n, centred = self.backend.xp, moments.n, moments.centred
        sums, squares = moments.label_sum, moments.label_squares
        products = moments.products if centred is None else centred.products
        numbers = not self.task.has_probabilities
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

    def train(self, held_out: tuple[str, ...]) -> _Training:
        """Train on all domains but some."""
        key = frozenset(held_out)
        if key in self.trained:
            return self.trained[key]
        decomposed = self.without(held_out)
        kept, spectrum, vectors = decomposed.moments, decomposed.spectrum, decomposed.eigenvectors
        if self.stability == "paper":
            density = FeatureDensity.paper(kept)
        else:
            density = FeatureDensity.robust(kept, spectrum, vectors, self.n_features)
        path = RidgePath.of_spectrum(kept, spectrum, vectors, self.n_features)
        shift, classes = self._labels(kept)
        if not len(classes):
            what = "labels" if self.task.has_probabilities else "numbers to predict"
            raise InputError(
                f"the {what} do not vary in the domains other than "
                f"{' and '.join(map(repr, held_out))}; add samples or domains, or leave these out"
            )
        spectrum = decomposed.about(shift).take(classes)
        precisions = maximise_evidence(spectrum)
        self.trained[key] = _Training(
            held_out, spectrum, vectors, precisions, path, density, classes, shift
        )
        return self.trained[key]

    def fold(
        self, training: _Training, union: _Decomposed, evidence: float, name: str, ridge: int
    ) -> HeldOutFold:
        labels, predicted, label_density, feature_density = self._second_pass(training, name, ridge)
        each = self.task.contributions(predicted, labels)
        classes = to_numpy(training.classes)
        if self.stability == "paper":  # from moments, rounding would be amplified
            density = float(feature_density.mean())
        else:
            density = training.density.of_moments(self.moments[name])
        stability, slope = training.density.stability(density)
        if self.read.groups:  # the union has groups that the training domains lack
            union = self.decompose(self.moments_without(training.held_out) + self.moments[name])
        spectrum, precisions = training.spectrum, training.precisions
        # log p(y_i | Φ_i, y_-i, Φ_-i), at the precisions of the training domains
        together = union.about(training.label_shift).take(training.classes)
        gain = log_evidence(together, precisions) - log_evidence(spectrum, precisions)
        alpha, beta = np.full((2, self.n_classes), np.nan)
        alpha[classes], beta[classes] = to_numpy(precisions.alpha), to_numpy(precisions.beta)
        return HeldOutFold(
            domain=name,
            n=self.moments[name].n,
            discriminability=float(self.backend.xp.mean(gain)) / (together.n - spectrum.n),
            stability=stability,
            stability_slope=slope,
            metric=float(each.mean()),
            second_metric=self.task.second_score(predicted, labels),
            alpha=alpha,
            beta=beta,
            skipped=tuple(sorted(set(range(self.n_classes)) - set(classes.tolist()))),
            unconverged=tuple(classes[~to_numpy(precisions.converged)].tolist()),
            ridge=ridge,
            evidence=evidence,
            training_evidence=_per_sample(spectrum, precisions),
            shrinkage=training.density.shrinkage,
            labels=labels,
            predicted=predicted,
            contributions=each,
            label_log_density=label_density,
            feature_log_density=feature_density,
        )

    def _second_pass(self, training: _Training, name: str, ridge: int) -> tuple[NDArray[Any], ...]:
        """Per sample: label, predicted label, and log-densities of the label and of the features.

        The densities are empty unless they are wanted.
        """
        predict = training.path.predict if self.task.one_class else training.path.outputs
        width, parts = training.eigenvectors.shape[0], []
        for features, labels in blocks(
            self.read.shards(name), self.n_classes, self.backend, context=f"domain {name!r}"
        ):
            if features.shape[1] != width:
                raise InputError(
                    f"domain {name!r}: the moments have {width} features, but the shards have "
                    f"{features.shape[1]}"
                )
            none = features[:0, 0]
            densities = (
                self._densities(training, features, labels) if self.densities else [none] * 2
            )
            outcome = (labels, predict(features, ridge), *densities)
            parts.append([to_numpy(array) for array in outcome])
        columns = tuple(np.concatenate(column) for column in zip(*parts, strict=True))
        n = len(columns[0]) if columns else 0
        if n != self.moments[name].n:
            raise InputError(
                f"domain {name!r}: the moments are of {count(self.moments[name].n, 'sample')}, "
                f"but the shards have {n}; return the same shards on every call"
            )
        return columns

    def _densities(self, training: _Training, features: Array, labels: Array) -> list[Array]:
        r"""Log-densities of the labels and of the features of some samples.

        Those of the labels, averaged over classes, are the marginals of the paper's Remark,
        :math:`y_{ij} \sim N(\phi_{ij}^\top m,\; \beta^{-1} + \phi_{ij}^\top A^{-1}\phi_{ij})`.
        In the eigenbasis V of the training domains the posterior :math:`N(m, A^{-1})` of the
        weights has :math:`V^\top m = t/(S+\delta)`, and the diagonal of :math:`V^\top A^{-1} V` is
        :math:`1/(\alpha + \beta S)`.
        """
        xp, precisions, density = self.backend.xp, training.precisions, training.density
        away = features - density.mean[None, :]
        turned = away @ density.basis
        if density.basis is training.eigenvectors:
            projected = turned + (density.mean @ density.basis)[None, :]
        else:
            projected = features @ training.eigenvectors
        kernel = 1 / (training.spectrum.eigenvalues[:, None] + precisions.ridge[None, :])
        # Y has a row of zeros for a class that the training domains lack.
        Y = label_matrix(labels, self.n_classes) - training.label_shift[None, :]
        predicted = projected @ (training.spectrum.projections.T * kernel)
        error = xp.take(Y, training.classes, axis=1) - predicted
        variance = (1 + projected**2 @ kernel) / precisions.beta[None, :]
        marginals = xp.log(2 * math.pi * variance) + error**2 / variance
        return [-0.5 * xp.mean(marginals, axis=1), density.of_samples(away, turned)]

    def _labels(self, moments: Moments) -> tuple[Array, Array]:
        """What to subtract from the labels, and the columns that are then not all zero."""
        xp = self.backend.xp
        if not self.task.has_probabilities:
            return moments.label_mean, xp.nonzero(moments.label_varies)[0]
        return xp.zeros_like(moments.label_sum), xp.nonzero(moments.label_sum)[0]


def _per_sample(spectrum: Spectrum, precisions: Precisions) -> float:
    """Log evidence per sample, averaged over classes."""
    evidence = log_evidence(spectrum, precisions)
    return float(backend_of(evidence).xp.mean(evidence)) / spectrum.n

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
from functools import cached_property
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
from oodzoo.ranking.transfer import ModelMoments, RidgeRegressions
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
    shrinkage : float or None
        Shrinkage of the covariance; None for "paper".
    labels : array (n,) or (n, C)
        Labels in the order of the shards; the arrays below have the same order.
    predicted : array (n,) or (n, C)
        Labels predicted by the ridge regression.
    contributions : array (n,)
        Contribution of each sample to `metric`; their mean is the metric.
    label_log_density, feature_log_density : array (n,)
        May be empty unless they are wanted.
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


class PooledDomains:
    """Some domains together, with linear models of them and a Gaussian.

    The moments are decomposed once, when this is first needed.

    Parameters
    ----------
    moments : Moments
    n_features : int
        The number of features, if the moments are of fewer coordinates.
    task : Task
    """

    def __init__(self, moments: Moments, n_features: int, task: Task) -> None:
        self.moments, self.n_features = moments, n_features
        self.by_output = not task.has_probabilities
        """Whether labels are numbers, each output in units of its own."""

    @cached_property
    def _decomposed(self) -> tuple[Spectrum, Array, Array | None]:
        """The spectrum of the labels, the eigenvectors V, and Vᵀ Φᵀ 1 if labels are numbers."""
        moments, xp = self.moments, backend_of(self.moments.gram).xp
        n, centred = moments.n, moments.centred
        sums, squares = moments.label_sum, moments.label_squares
        products = moments.products if centred is None else centred.products
        if self.by_output:  # ones are one more column of labels
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
        if not self.by_output:
            return spectrum, vectors, None
        labels = spectrum.take(xp.nonzero(xp.ones_like(moments.label_sum))[0])
        return labels, vectors, spectrum.projections[-1, :]

    @property
    def eigenvectors(self) -> Array:
        return self._decomposed[1]

    @cached_property
    def shift(self) -> Array:
        """What is subtracted from the labels (C,): zeros for classes, the mean for numbers."""
        mean = self.moments.label_mean
        return mean if self.by_output else backend_of(mean).xp.zeros_like(mean)

    @cached_property
    def classes(self) -> Array:
        """Indices of the classes that are present, or of the outputs that vary."""
        moments, xp = self.moments, backend_of(self.moments.gram).xp
        return xp.nonzero(moments.label_varies if self.by_output else moments.label_sum)[0]

    def spectrum_of(self, shift: Array, classes: Array) -> Spectrum:
        """The spectrum of some columns of the labels minus a shift (C,)."""
        spectrum, _, ones = self._decomposed
        if ones is not None:
            spectrum = spectrum.about(ones, shift, self.moments.label_squares_about(shift))
        return spectrum.take(classes)

    @cached_property
    def spectrum(self) -> Spectrum:
        return self.spectrum_of(self.shift, self.classes)

    @cached_property
    def precisions(self) -> Precisions:
        return maximise_evidence(self.spectrum)

    @cached_property
    def evidence(self) -> float:
        """Log evidence per sample, averaged over classes."""
        each = log_evidence(self.spectrum, self.precisions)
        return float(backend_of(each).xp.mean(each)) / self.moments.n

    @cached_property
    def path(self) -> RidgeRegressions:
        spectrum, vectors, _ = self._decomposed
        return RidgeRegressions.of_spectrum(self.moments, spectrum, vectors, self.n_features)

    @cached_property
    def robust_density(self) -> FeatureDensity:
        spectrum, vectors, _ = self._decomposed
        return FeatureDensity.robust(self.moments, spectrum, vectors, self.n_features)

    @cached_property
    def paper_density(self) -> FeatureDensity:
        return FeatureDensity.paper(self.moments)


class HeldOutDomains:
    """The domains of a model, each held out in turn (Section 3.1 of the paper).

    For m domains this takes m + 1 eigendecompositions ("paper": m more). With another domain
    set aside, as the paper evaluates a score (Appendix A.1), swapping the two leaves the training
    domains the same, so all m (m - 1) folds take m (m - 1) / 2 + m eigendecompositions. Each is
    done once, and held in memory.

    Parameters
    ----------
    read : ModelMoments
    stability : {"robust", "paper"}
    task : Task

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
    ) -> None:
        require_stability(stability)
        self.read, self.stability, self.task = read, stability, task
        self.moments = {name: moments.to(read.device) for name, moments in read.moments.items()}
        self._pooled: dict[frozenset[str], PooledDomains] = {}
        for name, moments in self.moments.items():
            first, known = next(iter(self.moments.items()))
            mine, theirs = tuple(known.products.shape), tuple(moments.products.shape)
            if mine != theirs:
                raise InputError(
                    f"domain {first!r} has {mine[0]} features and {mine[1]} classes, but domain "
                    f"{name!r} has {theirs[0]} and {theirs[1]}; all moments must be of one model"
                )

    def without(self, *held_out: str) -> PooledDomains:
        """All domains together but some, without the groups of these."""
        if len(self.moments) < (least := max(2, 1 + len(held_out))):
            raise InputError(
                f"at least {least} domains are needed to leave one out, got {len(self.moments)}: "
                f"{', '.join(map(repr, self.moments)) or 'none'}; oodzoo domains can propose them "
                "for a store"
            )
        key = frozenset(held_out)
        if key not in self._pooled:
            pooled = self._pool(self._training(held_out))
            if not len(pooled.classes):
                what = "numbers to predict" if pooled.by_output else "labels"
                raise InputError(
                    f"the {what} do not vary in the domains other than "
                    f"{' and '.join(map(repr, held_out))}; add samples or domains, or leave these "
                    "out"
                )
            self._pooled[key] = pooled
        return self._pooled[key]

    def evidence(self, *test: str) -> tuple[float, NDArray[np.float64]]:
        """LogME, the highest log evidence per sample: of all domains, and without each in turn.

        Nothing is computed from a domain that is set aside.
        """
        rest = [self.without(*test, name).evidence for name in self.moments if name not in test]
        return self.without(*test).evidence, np.array(rest)

    def folds(self, *test: str, densities: bool = False) -> list[HeldOutFold]:
        """The folds of each domain but one that is set aside: nothing is computed from it.

        `densities` says whether the log-densities of single samples are wanted.
        """
        together = self.without(*test)
        trained = {name: self.without(*test, name) for name in self.moments if name not in test}
        # The ridge with the highest mean skill over held-out domains.
        each = [t.path.skills(self.moments[d], by_output=t.by_output) for d, t in trained.items()]
        skills = np.stack(each)[~np.isnan([some[0] for some in each])]
        ridge = int(np.argmax(skills.mean(axis=0))) if len(skills) else 0
        folds = []
        for name, training in trained.items():
            if self.read.groups:  # all domains have groups that the training domains lack
                together = self._pool(self._training((*test, name)) + self.moments[name])
            folds.append(self._fold(training, together, name, ridge, densities))
        return folds

    def _training(self, held_out: Sequence[str]) -> Moments:
        names = [name for name in self.moments if name not in held_out]
        if not self.read.groups or not held_out:
            return merge(self.moments[name] for name in names)
        return merge(self.read.training(name, held_out).to(self.read.device) for name in names)

    def _pool(self, moments: Moments) -> PooledDomains:
        return PooledDomains(moments, self.read.n_features or moments.n_features, self.task)

    def _fold(
        self,
        training: PooledDomains,
        together: PooledDomains,
        name: str,
        ridge: int,
        densities: bool,
    ) -> HeldOutFold:
        """`together` are the training domains and the held-out one."""
        paper, held_out = self.stability == "paper", self.moments[name]
        density = training.paper_density if paper else training.robust_density
        # Of few samples, densities cost less than from moments; of the published form, moments
        # would amplify rounding.
        by_samples = densities or paper or held_out.n < held_out.n_features
        labels, predicted, *of_samples = self._second_pass(
            training, name, ridge, density if by_samples else None
        )
        mean = float(of_samples[1].mean()) if by_samples else density.of_moments(held_out)
        stability, slope = density.stability(mean)
        each = self.task.contributions(predicted, labels)
        precisions, classes = training.precisions, to_numpy(training.classes)
        # log p(y_i | Φ_i, y_-i, Φ_-i), at the precisions of the training domains
        union = together.spectrum_of(training.shift, training.classes)
        gain = log_evidence(union, precisions) - log_evidence(training.spectrum, precisions)
        alpha, beta = np.full((2, held_out.n_classes), np.nan)
        alpha[classes], beta[classes] = to_numpy(precisions.alpha), to_numpy(precisions.beta)
        return HeldOutFold(
            domain=name,
            n=held_out.n,
            discriminability=float(backend_of(gain).xp.mean(gain)) / held_out.n,
            stability=stability,
            stability_slope=slope,
            metric=float(each.mean()),
            second_metric=self.task.second_score(predicted, labels),
            alpha=alpha,
            beta=beta,
            skipped=tuple(sorted(set(range(held_out.n_classes)) - set(classes.tolist()))),
            unconverged=tuple(classes[~to_numpy(precisions.converged)].tolist()),
            ridge=ridge,
            shrinkage=density.shrinkage,
            labels=labels,
            predicted=predicted,
            contributions=each,
            label_log_density=of_samples[0],
            feature_log_density=of_samples[1],
        )

    def _second_pass(
        self, training: PooledDomains, name: str, ridge: int, density: FeatureDensity | None
    ) -> tuple[NDArray[Any], ...]:
        """Per sample: label, predicted label, and log-densities of the label and of the features.

        The log-densities are empty without a density.
        """
        predict = training.path.predict if self.task.one_class else training.path.outputs
        moments, parts = self.moments[name], []
        for features, labels in blocks(
            self.read.shards(name),
            moments.n_classes,
            backend(self.read.device),
            context=f"domain {name!r}",
        ):
            if features.shape[1] != moments.n_features:
                raise InputError(
                    f"domain {name!r}: the moments have {moments.n_features} features, but the "
                    f"shards have {features.shape[1]}"
                )
            densities = (features[:0, 0], features[:0, 0])
            if density is not None:
                densities = _log_densities(training, density, features, labels)
            outcome = (labels, predict(features, ridge), *densities)
            parts.append([to_numpy(array) for array in outcome])
        columns = tuple(np.concatenate(column) for column in zip(*parts, strict=True))
        n = len(columns[0]) if columns else 0
        if n != moments.n:
            raise InputError(
                f"domain {name!r}: the moments are of {count(moments.n, 'sample')}, but the shards "
                f"have {n}; return the same shards on every call"
            )
        return columns


def _log_densities(
    training: PooledDomains, density: FeatureDensity, features: Array, labels: Array
) -> tuple[Array, Array]:
    r"""Log-densities of the labels and of the features of some samples.

    Those of the labels, averaged over classes, are the marginals of the paper's Remark,
    :math:`y_{ij} \sim N(\phi_{ij}^\top m,\; \beta^{-1} + \phi_{ij}^\top A^{-1}\phi_{ij})`. In the
    eigenbasis V of the training domains the posterior :math:`N(m, A^{-1})` of the weights has
    :math:`V^\top m = t/(S+\delta)`, and the diagonal of :math:`V^\top A^{-1} V` is
    :math:`1/(\alpha + \beta S)`.
    """
    xp, precisions, spectrum = backend_of(features).xp, training.precisions, training.spectrum
    away = features - density.mean[None, :]
    turned = away @ density.basis
    if density.basis is training.eigenvectors:
        projected = turned + (density.mean @ density.basis)[None, :]
    else:
        projected = features @ training.eigenvectors
    kernel = 1 / (spectrum.eigenvalues[:, None] + precisions.ridge[None, :])
    # Y has a row of zeros for a class that the training domains lack.
    Y = label_matrix(labels, len(training.shift)) - training.shift[None, :]
    error = xp.take(Y, training.classes, axis=1) - projected @ (spectrum.projections.T * kernel)
    variance = (1 + projected**2 @ kernel) / precisions.beta[None, :]
    marginals = xp.log(2 * math.pi * variance) + error**2 / variance
    return -0.5 * xp.mean(marginals, axis=1), density.of_samples(away, turned)

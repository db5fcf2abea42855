r"""Rescale features and targets to the units that the spike-and-slab priors expect.

The priors of :mod:`oodzoo.linear.selection.spike_slab` expect weights and noise of order 1; in
other units the same data would select everything or nothing. So features are centred and divided by
their standard deviations, and a centred target is multiplied by c,

.. math:: c^2 = \hat\alpha \max\bigl(1, \min(\rho\hat\beta/\hat\alpha, \tau s)\bigr), \qquad
          \rho = \tfrac52, \quad \tau = \tfrac92 \bigl(1 + \max(0, 1 - \tfrac dn)\bigr),

with the precisions of weights and noise that maximise the evidence of the plain Bayesian linear
model (:mod:`oodzoo.linear.evidence`), and the share s of the features that the selection itself
finds in the slab, beginning with one half (:meth:`ScaledProblem.rescaled`).

- Where weights are larger than the noise, as in the paper's simulation, :math:`\tau s\hat\alpha`
  determines c: :math:`1/\hat\alpha` is the mean square of all weights, so that of a weight in the
  slab is :math:`1/(s\hat\alpha)`, and c makes it τ. For n ≤ d this is its value in that simulation
  (weights are uniform from 1 to 3, and the smallest are missed); more samples can tell smaller
  weights from zero. The noise is 1 there, too, but where d is close to n the data do not tell how
  large it is: :math:`\hat\beta` is between 0.3 and 2,500. α̂ and s vary by a few percent.
- Where thousands of weights, each far smaller than the noise, describe a class together, as with
  features of pre-trained models, α̂ determines c. Only to tell these cases apart is
  :math:`\rho\hat\beta` there.

Moments are sufficient, and the mask does not depend on any unit. Choosing c by the variational
bound was tried: it keeps nearly all features.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace

from oodzoo.core.backend import Array, backend, backend_of
from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.linear.evidence import (
    Precisions,
    Spectrum,
    decompose,
    decompose_samples,
    maximise_evidence,
)
from oodzoo.linear.moments import Moments
from oodzoo.linear.selection.spike_slab import Data, SampleData

_ROUNDING = 1e-12
"""Share of a sum of squares below which the remainder after centring is rounding error."""

_NOISE_FACTOR = 2.5
_SLAB_SQUARE = 4.5
"""τ for n ≤ d."""
_FIRST_SHARE = 0.5

_SAME = 0.01
"""A factor that changes by less than this share of itself is kept."""


def _evidence(p: Precisions, share: Array | float, n: int, d: int) -> Array:
    xp = backend_of(p.beta).xp
    square = _SLAB_SQUARE * (1 + max(0.0, 1 - d / n))
    by_slab = xp.minimum(_NOISE_FACTOR * p.beta, square * share * p.alpha)
    return xp.sqrt(xp.maximum(p.alpha, by_slab))


RULES: dict[str, Callable[[Precisions, Array | float, int, int], Array]] = {
    "evidence": _evidence,
    "weights": lambda p, *_: backend_of(p.beta).xp.sqrt(p.alpha),
    "noise": lambda p, *_: backend_of(p.beta).xp.sqrt(p.beta),
    "none": lambda p, *_: backend_of(p.beta).xp.ones_like(p.beta),
}
"""Rules for c. With "none", features are not divided by their standard deviations either.
"weights" selects too little where weights are large, "noise" nothing on one-hot targets."""


@dataclass(frozen=True, eq=False)
class TargetMoments:
    """Moments of features Φ (n × d) and real-valued targets Y (n × C).

    Attributes
    ----------
    n : int
    feature_sum : array (d,)
    gram : array (d, d)
    products : array (d, C)
        ΦᵀY.
    target_sum, squares : array (C,)
        Sum and sum of squares of each target.
    """

    n: int
    feature_sum: Array
    gram: Array
    products: Array
    target_sum: Array
    squares: Array

    @classmethod
    def of(cls, features: Array, targets: Array, *, device: str | None = None) -> TargetMoments:
        """Compute the moments of arrays."""
        be = backend(device)
        X, Y = be.float64(features), be.float64(targets)
        xp = be.xp
        return cls(
            n=int(X.shape[0]),
            feature_sum=xp.sum(X, axis=0),
            gram=be.gram(X),
            products=X.T @ Y,
            target_sum=xp.sum(Y, axis=0),
            squares=xp.sum(Y**2, axis=0),
        )

    @classmethod
    def of_labels(cls, moments: Moments) -> TargetMoments:
        """Convert the moments of labels minus their mean; those of classes are one-hot targets."""
        mean = moments.label_mean
        return cls(
            n=moments.n,
            feature_sum=moments.feature_sum,
            gram=moments.gram,
            products=moments.products - moments.feature_sum[:, None] * mean[None, :],
            target_sum=backend_of(mean).xp.zeros_like(mean),
            squares=moments.label_scatter,
        )

    def __add__(self, other: TargetMoments) -> TargetMoments:
        """Combine the moments of two sets of samples."""
        if not isinstance(other, TargetMoments):
            return NotImplemented
        if tuple(self.products.shape) != tuple(other.products.shape):
            raise InputError(
                f"cannot add moments of {tuple(self.products.shape)} features and targets and "
                f"moments of {tuple(other.products.shape)}"
            )
        return TargetMoments(self.n + other.n, *map(operator.add, self._arrays, other._arrays))

    def to(self, device: str | None) -> TargetMoments:
        """Move the moments to a PyTorch device, or to NumPy if None, in float64."""
        return TargetMoments(self.n, *map(backend(device).float64, self._arrays))

    @property
    def _arrays(self) -> tuple[Array, ...]:
        return self.feature_sum, self.gram, self.products, self.target_sum, self.squares

    def check(self) -> None:
        """Raise an InputError if shapes do not match or a value is not finite."""
        d, c = tuple(self.products.shape)
        expected = {"feature_sum": (d,), "gram": (d, d), "target_sum": (c,), "squares": (c,)}
        for name, shape in (expected | {"products": (d, c)}).items():
            array = getattr(self, name)
            if tuple(array.shape) != shape:
                raise InputError(
                    f"moments of {count(d, 'feature')} and {count(c, 'target')}: {name} must have "
                    f"the shape {shape}, got {tuple(array.shape)}"
                )
            xp = backend_of(array).xp
            if not bool(xp.all(xp.isfinite(array))):
                raise InputError(f"moments: {name} contains NaN or infinite values")


@dataclass(frozen=True, eq=False)
class ScaledProblem:
    """The features and targets that vary, rescaled for the priors.

    Attributes
    ----------
    data : Data or SampleData
        The d' features and C' targets that vary; n is reduced by one after centring.
    start : array (d', C')
        Ridge weights at the precisions of maximal evidence.
    features, targets : array of bool (d,), (C,)
        Masks of the features and targets that vary.
    divisors : array (d',)
        Divisor of each feature.
    factors : array (C',)
        Factor c of each target.
    correlations : array (d', C')
    rule : str
    precisions : Precisions
        Those of maximal evidence, of the targets without the factor.
    """

    data: Data | SampleData
    start: Array
    features: Array
    targets: Array
    divisors: Array
    factors: Array
    correlations: Array
    rule: str
    precisions: Precisions

    def rescaled(self, share: Array) -> ScaledProblem:
        """The problem with the factors for these shares of features in the slab (C',).

        It is this one if no factor changes.
        """
        xp = backend_of(share).xp
        factors = RULES[self.rule](self.precisions, share, self.data.n, self.start.shape[0])
        ratio = factors / self.factors
        ratio = xp.where(xp.abs(ratio - 1) > _SAME, ratio, xp.ones_like(ratio))
        if bool(xp.all(ratio == 1)):
            return self
        return replace(
            self,
            data=self.data.scaled(ratio),
            start=self.start * ratio[None, :],
            factors=self.factors * ratio,
        )


def scale_moments(
    moments: TargetMoments, *, rule: str = "evidence", centre: bool = True
) -> ScaledProblem | None:
    """Rescale moments for the priors; None if no feature or no target varies."""
    xp = backend_of(moments.gram).xp
    gram, products, squares = moments.gram, moments.products, moments.squares
    if centre:
        mean = moments.feature_sum / moments.n
        gram = gram - mean[:, None] * moments.feature_sum[None, :]
        products = products - mean[:, None] * moments.target_sum[None, :]
        squares = squares - moments.target_sum**2 / moments.n
    energies = xp.linalg.diagonal(gram)
    features = energies > _ROUNDING * xp.linalg.diagonal(moments.gram)
    targets = squares > _ROUNDING * moments.squares
    (rows,), (columns,) = xp.nonzero(features), xp.nonzero(targets)
    if not rows.shape[0] or not columns.shape[0]:
        return None
    if rows.shape[0] < features.shape[0]:
        gram = xp.take(xp.take(gram, rows, axis=0), rows, axis=1)
    products = xp.take(xp.take(products, rows, axis=0), columns, axis=1)
    squares, energies = xp.take(squares, columns), xp.take(energies, rows)
    n = moments.n - 1 if centre else moments.n
    divisors = xp.sqrt(energies / n) if rule != "none" else xp.ones_like(energies)
    gram = gram / divisors[:, None] / divisors[None, :]
    products = products / divisors[:, None]
    correlations = products / xp.sqrt(xp.linalg.diagonal(gram)[:, None] * squares[None, :])
    spectrum, vectors = decompose(gram, products, squares, n)
    precisions, factors, shrunk = _ridge(spectrum, rule, int(rows.shape[0]))
    start = vectors @ (spectrum.projections * shrunk).T
    data: Data | SampleData
    if 2 * int(xp.count_nonzero(spectrum.eigenvalues)) <= rows.shape[0]:
        data = _fewest_samples(spectrum, vectors)
    else:
        data = Data(gram, products, squares, n)
    return ScaledProblem(
        data.scaled(factors),
        start,
        features,
        targets,
        divisors,
        factors,
        correlations,
        rule,
        precisions,
    )


def scale_samples(
    features: Array, targets: Array, *, rule: str = "evidence", centred: bool = True
) -> ScaledProblem | None:
    """Rescale features (n, d) and targets (n, C) like :func:`scale_moments`; cheaper for n < d.

    `centred` says whether they have been centred.
    """
    xp = backend_of(features).xp
    energies, squares = xp.sum(features**2, axis=0), xp.sum(targets**2, axis=0)
    varying, signals = energies > 0, squares > 0
    (rows,), (columns,) = xp.nonzero(varying), xp.nonzero(signals)
    if not rows.shape[0] or not columns.shape[0]:
        return None
    X, Y = xp.take(features, rows, axis=1), xp.take(targets, columns, axis=1)
    energies, squares = xp.take(energies, rows), xp.take(squares, columns)
    n = int(features.shape[0]) - (1 if centred else 0)
    divisors = xp.sqrt(energies / n) if rule != "none" else xp.ones_like(energies)
    X = X / divisors[None, :]
    correlations = (X.T @ Y) * (divisors / xp.sqrt(energies))[:, None] / xp.sqrt(squares)[None, :]
    spectrum, vectors = decompose_samples(X, Y, n)
    precisions, factors, shrunk = _ridge(spectrum, rule, int(rows.shape[0]))
    start = X.T @ (vectors @ (shrunk * (Y.T @ vectors)).T)
    data = SampleData(X, Y, n).scaled(factors)
    return ScaledProblem(
        data, start, varying, signals, divisors, factors, correlations, rule, precisions
    )


def _ridge(spectrum: Spectrum, rule: str, d: int) -> tuple[Precisions, Array, Array]:
    """Precisions and factors of the targets (C,), and shrinkage along each eigenvector (C, d)."""
    precisions = maximise_evidence(spectrum)
    factors = RULES[rule](precisions, _FIRST_SHARE, spectrum.n, d)
    ridges = spectrum.eigenvalues[None, :] + precisions.ridge[:, None]
    return precisions, factors, factors[:, None] / ridges


def _fewest_samples(spectrum: Spectrum, vectors: Array) -> SampleData:
    """The fewest samples with the same moments: one per non-zero eigenvalue, and one more."""
    xp = backend_of(vectors).xp
    (some,) = xp.nonzero(spectrum.eigenvalues)
    roots = xp.sqrt(xp.take(spectrum.eigenvalues, some))
    features = roots[:, None] * xp.take(vectors, some, axis=1).T
    targets = (xp.take(spectrum.projections, some, axis=1) / roots[None, :]).T
    # The part of a target that no feature explains, as a sample whose features are zero.
    features = xp.concat([features, xp.zeros_like(features[:1, :])])
    targets = xp.concat([targets, xp.sqrt(spectrum.residuals)[None, :]])
    return SampleData(features, targets, spectrum.n)

r"""Features and targets on the scale that the priors of the selection are meant for.

The priors of :mod:`oodzoo.selection.spike_slab` speak of weights near 1 and noise near 1; with other units of a
target or a feature the same data would select everything or nothing. So features are centred and
divided by their deviations, and a centred target is multiplied by c,

.. math:: c^2 = \max\bigl(\hat\alpha, \min(\rho\hat\beta, \kappa\hat\alpha)\bigr), \qquad
          \rho = \tfrac54\bigl(1 + \max(0, 1 - \tfrac dn)\bigr), \quad
          \kappa = 3 + \tfrac1{10}\max(0, n - d),

with the precisions of weights and noise at which the evidence of the plain Bayesian linear model
(:mod:`oodzoo.evidence`) is greatest. It makes the smaller of the noise and of the typical weight
about 1: the noise where weights stand out of it, as in the paper's simulation, and the weights
where thousands of them, each far smaller than the noise, make up a class together, as with
models. κ is for data with about as many features as samples, which the evidence now and then
believes to be free of noise. The constants in ρ and κ were chosen on the paper's simulation;
models are not affected by them, for there the weights decide. All of it follows from moments,
and the mask does not depend on any unit. Choosing c by the variational bound was tried: it keeps
nearly everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oodzoo.backend import Array, backend, backend_of
from oodzoo.errors import InputError
from oodzoo.evidence import Precisions, Spectrum, decompose, decompose_samples, maximise_evidence
from oodzoo.moments import Moments
from oodzoo.selection.spike_slab import Data, SampleData

_ROUNDING = 1e-12
"""Share of a sum of squares below which what is left after centring is rounding."""

_NOISE_FACTOR = 1.25
_LEAST_CAP, _SAMPLES_PER_CAP = 3.0, 10.0


def _evidence(p: Precisions, n: int, d: int) -> Array:
    xp = backend_of(p.beta).xp
    factor = _NOISE_FACTOR * (1 + max(0.0, 1 - d / n))
    cap = _LEAST_CAP + max(0, n - d) / _SAMPLES_PER_CAP
    return xp.sqrt(xp.maximum(p.alpha, xp.minimum(factor * p.beta, cap * p.alpha)))


RULES: dict[str, Callable[[Precisions, int, int], Array]] = {
    "evidence": _evidence,
    "weights": lambda p, n, d: backend_of(p.beta).xp.sqrt(p.alpha),
    "noise": lambda p, n, d: backend_of(p.beta).xp.sqrt(p.beta),
    "none": lambda p, n, d: backend_of(p.beta).xp.ones_like(p.beta),
}
"""By what a target is multiplied; with "none" features are not divided by their deviations either.
"weights" finds too little where weights are large, "noise" nothing on one-hot targets."""


@dataclass(frozen=True, eq=False)
class TargetMoments:
    """Moments of features Φ (n × d) and targets Y (n × C) of any kind.

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
        """Moments of features and targets in memory."""
        where = backend(device)
        X, Y = where.float64(features), where.float64(targets)
        xp = where.xp
        return cls(
            n=int(X.shape[0]),
            feature_sum=xp.sum(X, axis=0),
            gram=where.gram(X),
            products=X.T @ Y,
            target_sum=xp.sum(Y, axis=0),
            squares=xp.sum(Y**2, axis=0),
        )

    @classmethod
    def of_classes(cls, moments: Moments) -> TargetMoments:
        """The moments of one-hot labels, seen as targets."""
        return cls(
            n=moments.n,
            feature_sum=moments.feature_sum,
            gram=moments.gram,
            products=moments.class_sums,
            target_sum=moments.class_counts,
            squares=moments.class_counts,
        )

    def __add__(self, other: TargetMoments) -> TargetMoments:
        """Moments of both sets of samples together."""
        if not isinstance(other, TargetMoments):
            return NotImplemented
        if tuple(self.products.shape) != tuple(other.products.shape):
            raise InputError(
                f"moments of {tuple(self.products.shape)} features and targets cannot be added to "
                f"moments of {tuple(other.products.shape)}"
            )
        mine, theirs = (
            (m.feature_sum, m.gram, m.products, m.target_sum, m.squares) for m in (self, other)
        )
        return TargetMoments(self.n + other.n, *(a + b for a, b in zip(mine, theirs, strict=True)))

    def to(self, device: str | None) -> TargetMoments:
        """The same moments on a device (None: NumPy), in float64."""
        float64 = backend(device).float64
        return TargetMoments(
            self.n,
            feature_sum=float64(self.feature_sum),
            gram=float64(self.gram),
            products=float64(self.products),
            target_sum=float64(self.target_sum),
            squares=float64(self.squares),
        )

    def check(self) -> None:
        """Raise an InputError where shapes do not fit each other or a number is not finite."""
        d, c = tuple(self.products.shape)
        expected = {
            "feature_sum": (d,),
            "gram": (d, d),
            "target_sum": (c,),
            "squares": (c,),
            "products": (d, c),
        }
        for name, shape in expected.items():
            array = getattr(self, name)
            if tuple(array.shape) != shape:
                raise InputError(
                    f"moments of {d} features and {c} targets: {name} must have the shape {shape}, "
                    f"not {tuple(array.shape)}"
                )
            xp = backend_of(array).xp
            if not bool(xp.all(xp.isfinite(array))):
                raise InputError(f"moments: {name} holds NaN or infinite values")


@dataclass(frozen=True, eq=False)
class Scaled:
    """Features and targets that vary, on the scale of the priors.

    Attributes
    ----------
    data : Data or SampleData
        Of the features and targets below only; n is less by one for the mean of the target.
    start : array (d', C')
        Ridge weights at the precisions of greatest evidence.
    features, targets : array of bool (d,), (C,)
        Which of them vary; of the others nothing can be learned.
    divisors : array (d',)
        What each feature was divided by.
    factors : array (C',)
        What each target was multiplied by.
    correlations : array (d', C')
    """

    data: Data | SampleData
    start: Array
    features: Array
    targets: Array
    divisors: Array
    factors: Array
    correlations: Array


def scaled(moments: TargetMoments, *, rule: str = "evidence", centre: bool = True) -> Scaled | None:
    """Put moments on the scale of the priors; None if no feature or no target varies."""
    where = backend_of(moments.gram)
    xp = where.xp
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
    factors, shrunk = _ridge(spectrum, rule, int(rows.shape[0]))
    start = vectors @ (spectrum.projections * shrunk).T
    data: Data | SampleData
    if 2 * int(xp.count_nonzero(spectrum.eigenvalues)) <= rows.shape[0]:
        data = _few_samples(spectrum, vectors, factors)
    else:
        data = Data(gram, products * factors[None, :], squares * factors**2, n)
    return Scaled(data, start, features, targets, divisors, factors, correlations)


def scaled_samples(
    features: Array, targets: Array, *, rule: str = "evidence", centred: bool = True
) -> Scaled | None:
    """The same from samples, which costs less where they are fewer than features.

    Parameters
    ----------
    features : array (n, d)
    targets : array (n, C)
    rule : str
    centred : bool
        Whether their means were taken off features and targets; else they are not.
    """
    where = backend_of(features)
    xp = where.xp
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
    factors, shrunk = _ridge(spectrum, rule, int(rows.shape[0]))
    start = X.T @ (vectors @ (shrunk * (Y.T @ vectors)).T)
    data = SampleData(X, Y * factors[None, :], n)
    return Scaled(data, start, varying, signals, divisors, factors, correlations)


def _ridge(spectrum: Spectrum, rule: str, d: int) -> tuple[Array, Array]:
    """The factor of each target (C,), and by what ridge weights shrink each direction (C, d)."""
    precisions = maximise_evidence(spectrum)
    factors = RULES[rule](precisions, spectrum.n, d)
    ridges = spectrum.eigenvalues[None, :] + precisions.ridge[:, None]
    return factors, factors[:, None] / ridges


def _few_samples(spectrum: Spectrum, vectors: Array, factors: Array) -> SampleData:
    """As many samples as there are directions, and one more, with the moments of all the data."""
    xp = backend_of(vectors).xp
    (some,) = xp.nonzero(spectrum.eigenvalues)
    roots = xp.sqrt(xp.take(spectrum.eigenvalues, some))
    features = roots[:, None] * xp.take(vectors, some, axis=1).T
    targets = (xp.take(spectrum.projections, some, axis=1) / roots[None, :]).T
    # What no feature can explain of a target, in a sample without features.
    features = xp.concat([features, xp.zeros_like(features[:1, :])])
    targets = xp.concat([targets, xp.sqrt(spectrum.residuals)[None, :]])
    return SampleData(features, targets * factors[None, :], spectrum.n)

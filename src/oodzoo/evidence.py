r"""The Bayesian linear model: evidence, and the precisions that maximise it.

For one class with one-hot labels y and features :math:`\Phi` (n × d), the paper (Section 3.1,
Appendix B.2–B.3) takes :math:`w \sim N(0, \alpha^{-1} I)` and
:math:`y \mid w \sim N(\Phi w, \beta^{-1} I)`. With :math:`G = \Phi^\top\Phi = V S V^\top`,
:math:`t = V^\top \Phi^\top y` and the ridge :math:`\delta = \alpha/\beta`, the log evidence is

.. math::

    \tfrac n2 \ln\tfrac{\beta}{2\pi} - \tfrac\beta2 q(\delta)
    - \tfrac12 \sum_{k=1}^d \ln(1 + S_k/\delta),
    \qquad q(\delta) = r + \sum_k e_k \frac{\delta}{S_k + \delta},
    \quad e_k = \frac{t_k^2}{S_k}, \quad r = y^\top y - \sum_k e_k,

which is the paper's formula with :math:`\beta\|y-\Phi m\|^2 + \alpha\|m\|^2 = \beta q` put in and
:math:`\frac d2 \ln\alpha` drawn into the determinant: a direction in which the features do not
vary adds nothing, so the value is exact for n < d too. All summands of q are positive, r being the
residual of least squares, so nothing cancels however well the labels are fitted.

The paper's fixed point :math:`\alpha = \gamma/\|m\|^2`, :math:`\beta = (n-\gamma)/\|y-\Phi m\|^2`
depends on :math:`\delta` alone, and holds exactly where the evidence, with
:math:`\beta = n/q(\delta)`, is stationary in :math:`\ln\delta`. One unknown per class is left, and
is found by Newton's method from the best point of a grid: the highest maximum, in about ten steps,
and independent of the scale of the features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from oodzoo.backend import Array, backend_of
from oodzoo.errors import InputError

TOLERANCE = 1e-10
"""Precisions are converged when they move by less than this in logarithm."""

MAX_ITERATIONS = 200

NOISE_FLOOR = 1e-6
"""Least :math:`1/\\beta` as a share of the mean square of y. Labels that the features reproduce
exactly would send :math:`\\beta` to infinity, and rounding errors with it."""

RIDGE_RANGE = (1e-12, 1e6)
"""Range of :math:`\\delta = \\alpha/\\beta` as a share of the largest eigenvalue. At the upper end
the features are found to say nothing about the class."""

_STEPS_PER_DECADE = 8


@dataclass(frozen=True, eq=False)
class Spectrum:
    """What the evidence needs of features and targets: O(d) numbers for each class.

    Attributes
    ----------
    n : int
    eigenvalues : array (d,)
        S of the Gram matrix; zero where they cannot be told from rounding.
    projections : array (C, d)
        t of each class.
    energies : array (C, d)
        e of each class; zero where S is.
    residuals : array (C,)
        r of each class.
    squares : array (C,)
        :math:`y^\\top y` of each class.
    """

    n: int
    eigenvalues: Array
    projections: Array
    energies: Array
    residuals: Array
    squares: Array

    def take(self, classes: Array) -> Spectrum:
        """The spectrum with only the classes of these numbers."""
        xp = backend_of(self.squares).xp
        return Spectrum(
            self.n,
            self.eigenvalues,
            xp.take(self.projections, classes, axis=0),
            xp.take(self.energies, classes, axis=0),
            xp.take(self.residuals, classes),
            xp.take(self.squares, classes),
        )


@dataclass(frozen=True, eq=False)
class Precisions:
    """Precision α of the weights and β of the noise, of each class.

    Attributes
    ----------
    alpha, beta : array (C,)
        α is infinite where all features are zero: nothing can then be learned from them.
    converged : array of bool (C,)
    iterations : int
    """

    alpha: Array
    beta: Array
    converged: Array
    iterations: int

    @property
    def ridge(self) -> Array:
        """δ = α/β of each class."""
        return self.alpha / self.beta


def decompose(gram: Array, targets: Array, squares: Array, n: int) -> tuple[Spectrum, Array]:
    """Spectrum and eigenvectors (columns of V).

    Parameters
    ----------
    gram : array (d, d)
    targets : array (d, C)
        :math:`\\Phi^\\top Y`; Y need not be one-hot.
    squares : array (C,)
        Diagonal of :math:`Y^\\top Y`.
    n : int
    """
    backend = backend_of(gram)
    xp = backend.xp
    eigenvalues, eigenvectors = backend.eigh(gram)
    # Below the error of the decomposition an eigenvalue is rounding. As zero it is exact for
    # features that are linearly dependent (always so for n < d), and the same on every backend.
    rounding = gram.shape[0] * xp.finfo(xp.float64).eps * eigenvalues[-1]
    zeros = xp.zeros_like(eigenvalues)
    varying = eigenvalues > rounding
    eigenvalues = xp.where(varying, eigenvalues, zeros)
    # Targets cannot be aligned with a direction that no sample has.
    projections = xp.where(varying[None, :], targets.T @ eigenvectors, zeros[None, :])
    energies = projections**2 / xp.where(varying, eigenvalues, xp.ones_like(eigenvalues))[None, :]
    residuals = xp.clip(squares - xp.sum(energies, axis=1), min=0.0)
    if int(xp.count_nonzero(varying)) >= n:  # least squares reproduces any labels
        residuals = xp.zeros_like(residuals)
    return Spectrum(n, eigenvalues, projections, energies, residuals, squares), eigenvectors


def decompose_samples(features: Array, targets: Array, n: int) -> tuple[Spectrum, Array]:
    """Spectrum from the samples, without the directions that none of them has; and U of ΦΦᵀ = USUᵀ.

    With fewer samples than features ΦΦᵀ is smaller than ΦᵀΦ, and has the same eigenvalues but
    zeros. :math:`V = \\Phi^\\top U S^{-1/2}`.

    Parameters
    ----------
    features : array (rows, d)
    targets : array (rows, C)
    n : int
        Rows, less one if their mean was taken off them.
    """
    backend = backend_of(features)
    xp = backend.xp
    eigenvalues, vectors = backend.eigh(backend.gram(features.T))
    rounding = max(features.shape) * xp.finfo(xp.float64).eps * eigenvalues[-1]
    varying = eigenvalues > rounding
    eigenvalues = xp.where(varying, eigenvalues, xp.zeros_like(eigenvalues))
    shares = xp.where(varying[None, :], targets.T @ vectors, xp.zeros_like(eigenvalues)[None, :])
    squares = xp.sum(targets**2, axis=0)
    residuals = xp.clip(squares - xp.sum(shares**2, axis=1), min=0.0)
    if int(xp.count_nonzero(varying)) >= n:  # least squares reproduces any labels
        residuals = xp.zeros_like(residuals)
    projections = shares * xp.sqrt(eigenvalues)[None, :]
    return Spectrum(n, eigenvalues, projections, shares**2, residuals, squares), vectors


def log_evidence(spectrum: Spectrum, precisions: Precisions) -> Array:
    """Log evidence of each class for given precisions, exact for any n and d, (C,)."""
    xp = backend_of(spectrum.squares).xp
    ratios = spectrum.eigenvalues[None, :] / precisions.ridge[:, None]
    quadratic = spectrum.residuals + xp.sum(spectrum.energies / (1 + ratios), axis=1)
    determinant = xp.sum(xp.log1p(ratios), axis=1)
    beta = precisions.beta
    return 0.5 * (spectrum.n * xp.log(beta / (2 * math.pi)) - beta * quadratic - determinant)


def maximise_evidence(spectrum: Spectrum) -> Precisions:
    """Precisions of greatest evidence, of each class.

    Where the evidence grows without end, the answer is at a bound: :data:`NOISE_FLOOR` for labels
    that are fitted perfectly, :data:`RIDGE_RANGE` for features that say nothing.

    Raises
    ------
    InputError
        A class has no sample; its evidence is not defined.
    """
    backend = backend_of(spectrum.squares)
    xp = backend.xp
    if not bool(xp.all(spectrum.squares > 0)):
        raise InputError("a class without any sample has no evidence; leave it out")
    largest = float(xp.max(spectrum.eigenvalues))
    if largest == 0:
        nothing = xp.full_like(spectrum.squares, math.inf)
        known = xp.ones_like(spectrum.squares, dtype=xp.bool)
        return Precisions(nothing, spectrum.n / spectrum.squares, known, 0)
    ascent = _Ascent(spectrum)
    x, lower, upper = ascent.start(largest)
    moving = xp.ones_like(x, dtype=xp.bool)
    iterations = 0
    while iterations < MAX_ITERATIONS and bool(xp.any(moving)):
        iterations += 1
        rises, newton = ascent.step(x)
        lower, upper = xp.where(rises, x, lower), xp.where(rises, upper, x)
        # A step that leaves the bracket by less than the tolerance is as good as one that ends it.
        inside = (newton > lower - TOLERANCE) & (newton < upper + TOLERANCE)
        following = xp.where(inside, newton, 0.5 * (lower + upper))
        following = xp.where(moving, following, x)
        moving = xp.abs(following - x) >= TOLERANCE
        x = following
    ridge = xp.exp(x)
    beta = spectrum.n / ascent.quadratic(ridge)
    return Precisions(ridge * beta, beta, ~moving, iterations)


class _Ascent:
    """The evidence of each class as a function of x = ln δ, with β = n/q(δ)."""

    def __init__(self, spectrum: Spectrum) -> None:
        self.backend = backend_of(spectrum.squares)
        self.spectrum = spectrum
        self.floor = NOISE_FLOOR * spectrum.squares

    def quadratic(self, ridge: Array) -> Array:
        """q(δ), floored; one δ for each class."""
        xp, spectrum = self.backend.xp, self.spectrum
        left = 1 / (1 + spectrum.eigenvalues[None, :] / ridge[:, None])
        q = spectrum.residuals + xp.sum(spectrum.energies * left, axis=1)
        return xp.maximum(q, self.floor)

    def start(self, largest: float) -> tuple[Array, Array, Array]:
        """The best point of a grid common to all classes, and its neighbours."""
        xp, spectrum = self.backend.xp, self.spectrum
        low, high = (math.log(largest * share) for share in RIDGE_RANGE)
        count = 1 + round((high - low) / math.log(10) * _STEPS_PER_DECADE)
        grid = xp.linspace(low, high, count, dtype=xp.float64, device=self.backend.device)
        ratios = spectrum.eigenvalues[:, None] / xp.exp(grid)[None, :]
        q = spectrum.residuals[:, None] + spectrum.energies @ (1 / (1 + ratios))
        determinant = xp.sum(xp.log1p(ratios), axis=0)
        values = -spectrum.n * xp.log(xp.maximum(q, self.floor[:, None])) - determinant[None, :]
        best, last = xp.argmax(values, axis=1), count - 1
        neighbours = (best, xp.clip(best - 1, 0, last), xp.clip(best + 1, 0, last))
        x, lower, upper = (xp.take(grid, index) for index in neighbours)
        return x, lower, upper

    def step(self, x: Array) -> tuple[Array, Array]:
        """Whether the evidence rises with x, and Newton's next x."""
        xp, spectrum = self.backend.xp, self.spectrum
        ratios = spectrum.eigenvalues[None, :] / xp.exp(x)[:, None]
        left = 1 / (1 + ratios)  # share of a direction that the prior holds back, δ/(S+δ)
        learned = ratios * left  # and the share that the data teach, S/(S+δ)
        both = left * learned  # derivative of `left` in x
        effective = xp.sum(learned, axis=1)  # γ, the effective number of parameters
        effective_slope = -xp.sum(both, axis=1)
        q = spectrum.residuals + xp.sum(spectrum.energies * left, axis=1)
        rises_to_floor = q < self.floor
        q = xp.maximum(q, self.floor)
        q_slopes = spectrum.energies * both
        # This is δ‖m‖². It is zero for labels orthogonal to the features, which have no logarithm.
        q_slope = xp.clip(xp.sum(q_slopes, axis=1), min=xp.finfo(xp.float64).smallest_normal)
        q_curvature = xp.sum(q_slopes * (learned - left), axis=1)
        # Stationary where γ q = n δ‖m‖²: the paper's fixed point. Logarithms are nearer to linear.
        gap = xp.log(effective * q) - xp.log(spectrum.n * q_slope)
        slope = effective_slope / effective + q_slope / q - q_curvature / q_slope
        flat = xp.abs(slope) < xp.finfo(xp.float64).eps
        newton = x - gap / xp.where(flat, xp.ones_like(slope), slope)
        return (gap > 0) | rises_to_floor, newton

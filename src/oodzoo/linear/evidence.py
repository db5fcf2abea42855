r"""Evidence of the Bayesian linear model, and the precisions that maximise it.

For one class with one-hot labels y and features :math:`\Phi` (n × d), the paper (Section 3.1,
Appendix B.2–B.3) takes :math:`w \sim N(0, \alpha^{-1} I)` and
:math:`y \mid w \sim N(\Phi w, \beta^{-1} I)`. With :math:`G = \Phi^\top\Phi = V S V^\top`,
:math:`t = V^\top \Phi^\top y` and the ridge :math:`\delta = \alpha/\beta`, the log evidence is

.. math::

    \tfrac n2 \ln\tfrac{\beta}{2\pi} - \tfrac\beta2 q(\delta)
    - \tfrac12 \sum_{k=1}^d \ln(1 + S_k/\delta),
    \qquad q(\delta) = r + \sum_k e_k \frac{\delta}{S_k + \delta},
    \quad e_k = \frac{t_k^2}{S_k}, \quad r = y^\top y - \sum_k e_k,

which is the paper's formula with :math:`\beta\|y-\Phi m\|^2 + \alpha\|m\|^2 = \beta q` and
:math:`\frac d2 \ln\alpha` merged into the determinant. A direction in which the features do not
vary contributes nothing, so the value is exact for n < d too. All terms of q are positive (r is
the least-squares residual), so nothing cancels however well the labels are fitted.

The paper's fixed point :math:`\alpha = \gamma/\|m\|^2`, :math:`\beta = (n-\gamma)/\|y-\Phi m\|^2`
depends on :math:`\delta` alone, and holds exactly where the evidence, with
:math:`\beta = n/q(\delta)`, is stationary in :math:`\ln\delta`. The one unknown left per class is
found by Newton's method from the best point of a grid. This finds the highest maximum in about ten
steps and does not depend on the scale of the features.

**Where the data do not determine the noise.** With as many independent features as samples
(:math:`S_k > 0` for n directions) weights alone explain any labels, and towards :math:`\delta = 0`
the evidence is flat: it tends to that of labels without noise, while the predictions for other
samples become arbitrarily certain. Therefore :math:`\delta` is at least the ridge at which one of
the n samples is left to determine the noise,

.. math:: n - \gamma = n - \sum_k \frac{S_k}{S_k + \delta} \ge 1.

It is the denominator of the fixed point, as n - d is that of the noise in least squares. The bound
depends on the features alone. Where it holds, the evidence is within about half a nat of that
without any noise, so no smaller noise could be told from it. With fewer independent features than
samples it never acts. A class at the bound is not `converged`.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

from oodzoo.core.backend import Array, backend_of
from oodzoo.core.errors import InputError

TOLERANCE = 1e-10
"""Precisions have converged when their logarithms change by less than this."""

MAX_ITERATIONS = 200

NOISE_FLOOR = 1e-6
"""Lower bound of :math:`1/\\beta`, relative to the mean square of y. Without it, labels that the
features reproduce exactly would send :math:`\\beta` to infinity and amplify rounding errors."""

RIDGE_RANGE = (1e-12, 1e6)
"""Range of :math:`\\delta = \\alpha/\\beta`, relative to the largest eigenvalue. At the upper end
the features are uninformative about the class."""

RESIDUAL_FREEDOM = 1.0
"""Least :math:`n - \\gamma`, the degrees of freedom left to determine the noise."""

_STEPS_PER_DECADE = 8

_DOMINANT = 1e6
"""An eigenvalue this many times the second does not raise the lower end of the range further: it is
that of a large mean, and says nothing about the other directions."""

_OFFSET_STEPS = 8


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Sufficient statistics of the evidence: O(d) numbers per class.

    Attributes
    ----------
    n : int
    eigenvalues : array (d,)
        S, the eigenvalues of the Gram matrix; set to zero below rounding error.
    projections : array (C, d)
        t per class.
    energies : array (C, d)
        e per class; zero where S is zero.
    residuals : array (C,)
        r per class.
    squares : array (C,)
        :math:`y^\\top y` per class.
    """

    n: int
    eigenvalues: Array
    projections: Array
    energies: Array
    residuals: Array
    squares: Array

    def about(self, origin: Array, shift: Array, squares: Array) -> Spectrum:
        r"""Return the spectrum of the labels minus a shift (C,).

        `origin` are the projections :math:`V^\top\Phi^\top 1` (d,) of ones, `squares` (C,) the
        squares of the labels minus the shift.
        """
        projections = self.projections - shift[:, None] * origin[None, :]
        return _spectrum(self.eigenvalues, self.eigenvalues > 0, projections, squares, self.n)

    def take(self, classes: Array) -> Spectrum:
        """Restrict the spectrum to the classes at these indices."""
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
    """Precision α of the weights and β of the noise, per class.

    Attributes
    ----------
    alpha, beta : array (C,)
        α is infinite if all features are zero.
    converged : array of bool (C,)
        False also if the data do not determine the noise: the ridge is at its lower bound.
    iterations : int
    """

    alpha: Array
    beta: Array
    converged: Array
    iterations: int

    @property
    def ridge(self) -> Array:
        """The ridge δ = α/β per class."""
        return self.alpha / self.beta


def decompose(gram: Array, targets: Array, squares: Array, n: int) -> tuple[Spectrum, Array]:
    """Compute the spectrum and the eigenvectors (columns of V) of a Gram matrix (d, d).

    `targets` is ΦᵀY (d, C), `squares` the diagonal of YᵀY (C,); Y need not be one-hot.
    """
    backend = backend_of(gram)
    xp = backend.xp
    eigenvalues, eigenvectors = backend.eigh(gram)
    # Eigenvalues below the error of the decomposition are rounding. Setting them to zero is exact
    # for linearly dependent features (always the case for n < d) and the same on every backend.
    rounding = gram.shape[0] * xp.finfo(xp.float64).eps * eigenvalues[-1]
    varying = eigenvalues > rounding
    return _spectrum(eigenvalues, varying, targets.T @ eigenvectors, squares, n), eigenvectors


def decompose_offset(
    gram: Array, targets: Array, mean: Array, sums: Array, squares: Array, n: int
) -> tuple[Spectrum, Array]:
    r"""Compute what :func:`decompose` does, from moments about the mean, for a large mean.

    `gram` (d, d) and `targets` (d, C) are about the mean :math:`\mu` (d,); `sums` (C,) are those of
    Y. The matrix to decompose, :math:`G + n\mu\mu^\top`, is never formed: a large :math:`\mu` would
    hide G in its rounding. In coordinates whose first axis is :math:`\mu`, it is

    .. math:: \begin{pmatrix} a & c^\top \\ c & R \end{pmatrix}, \qquad a \gg \lVert c \rVert,
              \lVert R \rVert,

    whose first eigenvector is (1, t) with :math:`t = (\lambda - R)^{-1} c`, found by iteration. The
    other eigenvectors are those of a matrix of d - 1 rows that has the size of R.
    """
    backend = backend_of(gram)
    xp = backend.xp
    length = float(xp.linalg.vector_norm(mean))
    sign = 1.0 if float(mean[0]) >= 0 else -1.0
    first = xp.arange(mean.shape[0], device=backend.device) == 0
    axis = mean / length + sign * xp.astype(first, xp.float64)
    axis = axis / xp.linalg.vector_norm(axis)

    def reflect(matrix: Array) -> Array:  # its own inverse; maps the mean to the first axis
        return matrix - 2 * axis[:, None] * (axis @ matrix)[None, :]

    rotated, turned = reflect(reflect(gram).T), reflect(targets)
    a = rotated[0, 0] + n * length**2
    c, rest = rotated[1:, 0], rotated[1:, 1:]
    t, largest = c / a, a
    for _ in range(_OFFSET_STEPS):
        largest = a + c @ t
        t = (c + rest @ t) / largest
    norm = xp.sqrt(1 + t @ t)

    def complete(matrix: Array) -> Array:  # together with -t / norm, orthogonal to (1, t)
        return matrix - t[:, None] * (t @ matrix)[None, :] / (norm * (norm + 1))

    along = complete(c[:, None])[:, 0]
    cross = t[:, None] * along[None, :] / norm
    deflated = complete(complete(rest).T) - cross - cross.T
    deflated = deflated + a * (t / norm)[:, None] * (t / norm)[None, :]
    eigenvalues, vectors, rounding = xp.zeros_like(t), deflated, 0.0
    if mean.shape[0] > 1:
        eigenvalues, vectors = backend.eigh(deflated)
        rounding = mean.shape[0] * xp.finfo(xp.float64).eps * float(eigenvalues[-1])
    top = turned[0, :] - sign * length * sums
    projections = (complete(turned[1:, :]) - (t / norm)[:, None] * top[None, :]).T @ vectors
    last = (top + t @ turned[1:, :]) / norm
    eigenvectors = xp.concat(
        [
            xp.concat([-((t / norm) @ vectors)[None, :], complete(vectors)]),
            xp.concat([xp.ones_like(norm)[None], t])[:, None] / norm,
        ],
        axis=1,
    )
    eigenvalues = xp.concat([eigenvalues, largest[None]])
    projections = xp.concat([projections, last[:, None]], axis=1)
    spectrum = _spectrum(eigenvalues, eigenvalues > rounding, projections, squares, n)
    return spectrum, reflect(eigenvectors)


def _spectrum(
    eigenvalues: Array, varying: Array, projections: Array, squares: Array, n: int
) -> Spectrum:
    """The spectrum of projections (C, d) on directions, some of which do not vary."""
    xp = backend_of(eigenvalues).xp
    zeros = xp.zeros_like(eigenvalues)
    eigenvalues = xp.where(varying, eigenvalues, zeros)
    # Targets have no component along a direction in which no sample varies.
    projections = xp.where(varying[None, :], projections, zeros[None, :])
    energies = projections**2 / xp.where(varying, eigenvalues, xp.ones_like(eigenvalues))[None, :]
    residuals = xp.clip(squares - xp.sum(energies, axis=1), min=0.0)
    if int(xp.count_nonzero(varying)) >= n:  # least squares reproduces any labels
        residuals = xp.zeros_like(residuals)
    return Spectrum(n, eigenvalues, projections, energies, residuals, squares)


def decompose_samples(features: Array, targets: Array, n: int) -> tuple[Spectrum, Array]:
    """Compute the spectrum and U from Φ (rows, d) and Y (rows, C), by ΦΦᵀ = USUᵀ.

    With fewer samples than features ΦΦᵀ is smaller than ΦᵀΦ and has the same non-zero eigenvalues;
    V = ΦᵀUS^(-1/2). n is the number of rows, minus one if they were centred.
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
    """Log evidence per class (C,) at given precisions, exact for any n and d."""
    xp = backend_of(spectrum.squares).xp
    ratios = spectrum.eigenvalues[None, :] / precisions.ridge[:, None]
    quadratic = spectrum.residuals + xp.sum(spectrum.energies / (1 + ratios), axis=1)
    determinant = xp.sum(xp.log1p(ratios), axis=1)
    beta = precisions.beta
    return 0.5 * (spectrum.n * xp.log(beta / (2 * math.pi)) - beta * quadratic - determinant)


def maximise_evidence(spectrum: Spectrum) -> Precisions:
    """Find the precisions that maximise the evidence of each class.

    Where the evidence has no maximum, the result is at a bound: :data:`NOISE_FLOOR` for labels
    that are fitted perfectly, :data:`RIDGE_RANGE` for uninformative features,
    :data:`RESIDUAL_FREEDOM` for no fewer independent features than samples.

    Raises
    ------
    InputError
        A class has no samples, so its evidence is undefined.
    """
    backend = backend_of(spectrum.squares)
    xp = backend.xp
    if not bool(xp.all(spectrum.squares > 0)):
        raise InputError(
            "the evidence of a class without samples is undefined; leave the class out"
        )
    largest = float(xp.max(spectrum.eigenvalues))
    if largest == 0:
        infinite = xp.full_like(spectrum.squares, math.inf)
        converged = xp.ones_like(spectrum.squares, dtype=xp.bool)
        return Precisions(infinite, spectrum.n / spectrum.squares, converged, 0)
    ascent = _Ascent(spectrum)
    x, lower, upper = ascent.start(largest)
    moving = xp.ones_like(x, dtype=xp.bool)
    iterations = 0
    while iterations < MAX_ITERATIONS and bool(xp.any(moving)):
        iterations += 1
        rises, newton = ascent.step(x)
        lower, upper = xp.where(rises, x, lower), xp.where(rises, upper, x)
        # A Newton step may overshoot the bracket by less than the tolerance.
        inside = (newton > lower - TOLERANCE) & (newton < upper + TOLERANCE)
        following = xp.where(inside, newton, 0.5 * (lower + upper))
        following = xp.where(moving, following, x)
        moving = xp.abs(following - x) >= TOLERANCE
        x = following
    ridge = xp.exp(x)
    beta = spectrum.n / ascent.quadratic(ridge)
    bounded = x <= ascent.least + TOLERANCE
    return Precisions(ridge * beta, beta, ~moving & ~bounded, iterations)


class _Ascent:
    """The evidence of each class as a function of x = ln δ, with β = n/q(δ)."""

    def __init__(self, spectrum: Spectrum) -> None:
        self.backend = backend_of(spectrum.squares)
        self.spectrum = spectrum
        self.floor = NOISE_FLOOR * spectrum.squares
        self.least = self._least()

    def _least(self) -> float:
        """The x at which n - γ is :data:`RESIDUAL_FREEDOM`; -inf if it is more for any ridge."""
        xp, S, n = self.backend.xp, self.spectrum.eigenvalues, self.spectrum.n
        if n - int(xp.count_nonzero(S)) >= RESIDUAL_FREEDOM:
            return -math.inf
        # At the largest eigenvalue it is at least n/2 (of a single sample, never 1).
        low, high = -math.log(sys.float_info.max), math.log(float(S[-1]))
        while high - low > TOLERANCE / 4:
            x = 0.5 * (low + high)
            freedom = n - float(xp.sum(S / (S + math.exp(x))))
            low, high = (x, high) if freedom < RESIDUAL_FREEDOM else (low, x)
        return high

    def quadratic(self, ridge: Array) -> Array:
        """q(δ) for one δ per class, at least the noise floor."""
        xp, spectrum = self.backend.xp, self.spectrum
        prior_share = 1 / (1 + spectrum.eigenvalues[None, :] / ridge[:, None])
        q = spectrum.residuals + xp.sum(spectrum.energies * prior_share, axis=1)
        return xp.maximum(q, self.floor)

    def start(self, largest: float) -> tuple[Array, Array, Array]:
        """Find the best point per class of a common grid, and its two neighbours."""
        xp, spectrum = self.backend.xp, self.spectrum
        second = float(spectrum.eigenvalues[-2]) if len(spectrum.eigenvalues) > 1 else 0.0
        lowest = min(largest, _DOMINANT * second) if second > 0 else largest
        low, high = math.log(lowest * RIDGE_RANGE[0]), math.log(largest * RIDGE_RANGE[1])
        low = max(low, self.least)
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
        """Return whether the evidence increases with x, and Newton's next x."""
        xp, spectrum = self.backend.xp, self.spectrum
        ratios = spectrum.eigenvalues[None, :] / xp.exp(x)[:, None]
        prior_share = 1 / (1 + ratios)  # weight of the prior in each direction, δ/(S+δ)
        data_share = ratios * prior_share  # weight of the data, S/(S+δ)
        product = prior_share * data_share  # derivative of `prior_share` in x
        effective = xp.sum(data_share, axis=1)  # γ, the effective number of parameters
        effective_slope = -xp.sum(product, axis=1)
        q = spectrum.residuals + xp.sum(spectrum.energies * prior_share, axis=1)
        rises_to_floor = q < self.floor
        q = xp.maximum(q, self.floor)
        q_slopes = spectrum.energies * product
        # This is δ‖m‖²; clipped, since it is zero for labels orthogonal to the features.
        q_slope = xp.clip(xp.sum(q_slopes, axis=1), min=xp.finfo(xp.float64).smallest_normal)
        q_curvature = xp.sum(q_slopes * (data_share - prior_share), axis=1)
        # Stationary where γ q = n δ‖m‖², the paper's fixed point; closer to linear in logarithms.
        gap = xp.log(effective * q) - xp.log(spectrum.n * q_slope)
        slope = effective_slope / effective + q_slope / q - q_curvature / q_slope
        flat = xp.abs(slope) < xp.finfo(xp.float64).eps
        newton = x - gap / xp.where(flat, xp.ones_like(slope), slope)
        return (gap > 0) | rises_to_floor, newton

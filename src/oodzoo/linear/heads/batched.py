r"""Logistic regressions for many training sets and many C, solved as one batch on a device.

The objective and the end of each fit are those of :func:`oodzoo.linear.heads.logistic.minimise`.
Weights start at zero, because a path from C to C would be a sequence. The L-BFGS direction is
computed in compact form: with steps S, changes of the gradient Y, the upper triangle R of
:math:`S^\top Y` and its diagonal D,

.. math:: Hg = \gamma g + S R^{-\top}\bigl[(D + \gamma Y^\top Y) R^{-1} S^\top g
   - \gamma Y^\top g\bigr] - \gamma Y R^{-1} S^\top g,

a few products of batches of matrices in place of a recursion over the steps.

References
----------
.. [1] Byrd, Nocedal and Schnabel. Representations of quasi-Newton matrices and their use in limited
   memory methods. Mathematical Programming 63, 1994.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from array_api_compat import device

from oodzoo.core.backend import Array
from oodzoo.linear.heads.logistic import MEMORY, SLOPE_FRACTION


@dataclass(frozen=True)
class Batch:
    """Problems of all sets of samples and all C.

    Solutions (sets, Cs, classes, d) have the weights of the features; outputs are (sets, Cs,
    classes, n).

    Attributes
    ----------
    xp : module
        PyTorch itself: without the wrappers of the array API a step takes half the time.
    features : array (sets, n, d)
        The last feature is 1: its weight is the bias, without a penalty.
    targets : array (sets, 1, classes, n)
        One-hot labels; a sample without a class is ignored.
    counts : array (sets, 1, 1, n)
        1 for each sample with a class, else 0.
    absent : array (sets, 1, classes, 1)
        -inf for a class without samples, else 0.
    penalty : array (Cs, 1, d)
        1 / C, and 0 for the bias.
    offset : array (1, 1, classes, n), optional
        Added to the outputs.
    """

    xp: Any
    features: Array
    targets: Array
    counts: Array
    absent: Array
    penalty: Array
    offset: Array | None = None

    def outputs(self, solution: Array) -> Array:
        """Outputs of solutions, without those of absent classes."""
        sets, n, d = self.features.shape
        flat = self.xp.reshape(solution, (sets, -1, d))
        return self.xp.reshape(flat @ self.features.mT, (*solution.shape[:3], n))

    def gradient(self, residuals: Array, solution: Array) -> Array:
        sets, n, _ = self.features.shape
        flat = self.xp.reshape(residuals, (sets, -1, n)) @ self.features
        return self.xp.reshape(flat, solution.shape) + self.penalty * solution

    def residuals(self, outputs: Array) -> Array:
        """Probabilities minus targets; 0 for an ignored sample."""
        shifted = self.xp.exp(outputs - self.xp.amax(outputs, axis=2, keepdims=True))
        return shifted * (self.counts / self.xp.sum(shifted, axis=2, keepdims=True)) - self.targets


def minimise_batch(batch: Batch, tol: float, max_iter: int = 1000) -> Array:
    """Find the weights and biases (sets, Cs, classes, d) that minimise all objectives.

    Each fit ends when the norm of its gradient is at most `tol` of that at zero.
    """
    xp, kind = batch.xp, {"dtype": batch.features.dtype, "device": device(batch.features)}
    sets, _, n_classes, n = batch.targets.shape
    n_Cs, d = batch.penalty.shape[0], batch.features.shape[2]
    solution = xp.zeros((sets, n_Cs, n_classes, d), **kind)
    outputs = batch.absent + xp.zeros((sets, n_Cs, n_classes, n), **kind)
    gradient = batch.gradient(batch.residuals(outputs), solution)
    squared = _dot(xp, gradient, gradient)
    least = tol**2 * squared
    if batch.offset is not None:
        outputs = outputs + batch.offset
        gradient = batch.gradient(batch.residuals(outputs), solution)
        squared = _dot(xp, gradient, gradient)
    done = squared <= least
    scale = 1 / xp.sqrt(xp.where(done, 1, squared))
    steps = xp.zeros((sets, n_Cs, MEMORY, n_classes * d), **kind)
    changes = xp.zeros_like(steps)
    for _ in range(max_iter):
        if xp.all(done):
            break
        step = xp.reshape(
            _direction(xp, _flat(xp, gradient), steps, changes, scale[..., None, None]),
            gradient.shape,
        )
        added = batch.outputs(step)
        slopes = (
            _dot(xp, gradient, step),
            _dot(xp, batch.penalty * solution, step),
            _dot(xp, batch.penalty * step, step),
        )
        length, residuals = _line_search(batch, outputs, added, *slopes, done)
        done = done | (length == 0)  # no further progress within rounding error
        step = length[..., None, None] * step
        solution = solution + step
        outputs = outputs + length[..., None, None] * added
        new = batch.gradient(residuals, solution)
        change, gradient = new - gradient, new
        product = _dot(xp, step, change)
        valid = (product > 0)[..., None, None]
        scale = xp.where(product > 0, product / _dot(xp, change, change), scale)
        steps, changes = (
            xp.concat([old[:, :, 1:], _flat(xp, xp.where(valid, latest, 0))], axis=2)
            for old, latest in ((steps, step), (changes, change))
        )
        done = done | (_dot(xp, gradient, gradient) <= least)
    return solution


def _direction(xp: Any, gradient: Array, steps: Array, changes: Array, scale: Array) -> Array:
    """Compute -Hg for gradients (…, 1, D), steps and changes (…, memory, D); zero pairs count 0."""
    products = steps @ changes.mT
    diagonal = xp.linalg.diagonal(products)[..., None]
    triangle = xp.triu(products) + xp.where(diagonal > 0, 0, 1) * xp.eye(
        MEMORY, dtype=products.dtype, device=device(products)
    )
    first = xp.linalg.solve_triangular(triangle, steps @ gradient.mT, upper=True)
    inner = changes @ (changes.mT @ first - gradient.mT)
    second = xp.linalg.solve_triangular(triangle.mT, diagonal * first + scale * inner, upper=False)
    return scale * (first.mT @ changes - gradient) - second.mT @ steps


def _line_search(
    batch: Batch,
    outputs: Array,
    added: Array,
    slope: Array,
    along: Array,
    bend: Array,
    done: Array,
) -> tuple[Array, Array]:
    """Step lengths, 0 where done or without progress, and residuals there."""
    xp = batch.xp
    low, high = xp.zeros_like(slope), xp.full_like(slope, xp.inf)
    low_slope, high_slope = slope, xp.full_like(slope, xp.nan)
    length = xp.where(done, 0.0, xp.ones_like(slope))
    active = ~done
    for _ in range(40):
        residuals = batch.residuals(outputs + length[..., None, None] * added)
        here = _dot(xp, residuals, added) + along + length * bend
        active = active & (xp.abs(here) > SLOPE_FRACTION * xp.abs(slope))
        if not xp.any(active):
            break
        down, up = active & (here < 0), active & (here >= 0)
        low, low_slope = xp.where(down, length, low), xp.where(down, here, low_slope)
        high, high_slope = xp.where(up, length, high), xp.where(up, here, high_slope)
        part = xp.clip(low_slope / (low_slope - high_slope), 0.1, 0.9)
        longer = xp.where(xp.isinf(high), 4 * length, low + (high - low) * part)
        length = xp.where(active, longer, length)
    return xp.where(active, 0.0, length), residuals


def _flat(xp: Any, values: Array) -> Array:
    """Classes and features as one axis, after one of length 1."""
    return xp.reshape(values, (*values.shape[:2], 1, -1))


def _dot(xp: Any, one: Array, two: Array) -> Array:
    return xp.sum(one * two, axis=(2, 3))

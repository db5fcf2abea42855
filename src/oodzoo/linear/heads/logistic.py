r"""L-BFGS for multinomial logistic regression with an L2 penalty, one or many as a batch.

.. math:: J(W, b) = \sum_i -\ln p(y_i\mid z_i) + \frac{1}{2C}\lVert W\rVert^2,
   \qquad p(\cdot\mid z) = \operatorname{softmax}(Wz + b).

At the minimum the weights are a linear combination of the samples, :math:`W = AZ`. With fewer
samples than features, A is optimised instead of W, and features enter only through the Gram matrix
:math:`K = ZZ^\top`, computed once. L-BFGS takes the same steps in either form: the gradient
:math:`RZ + W/C` of W for residuals R becomes :math:`R + A/C`, with inner products in the metric K.

With sigmoid residuals, each row of W is a logistic regression of its own, of one label against the
samples without it; all of them are optimised together.

In a batch, the objective and the end of each fit are the same. Weights start at zero, because a
path from C to C would be a sequence. The L-BFGS direction is computed in compact form [1]_: with
steps S, changes of the gradient Y, the upper triangle R of :math:`S^\top Y` and its diagonal D,

.. math:: Hg = \gamma g + S R^{-\top}\bigl[(D + \gamma Y^\top Y) R^{-1} S^\top g
   - \gamma Y^\top g\bigr] - \gamma Y R^{-1} S^\top g,

a few products of batches of matrices in place of a recursion over the steps.

References
----------
.. [1] Byrd, Nocedal and Schnabel. Representations of quasi-Newton matrices and their use in limited
   memory methods. Mathematical Programming 63, 1994.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from array_api_compat import device
from numpy.typing import NDArray
from scipy.linalg.blas import dtrsv
from scipy.special import expit

from oodzoo.core.backend import Array

Matrix = NDArray[np.floating[Any]]

Residuals = Callable[[Matrix, Matrix, Matrix], Matrix]
"""Probabilities minus targets (classes, n), from outputs, targets and the sums of their columns."""

MEMORY = 20
"""Number of steps that L-BFGS remembers."""

SLOPE_FRACTION = 0.5
"""The line search ends when the slope has fallen to this fraction."""

_TRANSPOSED = 2**22
"""Number of feature values up to which a transposed copy is kept; products with it are faster."""


class Form(Protocol):
    """Parametrisation of the solution: a matrix of `size` columns, and one for the bias."""

    @property
    def size(self) -> int: ...

    def gradient(self, residuals: Matrix, solution: Matrix, penalty: float) -> Matrix: ...

    def metric(self, direction: Matrix) -> Matrix:
        """Multiply a direction by the metric of inner products."""
        ...

    def outputs(self, direction: Matrix, metric: Matrix) -> Matrix:
        """Outputs (classes, n) of a direction, given its product with the metric."""
        ...


@dataclass(frozen=True)
class Primal:
    """Weights (classes, d) of features (n, d)."""

    features: Matrix

    @property
    def size(self) -> int:
        return int(self.features.shape[1])

    def gradient(self, residuals: Matrix, solution: Matrix, penalty: float) -> Matrix:
        result = np.empty_like(solution)
        np.matmul(residuals, self.features, out=result[:, :-1])
        result[:, :-1] += penalty * solution[:, :-1]
        result[:, -1] = residuals.sum(axis=1)
        return result

    def metric(self, direction: Matrix) -> Matrix:
        return direction

    def outputs(self, direction: Matrix, metric: Matrix) -> Matrix:
        if self.features.size <= _TRANSPOSED:
            outputs: Matrix = direction[:, :-1] @ self._transposed
            outputs += direction[:, -1:]
            return outputs
        # In this order BLAS need not transpose the larger matrix.
        outputs = self.features @ direction[:, :-1].T
        return np.ascontiguousarray((outputs + direction[:, -1]).T)

    @cached_property
    def _transposed(self) -> Matrix:
        return np.ascontiguousarray(self.features.T)


@dataclass(frozen=True)
class Dual:
    """Combinations (classes, n) of samples with Gram matrix (n, n)."""

    gram: Matrix

    @property
    def size(self) -> int:
        return len(self.gram)

    def gradient(self, residuals: Matrix, solution: Matrix, penalty: float) -> Matrix:
        result = penalty * solution
        result[:, :-1] += residuals
        result[:, -1] = residuals.sum(axis=1)
        return result

    def metric(self, direction: Matrix) -> Matrix:
        result = np.empty_like(direction)
        np.matmul(direction[:, :-1], self.gram, out=result[:, :-1])
        result[:, -1] = direction[:, -1]
        return result

    def outputs(self, direction: Matrix, metric: Matrix) -> Matrix:
        return np.asarray(metric[:, :-1] + direction[:, -1:])


class Memory:
    r"""The last steps s and changes y of the gradient, both divided by :math:`\sqrt{s^\top y}`.

    Directions of L-BFGS are computed in compact form, as above;
    here the diagonal of :math:`S^\top Y` is 1. Inner products are in the metric of the form.
    """

    def __init__(self, solution: Matrix, same: bool) -> None:
        """`same` if a direction is equal to its product with the metric."""
        shape = MEMORY, solution.size
        arrays = [np.empty(shape, solution.dtype) for _ in range(2 if same else 4)]
        self._steps, self._changes, *others = arrays
        self._steps_metric, self._changes_metric = others or arrays
        self._triangle = np.zeros((MEMORY, MEMORY))
        self._squares = np.zeros((MEMORY, MEMORY))
        self._n = 0

    def add(self, step: Matrix, step_metric: Matrix, change: Matrix, change_metric: Matrix) -> None:
        """Remember a step in place of the oldest one, unless the gradient did not grow along it."""
        product = _dot(step, change_metric)
        if product <= 0:
            return
        place, scale = self._n % MEMORY, 1 / math.sqrt(product)
        self._n += 1
        n = min(self._n, MEMORY)
        np.multiply(step.ravel(), scale, out=self._steps[place])
        np.multiply(change.ravel(), scale, out=self._changes[place])
        if self._steps_metric is not self._steps:
            np.multiply(step_metric.ravel(), scale, out=self._steps_metric[place])
            np.multiply(change_metric.ravel(), scale, out=self._changes_metric[place])
        latest = self._changes[place]
        self._triangle[:n, place] = self._steps_metric[:n] @ latest
        self._squares[:n, place] = self._squares[place, :n] = self._changes_metric[:n] @ latest

    def direction(self, gradient: Matrix, metric: Matrix) -> tuple[Matrix, Matrix]:
        """Direction -Hg, and its product with the metric by linearity."""
        if not self._n:
            scale = 1 / math.sqrt(_dot(gradient, metric))
            step = -scale * gradient
            return step, step if metric is gradient else -scale * metric
        n = min(self._n, MEMORY)
        order = np.arange(self._n - n, self._n) % MEMORY  # from the oldest to the latest
        squares = self._squares[order[:, None], order]
        triangle = self._triangle[order[:, None], order]
        scale = 1 / float(squares[-1, -1])  # a NumPy scalar would make float32 arrays float64
        flat = gradient.ravel()
        first = dtrsv(triangle, (self._steps_metric[:n] @ flat)[order])
        inner = squares @ first - (self._changes_metric[:n] @ flat)[order]
        second = dtrsv(triangle, first + scale * inner, trans=1)
        of_steps, of_changes = np.empty((2, n), gradient.dtype)
        of_steps[order], of_changes[order] = -second, scale * first

        def combined(steps: Matrix, changes: Matrix, own: Matrix) -> Matrix:
            flat = of_steps @ steps[:n] + of_changes @ changes[:n]
            result: Matrix = flat.reshape(own.shape) - scale * own
            return result

        step = combined(self._steps, self._changes, gradient)
        if metric is gradient:
            return step, step
        return step, combined(self._steps_metric, self._changes_metric, metric)


def softmax_residuals(outputs: Matrix, targets: Matrix, counts: Matrix) -> Matrix:
    """Residuals of one of several classes; 0 for a sample without a class, which is ignored."""
    result: Matrix = outputs - outputs.max(axis=0)
    np.exp(result, out=result)
    result *= counts / result.sum(axis=0)
    result -= targets
    return result


def sigmoid_residuals(outputs: Matrix, targets: Matrix, counts: Matrix) -> Matrix:
    """Residuals of any number of labels."""
    result: Matrix = expit(outputs)
    result -= targets
    return result


def gradient_at_zero(form: Form, targets: Matrix) -> float:
    """Norm of the gradient at zero weights and bias, the scale of tolerances."""
    residuals = softmax_residuals(np.zeros_like(targets), targets, targets.sum(axis=0))
    zero = np.zeros((len(targets), form.size + 1), targets.dtype)
    return gradient_norm(form, residuals, zero)


def gradient_norm(form: Form, residuals: Matrix, solution: Matrix) -> float:
    """Norm of the gradient of J without its penalty, in the metric of the form."""
    gradient = form.gradient(residuals, solution, 0.0)
    return math.sqrt(_dot(gradient, form.metric(gradient)))


def minimise(
    form: Form,
    targets: Matrix,
    C: float,
    start: Matrix,
    tol: float,
    max_iter: int = 1000,
    offset: Matrix | None = None,
    residuals_of: Residuals = softmax_residuals,
) -> Matrix:
    """Find the weights, or combinations, and bias (classes, size + 1) that minimise J.

    `targets` (classes, n) are one-hot labels, or any zeros and ones for sigmoid residuals. `start`
    is the solution for another C, or zeros. `offset` (classes, n) is added to the outputs. Ends
    when the norm of the gradient is at most `tol`.
    """
    counts = targets.sum(axis=0)
    penalty = 1 / C
    solution = start
    outputs = form.outputs(solution, form.metric(solution))
    if offset is not None:
        outputs = outputs + offset
    gradient = form.gradient(residuals_of(outputs, targets, counts), solution, penalty)
    metric = form.metric(gradient)
    memory = Memory(solution, same=metric is gradient)
    for _ in range(max_iter):
        if _dot(gradient, metric) <= tol**2:
            break
        step, step_metric = memory.direction(gradient, metric)
        added = form.outputs(step, step_metric)
        # On the line the penalty is a parabola and outputs are linear: evaluations are cheap.
        slope = _dot(gradient, step_metric)
        along = penalty * _dot(solution[:, :-1], step_metric[:, :-1])
        bend = penalty * _dot(step[:, :-1], step_metric[:, :-1])
        length, there, residuals = _line_search(
            outputs, added, lambda at: residuals_of(at, targets, counts), slope, along, bend
        )
        if length == 0:  # no further progress within rounding error
            break
        step *= length
        if step_metric is not step:
            step_metric *= length
        solution = solution + step
        outputs = there
        new = form.gradient(residuals, solution, penalty)
        new_metric = form.metric(new)
        change = new - gradient
        change_metric = change if new_metric is new else new_metric - metric
        gradient, metric = new, new_metric
        memory.add(step, step_metric, change, change_metric)
    return solution


def _line_search(
    outputs: Matrix,
    added: Matrix,
    residuals_at: Callable[[Matrix], Matrix],
    slope: float,
    along: float,
    bend: float,
) -> tuple[float, Matrix, Matrix]:
    """Step length, outputs and residuals at its end; J is convex, so slopes suffice."""
    low, high = 0.0, math.inf
    low_slope, high_slope = slope, math.nan
    length = 1.0
    for _ in range(40):
        there = outputs + length * added
        residuals = residuals_at(there)
        here = _dot(residuals, added) + along + length * bend
        if abs(here) <= SLOPE_FRACTION * abs(slope):
            return length, there, residuals
        if here < 0:
            low, low_slope = length, here
        else:
            high, high_slope = length, here
        if math.isinf(high):
            length *= 4
        else:
            part = low_slope / (low_slope - high_slope)
            length = low + (high - low) * min(max(part, 0.1), 0.9)
    return 0.0, there, residuals


def _dot(one: Matrix, two: Matrix) -> float:
    return float(np.vdot(one, two))


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
    squared = _dots(xp, gradient, gradient)
    least = tol**2 * squared
    if batch.offset is not None:
        outputs = outputs + batch.offset
        gradient = batch.gradient(batch.residuals(outputs), solution)
        squared = _dots(xp, gradient, gradient)
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
            _dots(xp, gradient, step),
            _dots(xp, batch.penalty * solution, step),
            _dots(xp, batch.penalty * step, step),
        )
        length, residuals = _line_searches(batch, outputs, added, *slopes, done)
        done = done | (length == 0)  # no further progress within rounding error
        step = length[..., None, None] * step
        solution = solution + step
        outputs = outputs + length[..., None, None] * added
        new = batch.gradient(residuals, solution)
        change, gradient = new - gradient, new
        product = _dots(xp, step, change)
        valid = (product > 0)[..., None, None]
        scale = xp.where(product > 0, product / _dots(xp, change, change), scale)
        steps, changes = (
            xp.concat([old[:, :, 1:], _flat(xp, xp.where(valid, latest, 0))], axis=2)
            for old, latest in ((steps, step), (changes, change))
        )
        done = done | (_dots(xp, gradient, gradient) <= least)
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


def _line_searches(
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
        here = _dots(xp, residuals, added) + along + length * bend
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


def _dots(xp: Any, one: Array, two: Array) -> Array:
    return xp.sum(one * two, axis=(2, 3))

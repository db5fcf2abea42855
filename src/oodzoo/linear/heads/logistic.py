r"""L-BFGS for multinomial logistic regression with an L2 penalty, in primal or dual form.

.. math:: J(W, b) = \sum_i -\ln p(y_i\mid z_i) + \frac{1}{2C}\lVert W\rVert^2,
   \qquad p(\cdot\mid z) = \operatorname{softmax}(Wz + b).

At the minimum the weights are a linear combination of the samples, :math:`W = AZ`. With fewer
samples than features, A is optimised instead of W, and features enter only through the Gram matrix
:math:`K = ZZ^\top`, computed once. L-BFGS takes the same steps in either form: the gradient
:math:`RZ + W/C` of W for residuals R becomes :math:`R + A/C`, with inner products in the metric K.

With sigmoid residuals, each row of W is a logistic regression of its own, of one label against the
samples without it; all of them are optimised together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dtrsv
from scipy.special import expit

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

    Directions of L-BFGS are computed in compact form, as in :mod:`oodzoo.linear.heads.batched`;
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

r"""L-BFGS for multinomial logistic regression with an L2 penalty, in primal or dual form.

.. math:: J(W, b) = \sum_i -\ln p(y_i\mid z_i) + \frac{1}{2C}\lVert W\rVert^2,
   \qquad p(\cdot\mid z) = \operatorname{softmax}(Wz + b).

At the minimum the weights are a linear combination of the samples, :math:`W = AZ`. With fewer
samples than features, A is optimised instead of W, and features enter only through the Gram matrix
:math:`K = ZZ^\top`, computed once. L-BFGS takes the same steps in either form: the gradient
:math:`RZ + W/C` of W for residuals R becomes :math:`R + A/C`, with inner products in the metric K.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating[Any]]

MEMORY = 20
"""Number of steps that L-BFGS remembers."""

SLOPE_FRACTION = 0.5
"""The line search ends when the slope has fallen to this fraction."""


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
        # In this order BLAS need not transpose the larger matrix.
        outputs = self.features @ direction[:, :-1].T
        return np.ascontiguousarray((outputs + direction[:, -1]).T)


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


class _Pair(NamedTuple):
    """A step of L-BFGS, the change of the gradient, both times the metric, and 1 / product."""

    step: Matrix
    step_metric: Matrix
    change: Matrix
    change_metric: Matrix
    inverse: float


def gradient_at_zero(form: Form, targets: Matrix) -> float:
    """Norm of the gradient at zero weights and bias, the scale of tolerances."""
    residuals = _residuals(np.zeros_like(targets), targets, targets.sum(axis=0))
    zero = np.zeros((len(targets), form.size + 1), targets.dtype)
    gradient = form.gradient(residuals, zero, 0.0)
    return math.sqrt(_dot(gradient, form.metric(gradient)))


def minimise(
    form: Form, targets: Matrix, C: float, start: Matrix, tol: float, max_iter: int = 1000
) -> Matrix:
    """Find the weights, or combinations, and bias (classes, size + 1) that minimise J.

    `targets` (classes, n) are one-hot labels; a sample without a class is ignored. `start` is the
    solution for another C, or zeros. Ends when the norm of the gradient is at most `tol`.
    """
    counts = targets.sum(axis=0)
    penalty = 1 / C
    solution = start
    outputs = form.outputs(solution, form.metric(solution))
    gradient = form.gradient(_residuals(outputs, targets, counts), solution, penalty)
    metric = form.metric(gradient)
    pairs: deque[_Pair] = deque(maxlen=MEMORY)
    for _ in range(max_iter):
        if _dot(gradient, metric) <= tol**2:
            break
        step, step_metric = _direction(gradient, metric, pairs)
        added = form.outputs(step, step_metric)
        # On the line the penalty is a parabola and outputs are linear: evaluations are cheap.
        slope = _dot(gradient, step_metric)
        along = penalty * _dot(solution[:, :-1], step_metric[:, :-1])
        bend = penalty * _dot(step[:, :-1], step_metric[:, :-1])
        length, residuals = _line_search(outputs, added, targets, counts, slope, along, bend)
        if length == 0:  # no further progress within rounding error
            break
        step *= length
        if step_metric is not step:
            step_metric *= length
        solution = solution + step
        outputs += length * added
        new = form.gradient(residuals, solution, penalty)
        new_metric = form.metric(new)
        change, change_metric = new - gradient, new_metric - metric
        gradient, metric = new, new_metric
        product = _dot(step, change_metric)
        if product > 0:
            pairs.append(_Pair(step, step_metric, change, change_metric, 1 / product))
    return solution


def _direction(gradient: Matrix, metric: Matrix, pairs: deque[_Pair]) -> tuple[Matrix, Matrix]:
    """L-BFGS direction, and its product with the metric by linearity."""
    same = metric is gradient
    step = -gradient
    step_metric = step if same else -metric
    shares = []
    for pair in reversed(pairs):
        share = pair.inverse * _dot(pair.step_metric, step)
        step -= share * pair.change
        if not same:
            step_metric -= share * pair.change_metric
        shares.append(share)
    if pairs:
        scale = 1 / (pairs[-1].inverse * _dot(pairs[-1].change, pairs[-1].change_metric))
    else:
        scale = 1 / math.sqrt(_dot(gradient, metric))
    step *= scale
    if not same:
        step_metric *= scale
    for pair, share in zip(pairs, reversed(shares), strict=True):
        rest = share - pair.inverse * _dot(pair.change, step_metric)
        step += rest * pair.step
        if not same:
            step_metric += rest * pair.step_metric
    return step, step_metric


def _line_search(
    outputs: Matrix,
    added: Matrix,
    targets: Matrix,
    counts: Matrix,
    slope: float,
    along: float,
    bend: float,
) -> tuple[float, Matrix]:
    """Step length and residuals at its end; J is convex, so slopes suffice."""
    low, high = 0.0, math.inf
    low_slope, high_slope = slope, math.nan
    length = 1.0
    for _ in range(40):
        residuals = _residuals(outputs + length * added, targets, counts)
        here = _dot(residuals, added) + along + length * bend
        if abs(here) <= SLOPE_FRACTION * abs(slope):
            return length, residuals
        if here < 0:
            low, low_slope = length, here
        else:
            high, high_slope = length, here
        if math.isinf(high):
            length *= 4
        else:
            part = low_slope / (low_slope - high_slope)
            length = low + (high - low) * min(max(part, 0.1), 0.9)
    return 0.0, residuals


def _residuals(outputs: Matrix, targets: Matrix, counts: Matrix) -> Matrix:
    """Probabilities minus targets (classes, n); 0 for an ignored sample."""
    result: Matrix = outputs - outputs.max(axis=0)
    np.exp(result, out=result)
    result *= counts / result.sum(axis=0)
    result -= targets
    return result


def _dot(one: Matrix, two: Matrix) -> float:
    return float(np.vdot(one, two))

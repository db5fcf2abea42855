r"""Multinomial logistic regression with an L2 penalty, for one strength after another.

.. math:: J(W, b) = \sum_i -\ln p(y_i\mid z_i) + \frac{1}{2C}\lVert W\rVert^2,
   \qquad p(\cdot\mid z) = \operatorname{softmax}(Wz + b).

At the minimum the weights are a combination of the samples, :math:`W = AZ`. With fewer samples
than features A is therefore sought instead of W, and features are met only in the Gram matrix
:math:`K = ZZ^\top`, once. L-BFGS takes the same steps in either form: where W has the gradient
:math:`RZ + W/C` for residuals R, A has :math:`R + A/C`, and inner products are those of K.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating[Any]]

_MEMORY = 10
_FLATTER = 0.5
"""A step is long enough when the slope along it has fallen to this part."""


class Form(Protocol):
    """What is sought, one column more than `size` for the bias: weights, or combinations."""

    @property
    def size(self) -> int: ...

    def gradient(self, residuals: Matrix, sought: Matrix, penalty: float) -> Matrix: ...

    def metric(self, direction: Matrix) -> Matrix:
        """What a direction is multiplied with in an inner product."""
        ...

    def outputs(self, direction: Matrix, metric: Matrix) -> Matrix:
        """What a direction, whose metric is known, adds to the outputs (classes, n)."""
        ...


@dataclass(frozen=True)
class Primal:
    """Weights (classes, d), from features (n, d)."""

    features: Matrix

    @property
    def size(self) -> int:
        return int(self.features.shape[1])

    def gradient(self, residuals: Matrix, sought: Matrix, penalty: float) -> Matrix:
        result = np.empty_like(sought)
        np.matmul(residuals, self.features, out=result[:, :-1])
        result[:, :-1] += penalty * sought[:, :-1]
        result[:, -1] = residuals.sum(axis=1)
        return result

    def metric(self, direction: Matrix) -> Matrix:
        return direction

    def outputs(self, direction: Matrix, metric: Matrix) -> Matrix:
        # In this order, because BLAS then need not turn the larger matrix round.
        outputs = self.features @ direction[:, :-1].T
        return np.ascontiguousarray((outputs + direction[:, -1]).T)


@dataclass(frozen=True)
class Dual:
    """Combinations (classes, n) of the samples, from their Gram matrix (n, n)."""

    gram: Matrix

    @property
    def size(self) -> int:
        return len(self.gram)

    def gradient(self, residuals: Matrix, sought: Matrix, penalty: float) -> Matrix:
        result = penalty * sought
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
    """A step of L-BFGS and the change of the gradient, their metrics, and 1 / their product."""

    step: Matrix
    step_metric: Matrix
    change: Matrix
    change_metric: Matrix
    inverse: float


def gradient_at_zero(form: Form, targets: Matrix) -> float:
    """The norm of J's gradient where weights and bias are zero, a measure for others."""
    residuals = _residuals(np.zeros_like(targets), targets, targets.sum(axis=0))
    zero = np.zeros((len(targets), form.size + 1), targets.dtype)
    gradient = form.gradient(residuals, zero, 0.0)
    return math.sqrt(_dot(gradient, form.metric(gradient)))


def minimise(
    form: Form, targets: Matrix, C: float, start: Matrix, enough: float, limit: int = 1000
) -> Matrix:
    """Weights, or combinations, and bias (classes, size + 1) at which J is least.

    Parameters
    ----------
    form : Form
    targets : array (classes, n)
        1 where a sample is of the class, else 0. A sample without a class does not count.
    strength : float
        C.
    start : array (classes, size + 1)
        The solution for another strength, or zeros.
    enough : float
        Ends when the norm of the gradient is not above this.
    limit : int
        Of steps.
    """
    counts = targets.sum(axis=0)
    penalty = 1 / C
    sought = start
    outputs = form.outputs(sought, form.metric(sought))
    gradient = form.gradient(_residuals(outputs, targets, counts), sought, penalty)
    metric = form.metric(gradient)
    pairs: deque[_Pair] = deque(maxlen=_MEMORY)
    for _ in range(limit):
        if _dot(gradient, metric) <= enough**2:
            break
        step, step_metric = _direction(gradient, metric, pairs)
        added = form.outputs(step, step_metric)
        # Along the line the penalty is a parabola and the outputs are known: points cost little.
        slope = _dot(gradient, step_metric)
        along = penalty * _dot(sought[:, :-1], step_metric[:, :-1])
        bend = penalty * _dot(step[:, :-1], step_metric[:, :-1])
        length, residuals = _line_search(outputs, added, targets, counts, slope, along, bend)
        if length == 0:  # rounding hides what is left to gain
            break
        step *= length
        if step_metric is not step:
            step_metric *= length
        sought = sought + step
        outputs += length * added
        new = form.gradient(residuals, sought, penalty)
        new_metric = form.metric(new)
        change, change_metric = new - gradient, new_metric - metric
        gradient, metric = new, new_metric
        product = _dot(step, change_metric)
        if product > 0:
            pairs.append(_Pair(step, step_metric, change, change_metric, 1 / product))
    return sought


def _direction(gradient: Matrix, metric: Matrix, pairs: deque[_Pair]) -> tuple[Matrix, Matrix]:
    """Where L-BFGS goes, and the metric of it, which follows from metrics that are known."""
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
    """How far to go, and the residuals there; J is convex, so only slopes are looked at."""
    low, high = 0.0, math.inf
    low_slope, high_slope = slope, math.nan
    length = 1.0
    for _ in range(40):
        residuals = _residuals(outputs + length * added, targets, counts)
        here = _dot(residuals, added) + along + length * bend
        if abs(here) <= _FLATTER * abs(slope):
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
    """Probabilities minus targets, (classes, n); 0 for a sample that does not count."""
    result: Matrix = outputs - outputs.max(axis=0)
    np.exp(result, out=result)
    result *= counts / result.sum(axis=0)
    result -= targets
    return result


def _dot(one: Matrix, two: Matrix) -> float:
    return float(np.vdot(one, two))

r"""How good predictions are: one main metric for each kind of task, and a second one.

- Classification: accuracy; balanced accuracy, the mean recall over the classes of the samples.
- Regression: *explained variance*, the share of the variance of the labels that is predicted,

  .. math:: R^2 = 1 - \frac{\sum_i (y_i - \hat y_i)^2}{\sum_i (y_i - \bar y)^2},

  averaged over the outputs (scikit-learn's `r2_score`): a constant error counts, unlike in its
  `explained_variance_score`. It is negative for predictions that are worse than the mean of the
  samples. And the mean absolute error, in the units of the labels.
- Several labels per sample: *average precision*, the mean of the precision at each sample that has
  the label, when samples are sorted by the prediction, averaged over the labels that at least one
  sample has (scikit-learn's `average_precision_score`). And the *exact match*: the share of samples
  of which all labels are predicted right.

Intervals and comparisons need the *contribution* of each sample: values whose mean is the metric
and whose variation between samples is that of the metric, to first order. For the explained
variance with mean squared error e and variance v of the labels it is

.. math:: 1 - \frac{(y_i - \hat y_i)^2}{v} + \frac{e}{v}\Big(\frac{(y_i - \bar y)^2}{v} - 1\Big),

for the average precision A of a label with a share p of the samples, and at each sample j the
precision :math:`a_j` among the samples that are not below it, a share :math:`r_j` of all,

.. math:: A + \frac{y_i}{p} (a_i - A)
    + \frac{1}{p n} \sum_{j: s_j \le s_i} \frac{y_j}{r_j} (y_i - a_j):

a sample counts for itself, and for the precision at those below it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.tasks import Kind

Floats = NDArray[np.float64]


def contributions(kind: Kind, predicted: NDArray[Any], labels: NDArray[Any]) -> Floats:
    """Return the contribution of each sample to the main metric, (n,); their mean is the metric.

    Parameters
    ----------
    kind : {"classification", "regression", "multilabel"}
    predicted, labels : array
        Classes (n,); numbers (n, C); or scores (n, C) of labels, and zeros and ones.

    Examples
    --------
    >>> y = np.array([[1.0], [2.0], [3.0]])
    >>> round(float(contributions("regression", y + 0.5, y).mean()), 3)
    0.625
    """
    if kind == "classification":
        correct: Floats = (predicted == labels).astype(np.float64)
        return correct
    each = _explained if kind == "regression" else _precise
    columns = [each(predicted[:, c], labels[:, c]) for c in range(labels.shape[1])]
    known = [column for column in columns if column is not None]
    if not known:  # no sample has any label
        return np.zeros(len(labels))
    means: Floats = np.mean(known, axis=0)
    return means


def metric(kind: Kind, predicted: NDArray[Any], labels: NDArray[Any]) -> float:
    """Compute the main metric, as a fraction."""
    return float(contributions(kind, predicted, labels).mean())


def second_metric(kind: Kind, predicted: NDArray[Any], labels: NDArray[Any]) -> float:
    """Compute balanced accuracy or exact match, as a fraction, or the mean absolute error.

    A label is predicted if its score is above one half.
    """
    if kind == "classification":
        correct = predicted == labels
        return float(np.mean([correct[labels == label].mean() for label in np.unique(labels)]))
    if kind == "regression":
        return float(np.abs(predicted - labels).mean())
    return float(((predicted > 0.5) == (labels > 0.5)).all(axis=1).mean())


def _explained(predicted: Floats, labels: Floats) -> Floats:
    """Contributions to the explained variance of one output.

    If the labels do not vary, 1 if all are predicted exactly and 0 otherwise, as in scikit-learn.
    """
    squared = (labels - predicted) ** 2
    deviations = (labels - labels.mean()) ** 2
    variance, error = deviations.mean(), squared.mean()
    if (labels == labels[0]).all():
        return np.full(len(labels), 1.0 if error == 0 else 0.0)
    result: Floats = 1 - squared / variance + error / variance * (deviations / variance - 1)
    return result


def _precise(scores: Floats, labels: Floats) -> Floats | None:
    """Contributions to the average precision of one label; None if no sample has it."""
    has = labels > 0.5
    share = has.mean()
    if share == 0:
        return None
    n = len(labels)
    order = np.argsort(-scores, kind="stable")
    # the precision among all samples with at least this score: ties count together
    last = np.searchsorted(-scores[order], -scores, side="right")
    precision = np.cumsum(has[order])[last - 1] / last
    average = precision[has].mean()
    # sums over the samples that have the label, from the lowest score on
    weights = np.where(has, n / last, 0.0)[order][::-1]
    below = np.searchsorted(scores[order][::-1], scores, side="right") - 1
    counts = np.cumsum(weights)[below]
    precisions = np.cumsum(weights * precision[order][::-1])[below]
    own = np.where(has, precision - average, 0.0)
    result: Floats = average + (own + (has * counts - precisions) / n) / share
    return result

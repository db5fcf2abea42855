r"""A linear classifier on features: multinomial logistic regression with an L2 penalty.

.. math:: \min_{W,b}\; \frac1n\sum_i -\ln p(y_i\mid x_i) + \frac{1}{2nC}\lVert W\rVert^2,
   \qquad p(\cdot\mid x) = \operatorname{softmax}(Wx + b),

on features standardised over the training samples. The strength C is chosen by leaving each
training domain out in turn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zood.kept import Samples

STRENGTHS = tuple(10.0**power for power in range(-5, 2))


@dataclass(frozen=True)
class LinearHead:
    """Class probabilities from features as they come: standardisation is part of the weights.

    Attributes
    ----------
    weights : array (n_classes, n_features)
    bias : array (n_classes,)
        A class that the training samples do not have has bias -inf and is never predicted.
    strength : float
        C, the inverse of the penalty.
    """

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    strength: float

    def logits(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        logits: NDArray[np.float64] = features @ self.weights.T + self.bias
        return logits

    def probabilities(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        logits = self.logits(features)
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities: NDArray[np.float64] = exponentials / exponentials.sum(axis=1, keepdims=True)
        return probabilities


def fit_head(
    samples: Samples,
    n_classes: int,
    *,
    strength: float | None = None,
    strengths: tuple[float, ...] = STRENGTHS,
) -> LinearHead:
    """Train a head on samples of one domain or more.

    Parameters
    ----------
    samples : Samples
    n_classes : int
    strength : float, optional
        C; without it the best of `strengths` by leave-one-domain-out accuracy over the domains of
        `samples` (by five stratified parts where there is one domain).
    """
    from sklearn.linear_model import LogisticRegression

    if strength is None:
        strength = _chosen(samples, n_classes, strengths)
    features, labels, _ = samples
    mean, std = features.mean(axis=0, dtype=np.float64), features.std(axis=0, dtype=np.float64)
    std[std == 0] = 1
    model = LogisticRegression(C=strength, max_iter=300).fit((features - mean) / std, labels)
    weights = np.zeros((n_classes, features.shape[1]))
    bias = np.full(n_classes, -np.inf)
    weights[model.classes_] = model.coef_ / std
    bias[model.classes_] = model.intercept_ - weights[model.classes_] @ mean
    return LinearHead(weights, bias, strength)


def _chosen(samples: Samples, n_classes: int, strengths: tuple[float, ...]) -> float:
    features, labels, domains = samples
    accuracy = []
    for strength in strengths:
        right = []
        for domain in np.unique(domains):
            train, test = domains != domain, domains == domain
            part = Samples(features[train], labels[train], domains[train])
            head = fit_head(part, n_classes, strength=strength)
            right.append(np.mean(head.logits(features[test]).argmax(axis=1) == labels[test]))
        accuracy.append(np.mean(right))
    return strengths[int(np.argmax(accuracy))]

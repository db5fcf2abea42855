r"""Unlabelled images of the target: agreement with the vote of the other models.

Linear models on the features of each network, trained on all labelled domains, predict the class of
every image of the target. The *agreement* of a model is the share of images on which its prediction
equals the vote of the other models, in which a model counts by the square of its rank from below by
the score from the labelled domains. Where most models are right, it estimates the accuracy up to a
constant.

- Ranking: the linear models are the heads that :func:`oodzoo.fit` trains. The score from the
  labelled domains and the agreement are standardised over the models; the score is one third of the
  former and two thirds of the latter.
- Expected accuracy: the linear models are the ridge regressions of the folds. On the held-out
  domains both their agreement and their accuracy are known. The mean difference is added to the
  agreement on the target.

It is assumed that the target has the classes of the labelled domains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from oodzoo.ranking.terms import Floats, ScoreTable, standardised

Labels = NDArray[np.int64]

AGREEMENT_WEIGHT = 2 / 3


@dataclass(frozen=True)
class Predictions:
    """Predicted classes (M, n) of the images of the target, by heads and by ridge regressions."""

    heads: Labels
    ridges: Labels


@dataclass(frozen=True)
class Agreement:
    """Agreement of each model with the vote of the others, in [0, 1].

    Attributes
    ----------
    target : array (M,)
        Of heads, on the images of the target.
    ridges : array (M,)
        Of ridge regressions, on the images of the target.
    folds : array (M, m)
        Of ridge regressions, on the images of each held-out domain.
    """

    target: Floats
    ridges: Floats
    folds: Floats

    @classmethod
    def of(cls, scores: Floats, target: Predictions, folds: Sequence[Labels]) -> Agreement:
        """Compute the agreement from predicted classes, on the target and on each fold (M, n).

        `scores` (M,) are those from the labelled domains; there are at least two models.
        """
        weights = rankdata(scores) ** 2
        each = np.stack([agreement_with_vote(labels, weights) for labels in folds], axis=1)
        heads, ridges = (agreement_with_vote(x, weights) for x in (target.heads, target.ridges))
        return cls(heads, ridges, each)

    def combine(self, table: ScoreTable) -> ScoreTable:
        """Combine the score from the labelled domains with the agreement on the target."""
        share = AGREEMENT_WEIGHT * standardised(self.target)[:, None]

        def combined(values: Floats) -> Floats:
            mean, spread = table.totals.mean(), table.totals.std()
            scaled = (values - mean) / spread if spread > 0 else np.zeros_like(values)
            return (1 - AGREEMENT_WEIGHT) * scaled + share

        return ScoreTable(
            combined(table.totals[:, None])[:, 0], combined(table.values), combined(table.rest)
        )


def agreement_with_vote(labels: Labels, weights: Floats) -> Floats:
    """Compute the share of images on which each model agrees with the vote of the others.

    Parameters
    ----------
    labels : array of int (M, n)
        Predicted classes.
    weights : array (M,)
        Weights of the models in the vote; of tied classes the first wins. Sums of squared ranks
        are exact, so that rounding breaks no tie.

    Examples
    --------
    >>> labels = np.array([[0, 1, 1], [0, 1, 0], [0, 0, 0]])
    >>> agreement_with_vote(labels, np.ones(3)).round(2).tolist()
    [0.33, 0.67, 0.67]
    """
    n_models, n = labels.shape
    votes = np.zeros((n, int(labels.max()) + 1))
    images = np.arange(n)
    for model in range(n_models):
        votes[images, labels[model]] += weights[model]
    shares = np.empty(n_models)
    for model in range(n_models):
        votes[images, labels[model]] -= weights[model]
        shares[model] = np.mean(votes.argmax(axis=1) == labels[model])
        votes[images, labels[model]] += weights[model]
    return shares

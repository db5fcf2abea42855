"""LEEP: how well source classes predict target classes."""

from __future__ import annotations

from typing import Any

from oodzoo.ranking.scores.catalogue import score
from oodzoo.ranking.scores.statistics import labelled_probabilities, one_hot


@score(
    "leep",
    needs="probabilities",
    title="Log expected empirical prediction",
    reference="Nguyen et al., LEEP: A New Measure to Evaluate Transferability of Learned "
    "Representations, ICML 2020",
)
def leep(source_probabilities: Any, y: Any) -> float:
    """Log expected empirical prediction.

    The target class is predicted from the source classes z alone, with P(y | z) estimated on the
    same samples; the score is the mean log-probability of the labels::

        P(y, z) = 1/n Σ_{i: y_i = y} θ(x_i)_z,    P(y | z) = P(y, z) / P(z)
        LEEP = 1/n Σ_i ln Σ_z P(y_i | z) θ(x_i)_z

    The score is at most 0, for source classes that determine the target class, and at least the
    negative entropy of the labels (it is one EM step from there): -ln C for balanced classes and
    an uninformative source.
    Needs the pre-training head. Complexity O(n·S·C) for S source classes.

    Parameters
    ----------
    source_probabilities : array of shape (n, S)
        Softmax outputs θ(x_i) of the pre-trained model for the target samples.
    y : array of shape (n,)
        Target labels, strings or integers.

    Returns
    -------
    float

    References
    ----------
    C. Nguyen, T. Hassner, M. Seeger, C. Archambeau, "LEEP: A New Measure to Evaluate
    Transferability of Learned Representations", ICML 2020.

    Examples
    --------
    >>> leep([[1, 0], [1, 0], [0, 1], [0, 1]], ["cat", "cat", "dog", "dog"])
    0.0
    >>> round(leep([[0.5, 0.5]] * 4, ["cat", "cat", "dog", "dog"]), 4)
    -0.6931
    """
    backend, theta, codes, n_classes = labelled_probabilities(source_probabilities, y)
    xp = backend.xp
    Y = one_hot(backend, codes, n_classes)
    marginal = xp.sum(theta, axis=0)
    unused = marginal == 0  # source classes of probability zero have no effect
    conditional = (Y.T @ theta) / xp.where(unused, xp.ones_like(marginal), marginal)
    predicted = xp.sum((theta @ conditional.T) * Y, axis=1)
    # A sum of probabilities can exceed one by rounding.
    return min(0.0, float(xp.mean(xp.log(predicted))))

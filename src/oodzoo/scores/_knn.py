"""kNN: leave-one-domain-out accuracy of nearest neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from oodzoo.backend import Array
from oodzoo.errors import InputError
from oodzoo.scores.classes import one_hot
from oodzoo.scores.inputs import as_classes, labelled_features, positive
from oodzoo.scores.registry import score

# Similarities per block: 32 MB, and a few temporary arrays of that size.
_BLOCK = 1 << 22


@score(
    "knn",
    uses_domains=True,
    title="Leave-one-domain-out nearest neighbours",
    reference="Wu et al., Unsupervised Feature Learning via Non-Parametric Instance "
    "Discrimination, CVPR 2018",
)
def knn(X: Any, y: Any, domains: Any, k: int = 200, temperature: float = 0.07) -> float:
    """Leave-one-domain-out accuracy of weighted nearest neighbours.

    Each sample of the held-out domain is classified by the k most similar samples of the other
    domains; a neighbour's vote has the weight exp(similarity / τ)::

        s_ij = x_iᵀx_j / (‖x_i‖ ‖x_j‖)
        ŷ_i = argmax_c Σ_{j among the k nearest, y_j = c} exp(s_ij / τ)

    The score is the accuracy, in [0, 1], averaged over held-out domains. k is limited to the number
    of samples of the other domains. All neighbours tied with the k-th vote, so the order of the
    samples does not matter. A sample whose features are all zero has similarity 0 to all others.
    Needs no pre-training head. Complexity O(n²·d), in blocks of bounded memory.

    Parameters
    ----------
    X : array of shape (n, d)
        Features.
    y, domains : arrays of shape (n,)
        Labels and domains, strings or integers; at least two domains.
    k : int
        Number of neighbours.
    temperature : float
        Temperature τ of the votes, 0.07 as in the references.

    Returns
    -------
    float

    References
    ----------
    Z. Wu, Y. Xiong, S. Yu, D. Lin, "Unsupervised Feature Learning via Non-Parametric Instance
    Discrimination", CVPR 2018. Used to rank models by Q. Dong, A. Muhammad, F. Zhou, C. Xie,
    T. Hu, Y. Yang, S.-H. Bae, Z. Li, "ZooD: Exploiting Model Zoo for Out-of-Distribution
    Generalization", NeurIPS 2022.

    Examples
    --------
    >>> X = [[1, 0], [0, 1], [5, 1], [1, 4]]
    >>> knn(X, ["cat", "dog", "cat", "dog"], ["day", "day", "night", "night"])
    1.0
    """
    positive(temperature, "temperature")
    if k != int(k) or k < 1:
        raise InputError(f"k must be an integer of at least 1, got {k!r}")
    backend, X, codes, n_classes = labelled_features(X, y)
    xp = backend.xp
    parts, n_domains = as_classes(domains, "domains", n=X.shape[0], at_least=2)
    # Scale by the maximum first: squaring very large features would overflow.
    size = xp.max(xp.abs(X), axis=1, keepdims=True)
    X = X / xp.where(size > 0, size, xp.ones_like(size))
    norm = xp.sqrt(xp.sum(X * X, axis=1, keepdims=True))
    X = X / xp.where(norm > 0, norm, xp.ones_like(norm))
    Y = one_hot(backend, codes, n_classes)
    accuracies = []
    for domain in range(n_domains):
        left_out = np.flatnonzero(parts == domain)
        kept = backend.asarray(np.flatnonzero(parts != domain))
        X_kept, Y_kept = xp.take(X, kept, axis=0), xp.take(Y, kept, axis=0)
        neighbours = min(int(k), kept.shape[0])
        n_correct = 0
        rows = max(1, _BLOCK // kept.shape[0])
        for start in range(0, len(left_out), rows):
            block = left_out[start : start + rows]
            queries = xp.take(X, backend.asarray(block), axis=0)
            votes = _votes(xp, queries @ X_kept.T, Y_kept, neighbours, temperature)
            truth = backend.asarray(codes[block])
            n_correct += int(xp.count_nonzero(xp.argmax(votes, axis=1) == truth))
        accuracies.append(n_correct / len(left_out))
    return float(np.mean(accuracies))


def _votes(xp: Any, similarity: Array, Y: Array, k: int, temperature: float) -> Array:
    ordered = xp.sort(similarity, axis=1, stable=False)
    near = similarity >= ordered[:, -k][:, None]
    # Relative to the nearest neighbour, whose vote must not underflow at a low temperature.
    votes = xp.exp((similarity - ordered[:, -1:]) / temperature)
    return xp.where(near, votes, xp.zeros_like(votes)) @ Y

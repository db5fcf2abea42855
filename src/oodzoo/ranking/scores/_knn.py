"""kNN: leave-one-domain-out accuracy of nearest neighbours."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from oodzoo.core.backend import Array, Backend
from oodzoo.core.errors import InputError
from oodzoo.ranking.scores.catalogue import score
from oodzoo.ranking.scores.statistics import as_classes, labelled_samples, positive

# Similarities are multiples of this, so that rounding errors do not break ties: those of a matrix
# product depend on the shapes of its blocks.
_TIED = 2.0**-40


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
    samples does not matter; similarities that differ by less than 10⁻¹² tie. A sample whose
    features are all zero has similarity 0 to all others. Needs no pre-training head. Complexity
    O(n²·d), in blocks of samples and of neighbours: besides X, memory does not depend on n.

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
    backend, X, codes, n_classes = labelled_samples(X, y)
    parts, n_domains = as_classes(domains, "domains", n=X.shape[0], at_least=2)
    accuracies = []
    for domain in range(n_domains):
        left_out, kept = np.flatnonzero(parts == domain), np.flatnonzero(parts != domain)
        neighbours = min(int(k), len(kept))
        rows, columns = _block_shape(backend, neighbours)
        n_correct = 0
        for start in range(0, len(left_out), rows):
            block = left_out[start : start + rows]
            queries = _directions(backend, X, block)
            nearest = _Nearest(backend, len(block), neighbours, n_classes)
            for at in range(0, len(kept), columns):
                part = kept[at : at + columns]
                nearest.add(queries @ _directions(backend, X, part).T, backend.asarray(codes[part]))
            predicted = backend.xp.argmax(nearest.votes(temperature), axis=1)
            n_correct += int(backend.xp.count_nonzero(predicted == backend.asarray(codes[block])))
        accuracies.append(n_correct / len(left_out))
    return float(np.mean(accuracies))


def _block_shape(backend: Backend, k: int) -> tuple[int, int]:
    """Number of queries and of references whose similarities are computed at once."""
    size = backend.block_bytes // 4
    rows = max(1, min(math.isqrt(size), size // k))  # k neighbours of each query are kept
    return rows, size // rows


def _directions(backend: Backend, X: Array, rows: npt.NDArray[np.intp]) -> Array:
    """Some rows of X in float64, scaled to length one; zero if all features are zero."""
    xp = backend.xp
    taken = backend.float64(xp.take(X, backend.asarray(rows), axis=0))
    # Scale by the maximum first: squaring very large features would overflow.
    size = xp.max(xp.abs(taken), axis=1, keepdims=True)
    taken = taken / xp.where(size > 0, size, xp.ones_like(size))
    length = xp.sqrt(xp.sum(taken * taken, axis=1, keepdims=True))
    return taken / xp.where(length > 0, length, xp.ones_like(length))


class _Nearest:
    """The k most similar references of each query, of those that were added so far.

    Attributes
    ----------
    values, classes : array (queries, up to k)
        Similarities and classes of the nearest references, in no order.
    ties : array (queries, C)
        Number of references, by class, whose similarity is that of the k-th nearest.
    """

    def __init__(self, backend: Backend, n_queries: int, k: int, n_classes: int) -> None:
        xp, device = backend.xp, backend.device
        self.backend, self.k = backend, k
        self.rows = xp.arange(n_queries, device=device)
        self.values = xp.zeros((n_queries, 0), dtype=xp.float64, device=device)
        self.classes = xp.zeros((n_queries, 0), dtype=xp.int64, device=device)
        self.ties = xp.zeros((n_queries, n_classes), dtype=xp.float64, device=device)

    def add(self, similarity: Array, classes: Array) -> None:
        """Add references, given their similarities (queries, m) and classes (m,)."""
        xp = self.backend.xp
        listed = self.values.shape[1]
        values, labels = similarity, xp.broadcast_to(classes[None, :], similarity.shape)
        if listed == self.k:
            kth = xp.min(self.values, axis=1)
            values, labels = self._candidates(similarity, classes, kth)
        else:
            kth = xp.full_like(similarity[:, 0], -math.inf)
        values = xp.concat([self.values, xp.round(values / _TIED) * _TIED], axis=1)
        labels = xp.concat([self.classes, labels], axis=1)
        if values.shape[1] < self.k:
            self.values, self.classes = values, labels
            return
        at = self.rows[:, None], _largest(self.backend, values, self.k)
        self.values, self.classes = values[at], labels[at]
        new = xp.min(self.values, axis=1)
        risen = new > kth
        tied = values == new[:, None]
        tied[:, :listed] &= risen[:, None]  # else they are counted already
        self.ties = xp.where(risen[:, None], xp.zeros_like(self.ties), self.ties)
        rows, columns = xp.nonzero(tied)
        self.ties = self.ties + self._by_class(rows, labels[rows, columns])

    def _candidates(self, similarity: Array, classes: Array, kth: Array) -> tuple[Array, Array]:
        """References that are at least as near as the k-th so far, to the left in each row."""
        xp, device = self.backend.xp, self.backend.device
        rows, columns = xp.nonzero(similarity >= kth[:, None] - _TIED)
        counts = xp.bincount(rows, minlength=len(kth))
        place = xp.arange(len(rows), device=device) - (xp.cumsum(counts, 0) - counts)[rows]
        shape = (len(kth), int(xp.max(counts)))
        values = xp.full(shape, -math.inf, dtype=xp.float64, device=device)
        labels = xp.zeros(shape, dtype=xp.int64, device=device)
        values[rows, place] = similarity[rows, columns]
        labels[rows, place] = classes[columns]
        return values, labels

    def _by_class(self, rows: Array, labels: Array, weights: Array | None = None) -> Array:
        """Number, or sum of the weights, of references of each query and class (queries, C)."""
        xp = self.backend.xp
        n_queries, n_classes = self.ties.shape
        cells = rows * n_classes + labels
        sums = xp.bincount(cells, weights, minlength=n_queries * n_classes)
        return xp.astype(xp.reshape(sums, (n_queries, n_classes)), xp.float64)

    def votes(self, temperature: float) -> Array:
        """Sum of the votes for each class (queries, C), relative to that of the nearest."""
        xp = self.backend.xp
        # Added from the largest down, so that the order of the references does not matter.
        at = self.rows[:, None], xp.argsort(self.values, axis=1, descending=True)
        values, classes = self.values[at], self.classes[at]
        # Relative to the nearest neighbour, whose vote must not underflow at a low temperature.
        votes = xp.exp((values - values[:, :1]) / temperature)
        nearer = xp.where(values > values[:, -1:], votes, xp.zeros_like(votes))
        rows = xp.broadcast_to(self.rows[:, None], classes.shape)
        flat = (xp.reshape(array, (-1,)) for array in (rows, classes, nearer))
        return self._by_class(*flat) + self.ties * votes[:, -1:]


def _largest(backend: Backend, values: Array, k: int) -> Array:
    """Positions of the k largest values of each row, in no order."""
    if not backend.is_numpy:
        return backend.xp.topk(values, k, sorted=False).indices
    return np.argpartition(values, values.shape[1] - k, axis=1)[:, values.shape[1] - k :]

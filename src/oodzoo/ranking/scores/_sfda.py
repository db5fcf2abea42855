"""SFDA: Fisher discriminant analysis on features that are made harder to separate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from oodzoo.core.backend import Array, Backend
from oodzoo.extraction.features import Shard
from oodzoo.linear.moments import Moments
from oodzoo.ranking.scores.catalogue import score
from oodzoo.ranking.scores.statistics import (
    Codes,
    Discriminant,
    Gaussians,
    Shards,
    Stream,
    centre,
    class_means,
    labelled_features,
    log_softmax,
    positive,
    shrink,
)

_LEAST_SHRINKAGE = 1e-10
_RATE = 5.0


def _from_moments(moments: Mapping[str, Moments], shards: Shards) -> float:
    stream = Stream.of(moments, shards)
    backend, n_classes = stream.backend, stream.total.n_classes
    xp = backend.xp
    first = Gaussians.of(stream.total)
    shrinkage = _shrinkage(float(xp.linalg.eigvalsh(first.within)[-1]), _RATE)
    easier = first.discriminant(shrinkage)
    others = (xp.sum(first.means, axis=0) - first.means) / (n_classes - 1)

    def harder() -> Iterator[Shard]:
        for X, y in (block for domain in stream.moments for block in stream.blocks(domain)):
            probabilities = xp.exp(log_softmax(backend, easier.log_joint(X)))
            confidence = xp.exp(_of_label(backend, log_softmax(backend, probabilities), y))[:, None]
            yield confidence * X + (1 - confidence) * xp.take(others, y, axis=0), y

    device = None if backend.is_numpy else str(backend.device)
    second = Gaussians.of(Moments.stream(harder(), n_classes, device=device))
    fitted = second.discriminant(shrinkage)
    logs = (_of_label(backend, log_softmax(backend, fitted.log_joint(X)), y) for X, y in harder())
    return sum(float(xp.sum(block)) for block in logs) / stream.total.n


@score(
    "sfda",
    title="Self-challenging Fisher discriminant analysis",
    reference="Shao et al., Not All Models Are Equal: Predicting Model Transferability in a "
    "Self-challenging Fisher Space, ECCV 2022",
    from_moments=_from_moments,
)
def sfda(X: Any, y: Any, a: float = _RATE) -> float:
    """Self-challenging Fisher discriminant analysis.

    A linear discriminant with the within-class covariance S_W shrunk towards (tr S_W / d) I is
    fitted to the features. Each sample is then moved towards the other classes, the further the
    less confident the discriminant is (ConfMix). The score is the mean log-probability of the
    labels under a second discriminant, fitted to the moved samples::

        λ = max(exp(-a σ_max(S_W)), 10⁻¹⁰),  S̃_W = (1 - λ) S_W + λ (tr S_W / d) I
        p_i = softmax(P(· | x_i))_{y_i},  x̃_i = p_i x_i + (1 - p_i) · mean of the other class means
        SFDA = 1/n Σ_i ln P̃(y_i | x̃_i)

    The second fit uses the same λ. This follows the authors' code with three exceptions: the
    logarithm of the paper is kept (the code omits it), σ_max is the largest eigenvalue (the code
    takes three steps of power iteration), and X is not modified. With all directions kept,
    projecting on the Fisher directions amounts to S̃_W⁻¹, so no eigenvectors are needed.
    The score is at most 0. It is invariant to rotation and translation, but depends on the scale of
    the features through λ. For n ≤ d and features of sufficient variance λ vanishes, the classes
    are separated perfectly, and the score is 0 for any features, so use more samples than features.
    A constant feature only increases d. If every class is a single point, distances are very large
    instead of undefined.
    Needs no pre-training head. Complexity O(n·d² + d³).

    Parameters
    ----------
    X : array of shape (n, d)
        Features.
    y : array of shape (n,)
        Labels, strings or integers.
    a : float
        Rate at which the regularisation decreases with the within-class variance.

    Returns
    -------
    float

    References
    ----------
    W. Shao, X. Zhao, Y. Ge, Z. Zhang, L. Yang, X. Wang, Y. Shan, P. Luo, "Not All Models Are
    Equal: Predicting Model Transferability in a Self-challenging Fisher Space", ECCV 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> round(sfda(*load_iris(return_X_y=True)), 4)
    -0.2446
    """
    positive(a, "a")
    backend, X, codes, n_classes = labelled_features(X, y)
    xp = backend.xp
    X = centre(backend, X)
    first = _Fisher.fit(backend, X, codes, n_classes)
    shrinkage = _shrinkage(float(first.within_spectrum(backend)[-1]), a)
    probabilities = xp.exp(first.log_posterior(backend, shrinkage))
    confidence = xp.sum(
        xp.exp(log_softmax(backend, probabilities)) * first.Y, axis=1, keepdims=True
    )
    others = (xp.sum(first.means, axis=0) - first.means) / (n_classes - 1)
    harder = confidence * X + (1 - confidence) * (first.Y @ others)
    second = _Fisher.fit(backend, harder, codes, n_classes)
    return float(xp.mean(xp.sum(second.log_posterior(backend, shrinkage) * second.Y, axis=1)))


def _shrinkage(largest: float, a: float) -> float:
    return max(math.exp(-a * max(largest, 0.0)), _LEAST_SHRINKAGE)


def _of_label(backend: Backend, values: Array, y: Array) -> Array:
    """The value of the class of each sample, of values (n, C)."""
    return values[backend.xp.arange(y.shape[0], device=backend.device), y]


class _Fisher(NamedTuple):
    """A linear discriminant fitted to labelled samples."""

    X: Array
    Y: Array
    counts: Array
    means: Array
    deviations: Array
    """Deviations of the samples from the mean of their class."""

    @classmethod
    def fit(cls, backend: Backend, X: Array, codes: Codes, n_classes: int) -> _Fisher:
        Y, counts, means = class_means(backend, X, codes, n_classes)
        return cls(X, Y, counts, means, X - Y @ means)

    def within_spectrum(self, backend: Backend) -> Array:
        n, d = self.X.shape
        R = self.deviations
        return backend.xp.linalg.eigvalsh(backend.gram(R.T if n < d else R)) / n

    def log_posterior(self, backend: Backend, shrinkage: float) -> Array:
        xp = backend.xp
        n, d = self.X.shape
        within = backend.gram(self.deviations) / n
        centred = centre(backend, self.X)
        covariance = shrink(backend, within, shrinkage, float(xp.sum(centred * centred)) / (n * d))
        fitted = Discriminant.of(backend, self.means, covariance, xp.log(self.counts / n))
        return log_softmax(backend, fitted.log_joint(self.X))

"""SFDA: Fisher discriminants on features made harder to tell apart."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from oodzoo.backend import Array, Backend
from oodzoo.scores.classes import centre, class_means
from oodzoo.scores.discriminant import log_joint, log_softmax, shrink
from oodzoo.scores.inputs import Codes, labelled_features, positive
from oodzoo.scores.registry import Score, register

_LEAST_SHRINKAGE = 1e-10


def sfda(X: Any, y: Any, a: float = 5.0) -> float:
    """Self-challenging Fisher discriminant analysis.

    A linear discriminant with the within-class covariance S_W shrunk towards (tr S_W / d) I is
    fitted to the features; each sample is then moved towards the other classes, the less sure
    the discriminant is of it (ConfMix), and the score is the mean log-probability of the labels
    under a second discriminant, fitted to the moved samples::

        λ = max(exp(-a σ_max(S_W)), 10⁻¹⁰),  S̃_W = (1 - λ) S_W + λ (tr S_W / d) I
        p_i = softmax(P(· | x_i))_{y_i},  x̃_i = p_i x_i + (1 - p_i) · mean of the other class means
        SFDA = 1/n Σ_i ln P̃(y_i | x̃_i)

    λ is kept in the second fit. All this follows the authors' code, but for three things: the
    logarithm of the paper is kept (the code leaves it out), σ_max is the largest eigenvalue (the
    code makes three steps of power iteration), and X is not changed. With all directions kept,
    projecting on the Fisher directions comes to S̃_W⁻¹, so no eigenvectors are needed.
    At most 0; does not change under rotation and translation, but does with the scale of the
    features, through λ. For n ≤ d and features of some spread λ vanishes, the classes are told
    apart perfectly, and the score is 0 whatever the features: it needs more samples than
    features there. A constant feature adds to d only. Where every class is a single point
    distances are very large, not undefined.
    Needs no head. O(n·d² + d³).

    Parameters
    ----------
    X : array of shape (n, d)
        Features.
    y : array of shape (n,)
        Labels, strings or integers.
    a : float
        How fast the regularisation vanishes with the spread of the classes.

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
    largest = max(0.0, float(first.within_spectrum(backend)[-1]))
    shrinkage = max(math.exp(-a * largest), _LEAST_SHRINKAGE)
    probabilities = xp.exp(first.log_posterior(backend, shrinkage))
    sure = xp.sum(xp.exp(log_softmax(backend, probabilities)) * first.Y, axis=1, keepdims=True)
    others = (xp.sum(first.means, axis=0) - first.means) / (n_classes - 1)
    harder = sure * X + (1 - sure) * (first.Y @ others)
    second = _Fisher.fit(backend, harder, codes, n_classes)
    return float(xp.mean(xp.sum(second.log_posterior(backend, shrinkage) * second.Y, axis=1)))


class _Fisher(NamedTuple):
    X: Array
    Y: Array
    counts: Array
    means: Array
    deviations: Array
    """Of the samples from the mean of their class."""

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
        priors = xp.log(self.counts / n)
        return log_softmax(backend, log_joint(backend, self.X, self.means, covariance, priors))


register(
    Score(
        name="sfda",
        function=sfda,
        needs="features",
        uses_domains=False,
        reference="Shao et al., Not All Models Are Equal: Predicting Model Transferability in a "
        "Self-challenging Fisher Space, ECCV 2022",
        title="Self-challenging Fisher discriminant analysis",
    )
)

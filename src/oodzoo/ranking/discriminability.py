r"""Inter-class discriminability: how well the labels of a held-out domain are predicted.

The paper (Section 3.1, Appendix B.4) takes
:math:`\log p(y_i \mid \Phi_i, y_{-i}, \Phi_{-i})` of the Bayesian linear model, for each domain i
with the model of the training domains, -i. It is a difference of two log evidences, both with the
precisions of the training domains, so moments are enough to compute it. The predictions for single
samples of the held-out domain take a second pass over its features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from oodzoo.backend import Array, backend_of
from oodzoo.evidence import Precisions, Spectrum, log_evidence


def discriminability(kept: Spectrum, union: Spectrum, precisions: Precisions) -> float:
    r"""Compute the mean over classes of :math:`\log p(y_i \mid \Phi_i, y_{-i}, \Phi_{-i}) / n_i`.

    `kept` and `precisions` are those of the training domains, -i; `union` is the spectrum of the
    training domains and the held-out domain together.
    """
    gain = log_evidence(union, precisions) - log_evidence(kept, precisions)
    return float(backend_of(gain).xp.mean(gain)) / (union.n - kept.n)


@dataclass(frozen=True, eq=False)
class LinearModel:
    r"""Posterior of the weights, :math:`N(m, A^{-1})`, in the eigenbasis V of the training domains.

    Attributes
    ----------
    weights : array (d, C)
        :math:`V^\top m`, that is :math:`t/(S+\delta)`.
    variances : array (d, C)
        Diagonal of :math:`V^\top A^{-1} V`, that is :math:`1/(\alpha + \beta S)`.
    noise : array (C,)
        :math:`1/\beta`.
    """

    weights: Array
    variances: Array
    noise: Array

    @classmethod
    def of(cls, kept: Spectrum, precisions: Precisions) -> LinearModel:
        """Compute the posterior at given precisions."""
        kernel = 1 / (kept.eigenvalues[:, None] + precisions.ridge[None, :])
        return cls(
            weights=kept.projections.T * kernel,
            variances=kernel / precisions.beta[None, :],
            noise=1 / precisions.beta,
        )

    def label_log_density(self, predicted: Array, squared: Array, one_hot: Array) -> Array:
        r"""Compute the log-density of the labels of each sample, averaged over classes, (n,).

        These are the marginals of the paper's Remark,
        :math:`y_{ij} \sim N(\phi_{ij}^\top m,\; \beta^{-1} + \phi_{ij}^\top A^{-1}\phi_{ij})`,
        from the predicted means (n, C), the squares (n, d) of the projected features and the labels
        (n, C), a row of zeros for a class that the model lacks.
        """
        xp = backend_of(predicted).xp
        variance = self.noise[None, :] + squared @ self.variances
        error = one_hot - predicted
        return -0.5 * xp.mean(xp.log(2 * math.pi * variance) + error**2 / variance, axis=1)

r"""Ridge regression of the labels between domains, from moments.

With :math:`\mu` and :math:`\bar y` the means of the training samples and
:math:`W = (\Sigma_x + \delta I)^{-1}\Sigma_{xy}` from their centred products, the prediction for
:math:`\phi` is :math:`\bar y + W^\top(\phi - \mu)`. On samples :math:`(\Phi, Y)` of other domains
its skill is the share of the variance of the labels that it predicts,

.. math::

    1 - \frac{\lVert Y - 1\bar y^\top - (\Phi - 1\mu^\top) W\rVert^2}
             {\lVert Y - 1\tilde y^\top\rVert^2}, \qquad \tilde y = Y^\top 1 / n,

limited to [0, 1], so that no domain dominates a mean. It is a function of the moments of both:
no pass over the samples is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oodzoo.backend import Array, backend_of, to_numpy
from oodzoo.moments import Moments

RIDGES = tuple(10.0**power for power in range(-3, 5))
"""Values of the ridge, relative to the mean eigenvalue of the centred Gram matrix."""


@dataclass(frozen=True, eq=False)
class RidgePath:
    """Ridge regressions of one training set, one for each value of the ridge.

    Attributes
    ----------
    mean : array (d,)
        Mean of the training features.
    frequencies : array (C,)
        Share of each class in the training samples.
    weights : list of arrays (d, C)
    """

    mean: Array
    frequencies: Array
    weights: list[Array]

    @classmethod
    def of(
        cls,
        moments: Moments,
        n_features: int | None = None,
        ridges: Sequence[float] = RIDGES,
    ) -> RidgePath:
        """Train on the samples behind the moments.

        `n_features` is the number of features, if the moments are of fewer coordinates.
        """
        centred = moments.about(moments.mean)
        backend = backend_of(centred.gram)
        xp = backend.xp
        total = float(xp.linalg.trace(centred.gram))
        weights = [xp.zeros_like(centred.class_sums) for _ in ridges]
        if total > 0:
            unit = total / min(moments.n, n_features or moments.n_features)
            weights = [
                backend.solve_positive(centred.gram, ridge * unit, centred.class_sums)
                for ridge in ridges
            ]
        return cls(moments.mean, moments.class_counts / moments.n, weights)

    def skills(self, target: Moments) -> NDArray[np.float64]:
        """Compute the skill on other samples for each value of the ridge, (R,).

        NaN if these have a single class, since their labels do not vary.
        """
        moved = target.about(self.mean)
        xp = backend_of(moved.gram).xp
        counts, n = moved.class_counts, target.n
        variance = n - float(xp.sum(counts**2)) / n
        if variance <= 0:
            return np.full(len(self.weights), np.nan)
        shares = self.frequencies
        # ‖Y - 1ȳᵀ‖² and (Φ - 1μᵀ)ᵀ(Y - 1ȳᵀ)
        squares = n + n * xp.sum(shares**2) - 2 * xp.sum(shares * counts)
        products = moved.class_sums - moved.feature_sum[:, None] * shares[None, :]
        errors = [
            squares - 2 * xp.sum(W * products) + xp.sum(W * (moved.gram @ W)) for W in self.weights
        ]
        skills: NDArray[np.float64] = np.clip(1 - to_numpy(xp.stack(errors)) / variance, 0.0, 1.0)
        return skills

    def predict(self, features: Array, ridge: int) -> Array:
        """Return the most probable class of each sample, for one value of the ridge.

        A class without training samples is never predicted.
        """
        xp = backend_of(features).xp
        W = self.weights[ridge]
        outputs = features @ W + (self.frequencies - self.mean @ W)[None, :]
        lowest = xp.full_like(self.frequencies, -xp.inf)
        absent = xp.where(self.frequencies > 0, xp.zeros_like(lowest), lowest)
        return xp.argmax(outputs + absent[None, :], axis=1)

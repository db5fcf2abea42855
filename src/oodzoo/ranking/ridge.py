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
from oodzoo.evidence import Spectrum
from oodzoo.moments import LARGE_OFFSET, Moments

RIDGES = tuple(10.0**power for power in range(-2, 3))
"""Values of the ridge, relative to the mean non-zero eigenvalue of the centred Gram matrix."""


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
        if moments.varies:
            unit = total / min(moments.n, n_features or moments.n_features)
            weights = [
                backend.solve_positive(centred.gram, ridge * unit, centred.class_sums)
                for ridge in ridges
            ]
        return cls(moments.mean, moments.class_counts / moments.n, weights)

    @classmethod
    def of_spectrum(
        cls, moments: Moments, spectrum: Spectrum, eigenvectors: Array, n_features: int
    ) -> RidgePath:
        r"""Do the same as :meth:`of`, given the decomposed Gram matrix :math:`G = VSV^\top`.

        The centred Gram matrix is :math:`G - n\mu\mu^\top`; with
        :math:`K = (S + \delta)^{-1}` and :math:`u = V^\top\mu` the Sherman–Morrison formula gives

        .. math::

            V^\top(G - n\mu\mu^\top + \delta I)^{-1}V
            = K + \frac{n}{1 - n u^\top K u} K u u^\top K.

        Features with a large offset are trained on by :meth:`of`: here, they would cancel.
        """
        xp = backend_of(moments.gram).xp
        n, mean = moments.n, moments.mean
        squares = float(xp.linalg.trace(moments.gram))
        total = squares - n * float(xp.sum(mean**2))
        if moments.centred is not None or total <= squares / LARGE_OFFSET**2:
            return cls.of(moments, n_features)
        u = mean @ eigenvectors
        targets = spectrum.projections.T - u[:, None] * moments.class_counts[None, :]
        weights = []
        for ridge in RIDGES:
            kernel = 1 / (spectrum.eigenvalues + ridge * total / min(n, n_features))
            scaled = kernel * u
            correction = n / (1 - n * float(xp.sum(scaled * u)))
            weights.append(
                kernel[:, None] * targets + scaled[:, None] * (correction * (scaled @ targets))
            )
        unrotated = eigenvectors @ xp.concat(weights, axis=1)
        C = targets.shape[1]
        split = [unrotated[:, number * C : (number + 1) * C] for number in range(len(RIDGES))]
        return cls(mean, moments.class_counts / n, split)

    def skills(self, target: Moments) -> NDArray[np.float64]:
        """Compute the skill on other samples for each value of the ridge, (R,).

        NaN if these have a single class, since their labels do not vary.
        """
        xp = backend_of(target.gram).xp
        counts, n = target.class_counts, target.n
        variance = n - float(xp.sum(counts**2)) / n
        if variance <= 0:
            return np.full(len(self.weights), np.nan)
        shares = self.frequencies
        # ‖Y - 1ȳᵀ‖², then with Ψ = Φ - 1μᵀ for all weights at once: ΨᵀΨW, and Ψᵀ(Y - 1ȳᵀ)
        squares = n + n * xp.sum(shares**2) - 2 * xp.sum(shares * counts)
        stacked = xp.concat(self.weights, axis=1)
        products, sums, class_sums = target.products_about(self.mean, stacked)
        cross = class_sums - sums[:, None] * shares[None, :]
        errors = []
        for number, W in enumerate(self.weights):
            quadratic = products[:, number * len(shares) : (number + 1) * len(shares)]
            errors.append(squares - 2 * xp.sum(W * cross) + xp.sum(W * quadratic))
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

r"""Ridge regression of the labels between domains, from moments, and transfer between domains.

With :math:`\mu` and :math:`\bar y` the means of the training samples and
:math:`W = (\Sigma_x + \delta I)^{-1}\Sigma_{xy}` from their centred products, the prediction for
:math:`\phi` is :math:`\bar y + W^\top(\phi - \mu)`. On samples :math:`(\Phi, Y)` of other domains
its skill is the share of the variance of the labels that it predicts,

.. math::

    1 - \frac{\lVert Y - 1\bar y^\top - (\Phi - 1\mu^\top) W\rVert^2}
             {\lVert Y - 1\tilde y^\top\rVert^2}, \qquad \tilde y = Y^\top 1 / n,

limited to [0, 1], so that no domain dominates a mean. It is a function of the moments of both:
no pass over the samples is needed.

**Transfer** is how well each domain alone predicts the labels of every other one: a regression is
trained on each domain and applied to each other domain. m domains give m (m - 1) pairs, each with
the largest shift that the data contain; leaving one domain out gives m. One ridge, relative to the
mean non-zero eigenvalue of each training domain, is used for all pairs of a model: the one with the
highest mean skill.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import Array, backend_of, to_numpy
from oodzoo.linear.evidence import Spectrum
from oodzoo.linear.moments import LARGE_OFFSET, Moments
from oodzoo.ranking.inputs import TrainingMoments

RIDGES = tuple(10.0**power for power in range(-2, 3))
"""Values of the ridge, relative to the mean non-zero eigenvalue of the centred Gram matrix."""


@dataclass(frozen=True, eq=False)
class RidgePath:
    """Ridge regressions of one training set, one for each value of the ridge.

    Attributes
    ----------
    mean : array (d,)
        Mean of the training features.
    label_mean : array (C,)
        Mean of the training labels: the share of each class.
    weights : list of arrays (d, C)
    """

    mean: Array
    label_mean: Array
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
        weights = [xp.zeros_like(centred.products) for _ in ridges]
        if moments.varies:
            unit = total / min(moments.n, n_features or moments.n_features)
            weights = [
                backend.solve_positive(centred.gram, ridge * unit, centred.products)
                for ridge in ridges
            ]
        return cls(moments.mean, moments.label_mean, weights)

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
        targets = spectrum.projections.T - u[:, None] * moments.label_sum[None, :]
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
        return cls(mean, moments.label_mean, split)

    def skills(self, target: Moments, *, by_output: bool = False) -> NDArray[np.float64]:
        """Compute the skill on other samples for each value of the ridge, (R,).

        `by_output` averages the skills of the columns of Y, each limited to [0, 1], so that numbers
        in different units weigh alike. NaN if no label varies, as of samples of a single class.
        """
        xp = backend_of(target.gram).xp
        variances, varies = to_numpy(target.label_scatter), to_numpy(target.label_varies)
        if not varies.any():
            return np.full(len(self.weights), np.nan)
        C = len(variances)
        # ‖Y - 1ȳᵀ‖², then with Ψ = Φ - 1μᵀ for all weights at once: ΨᵀΨW, and Ψᵀ(Y - 1ȳᵀ)
        squares = target.label_squares_about(self.label_mean)
        stacked = xp.concat(self.weights, axis=1)
        quadratics, sums, products = target.products_about(self.mean, stacked)
        cross = products - sums[:, None] * self.label_mean[None, :]
        errors = []
        for number, W in enumerate(self.weights):
            quadratic = quadratics[:, number * C : (number + 1) * C]
            errors.append(squares - 2 * xp.sum(W * cross, axis=0) + xp.sum(W * quadratic, axis=0))
        each = to_numpy(xp.stack(errors))
        if by_output:
            skills = np.clip(1 - each[:, varies] / variances[varies], 0.0, 1.0).mean(axis=1)
        else:
            skills = np.clip(1 - each.sum(axis=1) / variances.sum(), 0.0, 1.0)
        result: NDArray[np.float64] = skills
        return result

    def outputs(self, features: Array, ridge: int) -> Array:
        """Predict the labels Y of each sample, (n, C), for one value of the ridge."""
        W = self.weights[ridge]
        return features @ W + (self.label_mean - self.mean @ W)[None, :]

    def predict(self, features: Array, ridge: int) -> Array:
        """Return the most probable class of each sample, for one value of the ridge.

        A class without training samples is never predicted.
        """
        xp = backend_of(features).xp
        lowest = xp.full_like(self.label_mean, -xp.inf)
        absent = xp.where(self.label_mean > 0, xp.zeros_like(lowest), lowest)
        return xp.argmax(self.outputs(features, ridge) + absent[None, :], axis=1)


Weights = Sequence[float] | NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Transfer:
    """Skill of each pair of domains of one model.

    Attributes
    ----------
    domains : tuple of str
    skills : array (m, m, R)
        Skill from the domain of the row to that of the column, for each value of the ridge; NaN on
        the diagonal and for a domain with a single class, whose labels do not vary.
    """

    domains: tuple[str, ...]
    skills: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        moments: Mapping[str, Moments],
        training: TrainingMoments | None = None,
        n_features: int | None = None,
        *,
        unseen: Sequence[str] = (),
        by_output: bool = False,
    ) -> Transfer:
        """Compute all pairs from the moments of the domains.

        `training(source, [target, *unseen])` returns the moments to train on, if not those of the
        domain; pairs with an `unseen` domain are NaN. `n_features` is the number of features, if
        the moments are of fewer coordinates. `by_output` is as in :meth:`RidgePath.skills`.
        """
        names = tuple(moments)
        skills = np.full((len(names), len(names), len(RIDGES)), np.nan)
        for row, source in enumerate(names):
            if source in unseen:
                continue
            whole = RidgePath.of(moments[source], n_features)
            for column, target in enumerate(names):
                if column == row or target in unseen:
                    continue
                held_out = [target, *unseen]
                part = moments[source] if training is None else training(source, held_out)
                path = whole if part is moments[source] else RidgePath.of(part, n_features)
                skills[row, column] = path.skills(moments[target], by_output=by_output)
        return cls(names, skills)

    def pairs(
        self, domains: Sequence[str] | None = None, weights: Weights | None = None
    ) -> NDArray[np.float64]:
        """Return the skill (m, m) of each pair of some domains (default: all), at the best ridge.

        Parameters
        ----------
        domains : sequence of str, optional
        weights : sequence of float, optional
            Weights of these domains as targets, in the mean that decides on the ridge; by default
            equal.
        """
        chosen = self.domains if domains is None else domains
        at = [self.domains.index(name) for name in chosen]
        skills = self.skills[np.ix_(at, at)]
        means = [mean_into(skills[:, :, ridge], weights) for ridge in range(skills.shape[2])]
        best: NDArray[np.float64] = skills[:, :, int(np.argmax(means))]
        return best

    def skill(self, domains: Sequence[str] | None = None, weights: Weights | None = None) -> float:
        """Compute the mean skill over all pairs of some domains."""
        return mean_into(self.pairs(domains, weights), weights)


def into(pairs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean skill into each domain, (m,); NaN if it is not known for any pair."""
    known = ~np.isnan(pairs)
    sums, counts = np.where(known, pairs, 0.0).sum(axis=0), known.sum(axis=0)
    means: NDArray[np.float64] = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means


def mean_into(pairs: NDArray[np.float64], weights: Weights | None = None) -> float:
    """Mean over domains of the skill into them: zero if none is known, plain if none has weight."""
    means = into(pairs)
    known = ~np.isnan(means)
    if not known.any():
        return 0.0
    shares = np.ones(len(means)) if weights is None else np.asarray(weights, np.float64)
    shares = shares[known] if shares[known].sum() > 0 else np.ones(int(known.sum()))
    return float(shares @ means[known] / shares.sum())

r"""Transfer between domains: how well each domain alone predicts the labels of every other one.

A ridge regression (:mod:`oodzoo.ranking.ridge`) is trained on each domain and applied to each other
domain. m domains give m (m - 1) pairs, each with the largest shift that the data contain; leaving
one domain out gives m. One ridge, relative to the mean non-zero eigenvalue of each training domain,
is used for all pairs of a model: the one with the highest mean skill.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oodzoo.moments import Moments
from oodzoo.ranking.groups import TrainingMoments
from oodzoo.ranking.ridge import RIDGES, RidgePath

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

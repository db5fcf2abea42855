r"""Moments of one model, ridge regressions between its domains, and transfer between domains.

All that folds and transfer compute depends on the features :math:`\Phi` (n × d) only through
:math:`\Phi\Phi^\top` and the number d. With fewer samples than features, the features are replaced
by coordinates :math:`Z = U S^{1/2}` with :math:`\Phi\Phi^\top = U S U^\top`: then all matrices to
decompose have at most n rows instead of d. The published form of stability is not a function of
:math:`\Phi\Phi^\top`; for it, features are never replaced.

A group (a patient, a video) that occurs in several domains must not be trained on when one of these
domains is held out: its samples resemble each other for reasons that do not carry over.

**Ridge regression.** With :math:`\mu` and :math:`\bar y` the means of the training samples and
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

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import Array, backend, backend_of, to_numpy
from oodzoo.extraction.features import FeatureSource, Shard
from oodzoo.linear.evidence import Spectrum
from oodzoo.linear.moments import LARGE_OFFSET, Moments, blocks, domain_moments, is_large_offset


class SharedGroups:
    """Which samples of each domain belong to groups that occur in other domains, too."""

    def __init__(self, source: FeatureSource) -> None:
        self._groups = {d: source.groups(d) for d in source.domains}
        names = {
            d: {g for g in groups or () if g is not None} for d, groups in self._groups.items()
        }
        self._shared = {
            (d, other): names[d] & names[other] for d in names for other in names if d != other
        }

    def __bool__(self) -> bool:
        """Whether any group is in two domains."""
        return any(self._shared.values())

    @property
    def settings(self) -> str:
        """Identify the groups in the key of a cache; empty if no group is in two domains."""
        if not self:
            return ""
        content = json.dumps({d: list(g) if g else None for d, g in self._groups.items()})
        return f", groups {hashlib.sha256(content.encode()).hexdigest()}"

    def rows(self, domain: str, held_out: Sequence[str]) -> NDArray[np.bool_] | None:
        """Return which samples of a domain may be trained on; None for all.

        If none may, all are used: see :meth:`warn`.
        """
        shared = set().union(*(self._shared[domain, other] for other in held_out))
        groups = self._groups[domain]
        if not shared or groups is None:
            return None
        rows = np.array([group not in shared for group in groups])
        return rows if rows.any() else None

    def warn(self, held_out_together: int) -> None:
        """Warn of domains that cannot be held out without leaving nothing of another one."""
        for domain, groups in self._groups.items():
            others = [other for other in self._groups if other != domain]
            for held_out in combinations(others, held_out_together):
                shared = set().union(*(self._shared[domain, other] for other in held_out))
                if groups is not None and shared.issuperset(groups):
                    names = " or ".join(map(repr, held_out))
                    warnings.warn(
                        f"all samples of domain {domain!r} belong to groups that occur in {names}, "
                        f"too; they are trained on although {names} is held out, so accuracies may "
                        "be too high",
                        stacklevel=3,
                    )
                    return


@dataclass(frozen=True)
class ModelMoments:
    """Moments of each domain of one model, and the samples behind them.

    Attributes
    ----------
    moments : dict
        Moments of each domain.
    shards : callable
        Returns the features and labels of a domain by name; called once per fold.
    n_features : int, optional
        Number of features of the model, if the moments are of fewer coordinates.
    groups : SharedGroups, optional
    device : str or None
    """

    moments: dict[str, Moments]
    shards: Callable[[str], Iterable[Shard]]
    n_features: int | None = None
    groups: SharedGroups | None = None
    device: str | None = None

    def training(self, domain: str, held_out: Sequence[str]) -> Moments:
        """Return the moments of a domain without the groups of some held-out domains."""
        rows = self.groups.rows(domain, held_out) if self.groups else None
        if rows is None:
            return self.moments[domain]

        def kept() -> Iterator[Shard]:
            start = 0
            for features, labels in self.shards(domain):
                part = np.flatnonzero(rows[start : start + len(labels)])
                start += len(labels)
                if len(part):
                    yield features[part], labels[part]

        n_classes, context = self.moments[domain].n_classes, f"domain {domain!r}"
        return Moments.stream(kept(), n_classes, device=self.device, context=context)


def read_moments(
    source: FeatureSource, model: str, device: str | None, *, compact: bool = True
) -> ModelMoments:
    """Read the features of a model; replace them by coordinates if `compact` and n < d."""
    n_features, groups = source.facts(model).feature_dim, SharedGroups(source)
    n = sum(len(source.labels(domain)) for domain in source.domains)
    samples = _coordinates(source, model, device) if compact and n < n_features else None
    if samples is None:
        moments = domain_moments(source, model, device)
        return ModelMoments(moments, lambda d: source.shards(model, d), n_features, groups, device)
    n_classes = len(source.classes)
    moments = {d: Moments.of(*each, n_classes, device=device) for d, each in samples.items()}
    return ModelMoments(moments, lambda d: [samples[d]], n_features, groups, device)


def _coordinates(source: FeatureSource, model: str, device: str | None) -> dict[str, Shard] | None:
    """Coordinates and labels of the samples of each domain.

    None for features with a large offset, whose products would hide the spread in rounding, and
    for features that are all zero.
    """
    on = backend(device)
    xp = on.xp
    parts = {
        domain: list(
            blocks(
                source.shards(model, domain),
                len(source.classes),
                on,
                context=f"model {model!r}, domain {domain!r}",
            )
        )
        for domain in source.domains
    }
    features = xp.concat([block for part in parts.values() for block, _ in part])
    mean = xp.mean(features, axis=0)
    spread = float(xp.sum((features - mean[None, :]) ** 2)) / features.shape[0]
    if is_large_offset(float(xp.sum(mean**2)), spread):
        return None
    eigenvalues, vectors = on.eigh(on.gram(features.T))
    rounding = max(features.shape) * xp.finfo(xp.float64).eps * eigenvalues[-1]
    (varying,) = xp.nonzero(eigenvalues > rounding)
    if not len(varying):
        return None
    scales = xp.sqrt(xp.take(eigenvalues, varying))
    coordinates = xp.take(vectors, varying, axis=1) * scales[None, :]
    samples, start = {}, 0
    for domain, part in parts.items():
        labels = xp.concat([codes for _, codes in part])
        samples[domain] = coordinates[start : start + labels.shape[0]], labels
        start += labels.shape[0]
    return samples


RIDGES = tuple(10.0**power for power in range(-2, 3))
"""Values of the ridge, relative to the mean non-zero eigenvalue of the centred Gram matrix."""


@dataclass(frozen=True, eq=False)
class RidgeRegressions:
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
    ) -> RidgeRegressions:
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
    ) -> RidgeRegressions:
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
        read: ModelMoments,
        *,
        unseen: Sequence[str] = (),
        by_output: bool = False,
    ) -> Transfer:
        """Compute all pairs from the moments of the domains.

        Pairs with an `unseen` domain are NaN, and its groups are not trained on. `by_output` is as
        in :meth:`RidgeRegressions.skills`.
        """
        moments, names = read.moments, tuple(read.moments)
        skills = np.full((len(names), len(names), len(RIDGES)), np.nan)
        for row, source in enumerate(names):
            if source in unseen:
                continue
            whole = RidgeRegressions.of(moments[source], read.n_features)
            for column, target in enumerate(names):
                if column == row or target in unseen:
                    continue
                part, path = read.training(source, [target, *unseen]), whole
                if part is not moments[source]:
                    path = RidgeRegressions.of(part, read.n_features)
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

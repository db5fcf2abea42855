r"""Heads that adapt to the unlabelled images of one domain.

A part of the head acts on features that are standardised within each domain, so that a shift and a
scale common to all images of a domain cancel:

.. math:: \operatorname{logits}(x) = W x + b + W'\,\frac{x - m}{s} + b',

with the mean m and the standard deviation s of the domain that x belongs to. A domain with another
mixture of classes has another mean even if nothing else differs. Each image i therefore gets the
weight :math:`\sum_c p_{ic}\,\pi_{0c}/\pi_c`, with which the classes weigh as in a reference mixture
:math:`\pi_0`, the mean over the training domains; :math:`p_i` are its predicted probabilities.

The mixture :math:`\pi` of the domain is estimated from the mean predicted probabilities b. If row c
of A has the mean probabilities that are predicted for images of class c, the expectation of b is
:math:`A^\top\pi` (Lipton et al. 2018). A differs between domains and can be nearly singular, so
the estimate is a compromise with the reference mixture:

.. math:: \min_\pi\; \frac{\lVert b - A^\top\pi\rVert^2}{\text{noise}}
   + \frac{\lVert\pi - \pi_0\rVert^2}{\text{prior}}.

If the images lack classes, no weights restore the reference mixture, and their mean is that of the
other classes. Let r be the mean predicted probabilities with the weights of the images. Their
distance from those expected of the reference mixture,
:math:`t = \tfrac12\lVert r - A^\top\pi_0\rVert_1`, is the share of the images that cannot be
accounted for, and the logits are a weighted mean: 1 - t of those above, t of those of a head that
does not adapt. For a batch of one class of many, t is close to 1.

References
----------
Lipton, Wang, Smola: Detecting and correcting for label shift with black box predictors, ICML 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.linear.heads.linear import LinearHead

MIN_IMAGES = 20
"""Fewest images that a head adapts to: with fewer, the standard deviations are too uncertain."""

_NOISE_FACTOR = 3.0
"""The noise is a variance between two to five training domains: it is itself uncertain, and a new
domain is often further away than they are from each other."""

_SMALLEST_SHARE = 0.1
"""Smallest estimated share of a class, relative to the reference: limits the weight of an image."""

_ROWS = 512

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Confusion:
    """What a head predicts for images of each class in domains that it was not trained on.

    Attributes
    ----------
    rates : array (n_classes, n_classes)
        Row c: mean predicted probabilities of the images of class c.
    reference : array (n_classes,)
        Mean over the training domains of the shares of the classes.
    noise : float
        Variance of the mean predicted probabilities of a domain around those that `rates` and its
        mixture of classes give, besides the sampling of its images.
    """

    rates: Floats
    reference: Floats
    noise: float

    @classmethod
    def of(
        cls, probabilities: Sequence[NDArray[np.floating]], labels: Sequence[NDArray[np.int64]]
    ) -> Confusion:
        """Measure the confusion on the training domains.

        Parameters
        ----------
        probabilities : sequence of array (n, n_classes)
            For each training domain, probabilities predicted by a head that was not trained on it.
        labels : sequence of array (n,)
            For each training domain, the true classes. None of the domains is empty.
        """
        n_classes = probabilities[0].shape[1]
        truth = [np.eye(n_classes)[of_domain] for of_domain in labels]
        shares = np.array([of_domain.mean(axis=0) for of_domain in truth])
        means = np.array([p.mean(axis=0, dtype=np.float64) for p in probabilities])
        sums = np.array([t.T @ p for t, p in zip(truth, probabilities, strict=True)])
        counts = np.array([of_domain.sum(axis=0) for of_domain in truth])
        # a class without images has the sum 0, and is left out below
        confusions = sums / np.maximum(counts, 1)[:, :, None]
        everything = np.arange(len(shares))
        errors = []
        for domain in everything:
            others = everything[everything != domain] if len(shares) > 1 else everything
            expected = shares[domain] @ _mean_rates(confusions[others], shares[others])
            errors.append(np.square(means[domain] - expected).mean())
        return cls(
            _mean_rates(confusions, shares),
            shares.mean(axis=0),
            float(_NOISE_FACTOR * np.mean(errors)),
        )


def _mean_rates(confusions: Floats, shares: Floats) -> Floats:
    """Mean confusion of the domains that have a class; the mean mixture if none has it."""
    n_domains = (shares > 0).sum(axis=0)[:, None]
    rates: Floats = confusions.sum(axis=0) / np.maximum(n_domains, 1)
    return np.where(n_domains > 0, rates, shares.mean(axis=0))


def estimate_mixture(probabilities: NDArray[np.floating], confusion: Confusion) -> Floats:
    """Estimate the mixture of classes (n_classes,) of the unlabelled images of one domain.

    Parameters
    ----------
    probabilities : array (n, n_classes)
        Predicted by the head whose confusion is given.
    confusion : Confusion

    Examples
    --------
    >>> perfect = Confusion(np.eye(2), np.array([0.5, 0.5]), noise=0.0)
    >>> probabilities = np.repeat([[1.0, 0.0], [0.0, 1.0]], [800, 200], axis=0)
    >>> estimate_mixture(probabilities, perfect).round(2).tolist()
    [0.8, 0.2]
    """
    return _estimate(probabilities.mean(axis=0, dtype=np.float64), len(probabilities), confusion)


def _estimate(observed: Floats, n: int, confusion: Confusion) -> Floats:
    """The mixture of n images with these mean predicted probabilities."""
    rates, reference = confusion.rates, confusion.reference
    noise = confusion.noise + np.mean(reference * (1 - reference)) / n
    prior = reference.mean() ** 2
    precision = rates @ rates.T / noise + np.eye(len(reference)) / prior
    gap = observed - rates.T @ reference
    mixture = reference + np.linalg.solve(precision, rates @ gap / noise)
    # a class without training images stays at 0: it is never predicted
    mixture = np.where(reference > 0, np.maximum(mixture, _SMALLEST_SHARE * reference), 0)
    normalised: Floats = mixture / mixture.sum()
    return normalised


def class_weights(
    probabilities: NDArray[np.floating], mixture: Floats, reference: Floats
) -> Floats:
    """Weight of each image (n,), with which the classes weigh as in the reference mixture."""
    return np.asarray(probabilities @ _ratios(mixture, reference), np.float64)


def _ratios(mixture: Floats, reference: Floats) -> Floats:
    """Weight of an image of each class; 1 for a class without training images."""
    known = mixture > 0
    return np.where(known, reference / np.where(known, mixture, 1), 1)


def weighted_mean_and_std(features: NDArray[np.floating], weights: Floats) -> tuple[Floats, Floats]:
    """Weighted mean and standard deviation (d,) of each feature, in float64.

    The standard deviation of a constant feature is exactly 0.
    """
    shares = weights / weights.sum()
    first = features[0].astype(np.float64)  # differences from it are 0 for a constant feature
    tops = range(0, len(features), _ROWS)
    shift = np.zeros(len(first))
    for top in tops:
        shift += shares[top : top + _ROWS] @ (features[top : top + _ROWS] - first)
    variance = np.zeros(len(first))
    for top in tops:
        deviations = features[top : top + _ROWS] - first - shift
        variance += shares[top : top + _ROWS] @ np.square(deviations)
    return first + shift, np.sqrt(variance)


@dataclass(frozen=True)
class AdaptiveHead:
    """A linear head with a part that acts on features standardised within each domain.

    A class without training images has the bias -inf in all three heads.

    Attributes
    ----------
    plain : LinearHead
        The part that acts on the features as they are.
    standardised : LinearHead
        The part that acts on the features standardised within their domain.
    confusion : Confusion
        Confusion of `base`.
    base : LinearHead
        Head that does not adapt. Its predictions estimate the mixture of classes of a domain, and
        it replaces the adapted head as far as the images of a domain lack classes.
    """

    plain: LinearHead
    standardised: LinearHead
    confusion: Confusion
    base: LinearHead

    def for_domain(self, mean: Floats, std: Floats) -> LinearHead:
        """Return the head for images of a domain with this mean and standard deviation (d,).

        A feature with standard deviation 0 contributes 0 to the standardised part.
        """
        scale = np.where(std > 0, 1 / np.where(std > 0, std, 1), 0)
        weights = self.standardised.weights * scale
        return LinearHead(
            self.plain.weights + weights,
            self.plain.bias + self.standardised.bias - weights @ mean,
            self.plain.C,
        )

    def adapted(self, features: NDArray[np.floating]) -> LinearHead:
        """Return the head for the domain of which these are the features of unlabelled images.

        Raises
        ------
        InputError
            If there are fewer than `MIN_IMAGES` images.
        """
        domain = AdaptingDomain(self)
        domain.add(features)
        return domain.head()


class AdaptingDomain:
    """The unlabelled images of one domain, added in parts; memory does not depend on their number.

    Sums of the features over the images, weighted by the probabilities of each class, are enough,
    because the weight of an image is linear in its probabilities.

    Attributes
    ----------
    n : int
        Number of images so far.
    """

    def __init__(self, adaptive: AdaptiveHead) -> None:
        n_classes, n_features = adaptive.base.weights.shape
        self.n = 0
        self._adaptive = adaptive
        self._first = np.zeros(n_features)
        self._mass = np.zeros(n_classes)
        self._products = np.zeros((n_classes, n_classes))
        self._sums = np.zeros((n_classes, n_features))
        self._squares = np.zeros((n_classes, n_features))

    def add(self, features: NDArray[np.floating]) -> None:
        """Add images with these features (n, d)."""
        for top in range(0, len(features), _ROWS):
            part = features[top : top + _ROWS].astype(np.float64)
            if not self.n:
                self._first = part[0].copy()
            probabilities = self._adaptive.base.probabilities(part)
            part -= self._first  # exactly 0 for a constant feature
            self.n += len(part)
            self._mass += probabilities.sum(axis=0)
            self._products += probabilities.T @ probabilities
            self._sums += probabilities.T @ part
            self._squares += probabilities.T @ np.square(part)

    def head(self) -> LinearHead:
        """Return the head for the images so far; InputError if they are fewer than `MIN_IMAGES`."""
        if self.n < MIN_IMAGES:
            raise InputError(
                f"{count(self.n, 'readable image')}, at least {MIN_IMAGES} are needed to adapt to "
                "them; add images of the same domain, or predict without adapting"
            )
        confusion = self._adaptive.confusion
        mixture = _estimate(self._mass / self.n, self.n, confusion)
        ratios = _ratios(mixture, confusion.reference)
        total = ratios @ self._mass
        shift, square = ratios @ self._sums / total, ratios @ self._squares / total
        # little cancels: the first image is one of them, so the variance is at least about
        # square / n
        std = np.sqrt(np.maximum(square - np.square(shift), 0))
        adapted = self._adaptive.for_domain(self._first + shift, std)
        restored = ratios @ self._products / total
        expected = confusion.rates.T @ confusion.reference
        return _mean_head(adapted, self._adaptive.base, np.abs(restored - expected).sum() / 2)


def _mean_head(one: LinearHead, two: LinearHead, share: float) -> LinearHead:
    """The weighted mean of two heads that know the same classes; `share` is the second one's."""
    known = np.isfinite(one.bias)
    bias = np.full(len(known), -np.inf)
    bias[known] = (1 - share) * one.bias[known] + share * two.bias[known]
    return LinearHead((1 - share) * one.weights + share * two.weights, bias, one.C)

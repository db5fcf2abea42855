"""LDA: held-out accuracy of a linear discriminant with shrunk covariance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.linear.heads.samples import Groups
from oodzoo.linear.moments import Moments, merge, oas_shrinkage
from oodzoo.ranking.scores.catalogue import score
from oodzoo.ranking.scores.statistics import (
    Discriminant,
    Gaussians,
    Shards,
    Stream,
    as_classes,
    centre,
    generator,
    labelled_features,
    stratified_folds,
)

_FOLDS = 5


def _from_moments(moments: Mapping[str, Moments], shards: Shards) -> float:
    if len(moments) < 2:
        raise InputError(f"lda needs at least two domains, got {', '.join(moments)}")
    stream = Stream.of(moments, shards)
    xp = stream.backend.xp
    accuracies = []
    for domain, left_out in stream.moments.items():
        fitted = _fit(merge(one for name, one in stream.moments.items() if name != domain))
        n_correct = sum(
            int(xp.count_nonzero(xp.argmax(fitted.log_joint(X), axis=1) == y))
            for X, y in stream.blocks(domain)
        )
        accuracies.append(n_correct / left_out.n)
    return float(np.mean(accuracies))


@score(
    "lda",
    uses_domains=True,
    title="Held-out accuracy of shrunk linear discriminant analysis",
    reference="Fisher, The use of multiple measurements in taxonomic problems, Annals of "
    "Eugenics 1936; shrinkage: Chen et al., IEEE Transactions on Signal Processing 2010",
    from_moments=_from_moments,
)
def lda(
    X: Any, y: Any, domains: Any = None, random_state: int = 0, groups: Groups | None = None
) -> float:
    """Held-out accuracy of shrunk linear discriminant analysis.

    Each domain is held out in turn, a linear discriminant is fitted to the others, and its accuracy
    on the held-out domain is measured; the score is the mean of these accuracies, in [0, 1], and
    estimates the accuracy on an unseen domain. Without domains, five stratified random folds take
    their place, and the score estimates the accuracy on unseen samples of the same domain.

    With class means μ_c, class shares π_c and within-class covariance S_W of the training samples::

        Σ = (1 - ρ) S_W + ρ (tr S_W / d) I,  ρ the shrinkage of Chen et al. (OAS)
        ŷ = argmax_c  μ_cᵀΣ⁻¹x - ½ μ_cᵀΣ⁻¹μ_c + ln π_c

    A class found only in the held-out part cannot be predicted. The score is invariant to rotation,
    translation and a common scale of the features; a constant feature only increases d.
    Needs no pre-training head. Complexity O(n·d² + m·d³) for m parts.

    Parameters
    ----------
    X : array of shape (n, d)
        Features.
    y : array of shape (n,)
        Labels, strings or integers.
    domains : array of shape (n,), optional
        Domains, strings or integers; at least two.
    random_state : int
        Random seed of the folds, used without domains.
    groups : sequence of length n, optional
        Group of each sample (a patient, a video), None for a sample without one; without domains,
        the folds keep groups whole.

    Returns
    -------
    float

    References
    ----------
    R. A. Fisher, "The use of multiple measurements in taxonomic problems", Annals of Eugenics,
    1936. Y. Chen, A. Wiesel, Y. C. Eldar, A. O. Hero, "Shrinkage Algorithms for MMSE Covariance
    Estimation", IEEE Transactions on Signal Processing, 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> round(lda(*load_iris(return_X_y=True)), 4)
    0.98
    """
    backend, X, codes, n_classes = labelled_features(X, y)
    rng = generator(random_state)
    if domains is None:
        parts = stratified_folds(codes, min(_FOLDS, len(codes)), rng, groups)
        n_parts = int(parts.max()) + 1
    else:
        parts, n_parts = as_classes(domains, "domains", n=len(codes), at_least=2)
    X = centre(backend, X)  # sums of squares about the mean are more precise
    members = [np.flatnonzero(parts == part) for part in range(n_parts)]
    taken = [backend.xp.take(X, backend.asarray(rows), axis=0) for rows in members]
    moments = [
        Moments.of(
            values, codes[rows], n_classes, device=None if backend.is_numpy else str(backend.device)
        )
        for values, rows in zip(taken, members, strict=True)
    ]
    accuracies = []
    for part in range(n_parts):
        kept = merge(moments[:part] + moments[part + 1 :])
        predicted = backend.xp.argmax(_fit(kept).log_joint(taken[part]), axis=1)
        truth = backend.asarray(codes[members[part]])
        accuracies.append(int(backend.xp.count_nonzero(predicted == truth)) / len(members[part]))
    return float(np.mean(accuracies))


def _fit(moments: Moments) -> Discriminant:
    classes = Gaussians.of(moments)
    shrinkage = oas_shrinkage(classes.within, moments.n, c=2 / moments.n_features)
    return classes.discriminant(shrinkage)

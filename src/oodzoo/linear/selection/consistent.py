r"""Selection from many models of the features that help in every domain.

Features are ordered by their contribution to left-out domains
(:mod:`~oodzoo.linear.selection.contributions`), and the first ones are kept. How many is chosen on
left-out domains: for each domain, the features are ordered without it, heads on the first ones are
trained without it, and predict it. The number with the highest mean log-likelihood, over the
domains, is kept. A feature without a positive contribution never is. With many samples, an evenly
spaced part of each class and domain decides.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.events import Progress
from oodzoo.extraction.columns import Columns, Samples
from oodzoo.extraction.source import FeatureSource
from oodzoo.linear.heads.kinds import PATHS
from oodzoo.linear.heads.outputs import outputs_of
from oodzoo.linear.selection.contributions import contributions, thinned

SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 1.0)
"""Shares of all features that may be kept."""

MAX_VALUES = 2**27
"""Largest number of values (samples times kept features): 512 MiB. Fits make copies of them."""


def select_by_contribution(
    source: FeatureSource,
    models: Sequence[str],
    domains: Sequence[str],
    device: str | None,
    progress: Progress | None = None,
) -> dict[str, NDArray[Any]]:
    """Select the features with the largest contributions to left-out domains.

    Returns
    -------
    dict of array
        "total" and "best_class" as in
        :class:`~oodzoo.linear.selection.contributions.Contributions`, the mask "support"
        (n_features,), the candidates for the number of features, "numbers", and their
        "likelihoods".
    """
    _require_common_classes(source, domains)
    advance = progress or (lambda done, total: None)
    advance(0, len(domains) + 1)
    scores = contributions(source, models, domains, device=device)
    advance(1, len(domains) + 1)
    if not (scores.total > 0).any():
        warnings.warn(
            f"no feature of {', '.join(models)} helps to predict left-out domains; keeping one",
            stacklevel=3,
        )
    n = sum(len(source.labels(domain)) for domain in domains)
    numbers = np.array([_number(scores.total, share, n) for share in SHARES])
    numbers, at = np.unique(numbers, return_index=True)
    shares = [SHARES[place] for place in at]
    likelihoods = np.full(len(shares), np.nan)
    if len(shares) > 1:
        likelihoods = _likelihoods(source, models, domains, shares, device, advance)
    # Without any left-out prediction there is no reason to drop features that help.
    kept = -1 if np.isnan(likelihoods).any() else int(likelihoods.argmax())
    support = np.zeros(len(scores.total), np.bool_)
    support[_order(scores.total)[: numbers[kept]]] = True
    return {
        **scores._asdict(),
        "support": support,
        "numbers": numbers,
        "likelihoods": likelihoods,
    }


def _likelihoods(
    source: FeatureSource,
    models: Sequence[str],
    domains: Sequence[str],
    shares: Sequence[float],
    device: str | None,
    advance: Progress,
) -> NDArray[np.float64]:
    """Mean quality of heads on left-out domains for each share, with the best setting.

    It is the log-likelihood of the labels, or minus the squared error of numbers; NaN if unknown.
    """
    heads, outputs = PATHS[source.task.kind], outputs_of(source.task.kind)
    predicted: list[list[NDArray[Any]]] = []  # of each domain, for each share (settings, n, C)
    truth = []
    for left_out, domain in enumerate(domains):
        advance(1 + left_out, len(domains) + 1)
        others = [other for other in domains if other != domain]
        total = contributions(source, models, others, device=device).total
        if not total.any():
            continue
        n = sum(len(source.labels(other)) for other in others)
        numbers = [_number(total, share, n) for share in shares]
        rank = np.empty(len(total), np.int64)
        rank[_order(total)] = np.arange(len(total))
        columns = Columns.by_mask(source, models, rank < max(numbers))
        samples = thinned_samples(columns, source, domains)
        rank = rank[rank < max(numbers)]
        truth.append(samples.labels[samples.domains == left_out])
        found = []
        for number in numbers:
            part = samples._replace(features=samples.features[:, rank < number])
            found += heads.left_out(part, len(source.classes), [{left_out}], device=device)
        predicted.append(found)
    if not predicted:
        return np.full(len(shares), np.nan)
    # all domains together: the scale of numbers is that of all of them
    tables = [outputs.quality(each, truth) for each in zip(*predicted, strict=True)]
    return np.array([table.mean(axis=0).max() for table in tables])


def thinned_samples(columns: Columns, source: FeatureSource, domains: Sequence[str]) -> Samples:
    """Samples of some columns: all, or a part of many."""
    samples = columns.samples(source, domains)
    sizes = [len(source.labels(domain)) for domain in domains]
    starts = np.cumsum([0, *sizes[:-1]])
    parts = thinned(source, domains).values()
    rows = np.concatenate([start + part for start, part in zip(starts, parts, strict=True)])
    return samples if len(rows) == sum(sizes) else Samples(*(each[rows] for each in samples))


def _number(total: NDArray[np.float64], share: float, n: int) -> int:
    """Number of features of a share: of those that help, and as many as memory allows."""
    most = min(int((total > 0).sum()), MAX_VALUES // n)
    return max(1, min(round(share * len(total)), most))


def _order(total: NDArray[np.float64]) -> NDArray[np.int64]:
    """Features from the largest contribution to the smallest."""
    return np.argsort(-total, kind="stable")


def _require_common_classes(source: FeatureSource, domains: Sequence[str]) -> None:
    if len(domains) < 2:
        raise InputError(
            "features are selected by their use in left-out domains, which needs two or more "
            f"domains, got {', '.join(map(repr, domains))}; add domains, or use the method 'paper'"
        )
    if not source.task.is_classification:
        return
    present = np.sum([np.isin(range(len(source.classes)), source.labels(d)) for d in domains], 0)
    if present.max() < 2:
        raise InputError(
            f"no class is in two of the domains {', '.join(map(repr, domains))}, so no feature can "
            "be compared between them; use the method 'paper'"
        )

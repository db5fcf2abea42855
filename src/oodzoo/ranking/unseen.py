r"""The default score, "unseen": how well a model is expected to do on an unseen domain.

Two estimates that err differently are combined:

- the *evidence* of all domains together (LogME): how well the labels can be learned from the
  features at all. It pools the samples of all domains, so it varies little, but it does not see
  whether what is learned carries over to another domain;
- the *transfer* between domains (:mod:`oodzoo.ranking.transfer`): how well each domain alone
  predicts every other one. It sees the shift, but varies more, since domains are few. Each pair of
  domains ranks the models; the mean rank is used, so that no pair dominates.

Both are standardised over the models to mean 0 and variance 1. The transfer is weighted by its
reliability r, the intraclass correlation of the ranks: how well the order by one pair of domains
agrees with the order by another. With k pairs and M models it is

.. math:: r = \max\Big\{0, \frac{B - W}{B + (k - 1) W}\Big\},

where B is k times the variance of the mean ranks of the models, and W the mean over models of the
variance of their ranks (Shrout and Fleiss, Intraclass correlations, 1979). If all pairs agree, r is
1 and both count alike; if the order by one pair says nothing about that by another, r is 0 and the
score is the evidence. The score is

.. math:: \frac{z(\text{evidence}) + r\,z(\text{mean rank})}{1 + r}.

It compares the models of one ranking: 0 is their average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oodzoo.ranking.transfer import Transfer

Floats = NDArray[np.float64]

_SKILL_DIGITS = 9
"""Skills that are equal to this number of decimals are tied: the rest is rounding."""

_SCORE_DIGITS = 12

_ROUNDING = 1e-9
"""Values whose standard deviation, relative to their size, is at most this are equal."""


def unseen_scores(evidence: Floats, skills: Floats, weights: Floats | None = None) -> Floats:
    """Compute the score of each model.

    Parameters
    ----------
    evidence : array (M,)
    skills : array (M, k)
        Skill of each model in each pair of domains; k may be 0.
    weights : array (k,), optional
        Weights of the pairs in the mean rank; by default equal.

    Examples
    --------
    >>> evidence = np.array([-0.2, -0.3, -0.1])
    >>> skills = np.array([[0.5, 0.4], [0.2, 0.1], [0.4, 0.3]])
    >>> unseen_scores(evidence, skills).round(3).tolist()
    [0.612, -1.225, 0.612]
    """
    if skills.shape[1] == 0:
        return standardised(evidence)
    ranks = np.apply_along_axis(mean_ranks, 0, skills.round(_SKILL_DIGITS))
    r = reliability(ranks)
    mean = np.average(ranks, axis=1, weights=weights)
    scores = (standardised(evidence) + r * standardised(mean)) / (1 + r)
    return scores.round(_SCORE_DIGITS)  # so that equal scores are equal


def mean_ranks(values: Floats) -> Floats:
    """Rank values (M,) from 1, the lowest first; equal values have the mean of their ranks.

    So does ``scipy.stats.rankdata``, the import of which takes longer than many a ranking.
    """
    order = np.sort(values)
    first, last = (np.searchsorted(order, values, side) for side in ("left", "right"))
    ranks: Floats = (first + last + 1) / 2
    return ranks


def reliability(ranks: Floats) -> float:
    """Compute the intraclass correlation of ranks (M, k), at least 0."""
    k = ranks.shape[1]
    if k < 2 or len(ranks) < 2:
        return 0.0
    between = k * float(ranks.mean(axis=1).var(ddof=1))
    within = float(ranks.var(axis=1, ddof=1).mean())
    if between <= within:
        return 0.0
    return float((between - within) / (between + (k - 1) * within))


def standardised(values: Floats) -> Floats:
    """Shift and scale values to mean 0 and variance 1; zeros if they are all equal."""
    deviations: Floats = values - values.mean()
    spread = float(values.std())
    if spread <= _ROUNDING * float(np.abs(values).max()):
        return np.zeros_like(deviations)
    return deviations / spread


@dataclass(frozen=True)
class UnseenTerms:
    """The terms of one model, of some domains.

    Attributes
    ----------
    domains : tuple of str
    evidence : float
        LogME of all domains together.
    rest : array (m,)
        LogME of all domains but each in turn.
    transfer : Transfer
        Of these domains, and perhaps of more.
    """

    domains: tuple[str, ...]
    evidence: float
    rest: Floats
    transfer: Transfer


def scores_of(terms: Sequence[UnseenTerms], weights: Floats) -> Floats:
    """The score (M,) of all domains, with their weights."""
    return _scores(terms, np.array([t.evidence for t in terms]), terms[0].domains, weights)


def scores_without_pairs(terms: Sequence[UnseenTerms], at: int, weights: Floats) -> Floats:
    """The score (M,) of all domains, without the pairs into one of them."""
    evidence = np.array([t.evidence for t in terms])
    return _scores(terms, evidence, terms[0].domains, weights, skipped=at)


def scores_without(terms: Sequence[UnseenTerms], at: int, weights: Floats | None = None) -> Floats:
    """The score (M,) of all domains but one, with weights of the others, or equal ones."""
    others = [name for i, name in enumerate(terms[0].domains) if i != at]
    if weights is None:
        weights = np.full(len(others), 1 / len(others))
    return _scores(terms, np.array([t.rest[at] for t in terms]), others, weights)


def _scores(
    terms: Sequence[UnseenTerms],
    evidence: Floats,
    domains: Sequence[str],
    weights: Floats,
    skipped: int | None = None,
) -> Floats:
    """The score from the evidence and the pairs of some domains, without pairs into one of them."""
    skills = np.stack([t.transfer.pairs(domains, weights) for t in terms])
    if skipped is not None:
        skills[:, :, skipped] = np.nan
    sources, targets = np.nonzero(~np.isnan(skills[0]))
    shares = weights[targets] if weights[targets].sum() > 0 else None
    return unseen_scores(evidence, skills[:, sources, targets], shares)

"""Rows of a ranking: the scores of one model, and on each held-out domain."""

from __future__ import annotations

from dataclasses import dataclass

from oodzoo._html import html_table
from oodzoo._text import short_name


@dataclass(frozen=True)
class FoldRow:
    """Scores and metrics of a model on one held-out domain.

    `accuracy` and `balanced_accuracy` are in percent. For other tasks than classification they are
    the main and the second metric: explained variance, in percent, and absolute error, in the units
    of the labels; or average precision and exact match, in percent.

    `score` is the contribution of the domain to the score of the ranking, which is the mean of
    these; None for a score that is not computed per domain.
    """

    domain: str
    score: float | None
    transfer: float | None
    """Skill of the other domains, one at a time, in predicting this one, in percent; None if the
    domain has a single class."""
    discriminability: float
    stability: float
    accuracy: float
    balanced_accuracy: float
    skipped: tuple[str, ...] = ()
    """Classes found in no other domain; they are excluded from discriminability."""

    def __repr__(self) -> str:
        score = "" if self.score is None else f"score {self.score:.4g}, "
        return f"FoldRow({short_name(self.domain)!r}: {score}{self.accuracy:.1f} %)"


@dataclass(frozen=True)
class Row:
    """One model of a ranking.

    Attributes
    ----------
    rank : int
    model : str
    score : float
        Higher is better.
    evidence, transfer : float
        The two terms of the default score (see :mod:`oodzoo.ranking.unseen`): LogME of all domains
        together, and the mean skill of one domain in predicting another, in percent.
    discriminability, stability : float
        The two terms of the ZooD score, averaged over held-out domains.
    agreement : float or None
        With images of the target: the share of them, in percent, on which a linear model on these
        features agrees with the vote of the other models (see :mod:`oodzoo.ranking.agreement`).
    expected_accuracy : float
        Accuracy in percent to expect on an unseen domain: that of a ridge regression on these
        features, averaged over held-out domains. For other tasks than classification, the main
        metric: explained variance or average precision. A model that was chosen for its results
        promises too much: for the first model, and a score that is computed per domain, the choice
        is repeated for each held-out domain without the predictions for it.
    accuracy_interval : (float, float)
        90 % interval of this on a single new domain.
    rank_interval : (int, int) or None
        90 % interval of the rank (see :mod:`oodzoo.ranking.intervals`); None for scores that are
        not averages over held-out domains.
    tied : tuple of str
        Models that are statistically tied with this one.
    pareto_optimal : bool
        No other model is at least as accurate and cheaper. The cost is milliseconds per image or
        the number of parameters, whichever is known for more models.
    folds : tuple of FoldRow
    feature_dim, parameters, milliseconds, licence
        Cost and licence of the model, where known.
    """

    rank: int
    model: str
    score: float
    evidence: float
    transfer: float
    discriminability: float
    stability: float
    expected_accuracy: float
    accuracy_interval: tuple[float, float]
    rank_interval: tuple[int, int] | None
    tied: tuple[str, ...]
    pareto_optimal: bool
    folds: tuple[FoldRow, ...]
    feature_dim: int
    parameters: int | None
    milliseconds: float | None
    licence: str | None = None
    agreement: float | None = None

    def __repr__(self) -> str:
        expected = f"expected {self.expected_accuracy:.1f} %"
        return f"Row({self.rank} {short_name(self.model)!r}: score {self.score:.4g}, {expected})"

    def _repr_html_(self) -> str:
        shown = [[fold.domain, f"{fold.accuracy:.1f}"] for fold in self.folds]
        return html_table(["held-out domain", "%"], shown, caption=repr(self))

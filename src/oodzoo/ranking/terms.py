r"""From folds to the rows of a ranking: scores of models, agreement on a target, what to expect.

Linear models on the features of each network, trained on all labelled domains, predict the class of
every image of the target. The *agreement* of a model is the share of images on which its prediction
equals the vote of the other models, in which a model counts by the square of its rank from below by
the score from the labelled domains. Where most models are right, it estimates the accuracy up to a
constant.

- Ranking: the linear models are the heads that :func:`oodzoo.fit` trains. The score from the
  labelled domains and the agreement are standardised over the models; the score is one third of the
  former and two thirds of the latter.
- Expected accuracy: the linear models are the ridge regressions of the folds. On the held-out
  domains both their agreement and their accuracy are known. The mean difference is added to the
  agreement on the target.

It is assumed that the target has the classes of the labelled domains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.extraction.features import FeatureSource
from oodzoo.ranking.intervals import PairwiseComparison, covariance_of_means, new_domain_interval
from oodzoo.ranking.ranking import FoldRow, Ranking, Row
from oodzoo.ranking.scores import Score
from oodzoo.ranking.scores.catalogue import compute_scores
from oodzoo.ranking.transfer import into, mean_into
from oodzoo.ranking.unseen import (
    UnseenTerms,
    mean_ranks,
    scores_of,
    scores_without,
    scores_without_pairs,
    standardised,
)
from oodzoo.ranking.zood import HeldOutFold, Stability
from oodzoo.tasks import CLASSIFICATION, Task

Floats = NDArray[np.float64]

STABILITY_SHARE = 1 / 3
"""Weight of stability in the ZooD score, relative to one class."""

ZOOD_TERMS = ("zood", "discriminability", "stability")

_TERMS = ("unseen", "transfer", *ZOOD_TERMS)


def fold_scores(*tasks: Task) -> tuple[str, ...]:
    """Scores of some tasks that are means over domains, and so have rank intervals."""
    return (*_TERMS, *(name for task in tasks for name in task.scores))


FOLD_SCORES = fold_scores(CLASSIFICATION)
"""Those of classes."""


@dataclass(frozen=True)
class Terms:
    """What is known of one model over some domains: folds, and the terms of the default score."""

    folds: list[HeldOutFold]
    unseen: UnseenTerms
    stability: Stability
    task: Task = CLASSIFICATION

    @cached_property
    def n_classes(self) -> int:
        """Classes of these domains, or outputs; those of a held-out domain only do not leak."""
        if self.task.one_class:
            return len(np.unique(np.concatenate([fold.labels for fold in self.folds])))
        return int(self.folds[0].labels.shape[1])

    @property
    def domains(self) -> tuple[str, ...]:
        return self.unseen.domains

    def weight(self, fold: HeldOutFold) -> float:
        """Weight of stability in the ZooD score."""
        if self.stability == "paper":
            return fold.spread_ratio
        return STABILITY_SHARE / self.n_classes

    def values(self, score: str) -> Floats:
        """Return a score of each fold: any of :func:`fold_scores` but the first two."""
        if score == "zood":
            terms = [f.discriminability + self.weight(f) * f.stability for f in self.folds]
            return np.array(terms)
        fields = {self.task.metric: "metric", self.task.second_metric: "second_metric"}
        name = fields.get(score, score)
        return np.array([getattr(fold, name) for fold in self.folds], np.float64)

    def images(self, score: str, at: int) -> Floats:
        """Contribution of each image of a fold to its score, up to a constant."""
        fold = self.folds[at]
        if score == self.task.metric:
            return fold.contributions
        if score == "balanced_accuracy":
            _, codes, counts = np.unique(fold.labels, return_inverse=True, return_counts=True)
            return fold.contributions * (fold.n / len(counts)) / counts[codes]
        if score == "exact_match":
            right: Floats = ((fold.predicted > 0.5) == (fold.labels > 0.5)).all(axis=1)
            return right.astype(np.float64)
        if score == "discriminability":
            return fold.label_log_density
        if score == "stability":
            return fold.stability_of_samples
        return fold.label_log_density + self.weight(fold) * fold.stability_of_samples


@dataclass(frozen=True)
class ScoreTable:
    """A score of all models on all domains.

    Attributes
    ----------
    totals : array (M,)
        The score.
    values : array (M, m)
        Values per domain whose weighted mean is the score. For "unseen" these are pseudo-values of
        the jackknife: they show by how much leaving the domain out changes the score.
    rest : array (M, m)
        The score without the results on each domain: what the others say about the models.
    """

    totals: Floats
    values: Floats
    rest: Floats


def score_table(terms: Sequence[Terms], score: str, weights: Floats) -> ScoreTable:
    """Compute a score of :func:`fold_scores` for all models; the weights add up to 1."""
    unseen = [t.unseen for t in terms]
    if score == "unseen":
        totals, at = scores_of(unseen, weights), range(len(weights))
        jackknife, rest = (
            np.stack(columns, axis=1)
            for columns in (
                [scores_without(unseen, i, np.delete(weights, i)) for i in at],
                [scores_without_pairs(unseen, i, weights) for i in at],
            )
        )
        changes = jackknife - (jackknife @ weights)[:, None]
        return ScoreTable(totals, totals[:, None] - (len(weights) - 1) * changes, rest)
    if score == "transfer":
        pairs = [t.transfer.pairs(t.domains, weights) for t in unseen]
        # a domain whose labels do not vary does not count: it gets the mean of the others
        means = [mean_into(skills, weights) for skills in pairs]
        values = np.stack([into(skills) for skills in pairs])
        values = np.where(np.isnan(values), np.array(means)[:, None], values)
    else:
        values = np.stack([t.values(score) for t in terms])
    rest = np.empty_like(values)
    for i in range(len(weights)):  # plain means, if the other domains have no weight
        shares = np.delete(weights, i)
        shares = shares if shares.sum() > 0 else np.ones_like(shares)
        rest[:, i] = (np.delete(values, i, axis=1) * (shares / shares.sum())).sum(axis=1)
    # not a matrix product, whose rounding depends on the number of models
    return ScoreTable((values * weights).sum(axis=1), values, rest)


Labels = NDArray[np.int64]

AGREEMENT_WEIGHT = 2 / 3


@dataclass(frozen=True)
class Predictions:
    """Predicted classes (M, n) of the images of the target, by heads and by ridge regressions."""

    heads: Labels
    ridges: Labels


@dataclass(frozen=True)
class VoteAgreement:
    """Agreement of each model with the vote of the others, in [0, 1].

    Attributes
    ----------
    target : array (M,)
        Of heads, on the images of the target.
    ridges : array (M,)
        Of ridge regressions, on the images of the target.
    folds : array (M, m)
        Of ridge regressions, on the images of each held-out domain.
    """

    target: Floats
    ridges: Floats
    folds: Floats

    @classmethod
    def of(cls, scores: Floats, target: Predictions, folds: Sequence[Labels]) -> VoteAgreement:
        """Compute the agreement from predicted classes, on the target and on each fold (M, n).

        `scores` (M,) are those from the labelled domains; there are at least two models.
        """
        weights = mean_ranks(scores) ** 2
        each = np.stack([agreement_with_vote(labels, weights) for labels in folds], axis=1)
        heads, ridges = (agreement_with_vote(x, weights) for x in (target.heads, target.ridges))
        return cls(heads, ridges, each)

    def combine(self, table: ScoreTable) -> ScoreTable:
        """Combine the score from the labelled domains with the agreement on the target."""
        share = AGREEMENT_WEIGHT * standardised(self.target)[:, None]

        def combined(values: Floats) -> Floats:
            mean, spread = table.totals.mean(), table.totals.std()
            scaled = (values - mean) / spread if spread > 0 else np.zeros_like(values)
            return (1 - AGREEMENT_WEIGHT) * scaled + share

        return ScoreTable(
            combined(table.totals[:, None])[:, 0], combined(table.values), combined(table.rest)
        )


def agreement_with_vote(labels: Labels, weights: Floats) -> Floats:
    """Compute the share of images on which each model agrees with the vote of the others.

    Parameters
    ----------
    labels : array of int (M, n)
        Predicted classes.
    weights : array (M,)
        Weights of the models in the vote; of tied classes the first wins. Sums of squared ranks
        are exact, so that rounding breaks no tie.

    Examples
    --------
    >>> labels = np.array([[0, 1, 1], [0, 1, 0], [0, 0, 0]])
    >>> agreement_with_vote(labels, np.ones(3)).round(2).tolist()
    [0.33, 0.67, 0.67]
    """
    n_models, n = labels.shape
    votes = np.zeros((n, int(labels.max()) + 1))
    images = np.arange(n)
    for model in range(n_models):
        votes[images, labels[model]] += weights[model]
    shares = np.empty(n_models)
    for model in range(n_models):
        votes[images, labels[model]] -= weights[model]
        shares[model] = np.mean(votes.argmax(axis=1) == labels[model])
        votes[images, labels[model]] += weights[model]
    return shares


def pareto_front(
    accuracy: Mapping[str, float], cost: Mapping[str, float | None]
) -> tuple[str, ...]:
    """Return the Pareto-optimal models, cheapest first.

    A model is Pareto-optimal unless another one is at least as accurate and at most as expensive,
    and differs from it in one of the two. A model of unknown cost is not Pareto-optimal, and does
    not affect the others.

    Examples
    --------
    >>> accuracy = {"tiny": 60.0, "small": 70.0, "slow": 70.0, "large": 80.0, "other": 90.0}
    >>> cost = {"tiny": 1.0, "small": 2.0, "slow": 9.0, "large": 20.0, "other": None}
    >>> pareto_front(accuracy, cost)
    ('tiny', 'small', 'large')
    """
    known = [(c, -accuracy[model], model) for model, c in cost.items() if c is not None]
    front: list[str] = []
    best = (math.inf, -math.inf)  # cost and accuracy of the last model of the front
    for price, minus, model in sorted(known):
        if -minus > best[1] or (price, -minus) == best:
            front.append(model)
            best = (price, -minus)
    return tuple(front)


def build_ranking(
    source: FeatureSource,
    terms: Mapping[str, Terms],
    score: str | Score,
    weights: Floats,
    left_out: Mapping[str, str],
    device: str | None,
    target: Predictions | None = None,
) -> Ranking:
    """Order the models by a score, and collect what is known about each.

    Parameters
    ----------
    source : FeatureSource
    terms : mapping
        Terms of each model over the domains to rank by.
    score : str or Score
        One of :func:`fold_scores`, or another score.
    weights : array (m,)
        Weights of the domains; they add up to 1.
    left_out : mapping
        Models that are not ranked, each with the reason.
    device : str or None
    target : Predictions, optional
        Predicted classes of the images of the target.
    """
    models, each = list(terms), list(terms.values())
    left_out = dict(left_out)
    table: ScoreTable | None = None
    comparison: PairwiseComparison | None = None
    agreement: VoteAgreement | None = None
    if isinstance(score, str):
        name, table = score, score_table(each, score, weights)
        if target is not None and len(each) > 1:
            held_out = [np.stack([t.folds[i].predicted for t in each]) for i in range(len(weights))]
            agreement = VoteAgreement.of(table.totals, target, held_out)
            table = agreement.combine(table)
        totals = dict(zip(models, table.totals.tolist(), strict=True))
        # Due to the images; "unseen" and "transfer" are functions of moments: there the variation
        # between domains is all that is known.
        covariances = [np.zeros((len(each), len(each))) for _ in weights]
        if score not in ("unseen", "transfer"):
            covariances = [
                covariance_of_means(
                    np.stack([t.images(score, at) for t in each], axis=1), source.groups(domain)
                )
                for at, domain in enumerate(each[0].domains)
            ]
        comparison = PairwiseComparison.of(table.values, covariances, weights)
    else:
        name = score.name
        totals, failed = compute_scores(source, score, each[0].domains, device, models=models)
        left_out |= failed
        if not totals:
            reason = next(iter(failed.values()))
            raise InputError(f"the score {name!r} cannot be computed for any model: {reason}")
    order = sorted(totals, key=lambda model: (-totals[model], model))
    expected = _expected_accuracies(source, terms, order[0], table, agreement, weights)
    facts = {model: source.facts(model) for model in order}
    milliseconds: dict[str, float | None] = {m: each.milliseconds for m, each in facts.items()}
    parameters: dict[str, float | None] = {m: each.parameters for m, each in facts.items()}
    # The cost that is known for more models; milliseconds, if both are known for as many.
    cost = max(milliseconds, parameters, key=lambda cost: sum(c is not None for c in cost.values()))
    front = pareto_front({model: expected[model][0] for model in order}, cost)
    intervals = comparison.rank_intervals() if comparison else None
    rows = []
    for number, model in enumerate(order, start=1):
        at, t = models.index(model), terms[model]
        ties = [] if comparison is None else [models[other] for other in comparison.ties(at)]
        rows.append(
            Row(
                rank=number,
                model=model,
                score=totals[model],
                evidence=t.unseen.evidence,
                transfer=100 * t.unseen.transfer.skill(t.domains, weights),
                discriminability=float(t.values("discriminability") @ weights),
                stability=float(t.values("stability") @ weights),
                agreement=None if agreement is None else 100 * float(agreement.target[at]),
                expected_accuracy=expected[model][0],
                accuracy_interval=expected[model][1],
                rank_interval=intervals[at] if intervals else None,
                tied=tuple(sorted(ties, key=order.index)),
                pareto_optimal=model in front,
                folds=_fold_rows(t, None if table is None else table.values[at], weights, source),
                feature_dim=facts[model].feature_dim,
                parameters=facts[model].parameters,
                milliseconds=facts[model].milliseconds,
                licence=facts[model].licence,
            )
        )
    proposed = getattr(source, "domains_proposed", None)
    return Ranking(name, tuple(rows), left_out, source.task.kind, proposed)


def _expected_accuracies(
    source: FeatureSource,
    terms: Mapping[str, Terms],
    first: str,
    table: ScoreTable | None,
    agreement: VoteAgreement | None,
    weights: Floats,
) -> dict[str, tuple[float, tuple[float, float]]]:
    """Main metric of each model to expect on an unseen domain, in percent, with its 90 % interval.

    The first model was chosen for its results, so these promise too much. For each held-out domain
    the choice is repeated without the results on that domain, and the accuracy of the model chosen
    then is used. Its interval allows for the choice, too. With images of the target, accuracies are
    corrected by the difference between the agreement on the target and that on the held-out domain.
    """
    models, each, domains = list(terms), list(terms.values()), np.arange(len(weights))
    groups = [source.groups(name) for name in each[0].domains]
    metrics = np.array([[fold.metric for fold in t.folds] for t in each])
    variances = np.array(
        [
            [
                covariance_of_means(fold.contributions[:, None], group)[0, 0]
                for fold, group in zip(t.folds, groups, strict=True)
            ]
            for t in each
        ]
    )
    values = metrics
    if agreement is not None:
        values = metrics + (agreement.ridges[:, None] - agreement.folds)

    def expected(
        known: Floats, of_images: Floats, chosen_from: Floats | None = None
    ) -> tuple[float, tuple[float, float]]:
        ends = new_domain_interval(known, of_images, weights, chosen_from=chosen_from)
        low, high, mean = (
            min(1.0, max(source.task.lowest, x)) for x in (*ends, float(known @ weights))
        )
        return 100 * mean, (100 * low, 100 * high)

    found = {m: expected(values[at], variances[at]) for at, m in enumerate(models)}
    at = models.index(first)
    chosen = np.full(len(weights), at)
    if table is not None:
        chosen = np.array([np.lexsort((models, -rest.round(12)))[0] for rest in table.rest.T])
    known = metrics[chosen, domains]
    if agreement is not None:
        known = known + (agreement.ridges[at] - agreement.folds[chosen, domains])
    return found | {first: expected(known, variances[chosen, domains], values)}


def _fold_rows(
    terms: Terms, scores: Floats | None, weights: Floats, source: FeatureSource
) -> tuple[FoldRow, ...]:
    unit = 1.0 if source.task.second_metric == "absolute_error" else 100.0
    skills = into(terms.unseen.transfer.pairs(terms.domains, weights))
    rows = []
    for number, fold in enumerate(terms.folds):
        labels = fold.labels
        # Classes or labels that no other domain has, or outputs that vary in no other.
        if source.task.one_class:
            skipped = [at for at in fold.skipped if at in labels]
        else:
            skipped = [at for at in fold.skipped if labels[0, at] or np.ptp(labels[:, at])]
        rows.append(
            FoldRow(
                domain=fold.domain,
                score=None if scores is None else float(scores[number]),
                transfer=None if np.isnan(skills[number]) else 100 * float(skills[number]),
                discriminability=fold.discriminability,
                stability=fold.stability,
                accuracy=100 * fold.metric,
                balanced_accuracy=unit * fold.second_metric,
                skipped=tuple(str(source.classes[at]) for at in skipped),
            )
        )
    return tuple(rows)

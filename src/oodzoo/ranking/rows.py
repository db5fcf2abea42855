"""Build the rows of a ranking from the terms of its models, and its Pareto front."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.extraction.source import FeatureSource
from oodzoo.ranking.folds import Fold
from oodzoo.ranking.intervals import Comparison, covariance_of_means, new_domain_interval
from oodzoo.ranking.result import FoldRow, Ranking, Row
from oodzoo.ranking.ridge import into
from oodzoo.ranking.scores import Score
from oodzoo.ranking.scores.registry import compute_scores
from oodzoo.ranking.terms import (
    Agreement,
    Floats,
    Predictions,
    ScoreTable,
    Terms,
    image_covariances,
    score_table,
)

if TYPE_CHECKING:
    from oodzoo.extraction.source import Facts


def costs(facts: Mapping[str, Facts]) -> dict[str, float | None]:
    """Return the cost of each model: milliseconds per image, or the number of parameters.

    The one that is known for more models is used; milliseconds, if both are known for as many.
    """
    milliseconds: dict[str, float | None] = {m: f.milliseconds for m, f in facts.items()}
    parameters: dict[str, float | None] = {m: f.parameters for m, f in facts.items()}
    return max(milliseconds, parameters, key=lambda cost: sum(c is not None for c in cost.values()))


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
        One of :func:`~oodzoo.ranking.terms.fold_scores`, or another score.
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
    comparison: Comparison | None = None
    agreement: Agreement | None = None
    if isinstance(score, str):
        table = score_table(each, score, weights)
        if target is not None and len(each) > 1:
            held_out = [np.stack([t.folds[i].predicted for t in each]) for i in range(len(weights))]
            agreement = Agreement.of(table.totals, target, held_out)
            table = agreement.combine(table)
        totals = dict(zip(models, table.totals.tolist(), strict=True))
        comparison = Comparison.of(table.values, image_covariances(source, terms, score), weights)
    else:
        totals, failed = compute_scores(source, score, each[0].domains, device, models=models)
        left_out |= failed
        if not totals:
            reason = next(iter(failed.values()))
            raise InputError(f"the score {score.name!r} cannot be computed for any model: {reason}")
    order = sorted(totals, key=lambda model: (-totals[model], model))
    expected = _expected_accuracies(source, terms, order[0], table, agreement, weights)
    facts = {model: source.facts(model) for model in order}
    front = pareto_front({model: expected[model].mean for model in order}, costs(facts))
    intervals = comparison.rank_intervals() if comparison else None
    rows = []
    for number, model in enumerate(order, start=1):
        at, t = models.index(model), terms[model]
        rows.append(
            Row(
                rank=number,
                model=model,
                score=totals[model],
                evidence=t.evidence,
                transfer=100 * t.transfer.skill(t.domains, weights),
                discriminability=float(t.values("discriminability") @ weights),
                stability=float(t.values("stability") @ weights),
                agreement=None if agreement is None else 100 * float(agreement.target[at]),
                expected_accuracy=expected[model].mean,
                accuracy_interval=expected[model].interval,
                rank_interval=intervals[at] if intervals else None,
                tied=_tied(comparison, at, models, order),
                pareto_optimal=model in front,
                folds=_fold_rows(t, table, at, weights, source),
                feature_dim=facts[model].feature_dim,
                parameters=facts[model].parameters,
                milliseconds=facts[model].milliseconds,
                licence=facts[model].licence,
            )
        )
    name = score if isinstance(score, str) else score.name
    proposed = getattr(source, "domains_proposed", None)
    return Ranking(name, tuple(rows), left_out, source.task.kind, proposed)


@dataclass(frozen=True)
class _Expected:
    """Main metric to expect on an unseen domain, in percent, with the 90 % interval."""

    mean: float
    interval: tuple[float, float]
    values: Floats
    """On each held-out domain, as a share."""

    @classmethod
    def of(
        cls,
        source: FeatureSource,
        folds: Sequence[Fold],
        weights: Floats,
        corrections: Floats | None = None,
        chosen_from: Floats | None = None,
    ) -> _Expected:
        """Average the metrics of the folds, plus corrections (m,) if there are any.

        `chosen_from` has the values (M, m) of all models, if this one was chosen as the first.
        """
        values = np.array([fold.metric for fold in folds])
        if corrections is not None:
            values = values + corrections
        variances = [
            covariance_of_means(fold.contributions[:, None], source.groups(fold.domain))
            for fold in folds
        ]
        image_variances = np.array([variance[0, 0] for variance in variances])
        ends = new_domain_interval(values, image_variances, weights, chosen_from=chosen_from)
        lowest = -np.inf if source.task.kind == "regression" else 0.0
        low, high, mean = (min(1.0, max(lowest, x)) for x in (*ends, float(values @ weights)))
        return cls(100 * mean, (100 * low, 100 * high), values)


def _expected_accuracies(
    source: FeatureSource,
    terms: Mapping[str, Terms],
    first: str,
    table: ScoreTable | None,
    agreement: Agreement | None,
    weights: Floats,
) -> dict[str, _Expected]:
    """Compute what to expect of each model.

    The first model was chosen for its results, so these promise too much. For each held-out domain
    the choice is repeated without the results on that domain, and the accuracy of the model chosen
    then is used. Its interval allows for the choice, too. With images of the target, accuracies are
    corrected by the difference between the agreement on the target and that on the held-out domain.
    """
    models, each = list(terms), list(terms.values())

    def expected(model: str, chosen: Sequence[int], chosen_from: Floats | None = None) -> _Expected:
        corrections = None
        if agreement is not None:
            known = agreement.folds[chosen, np.arange(len(chosen))]
            corrections = agreement.ridges[models.index(model)] - known
        folds = [each[at].folds[i] for i, at in enumerate(chosen)]
        return _Expected.of(source, folds, weights, corrections, chosen_from)

    found = {m: expected(m, [at] * len(weights)) for at, m in enumerate(models)}
    chosen = [models.index(first)] * len(weights)
    if table is not None:
        chosen = [int(np.lexsort((models, -column.round(12)))[0]) for column in table.rest.T]
    every = np.array([each.values for each in found.values()])
    return found | {first: expected(first, chosen, every)}


def _fold_rows(
    terms: Terms, table: ScoreTable | None, at: int, weights: Floats, source: FeatureSource
) -> tuple[FoldRow, ...]:
    unit = 1.0 if source.task.second_metric == "absolute_error" else 100.0
    skills = into(terms.transfer.pairs(terms.domains, weights))
    return tuple(
        FoldRow(
            domain=fold.domain,
            score=None if table is None else float(table.values[at, number]),
            transfer=None if np.isnan(skills[number]) else 100 * float(skills[number]),
            discriminability=fold.discriminability,
            stability=fold.stability,
            accuracy=100 * fold.metric,
            balanced_accuracy=unit * fold.second_metric,
            skipped=_skipped(fold, source),
        )
        for number, fold in enumerate(terms.folds)
    )


def _skipped(fold: Fold, source: FeatureSource) -> tuple[str, ...]:
    """Classes or labels of a domain that no other domain has, or outputs that vary in no other."""
    names = []
    for at in fold.skipped:
        if source.task.is_classification:
            here = at in fold.labels
        else:
            here = bool((fold.labels[:, at] != fold.labels[0, at]).any() or fold.labels[0, at])
        if here:
            names.append(str(source.classes[at]))
    return tuple(names)


def _tied(
    comparison: Comparison | None, at: int, models: list[str], order: list[str]
) -> tuple[str, ...]:
    """The models that are statistically tied with one, the best first."""
    if comparison is None:
        return ()
    return tuple(sorted((models[other] for other in comparison.ties(at)), key=order.index))

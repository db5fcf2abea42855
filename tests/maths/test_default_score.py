"""The default score, tables of scores, and agreement on a target, against literal formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.oracles import agreement as agreement_oracle
from tests.oracles import folds as regressions
from tests.oracles import unseen as oracle
from tests.ranking.data import Arrays, Data, by_domain, lacking, read, simulate_models

import oodzoo
from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.linear import fit_head
from oodzoo.ranking.terms import Labels, Terms
from oodzoo.ranking.transfer import RIDGES, Transfer
from oodzoo.ranking.unseen import UnseenTerms, unseen_scores
from oodzoo.ranking.zood import HeldOutDomains, Stability

quick = settings(max_examples=50, deadline=None)
seeds = st.integers(0, 10_000)
Floats = NDArray[np.float64]


def simulate_terms(
    seed: int, n_models: int, n_pairs: int, agreement: float = 1.0
) -> tuple[Floats, Floats]:
    """Evidence and skills that agree more or less; some skills are tied."""
    rng = np.random.default_rng(seed)
    quality = agreement * rng.normal(size=n_models)
    evidence = -0.4 + 0.1 * (quality + rng.normal(size=n_models))
    skills = 0.3 + 0.2 * (quality[:, None] + rng.normal(size=(n_models, n_pairs)))
    return evidence, np.clip(skills, 0, 1).round(2)


@given(
    seed=seeds,
    n_models=st.integers(1, 12),
    n_pairs=st.integers(0, 12),
    agreement=st.sampled_from([0.0, 1.0, 5.0]),
    weighted=st.booleans(),
)
@quick
def test_equals_its_formula(
    seed: int, n_models: int, n_pairs: int, agreement: float, weighted: bool
) -> None:
    """Centred and bounded: none exceeds the root of M - 1."""
    evidence, skills = simulate_terms(seed, n_models, n_pairs, agreement)
    weights = np.random.default_rng(seed).uniform(size=n_pairs) if weighted else None
    shares = None if weights is None else weights.tolist()
    expected = oracle.combined(evidence.tolist(), skills.tolist(), shares)
    found = unseen_scores(evidence, skills, weights)
    assert found == pytest.approx(expected, abs=1e-9)
    assert found.mean() == pytest.approx(0, abs=1e-9)
    assert np.abs(found).max() <= math.sqrt(n_models - 1) + 1e-9
    assert found.var() <= 1 + 1e-9


def terms_of(data: Data, stability: Stability = "robust") -> Terms:
    held_out = HeldOutDomains(read(data), stability=stability)
    unseen = UnseenTerms(tuple(data), *held_out.evidence(), Transfer.of(read(data)))
    return Terms(held_out.folds(densities=True), unseen, stability)


@pytest.mark.parametrize("stability", ["robust", "paper"])
def test_images_average_to_the_score_of_the_fold(stability: Stability) -> None:
    """Exactly for accuracies; as differences for log-densities, which are up to a constant."""
    terms = terms_of(lacking(), stability)
    for at, fold in enumerate(terms.folds):
        correct = fold.predicted == fold.labels
        assert terms.images("accuracy", at).mean() == pytest.approx(fold.metric)
        assert fold.metric == pytest.approx(correct.mean())
        recalls = [correct[fold.labels == c].mean() for c in np.unique(fold.labels)]
        assert terms.images("balanced_accuracy", at).mean() == pytest.approx(np.mean(recalls))
        assert fold.second_metric == pytest.approx(np.mean(recalls))
        assert fold.domain != "c" or fold.second_metric != pytest.approx(fold.metric, abs=1e-3)
        parts = [terms.images(score, at) for score in ("discriminability", "stability")]
        zood = parts[0] + terms.weight(fold) * parts[1]
        assert terms.images("zood", at) == pytest.approx(zood)


Sample = tuple[Arrays, Labels, NDArray[Any], Arrays]
"""Features, labels and domains, and features of the target."""


def simulated(noise: dict[str, float], seed: int) -> Sample:
    features, y, domains = simulate_models(noise, n=30, seed=seed)
    last = domains == "d3"
    target = {name: array[last] for name, array in features.items()}
    rest = {name: array[~last] for name, array in features.items()}
    return rest, y[~last], domains[~last], target


def misled(seed: int = 0, n_models: int = 5) -> Sample:
    """One model is the best on the labelled domains, and the worst on the target."""
    solid = {f"solid{at}": 0.6 + 0.05 * at for at in range(n_models - 1)}
    features, y, domains, target = simulated(solid | {"flattered": 0.2}, seed)
    target["flattered"] = np.random.default_rng(seed).normal(size=target["flattered"].shape)
    return features, y, domains, target


def literal(
    sample: Sample, weights: dict[str, float]
) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """Score and agreement of each model, and the accuracy to expect, by definition."""
    features, y, domains, target = sample
    data = by_domain(features, y, domains)
    totals = oracle.unseen(data, 3, weights)
    folds = {model: regressions.leave_one_out(each, 3) for model, each in data.items()}
    vote = agreement_oracle.vote_weights(list(totals.values()))

    def agreed(labels: Sequence[Any]) -> dict[str, float]:
        found = agreement_oracle.agreement(list(labels), vote)
        return dict(zip(data, map(float, found), strict=True))

    by_ridges = agreed(
        [
            regressions.predict(
                regressions.pooled(data[model], list(weights)),
                target[model],
                3,
                RIDGES[folds[model]["d0"].ridge],
            )
            for model in data
        ]
    )
    codes = np.unique(domains, return_inverse=True)[1]
    heads = [fit_head(Samples(X.astype(np.float32), y, codes), 3) for X in features.values()]
    images = zip(heads, target.values(), strict=True)
    by_heads = agreed([head.logits(X).argmax(axis=1).tolist() for head, X in images])
    known = {d: agreed([folds[model][d].predicted for model in data]) for d in weights}
    scores = agreement_oracle.combined(totals, by_heads)
    rest = {
        d: agreement_oracle.combined(oracle.unseen(data, 3, weights, without=d), by_heads, totals)
        for d in weights
    }
    choices = regressions.chosen_without(rest)
    first = min(scores, key=lambda model: (-scores[model], model))
    expected = {}
    for model in data:
        of = choices if model == first else dict.fromkeys(weights, model)
        gains = (w * (folds[of[d]][d].accuracy - known[d][of[d]]) for d, w in weights.items())
        expected[model] = 100 * (by_ridges[model] + sum(gains))
    return scores, by_heads, expected


ALIKE = {name: 1.0 + 0.02 * at for at, name in enumerate("abcde")}
"""Models that differ so little that held-out domains prefer different ones."""


@pytest.mark.parametrize("sample", [misled(0), simulated(ALIKE, 8)], ids=["misled", "alike"])
@pytest.mark.parametrize("given", [None, {"d0": 4.0, "d2": 0.5}])
def test_ranking_for_a_target_is_the_definition(
    sample: Sample, given: dict[str, float] | None
) -> None:
    features, y, domains, target = sample
    weights = {d: (given or {}).get(d, 1.0) for d in ("d0", "d1", "d2")}
    weights = {d: w / sum(weights.values()) for d, w in weights.items()}
    ranking = oodzoo.rank(features, y, domains, target=target, domain_weights=given)
    scores, agreed, expected = literal(sample, weights)
    assert [row.model for row in ranking.rows] == sorted(scores, key=lambda m: -scores[m])
    for row in ranking.rows:
        assert row.score == pytest.approx(scores[row.model], abs=1e-9)
        assert row.agreement == pytest.approx(100 * agreed[row.model])
        assert row.expected_accuracy == pytest.approx(min(expected[row.model], 100))

"""The default score, tables of scores, and agreement on a target, against literal formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import spearmanr
from tests.oracles import agreement as agreement_oracle
from tests.oracles import folds as regressions
from tests.oracles import unseen as oracle
from tests.ranking.data import Arrays, Data, lacking, moments_of, simulate_models

import oodzoo
from oodzoo.extraction.columns import Samples
from oodzoo.extraction.source import as_source
from oodzoo.linear.heads.linear import fit_head
from oodzoo.ranking.agreement import Agreement, Labels, Predictions, agreement_with_vote
from oodzoo.ranking.folds import Stability, leave_one_domain_out
from oodzoo.ranking.intervals import covariance_of_means
from oodzoo.ranking.ridge import RIDGES, Transfer
from oodzoo.ranking.terms import (
    FOLD_SCORES,
    ScoreTable,
    Terms,
    image_covariances,
    reliability,
    score_table,
    standardised,
    unseen_scores,
)

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


# --- the default score from its two terms ---------------------------------------------------------


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


def test_how_much_the_transfer_counts() -> None:
    evidence = np.array([-0.3, -0.2, -0.1])
    agreeing = np.tile(np.array([[0.2], [0.9], [0.5]]), (1, 4))
    assert reliability(np.tile(np.array([[1.0], [3.0], [2.0]]), (1, 4))) == 1
    z = np.sqrt(1.5)
    assert unseen_scores(evidence, agreeing) == pytest.approx([-z, z / 2, z / 2])
    disagreeing = np.array([[0.1, 0.3], [0.2, 0.2], [0.3, 0.1]])
    # nothing, if pairs disagree, are all tied, are one, whose reliability is not known, or none
    for skills in (disagreeing, np.zeros((3, 3)), agreeing[:, :1], np.zeros((3, 0))):
        assert unseen_scores(evidence, skills) == pytest.approx(standardised(evidence))
    rng = np.random.default_rng(0)  # rounding breaks no tie
    rounding = 1e-14 * rng.normal(size=(5, 7))
    found = unseen_scores(np.full(5, -0.4) + rounding[:, 0], 0.3 + rounding[:, 1:])
    np.testing.assert_array_equal(found, 0)


@given(correlation=st.floats(0.05, 0.95), n_pairs=st.integers(3, 12), seed=st.integers(0, 1000))
@settings(max_examples=12, deadline=None)
def test_reliability_is_the_correlation_of_one_pair_with_another(
    correlation: float, n_pairs: int, seed: int
) -> None:
    """Of many models, whose ranks are as correlated as the values are, up to 0.02."""
    rng = np.random.default_rng(seed)
    common, own = rng.normal(size=(4000, 1)), rng.normal(size=(4000, n_pairs))
    values = math.sqrt(correlation) * common + math.sqrt(1 - correlation) * own
    ranks = (values.argsort(axis=0).argsort(axis=0) + 1).astype(np.float64)
    between_pairs = spearmanr(values).statistic[np.triu_indices(n_pairs, 1)].mean()
    assert reliability(ranks) == pytest.approx(between_pairs, abs=1e-3)
    assert reliability(ranks) == pytest.approx(correlation, abs=0.05)


@given(seed=seeds, size=st.floats(-1e6, 1e6), far=st.floats(0, 1), scale=st.floats(1e-3, 1e3))
@quick
def test_order_units_and_other_models(seed: int, size: float, far: float, scale: float) -> None:
    rng = np.random.default_rng(seed)
    evidence, skills = simulate_terms(seed, 7, 6)
    weights, models, pairs = rng.uniform(size=6), rng.permutation(7), rng.permutation(6)
    expected = unseen_scores(evidence, skills, weights)[models]
    found = unseen_scores(evidence[models], skills[np.ix_(models, pairs)], weights[pairs])
    assert found == pytest.approx(expected, abs=1e-10)
    found = unseen_scores(scale * evidence + far, np.exp(3 * skills))
    assert found == pytest.approx(unseen_scores(evidence, skills), abs=1e-6)
    # a model that is better in all terms scores higher, whatever the others' are
    evidence[2], skills[2] = size, far
    evidence[0], skills[0] = evidence[1] + 1e-3 * (1 + abs(size)), skills[1] + 0.01
    found = unseen_scores(evidence, skills)
    assert found[0] > found[1]


@given(seed=seeds, garbage=seeds, n_models=st.integers(3, 10))
@quick
def test_one_model_moves_the_ranks_of_others_by_at_most_one(
    seed: int, garbage: int, n_models: int
) -> None:
    """So it does not reorder two others whose mean ranks differ by more than one."""
    skills = simulate_terms(seed, n_models, 6, agreement=3.0)[1]
    changed = skills.copy()
    changed[-1] = np.random.default_rng(garbage).uniform(size=6)
    before = np.mean([oracle.ranks(column) for column in skills.T.tolist()], axis=0)
    scores = unseen_scores(np.zeros(n_models), changed)
    if not scores.any():  # the pairs do not agree
        return
    for one in range(n_models - 1):
        for other in range(n_models - 1):
            assert before[one] - before[other] <= 1 or scores[one] > scores[other]


# --- tables of scores -----------------------------------------------------------------------------

WEIGHTS = [(0.25, 0.25, 0.25, 0.25), (0.1, 0.2, 0.3, 0.4), (0.0, 0.5, 0.25, 0.25), (0.0, 1.0, 0, 0)]


def terms_of(data: Data, stability: Stability = "robust") -> Terms:
    moments = moments_of(data, 3)
    folds = leave_one_domain_out(moments, lambda name: [data[name]], stability=stability)
    return Terms(folds, Transfer.of(moments), 3, stability)


def by_domain(features: Arrays, y: Any, domains: Any) -> dict[str, Data]:
    names = np.unique(domains).tolist()
    return {m: {d: (X[domains == d], y[domains == d]) for d in names} for m, X in features.items()}


def simulate() -> dict[str, Data]:
    noise = {"a": 0.7, "b": 1.0, "c": 1.5, "d": 2.5}
    return by_domain(*simulate_models(noise, n=20, seed=1))


@pytest.fixture(scope="module")
def models() -> dict[str, Data]:
    return simulate()


@pytest.fixture(scope="module")
def terms(models: dict[str, Data]) -> list[Terms]:
    return [terms_of(data) for data in models.values()]


def mean(values: Floats, weights: Any) -> Floats:
    """Weighted over columns; plain if there is no weight."""
    shares = np.array(weights) if sum(weights) > 0 else np.ones(len(weights))
    found: Floats = values @ shares / shares.sum()
    return found


SPOILED: Any = dict.fromkeys(("discriminability", "stability", "metric", "second_metric"), -5.0)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_scores_of_folds(terms: list[Terms], weights: Any) -> None:
    fields = {"accuracy": "metric", "balanced_accuracy": "second_metric"}
    for score in FOLD_SCORES:
        table = score_table(terms, score, np.array(weights))
        assert table.values @ np.array(weights) == pytest.approx(table.totals, abs=1e-10)
        if score in ("unseen", "transfer"):
            continue
        for at, each in enumerate(terms):
            for number, fold in enumerate(each.folds):
                value = (
                    fold.discriminability + fold.stability / (3 * 3)
                    if score == "zood"
                    else getattr(fold, fields.get(score, score))
                )
                assert table.values[at, number] == pytest.approx(value)
        # the rest does not depend on the results on the domain
        spoiled = [
            replace(t, folds=[replace(f, **SPOILED) if f.domain == "d1" else f for f in t.folds])
            for t in terms
        ]
        found = score_table(spoiled, score, np.array(weights)).rest[:, 1]
        np.testing.assert_array_equal(found, table.rest[:, 1])
        for i in range(4):
            others = [number for number in range(4) if number != i]
            expected = mean(table.values[:, others], [weights[number] for number in others])
            assert table.rest[:, i] == pytest.approx(expected)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_tables_of_transfer_and_of_the_default_score(
    models: dict[str, Data], terms: list[Terms], weights: Any
) -> None:
    named = dict(zip(models["a"], weights, strict=True))
    table = score_table(terms, "transfer", np.array(weights))
    for at, data in enumerate(models.values()):
        into = np.array(list(oracle.into(oracle.pairs(data, 3, named), data).values()))
        assert table.totals[at] == pytest.approx(oracle.transfer(data, 3, named), abs=1e-9)
        assert table.values[at] == pytest.approx(into, abs=1e-9)
        for i in range(4):
            expected = mean(np.delete(into, i)[None], np.delete(weights, i))
            assert table.rest[at, i] == pytest.approx(expected[0], abs=1e-9)
    table = score_table(terms, "unseen", np.array(weights))
    expected_totals = list(oracle.unseen(models, 3, named).values())
    assert table.totals == pytest.approx(expected_totals, abs=1e-7)
    left = []
    for i, domain in enumerate(models["a"]):
        rest = oracle.unseen(models, 3, named, without=domain)
        assert table.rest[:, i] == pytest.approx(list(rest.values()), abs=1e-7)
        # each domain is left out for good: neither its features nor its labels are used
        part = {m: {d: x for d, x in data.items() if d != domain} for m, data in models.items()}
        shares = {d: w for d, w in named.items() if d != domain}
        left.append(list(oracle.unseen(part, 3, shares).values()))
    jackknife = np.array(left).T
    changes = jackknife - (jackknife @ np.array(weights))[:, None]
    np.testing.assert_allclose(table.values, table.totals[:, None] - 3 * changes, atol=1e-6)


@pytest.mark.parametrize("score", FOLD_SCORES)
def test_few_domains_and_a_domain_with_one_class(score: str) -> None:
    models = simulate()
    two = {name: {d: data[d] for d in ("d0", "d1")} for name, data in models.items()}
    for some in (two, {"a": two["a"]}):
        table = score_table([terms_of(d) for d in some.values()], score, np.array([0.5, 0.5]))
        assert np.isfinite(table.rest).all()
        assert table.values @ [0.5, 0.5] == pytest.approx(table.totals)
        if score == "unseen":  # without one of two domains, the evidence of the other is left
            assert table.totals == pytest.approx(list(oracle.unseen(some, 3).values()), abs=1e-7)
    for data in models.values():
        data["d2"] = (data["d2"][0], np.full(20, 1))
    weights = np.array([0.4, 0.3, 0.2, 0.1])
    table = score_table([terms_of(data) for data in models.values()], score, weights)
    assert np.isfinite(table.rest).all()
    assert table.values @ weights == pytest.approx(table.totals, abs=1e-10)
    shares = dict(zip(models["a"], weights, strict=True))
    if score == "unseen":
        expected = list(oracle.unseen(models, 3, shares).values())
        assert table.totals == pytest.approx(expected, abs=1e-7)
    if score == "transfer":  # its labels cannot be predicted, so it counts for no model
        expected = [oracle.transfer(data, 3, shares) for data in models.values()]
        assert table.totals == pytest.approx(expected, abs=1e-9)


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


def test_covariances_of_images() -> None:
    features, y, domains = simulate_models({"a": 0.7, "b": 1.0}, n=20)
    groups = [str(number // 2) for number in range(len(y))]
    source = as_source(features, y, domains, groups)
    terms = {m: terms_of(data) for m, data in by_domain(features, y, domains).items()}
    for score in FOLD_SCORES:
        found = image_covariances(source, terms, score)
        assert [part.shape for part in found] == [(2, 2)] * 4
        for at, covariance in enumerate(found):
            expected = np.zeros((2, 2))
            if score not in ("unseen", "transfer"):
                images = np.stack([terms[model].images(score, at) for model in "ab"], axis=1)
                expected = covariance_of_means(images, groups[20 * at : 20 * at + 20])
                assert expected.any()
            np.testing.assert_allclose(covariance, expected)


# --- agreement with the vote of the other models --------------------------------------------------

EXACT = st.sampled_from([3, 5, 9])
"""Numbers of models whose weights in a vote are exact binary fractions."""


def voted(scores: Floats, labels: Labels) -> list[float]:
    weights = agreement_oracle.vote_weights(scores.tolist())
    return [float(share) for share in agreement_oracle.agreement(labels.tolist(), weights)]


def both(labels: Labels) -> Predictions:
    return Predictions(labels, labels)


@given(seed=seeds, n_models=st.integers(2, 12), n=st.integers(1, 30), n_classes=st.integers(1, 4))
@quick
def test_agreement_equals_its_definition(seed: int, n_models: int, n: int, n_classes: int) -> None:
    """Also of models with equal scores, and of classes with equally many votes."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 6, n_models).astype(float)
    parts = [rng.integers(0, n_classes, (n_models, size)) for size in (n, n, 7)]
    found = Agreement.of(scores, Predictions(parts[0], parts[1]), parts[1:])
    np.testing.assert_allclose(found.target, voted(scores, parts[0]))
    np.testing.assert_allclose(found.ridges, voted(scores, parts[1]))
    for at, labels in enumerate(parts[1:]):
        np.testing.assert_allclose(found.folds[:, at], voted(scores, labels))


@given(seed=seeds, n_models=st.integers(2, 6), m=st.integers(2, 4))
@quick
def test_combination_equals_its_definition(seed: int, n_models: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    totals, target = rng.normal(size=n_models), rng.random(n_models)
    values, rest = rng.normal(size=(2, n_models, m))
    agreement = Agreement(target, rng.random(n_models), rng.random((n_models, m)))
    found = agreement.combine(ScoreTable(totals, values, rest))
    names = [str(model) for model in range(n_models)]

    def named(column: Floats) -> dict[str, float]:
        return dict(zip(names, column.tolist(), strict=True))

    of, base = named(target), named(totals)
    assert found.totals == pytest.approx(list(agreement_oracle.combined(base, of).values()))
    for table, expected in ((found.values, values), (found.rest, rest)):
        for at in range(m):
            column = agreement_oracle.combined(named(expected[:, at]), of, base)
            assert table[:, at] == pytest.approx(list(column.values()))
    weights = rng.dirichlet(np.ones(m))
    found = agreement.combine(ScoreTable(values @ weights, values, values))
    np.testing.assert_allclose(found.values @ weights, found.totals, atol=1e-12)
    equal = agreement.combine(ScoreTable(np.zeros(n_models), values * 0, rest * 0))
    assert equal.totals.argsort().tolist() == target.argsort().tolist()


@given(seed=seeds, n_models=EXACT)
@quick
def test_what_does_not_matter_to_the_agreement(seed: int, n_models: int) -> None:
    rng = np.random.default_rng(seed)
    scores, labels = rng.normal(size=n_models), rng.integers(0, 4, (n_models, 20))
    images, models, names = rng.permutation(20), rng.permutation(n_models), rng.permutation(4)
    expected = Agreement.of(scores, both(labels), [labels]).target
    for changed, values in (
        (Agreement.of(scores, both(labels[:, images]), [labels]).target, expected),
        (Agreement.of(scores[models], both(labels[models]), [labels]).target, expected[models]),
        (Agreement.of(np.exp(7 * scores) - 3, both(labels), [labels]).target, expected),
    ):
        np.testing.assert_array_equal(changed, values)
    weights = rng.random(n_models)
    found = agreement_with_vote(names[labels], weights)
    np.testing.assert_array_equal(found, agreement_with_vote(labels, weights))
    total = 0.0  # a model has no vote on itself
    for label in range(4):
        labels[0] = label
        total += agreement_with_vote(labels, weights)[0]
    assert total == pytest.approx(1)


# --- rankings for a target ------------------------------------------------------------------------

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


@pytest.mark.parametrize("seed", range(5))
def test_target_images_mend_the_order(seed: int) -> None:
    features, y, domains, target = misled(seed, n_models=9)
    assert oodzoo.rank(features, y, domains).best == "flattered"
    rows = oodzoo.rank(features, y, domains, target=target).rows
    assert rows[0].model.startswith("solid")
    (flattered,) = (row for row in rows if row.model == "flattered")
    assert flattered.agreement == min(row.agreement or 0 for row in rows)
    assert flattered.expected_accuracy < 60 < rows[0].expected_accuracy


def test_what_does_and_does_not_depend_on_the_target() -> None:
    pytest.importorskip("torch", reason="PyTorch is an extra")
    features, y, domains, target = misled()
    ranking = oodzoo.rank(features, y, domains, target=target)
    order = np.random.default_rng(1).permutation(len(target["solid0"]))
    shuffled = {name: target[name][order] for name in reversed(list(target))}
    assert oodzoo.rank(features, y, domains, target=shuffled) == ranking
    without = {row.model: row for row in oodzoo.rank(features, y, domains).rows}
    torch = oodzoo.rank(features, y, domains, target=target, device="cpu")
    for row, there in zip(ranking.rows, torch.rows, strict=True):
        same = without[row.model]
        assert same.agreement is None
        for name in ("evidence", "transfer", "discriminability", "stability"):
            assert getattr(row, name) == getattr(same, name)
        for fold, other in zip(row.folds, same.folds, strict=True):
            assert replace(fold, score=None) == replace(other, score=None)
        assert (row.model, row.agreement) == (there.model, there.agreement)
        assert row.score == pytest.approx(there.score, abs=1e-9)
    alone, images = ({"solid0": part["solid0"]} for part in (features, target))
    one = oodzoo.rank(alone, y, domains)  # which has nothing to agree with
    assert oodzoo.rank(alone, y, domains, target=images) == one

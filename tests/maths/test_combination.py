"""Predictions of unseen samples, pools of heads, estimates, final heads: against literal fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import log_softmax
from tests.evaluation.data import task_zoo, zoo
from tests.heads.planted import planted
from tests.joint_space import JointSpace, embeddings_of, joint_space
from tests.maths.combinations import predicted, present, small
from tests.oracles import adaptive
from tests.oracles import combination as oracle
from tests.oracles.contributions import contributions
from tests.oracles.outputs import best_setting
from tests.oracles.ridge import left_out_ridge, split_classes

from oodzoo.combining.adaptation import (
    ImageWeights,
    standardise,
    standardised_predictions,
    weigh_images,
)
from oodzoo.combining.combination import FinalHead, Training
from oodzoo.combining.pool import fit_pool
from oodzoo.combining.pool_weights import choose_pool, left_out_pools
from oodzoo.combining.predictions import (
    SHARES,
    TRAINED,
    Head,
    HeadPredictions,
    Heads,
    find_zero_shot,
    fit_kind,
    pool_columns,
    predict_left_out,
    predict_with_heads,
)
from oodzoo.combining.ways import Decision, decide
from oodzoo.core.limits import Limits
from oodzoo.extraction.columns import Columns, Samples
from oodzoo.extraction.features import ArraySource
from oodzoo.linear.heads.adaptive import Confusion
from oodzoo.linear.heads.kinds import folds_within
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.linear.heads.ridge import SETTINGS
from oodzoo.store.class_embeddings import ClassEmbeddings
from oodzoo.tasks import CLASSIFICATION, KINDS, Kind, task_of


@pytest.mark.parametrize("shape", [(48, 5), (48, 60)])
def test_predictions_equal_literal_fits(shape: tuple[int, int]) -> None:
    """Three domains: without a held-out domain, then for each of them as the held-out domain."""
    samples = planted(*shape, 3, 3)
    X, y, domains = samples
    groups = [f"g{row // 2}" for row in range(48)]
    found = predict_left_out(samples, 3, CLASSIFICATION, groups=groups)
    assert tuple(found) == SHARES
    for number, test in enumerate([None, 0, 1, 2]):
        training = domains != test
        rows = np.flatnonzero(training)
        folds = np.full(48, -1)
        folds[rows] = folds_within(
            CLASSIFICATION, y[rows], domains[rows], [groups[row] for row in rows]
        )
        left_out, rest = split_classes(X, y, np.where(training, domains, -1), SETTINGS, 3)
        within, _ = split_classes(X, y, folds, SETTINGS, 3)
        numbers = [domain for domain in range(3) if domain != test]
        outside, inside = (
            [each[:, domains[rows] == domain] for domain in numbers] for each in (left_out, within)
        )
        labels = [y[domains == domain] for domain in numbers]
        for share in SHARES:
            each = found[share][number]
            at = best_setting("classification", outside, inside, labels, share)
            assert each.setting == at
            for mine, expected in zip(each.out_of_fold, outside, strict=True):
                np.testing.assert_allclose(mine, expected[at], rtol=1e-5, atol=1e-5)
            for mine, expected in zip(each.within or (), inside, strict=True):
                np.testing.assert_allclose(mine, expected[at], rtol=1e-5, atol=1e-5)
            assert (each.test is None) == (test is None)
            if each.test is not None:
                np.testing.assert_allclose(each.test, rest[at], rtol=1e-5, atol=1e-5)
                head = fit_kind(CLASSIFICATION, TRAINED, _rows(samples, training), 3, at)
                probabilities = head.probabilities(X[~training])
                np.testing.assert_allclose(np.exp(each.test), probabilities, atol=1e-5)


def _rows(samples: Samples, rows: Any) -> Samples:
    return Samples(*(each[rows] for each in samples))


# --- pools without a domain ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def four() -> ArraySource:
    return small(n_domains=4)


@pytest.fixture(scope="module")
def found(four: ArraySource) -> dict[str | None, Heads]:
    return predict_with_heads(four)


def test_a_left_out_pool_is_chosen_without_the_domain(found: dict[str | None, Heads]) -> None:
    """By predictions of held-out domains and within the others; it predicts both of the domain."""
    heads = found[None]
    pools = left_out_pools(heads)
    assert pools.within is not None
    assert len(pools.out_of_fold) == len(pools.within) == 4
    for at in range(4):
        others = [other for other in range(4) if other != at]

        def part(each: HeadPredictions, kept: list[int] = others) -> HeadPredictions:
            within = [each.within[other] for other in kept] if each.within is not None else None
            return HeadPredictions(each.setting, [each.out_of_fold[o] for o in kept], within)

        chosen = choose_pool(
            Heads(
                tuple(heads.domains[other] for other in others),
                [heads.labels[other] for other in others],
                heads.alone,
                {head: part(each) for head, each in heads.candidates.items()},
                heads.milliseconds,
            )
        )
        members = [heads.candidates[head] for head in chosen.members]
        expected = oracle.pool([each.out_of_fold[at] for each in members], chosen.weights)
        np.testing.assert_allclose(pools.out_of_fold[at], expected, atol=1e-5)
        inside = [each.within[at] for each in members if each.within is not None]
        np.testing.assert_allclose(pools.within[at], oracle.pool(inside, chosen.weights), atol=1e-5)


ORDER = ["good", "best", "fair", "poor"]


@pytest.fixture(scope="module")
def source() -> ArraySource:
    return small()


@pytest.fixture(scope="module")
def heads(source: ArraySource) -> Heads:
    return predict_with_heads(source)[None]


@pytest.fixture(scope="module")
def decision(source: ArraySource, heads: Heads) -> Decision:
    return decide(Training(source, ORDER, top_k=2, predicted={None: heads}))


# --- estimates ----------------------------------------------------------------------------------


def literal(
    source: ArraySource, columns: Columns, parts: list[Any] | None = None
) -> tuple[list[Any], list[Any], list[Any]]:
    """Predictions (settings, n, 3) of held-out domains and within the domains, and the labels.

    `parts` are the features that are used where each domain is left out, if these differ.
    """
    X, y, d = columns.samples(source, source.domains)
    within, _ = split_classes(X, y, folds_within(CLASSIFICATION, y, d), SETTINGS, 3)
    if parts is None:
        together, _ = split_classes(X, y, d, SETTINGS, 3)
        left_out = [together[:, d == at] for at in range(3)]
    else:
        left_out = [left_out_ridge(part, y, d, {at}, SETTINGS, 3) for at, part in enumerate(parts)]
    return left_out, [within[:, d == at] for at in range(3)], [y[d == at] for at in range(3)]


def require_estimate(found: Any, paths: Any, at: int, labels: Any) -> None:
    """What a setting predicts right."""
    for mine, path, y in zip(found, paths, labels, strict=True):
        np.testing.assert_array_equal(mine, path[at].argmax(axis=1) == y)


def test_the_estimate_of_an_ensemble_is_of_heads_trained_without_the_samples(
    source: ArraySource, decision: Decision
) -> None:
    left_out, within, labels = literal(source, decision.chosen["ensemble"].columns)
    at = best_setting("classification", left_out, within, labels, 0.5)
    found = decision.estimates["ensemble"]
    require_estimate(found.contributions, left_out, at, labels)
    require_estimate(found.within, within, at, labels)


def test_the_estimate_of_a_selection_is_of_features_chosen_without_the_domain(
    source: ArraySource, decision: Decision
) -> None:
    """As many as are selected, of the features of all models in alphabetical order."""
    X, y, d = Columns.all_of(source, sorted(source.models)).samples(source, source.domains)
    number = len(decision.chosen["selection"].columns)
    whole = set(np.argsort(-contributions(X.astype(np.float64), y, d, 3)[0])[:number])
    parts, differ = [], False
    for at in range(3):
        rest = d != at
        total, _ = contributions(X[rest].astype(np.float64), y[rest], d[rest], 3)
        chosen = np.sort(np.argsort(-total, kind="stable")[:number])
        differ |= set(chosen) != whole
        parts.append(X[:, chosen])
    assert differ
    left_out, within, labels = literal(source, decision.chosen["selection"].columns, parts)
    at = best_setting("classification", left_out, within, labels, 0.5)
    found = decision.estimates["selection"]
    require_estimate(found.contributions, left_out, at, labels)
    assert found.within is None  # the labels of all folds selected the features


def test_the_estimate_of_a_pool_is_of_pools_chosen_without_the_domain(
    heads: Heads, decision: Decision
) -> None:
    pools, found = left_out_pools(heads), decision.estimates["pool"]
    for hits, outputs in zip((found.contributions, found.within), pools, strict=True):
        for mine, each, y in zip(hits or (), outputs or (), heads.labels, strict=True):
            np.testing.assert_array_equal(mine, each.argmax(axis=1) == y)


# --- final heads --------------------------------------------------------------------------------


N = 40


@pytest.fixture(scope="module")
def shifted() -> ArraySource:
    """Three models of which two see the classes, in domains that shift the features."""
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1, 2, 0], N), np.repeat(["a", "b", "c", "d"], N)
    shift = rng.normal(size=(4, 6))[np.repeat(np.arange(4), N)]
    signal = np.eye(6)[y] * 2
    features = {
        "one": signal + shift + rng.normal(size=(4 * N, 6)),
        "two": signal[:, ::-1] + 2 * shift + rng.normal(size=(4 * N, 6)),
        "noise": rng.normal(size=(4 * N, 4)),
    }
    return ArraySource(features, y, domains)


@pytest.fixture(scope="module")
def shifted_heads(shifted: ArraySource) -> Heads:
    return predict_with_heads(shifted)[None]


def together(shifted: ArraySource, final: FinalHead) -> NDArray[np.float32]:
    return final.columns.samples(shifted, shifted.domains).features


@pytest.mark.parametrize("kind", KINDS)
def test_a_pool_is_the_weighted_mean_of_its_heads(shifted: ArraySource, kind: Kind) -> None:
    if kind != "classification":
        shifted = ArraySource(*task_zoo(kind), None, kind)
    shifted_heads = predict_with_heads(shifted)[None]
    pool = choose_pool(shifted_heads)
    final = fit_pool(shifted, shifted_heads, pool)
    assert (final.head.task.kind, final.columns.models) == (kind, pool.models)
    assert (final.adaptive is None) == (kind != "classification")
    if final.adaptive is not None:
        assert final.adaptive.base is final.head
        assert final.adaptive.standardised.weights.any()
    n_outputs = len(shifted.classes)
    expected: Any = 0.0
    of_models = dict.fromkeys(pool.models, 0.0)
    for member, weight in zip(pool.members, pool.weights, strict=True):
        samples = Columns.all_of(shifted, [member.model]).samples(shifted, shifted.domains)
        setting = shifted_heads.candidates[member].setting
        head = fit_kind(task_of(kind), member.kind, samples, n_outputs, setting)
        expected = expected + weight * head.logits(samples.features)
        of_models[member.model] += weight
    assert final.weights == pytest.approx(of_models)
    assert sum(of_models.values()) == pytest.approx(1)
    found = final.head.logits(together(shifted, final))
    if kind == "classification":
        found, expected = log_softmax(found, axis=1), log_softmax(expected, axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    one = fit_pool(shifted, shifted_heads, choose_pool(shifted_heads, Limits(max_models=1)))
    assert one.weights == {one.columns.models[0]: 1.0}


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_given_head_is_not_fitted(
    shifted: ArraySource, shifted_heads: Heads, is_alone: bool
) -> None:
    """As that of a fine-tuned model: its share is added as it is, and nothing adapts it."""
    rng = np.random.default_rng(1)
    tuned = Head("noise", "tuned", 1.0)
    given = LinearHead(rng.normal(size=(3, 4)), rng.normal(size=3), 1.0)
    known = [
        np.log(np.eye(3)[y] * 0.97 + 0.01) for y in shifted_heads.labels
    ]  # such a head is chosen
    others = {
        head: each for head, each in shifted_heads.candidates.items() if head.model != "noise"
    }
    candidates = ({} if is_alone else others) | {tuned: HeadPredictions(0, known)}
    shifted_heads = replace(shifted_heads, candidates=candidates)
    final = fit_pool(shifted, shifted_heads, choose_pool(shifted_heads), given={tuned: given})
    if is_alone:
        np.testing.assert_array_equal(final.head.weights, given.weights)
        assert (final.weights, final.adaptive) == ({"noise": 1.0}, None)
        return
    share = final.weights["noise"]
    assert 0 < share <= 1
    at = [*final.columns.by_model].index("noise")
    start = sum(len(part) for part in list(final.columns.by_model.values())[:at])
    np.testing.assert_allclose(final.head.weights[:, start : start + 4], share * given.weights)
    assert final.adaptive is not None
    assert not final.adaptive.standardised.weights[:, start : start + 4].any()


seeds = st.integers(0, 10_000)


# --- weights ------------------------------------------------------------------------------------


@given(seed=seeds)
@settings(max_examples=10, deadline=None)
def test_weights_equal_their_definition(seed: int) -> None:
    tables, labels = predicted(seed, n_heads=1, sizes=(9, 14, 11, 8))
    *probabilities, target = [np.exp(table[0]) for table in tables]
    target_labels = labels.pop()
    found = weigh_images(probabilities, labels, target)

    def expected(here: Any, domains: list[int]) -> list[float]:
        known = adaptive.measured([probabilities[d] for d in domains], [labels[d] for d in domains])
        mixture = adaptive.mixture(here, known)
        ratios = [r / m if m else 1 for r, m in zip(known.reference, mixture, strict=True)]
        return [sum(p[c] * ratios[c] for c in range(3)) for p in here]

    np.testing.assert_allclose(present(found.target), expected(target, [0, 1, 2]), rtol=1e-3)
    for domain in range(3):
        others = [other for other in range(3) if other != domain]
        np.testing.assert_allclose(
            found.predicted[domain], expected(probabilities[domain], others), rtol=1e-3
        )
        reference = adaptive.reference(labels, 3)
        shares = [np.mean(labels[domain] == c) for c in range(3)]
        np.testing.assert_allclose(
            found.labelled[domain], [reference[c] / shares[c] for c in labels[domain]]
        )
    assert len(present(found.target)) == len(target_labels)


# --- standardised features ----------------------------------------------------------------------


def test_standardise_equals_its_definition() -> None:
    samples = planted(30, 4, 3, 3)
    samples.features[samples.domains == 1, 2] = 7.5  # constant in one domain
    rng = np.random.default_rng(0)
    weights = [rng.uniform(0.2, 3, 10) for _ in range(3)]
    found = standardise(samples, weights)
    np.testing.assert_array_equal(found.labels, samples.labels)
    np.testing.assert_array_equal(found.domains, samples.domains)
    assert found.features.dtype == np.float32
    for domain, each in enumerate(weights):
        rows = samples.domains == domain
        expected = oracle.standardised(samples.features[rows].astype(np.float64), each.tolist())
        np.testing.assert_allclose(found.features[rows], expected, atol=1e-5)
    assert (found.features[samples.domains == 1, 2] == 0).all()


def weighted(sizes: list[int], target: int, seed: int = 0) -> ImageWeights:
    rng = np.random.default_rng(seed)
    *labelled, last = [rng.uniform(0.5, 2, n) for n in [*sizes, target]]
    predicted = [rng.uniform(0.5, 2, n) for n in sizes]
    return ImageWeights(labelled, predicted, last, Confusion(np.eye(3), np.full(3, 1 / 3), 0.0))


@pytest.mark.parametrize("shape", [(80, 5), (40, 60)])
def test_standardised_predictions_equal_literal_fits(shape: tuple[int, int]) -> None:
    """A held-out domain is standardised as if it had no labels, the others by their labels."""
    every = planted(*shape, 3, 4)
    known = every.domains < 3
    y, domains = every.labels[known], every.domains[known]
    samples = Samples(every.features[known], y, domains)
    target = every.features[~known]
    weights = weighted([shape[0] // 4] * 3, len(target))
    groups = [f"g{row // 2}" for row in range(len(y))]
    found = standardised_predictions(samples, target, 3, weights, groups=groups)

    def parts(of: list[list[float]]) -> Any:
        each = [every.features[every.domains == d].astype(np.float64) for d in range(len(of))]
        return np.concatenate([oracle.standardised(x, w) for x, w in zip(each, of, strict=True)])

    labelled = [each.tolist() for each in weights.labelled]
    left_out = []
    for domain in range(3):
        mixed = list(labelled)
        mixed[domain] = weights.predicted[domain].tolist()
        left_out.append(left_out_ridge(parts(mixed), y, domains, {domain}, SETTINGS, 3))
    folds = np.full(len(every.labels), -1)
    folds[known] = folds_within(CLASSIFICATION, y, domains, groups)
    together = parts([*labelled, present(weights.target).tolist()])
    inside, rest = split_classes(together, every.labels, folds, SETTINGS, 3)
    within = [inside[:, domains == domain] for domain in range(3)]
    labels = [y[domains == domain] for domain in range(3)]
    assert tuple(found) == SHARES
    for share, mine in found.items():
        at = best_setting("classification", left_out, within, labels, share)
        assert mine.setting == at
        for each, expected in zip(mine.out_of_fold, left_out, strict=True):
            np.testing.assert_allclose(each, expected[at], atol=1e-4)
        for each, expected in zip(mine.within or (), within, strict=True):
            np.testing.assert_allclose(each, expected[at], atol=1e-4)
        np.testing.assert_allclose(present(mine.test), rest[at], atol=1e-4)


class WithTexts(ArraySource):
    """Arrays of a joint space, with its texts."""

    def __init__(self, space: JointSpace, scale: float = 10.0) -> None:
        super().__init__(space.features, space.y, space.domains)
        self._texts = embeddings_of(space, scale=scale)

    def class_embeddings(self, model: str) -> ClassEmbeddings | None:
        return self._texts.of(self.classes) if model == "clip" else None


SPACE = joint_space()


@pytest.mark.parametrize("scale", [0.001, 10.0])
def test_the_pool_is_one_linear_head(scale: float) -> None:
    source = WithTexts(SPACE, scale)
    heads = predict_with_heads(source)[None]
    pool = choose_pool(heads)
    final = fit_pool(source, heads, pool)
    assert final.columns.normalised == ({"clip"} & set(pool.models))
    total: Any = 0
    for head, weight in zip(pool.members, pool.weights, strict=True):
        samples = pool_columns(source, [head.model]).samples(source, source.domains)
        setting = heads.candidates[head].setting
        zero_shot = find_zero_shot(source, head.model)
        fitted = fit_kind(CLASSIFICATION, head.kind, samples, 4, setting, zero_shot)
        total = total + weight * fitted.logits(samples.features)
    together = final.columns.samples(source, source.domains).features
    np.testing.assert_allclose(final.head.logits(together), total, atol=1e-6)
    assert final.adaptive is not None
    # the pool that adapts is of the same columns
    assert final.adaptive.plain.weights.shape == final.head.weights.shape


def test_samples_of_one_group_are_estimated_by_left_out_domains_only() -> None:
    source = ArraySource(*zoo(n=18, n_domains=3), ["patient"] * 54)
    found = decide(Training(source, ORDER, top_k=2))
    assert set(found.estimates) == {"single", "pool", "ensemble", "selection"}
    assert all(each.within is None for each in found.estimates.values())

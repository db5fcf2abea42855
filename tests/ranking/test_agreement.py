"""Agreement with the vote of the other models, and rankings for unlabelled target images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.fixtures import draw_digits
from tests.oracles import agreement as oracle
from tests.oracles import folds as regressions
from tests.oracles import unseen as scores_oracle
from tests.ranking.data import Arrays, simulate_models

import oodzoo
from oodzoo.features.columns import Samples
from oodzoo.features.config import ExtractionConfig
from oodzoo.features.extract import open_unlabelled, run_extraction
from oodzoo.heads.linear import fit_head
from oodzoo.ranking.agreement import Agreement, Labels, Predictions, agreement_with_vote
from oodzoo.ranking.ridge import RIDGES
from oodzoo.ranking.terms import ScoreTable
from oodzoo.zoo import ModelSpec

EXACT = st.sampled_from([3, 5, 9])
"""Numbers of models whose weights in a vote are exact binary fractions."""

seeds = st.integers(0, 10_000)


def voted(scores: Sequence[float], labels: NDArray[np.int64]) -> list[float]:
    weights = oracle.vote_weights(scores)
    return [float(share) for share in oracle.agreement(labels.tolist(), weights)]


def both(labels: NDArray[np.int64]) -> Predictions:
    return Predictions(labels, labels)


# --- formula ------------------------------------------------------------------------------------


@given(seed=seeds, n_models=EXACT, n=st.integers(1, 30), n_classes=st.integers(1, 4))
@settings(deadline=None)
def test_agreement_equals_its_definition(seed: int, n_models: int, n: int, n_classes: int) -> None:
    """Also of models with equal scores, and of classes with equally many votes."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 6, n_models).astype(float)
    target, *folds = rng.integers(0, n_classes, (3, n_models, n))
    found = Agreement.of(scores, both(target), folds)
    np.testing.assert_allclose(found.target, voted(scores.tolist(), target))
    assert found.folds.shape == (n_models, 2)
    for at, labels in enumerate(folds):
        np.testing.assert_allclose(found.folds[:, at], voted(scores.tolist(), labels))


@given(seed=seeds, n_models=st.integers(3, 12))
@settings(deadline=None)
def test_agreement_is_that_of_any_number_of_models(seed: int, n_models: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 6, n_models).astype(float)
    target, fold = rng.integers(0, 3, (2, n_models, 20))
    found = Agreement.of(scores, both(target), [fold])
    np.testing.assert_allclose(found.target, voted(scores.tolist(), target))
    np.testing.assert_allclose(found.folds[:, 0], voted(scores.tolist(), fold))


def test_two_models_agree_alike() -> None:
    labels = np.array([[1, 1, 2, 0], [1, 2, 2, 0]])
    assert Agreement.of(np.array([2.0, 1.0]), both(labels), [labels]).target.tolist() == [
        0.75,
        0.75,
    ]


def test_images_of_different_number() -> None:
    """Held-out domains and the target have different numbers of images and classes."""
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, high, (3, n)) for n, high in ((7, 2), (30, 4), (1, 1))]
    scores = np.array([0.1, 0.9, 0.5])
    found = Agreement.of(scores, both(parts[0]), parts[1:])
    np.testing.assert_allclose(found.target, voted(scores.tolist(), parts[0]))
    np.testing.assert_allclose(found.folds[:, 0], voted(scores.tolist(), parts[1]))
    np.testing.assert_allclose(found.folds[:, 1], [1, 1, 1])


@given(seed=seeds, n_models=st.integers(2, 6), m=st.integers(2, 4))
def test_combination_equals_its_definition(seed: int, n_models: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    totals, target = rng.normal(size=n_models), rng.random(n_models)
    values, rest = rng.normal(size=(2, n_models, m))
    agreement = Agreement(target, rng.random(n_models), rng.random((n_models, m)))
    found = agreement.combine(ScoreTable(totals, values, rest))
    names = [str(model) for model in range(n_models)]
    of = dict(zip(names, target.tolist(), strict=True))
    base = dict(zip(names, totals.tolist(), strict=True))
    assert found.totals == pytest.approx(list(oracle.combined(base, of).values()))
    for table, expected in ((found.values, values), (found.rest, rest)):
        for at in range(m):
            column = dict(zip(names, expected[:, at].tolist(), strict=True))
            assert table[:, at] == pytest.approx(list(oracle.combined(column, of, base).values()))


@given(seed=seeds)
def test_the_mean_of_the_combined_values_is_the_combined_score(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, weights = rng.normal(size=(5, 3)), rng.dirichlet(np.ones(3))
    agreement = Agreement(rng.random(5), rng.random(5), rng.random((5, 3)))
    found = agreement.combine(ScoreTable(values @ weights, values, values))
    np.testing.assert_allclose(found.values @ weights, found.totals, atol=1e-12)


def test_models_of_equal_scores_are_ordered_by_agreement() -> None:
    equal = ScoreTable(np.zeros(3), np.zeros((3, 2)), np.zeros((3, 2)))
    found = Agreement(np.array([0.2, 0.9, 0.4]), np.zeros(3), np.zeros((3, 2))).combine(equal)
    assert found.totals.argsort().tolist() == [0, 2, 1]
    assert np.isfinite(found.values).all()
    same = Agreement(np.full(3, 0.7), np.zeros(3), np.zeros((3, 2))).combine(equal)
    assert same.totals.tolist() == [0, 0, 0]


# --- properties ---------------------------------------------------------------------------------


@given(seed=seeds, n_models=EXACT)
def test_order_of_images_and_models_does_not_matter(seed: int, n_models: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 6, n_models).astype(float)
    labels = rng.integers(0, 3, (n_models, 20))
    images, models = rng.permutation(20), rng.permutation(n_models)
    expected = Agreement.of(scores, both(labels), [labels])
    np.testing.assert_array_equal(
        Agreement.of(scores, both(labels[:, images]), [labels]).target, expected.target
    )
    found = Agreement.of(scores[models], both(labels[models]), [labels[models]])
    np.testing.assert_array_equal(found.target, expected.target[models])
    np.testing.assert_array_equal(found.folds, expected.folds[models])


@given(seed=seeds, n_models=EXACT)
def test_names_of_classes_do_not_matter_without_ties(seed: int, n_models: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.random(n_models)
    labels, names = rng.integers(0, 4, (n_models, 20)), rng.permutation(4)
    np.testing.assert_array_equal(
        agreement_with_vote(names[labels], weights), agreement_with_vote(labels, weights)
    )


@given(seed=seeds, n_models=EXACT)
def test_only_the_order_of_the_scores_matters(seed: int, n_models: int) -> None:
    rng = np.random.default_rng(seed)
    scores, labels = rng.normal(size=n_models), rng.integers(0, 3, (n_models, 20))
    one, two = (Agreement.of(s, both(labels), [labels]) for s in (scores, np.exp(7 * scores) - 3))
    np.testing.assert_array_equal(one.target, two.target)


@given(seed=seeds, n_models=EXACT)
def test_a_model_has_no_vote_on_itself(seed: int, n_models: int) -> None:
    """What others vote for does not change with the predictions of the model."""
    rng = np.random.default_rng(seed)
    weights, labels = rng.random(n_models), rng.integers(0, 3, (n_models, 20))
    total = 0.0
    for label in range(3):
        labels[0] = label
        total += agreement_with_vote(labels, weights)[0]
    assert total == pytest.approx(1)


@given(seed=seeds)
def test_a_copy_of_the_majority_of_good_models_agrees_most(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 4, 200)
    shares = np.array([0.8, 0.8, 0.8, 0.8, 0.8, 0.3, 0.3])
    right = rng.random((7, 200)) < shares[:, None]
    labels = np.where(right, truth, (truth + rng.integers(1, 4, (7, 200))) % 4)
    majority = np.array([np.bincount(column).argmax() for column in labels[:5].T])
    labels = np.vstack([labels, majority])
    scores = np.append(shares, 0.8) + 0.01 * rng.normal(size=8)
    found = Agreement.of(scores, both(labels), [labels]).target
    assert found.argmax() == 7
    assert found[5:7].max() < found[:5].min()


# --- rankings -----------------------------------------------------------------------------------


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


def alike(seed: int) -> Sample:
    """Models that differ so little that held-out domains prefer different ones."""
    return simulated({name: 1.0 + 0.02 * at for at, name in enumerate("abcde")}, seed)


def literal(
    features: Arrays,
    y: Labels,
    domains: NDArray[Any],
    target: Arrays,
    weights: dict[str, float],
) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """Score and agreement of each model, and the accuracy to expect, by definition."""
    data = {
        model: {d: (X[domains == d], y[domains == d]) for d in weights}
        for model, X in features.items()
    }
    totals = scores_oracle.unseen(data, 3, weights)
    folds = {model: regressions.leave_one_out(each, 3) for model, each in data.items()}
    vote = oracle.vote_weights(list(totals.values()))
    predicted = [
        regressions.predict(
            regressions.pooled(data[model], list(weights)),
            target[model],
            3,
            RIDGES[folds[model]["d0"].ridge],
        )
        for model in data
    ]
    by_ridges = dict(zip(data, map(float, oracle.agreement(predicted, vote)), strict=True))
    codes = np.unique(domains, return_inverse=True)[1]
    heads = [fit_head(Samples(X.astype(np.float32), y, codes), 3) for X in features.values()]
    predicted = [
        head.logits(X).argmax(axis=1).tolist()
        for head, X in zip(heads, target.values(), strict=True)
    ]
    agreed = dict(zip(data, map(float, oracle.agreement(predicted, vote)), strict=True))
    known = {}
    for d in weights:
        labels = [folds[model][d].predicted for model in data]
        known[d] = dict(zip(data, map(float, oracle.agreement(labels, vote)), strict=True))
    scores = oracle.combined(totals, agreed)
    rest = {
        d: oracle.combined(scores_oracle.unseen(data, 3, weights, without=d), agreed, totals)
        for d in weights
    }
    choices = regressions.chosen_without(rest)
    first = min(scores, key=lambda model: (-scores[model], model))
    expected = {}
    for model in data:
        of = choices if model == first else dict.fromkeys(weights, model)
        expected[model] = 100 * (
            by_ridges[model]
            + sum(w * (folds[of[d]][d].accuracy - known[d][of[d]]) for d, w in weights.items())
        )
    return scores, agreed, expected


@pytest.mark.parametrize("sample", [misled(0), alike(8)], ids=["misled", "alike"])
@pytest.mark.parametrize("given", [None, {"d0": 4.0, "d2": 0.5}])
def test_ranking_for_a_target_is_the_definition(
    sample: Sample, given: dict[str, float] | None
) -> None:
    features, y, domains, target = sample
    weights = {d: (given or {}).get(d, 1.0) for d in ("d0", "d1", "d2")}
    weights = {d: w / sum(weights.values()) for d, w in weights.items()}
    ranking = oodzoo.rank(features, y, domains, target=target, domain_weights=given)
    scores, agreed, expected = literal(features, y, domains, target, weights)
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


def test_one_model_has_nothing_to_agree_with() -> None:
    features, y, domains, target = misled()
    alone, images = ({"solid0": part["solid0"]} for part in (features, target))
    assert oodzoo.rank(alone, y, domains, target=images) == oodzoo.rank(alone, y, domains)


def test_order_of_the_target_images_does_not_matter() -> None:
    features, y, domains, target = misled()
    order = np.random.default_rng(1).permutation(len(target["solid0"]))
    shuffled = {name: target[name][order] for name in reversed(list(target))}
    assert oodzoo.rank(features, y, domains, target=shuffled) == oodzoo.rank(
        features, y, domains, target=target
    )


def test_nothing_but_the_score_and_what_to_expect_depends_on_the_target() -> None:
    features, y, domains, target = misled()
    without = {row.model: row for row in oodzoo.rank(features, y, domains).rows}
    assert all(row.agreement is None for row in without.values())
    for row in oodzoo.rank(features, y, domains, target=target).rows:
        same = without[row.model]
        for name in ("evidence", "transfer", "discriminability", "stability"):
            assert getattr(row, name) == getattr(same, name)
        for fold, other in zip(row.folds, same.folds, strict=True):
            assert fold.accuracy == other.accuracy
            assert fold.balanced_accuracy == other.balanced_accuracy


def test_pytorch_agrees() -> None:
    pytest.importorskip("torch", reason="PyTorch is an extra")
    features, y, domains, target = misled()
    one, two = (
        oodzoo.rank(features, y, domains, target=target, device=device) for device in (None, "cpu")
    )
    for row, same in zip(one.rows, two.rows, strict=True):
        assert (row.model, row.agreement) == (same.model, same.agreement)
        assert row.score == pytest.approx(same.score, abs=1e-9)


def own_score(X: Any, y: Any) -> float:
    return float(X.sum())


@pytest.mark.parametrize(
    ("score", "name"),
    [("zood", "zood"), ("transfer", "transfer"), ("logme", "logme"), (own_score, "own_score")],
)
def test_other_scores_do_not_use_the_target(score: Any, name: str) -> None:
    features, y, domains, target = misled()
    words = f"images of the target are for the score 'unseen' only, got '{name}'"
    with pytest.raises(oodzoo.InputError, match=words):
        oodzoo.rank(features, y, domains, target=target, score=score)


# --- stores -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored(
    digits: Path, zoo: list[ModelSpec], tmp_path_factory: pytest.TempPathFactory
) -> oodzoo.FeatureStore:
    """A store of three models with an unlabelled domain of 36 images."""
    folder = tmp_path_factory.mktemp("target")
    new = draw_digits(folder / "new", 4, skip=12)
    config = ExtractionConfig(device="cpu")
    targets = open_unlabelled(new)
    run_extraction(oodzoo.ImageDomains(digits), zoo, folder / "store", config, unlabelled=targets)
    return oodzoo.FeatureStore(folder / "store")


def test_unlabelled_domain_of_a_store(stored: oodzoo.FeatureStore) -> None:
    arrays = {model: stored.features(model, "new") for model in stored.models}
    found = oodzoo.rank(stored, target="new")
    assert found == oodzoo.rank(stored, target=arrays)
    assert all(row.agreement is not None for row in found.rows)
    assert found != oodzoo.rank(stored)


def test_second_ranking_for_a_target_reads_the_cache(stored: oodzoo.FeatureStore) -> None:
    first = oodzoo.rank(stored, target="new")
    files = sorted((stored.path / "cache" / "target").glob("*.npz"))
    assert len(files) >= len(stored.models)
    before = [file.stat().st_mtime_ns for file in files]
    assert oodzoo.rank(oodzoo.FeatureStore(stored.path), target="new") == first
    assert sorted((stored.path / "cache" / "target").glob("*.npz")) == files
    assert [file.stat().st_mtime_ns for file in files] == before


def test_other_target_images_are_not_read_from_the_cache(stored: oodzoo.FeatureStore) -> None:
    first, *_ = stored.models
    rows = {d: len(stored.labels(d)) for d in stored.domains}
    training = {
        model: np.concatenate([stored.features(model, d) for d in rows]) for model in stored.models
    }
    labels = np.concatenate([stored.labels(d) for d in rows])
    names = np.repeat(list(rows), list(rows.values()))
    new = {model: stored.features(model, "new") for model in stored.models}
    found = []
    for images in (new, new | {first: new[first][::-1]}, {m: x[5:] for m, x in new.items()}):
        ranking = oodzoo.rank(stored, target=images)
        agreements = {row.model: row.agreement for row in ranking.rows}
        again = oodzoo.rank(training, labels, names, target=images)
        assert {row.model: row.agreement for row in again.rows} == agreements
        found.append(agreements)
    assert found[0] != found[1]

"""The test domain has no influence before it is scored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import stored, zoo

import oodzoo
from oodzoo.combining.adaptation import pool_for_target
from oodzoo.combining.decision import Decision
from oodzoo.combining.evaluation.choice import Candidate, Choice, Predicted, choose
from oodzoo.combining.evaluation.scoring import score_choice
from oodzoo.combining.evaluation.training import TrainingView, domainbed_trainer, fast_trainer
from oodzoo.combining.heads import Heads, choose_pool, predict_with_heads
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.source import ArraySource, FeatureSource
from oodzoo.ranking.ranker import orders_for_test_domains, rank_for_test_domains
from oodzoo.ranking.result import Ranking

TEST = "d1"

Decided = tuple[Ranking, Heads, Choice]


def scrambled(data: Any, test: str = TEST) -> Any:
    """The same data with other labels and features, a thousand times as large, in one domain."""
    features, y, domains = data
    rng = np.random.default_rng(99)
    rows = domains == test
    y = y.copy()
    y[rows] = rng.integers(0, 3, rows.sum())
    features = {
        name: np.where(rows[:, None], 1000 * rng.normal(size=array.shape) + 500, array)
        for name, array in features.items()
    }
    return features, y, domains


def decided(
    source: FeatureSource,
    protocol: str = "fast",
    *,
    auto: bool = False,
    trials: int = 1,
    test: str = TEST,
) -> Decided:
    """Everything that an evaluation decides and trains for a test domain."""
    order = orders_for_test_domains(source)[test]
    ranking, heads = rank_for_test_domains(source)[test], predict_with_heads(source)[test]
    train = fast_trainer(trials) if protocol == "fast" else domainbed_trainer(2, draws=3, steps=40)
    choice = choose(
        TrainingView.without(source, test),
        order,
        heads,
        train,
        ranking=ranking,
        top_k=None if auto else [1, 3],
        main=None if auto else 3,
        peers=("logme", "leep"),
        retrain=protocol == "domainbed" or trials > 1,
    )
    assert order == [row.model for row in ranking.rows]
    return ranking, heads, choice


def scored(source: FeatureSource, choice: Choice, test: str = TEST, trials: int = 1) -> Any:
    rows = np.arange(len(source.labels(test)))
    return score_choice(source, test, choice, [rows] * trials)


def require_identical(one: Decided, two: Decided) -> None:
    assert one[0] == two[0]  # every figure of every model, bit by bit
    require_same_heads(one[1], two[1])
    require_same_choice(one[2], two[2])


def require_same_heads(one: Heads, two: Heads) -> None:
    assert one.domains == two.domains
    for kind in ("alone", "candidates"):
        mine, theirs = getattr(one, kind), getattr(two, kind)
        assert list(mine) == list(theirs)
        for name, head in mine.items():
            assert head.setting == theirs[name].setting
            for a, b in zip(head.out_of_fold, theirs[name].out_of_fold, strict=True):
                np.testing.assert_array_equal(a, b)


def require_same_choice(first: Choice, second: Choice) -> None:
    require_same_decision(first.decision, second.decision)
    for name in ("top_k", "best_by", "selection_ratio"):
        assert getattr(first, name) == getattr(second, name)
    require_same_candidate(first.pool, second.pool)
    require_same_candidate(first.selection, second.selection)
    for kind in ("ensembles", "paper_selections", "singles"):
        mine, theirs = getattr(first, kind), getattr(second, kind)
        assert list(mine) == list(theirs)
        for key in mine:
            require_same_candidate(mine[key], theirs[key])
    assert len(first.random) == len(second.random) >= 5
    for part, other in zip(first.random, second.random, strict=True):
        require_same_candidate(part, other)


def require_same_decision(one: Decision, two: Decision) -> None:
    assert (one.best, one.recommended) == (two.best, two.recommended)
    assert one.pool.members == two.pool.members
    require_same_columns(one.ensemble, two.ensemble)
    require_same_columns(one.selection, two.selection)
    assert list(one.estimates) == list(two.estimates)
    for name, estimate in one.estimates.items():
        assert estimate.cost == two.estimates[name].cost
        for a, b in zip(estimate.contributions, two.estimates[name].contributions, strict=True):
            np.testing.assert_array_equal(a, b)


def require_same_columns(one: Columns, two: Columns) -> None:
    assert list(one.by_model) == list(two.by_model)
    for model, columns in one.by_model.items():
        np.testing.assert_array_equal(columns, two.by_model[model])


def require_same_candidate(one: Candidate | Predicted, two: Candidate | Predicted) -> None:
    if isinstance(one, Predicted) or isinstance(two, Predicted):
        assert isinstance(one, Predicted)
        assert isinstance(two, Predicted)
        assert (one.models, one.n_features) == (two.models, two.n_features)
        return
    require_same_columns(one.columns, two.columns)
    for (head, rows, _), (other, same_rows, _) in zip(one.heads, two.heads, strict=True):
        np.testing.assert_array_equal(head.weights, other.weights)
        np.testing.assert_array_equal(head.bias, other.bias)
        assert head.C == other.C
        np.testing.assert_array_equal(rows, same_rows)


# --- without images of the test domain ----------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "auto", "trials", "test"),
    [
        ("fast", False, 1, "d0"),
        ("fast", False, 1, "d3"),
        ("fast", True, 1, "d1"),
        ("fast", False, 2, "d1"),
        ("domainbed", False, 2, "d2"),
    ],
)
def test_noise_in_place_of_the_test_domain_changes_nothing_before_scoring(
    protocol: str, auto: bool, trials: int, test: str
) -> None:
    data = zoo(n=18)
    before, after = ArraySource(*data), ArraySource(*scrambled(data, test))
    one, two = (
        decided(source, protocol, auto=auto, trials=trials, test=test) for source in (before, after)
    )
    require_identical(one, two)
    # but its predictions and scores depend on it
    assert not np.allclose(one[2].pool.outputs, two[2].pool.outputs)
    assert scored(before, one[2], test, trials) != scored(after, two[2], test, trials)


def test_an_evaluation_names_the_same_models_for_a_scrambled_test_domain() -> None:
    data = zoo(n=21)
    options: dict[str, Any] = {"top_k": 2, "baselines": ["logme"], "with_target": True}
    one, two = (oodzoo.evaluate(*each, **options) for each in (data, scrambled(data)))
    assert one.recommended.choices[TEST] == two.recommended.choices[TEST]
    assert one.feature_ratio[TEST] == two.feature_ratio[TEST]
    for name, row in one.rows.items():
        mine, theirs = row.cells[TEST], two.rows[name].cells[TEST]
        if name != "oracle":  # which is the best on the test domain
            assert (mine.models, mine.n_features) == (theirs.models, theirs.n_features)
        assert mine.measures != theirs.measures


def test_two_training_domains() -> None:
    data = zoo(n=21, n_domains=3)
    one, two = (decided(ArraySource(*each)) for each in (data, scrambled(data)))
    require_identical(one, two)


def test_the_cache_of_a_store_leaks_nothing(tmp_path: Path) -> None:
    data = zoo(n=21)
    sources = [
        stored(tmp_path / name, *each)
        for name, each in (("before", data), ("after", scrambled(data)))
    ]
    first, second = (decided(source) for source in sources)
    require_identical(first, second)
    again = decided(sources[0])  # from the cache
    require_identical(first, again)
    np.testing.assert_array_equal(first[2].pool.outputs, again[2].pool.outputs)
    for kind in ("selections", "heads"):
        assert list((tmp_path / "before" / "store" / "cache" / kind).glob("*.npz"))


def test_a_class_that_only_the_test_domain_has_changes_nothing() -> None:
    features, y, domains = zoo(n=18)
    more = y.copy()
    more[np.flatnonzero(domains == TEST)[:5]] = -1  # sorts before all others
    known, other = (ArraySource(features, labels, domains) for labels in (y, more))
    one, two = decided(known), decided(other)
    for row, same in zip(one[0].rows, two[0].rows, strict=True):
        assert row.model == same.model
        assert row.score == pytest.approx(same.score, rel=1e-9)
        assert all(fold.skipped == () for fold in same.folds)
    # The new class is the first of the heads, and they never predict it.
    for name, head in two[1].candidates.items():
        assert head.setting == one[1].candidates[name].setting
        assert head.test is not None
        assert np.isneginf(head.test[:, 0]).all()
        np.testing.assert_array_equal(head.test[:, 1:], one[1].candidates[name].test)
    require_same_choice(one[2], two[2])
    for name, cell in scored(known, one[2]).items():
        assert scored(other, two[2])[name].accuracy < cell.accuracy


@pytest.mark.parametrize("what", ["labels", "features"])
def test_training_domains_do_matter(what: str) -> None:
    features, y, domains = zoo(n=18)
    rows = domains == "d0"
    if what == "labels":
        other = (features, np.where(rows, (y + 1) % 3, y), domains)
    else:
        noise = np.random.default_rng(0).normal(size=features["best"].shape)
        best = np.where(rows[:, None], noise, features["best"])
        other = (features | {"best": best}, y, domains)
    one, two = (decided(ArraySource(*data)) for data in ((features, y, domains), other))
    for require, at in ((require_same_heads, 1), (require_same_choice, 2)):
        with pytest.raises(AssertionError):
            require(one[at], two[at])  # type: ignore[arg-type]


# --- with unlabelled images of the test domain --------------------------------------------------


def for_images(data: Any, test: str) -> Any:
    source = ArraySource(*data)
    heads = predict_with_heads(source)[test]

    def target(model: str) -> Any:
        return Columns.all_of(source, [model]).samples(source, [test]).features

    return pool_for_target(source, heads, choose_pool(heads), target).pool


@pytest.mark.parametrize("test", ["d0", "d2"])
def test_labels_and_order_of_the_images_of_the_test_domain_change_nothing(test: str) -> None:
    features, y, domains = zoo(n=21)
    rows = np.flatnonzero(domains == test)
    order = np.arange(len(y))
    order[rows] = np.random.default_rng(1).permutation(rows)
    before = for_images((features, y, domains), test)
    relabelled = for_images((features, y[order], domains), test)
    assert before.members == relabelled.members
    np.testing.assert_array_equal(before.test, relabelled.test)
    moved = {name: array[order] for name, array in features.items()}
    reordered = for_images((moved, y[order], domains), test)
    assert before.members == reordered.members
    inside = order[rows] - rows[0]
    np.testing.assert_allclose(np.exp(before.test)[inside], np.exp(reordered.test), atol=1e-4)


def test_an_evaluation_with_images_depends_on_their_set_alone() -> None:
    """All rows, for another order of the images of each domain that keeps the folds.

    Folds are every fifth image of a class of a domain: the first and second change places with the
    sixth and seventh, and the last class comes first.
    """
    features, y, domains = zoo(n=21, n_domains=3)
    classes = np.arange(len(y)).reshape(3, 7, 3).transpose(0, 2, 1)  # domains, classes, images
    order = classes[:, ::-1, [5, 6, 2, 3, 4, 0, 1]].ravel()
    moved = {name: array[order] for name, array in features.items()}
    options: dict[str, Any] = {"top_k": 2, "baselines": False, "with_target": True}
    one = oodzoo.evaluate(features, y, domains, **options)
    two = oodzoo.evaluate(moved, y[order], domains, **options)
    assert one.recommended.choices == two.recommended.choices
    for name, row in one.rows.items():
        assert row.measure("accuracy") == pytest.approx(two.rows[name].measure("accuracy"))
        for test, cell in row.cells.items():
            assert cell.models == two.rows[name].cells[test].models

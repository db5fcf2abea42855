"""The held-out domain has no influence before it is scored.

What is decided and trained for a held-out domain is compared, which results do not show.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import stored, zoo

from oodzoo.combining.adaptation import pool_for_target
from oodzoo.combining.combination import Training
from oodzoo.combining.evaluation.choice import TrainingView, choose, domainbed_trainer, fast_trainer
from oodzoo.combining.evaluation.scoring import Scorer
from oodzoo.combining.pool_weights import choose_pool
from oodzoo.combining.predictions import predict_with_heads
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.features import ArraySource, FeatureSource
from oodzoo.ranking.constraints import choose_top_k
from oodzoo.ranking.ranker import model_orders, rank_for_test_domains

TEST = "d1"


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


class Decided:
    """Everything that an evaluation decides and trains for a held-out domain."""

    def __init__(
        self,
        source: FeatureSource,
        protocol: str = "fast",
        *,
        auto: bool = False,
        trials: int = 1,
        test: str = TEST,
    ) -> None:
        is_fast = protocol == "fast"
        train = fast_trainer(trials) if is_fast else domainbed_trainer(2, draws=3, steps=40)
        self.ranking = rank_for_test_domains(source)[test]
        self.heads = predict_with_heads(source)[test]
        without = source.only([domain for domain in source.domains if domain != test])
        order = model_orders(source)[test]
        self.top_k = choose_top_k(without, order) if auto else 3
        predicted = predict_with_heads(source)
        self.choice = choose(
            Training(without, order, top_k=self.top_k, predicted=predicted, test=test),
            partial(train, TrainingView.without(source, test)),
            ranking=self.ranking,
            top_k=[self.top_k] if auto else [1, 3],
            peers=("logme", "leep"),
            retrain=not is_fast or trials > 1,
        )
        rows = np.arange(len(source.labels(test)))
        self.scores = Scorer(source, test, [rows] * trials).choice(self.choice)

    @property
    def outputs(self) -> Any:
        """What the pool predicts for the held-out domain."""
        return self.choice.candidates["pool"].outputs

    def parts(self, *, of_heads: bool = True) -> list[Any]:
        """All but what depends on the held-out domain: predictions of it, and the figures of it."""
        heads = self.heads
        every: list[Any] = [heads.alone, heads.candidates] if of_heads else []
        found: list[Any] = [self.ranking, heads.domains] if of_heads else []
        found += [
            (name, head.setting, head.out_of_fold) for some in every for name, head in some.items()
        ]
        made = self.choice
        decision = made.decision
        found += [decision.recommended, made.best_by, self.top_k, len(made.random) >= 5]
        for name, chosen in decision.chosen.items():
            found += [name, chosen.columns.by_model, [*chosen.weights], chosen.n_candidates]
        found += [
            (name, each.cost, each.contributions) for name, each in decision.estimates.items()
        ]
        found += [*made.candidates, *made.singles, *made.ablation]
        candidates = [*made.candidates.values(), *made.singles.values(), *made.random]
        candidates += [each for both in made.ablation.values() for each in both]
        for each in candidates:
            found += [(head.weights, head.bias, head.C, rows) for head, rows, _ in each.heads]
            found.append(each.columns.by_model)
        return found


def same(one: Any, two: Any) -> bool:
    """Whether nested lists and dictionaries of arrays are equal, bit by bit."""
    if isinstance(one, dict):
        return list(one) == list(two) and same(list(one.values()), list(two.values()))
    if isinstance(one, (list, tuple)) and not hasattr(one, "_fields"):
        return len(one) == len(two) and all(map(same, one, two))
    return np.array_equal(one, two) if isinstance(one, np.ndarray) else bool(one == two)


# --- without images of the held-out domain --------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "n_domains"),
    [
        ({"test": "d0"}, 4),
        ({"test": "d3", "auto": True}, 4),
        ({"trials": 2}, 4),
        ({"protocol": "domainbed", "trials": 2, "test": "d2"}, 4),
        ({}, 3),
    ],
)
def test_noise_in_place_of_the_test_domain_changes_nothing_before_scoring(
    options: dict[str, Any], n_domains: int
) -> None:
    data = zoo(n=18, n_domains=n_domains)
    other = scrambled(data, options.get("test", TEST))
    one, two = (Decided(ArraySource(*each), **options) for each in (data, other))
    assert same(one.parts(), two.parts())
    # but its predictions and scores depend on it
    assert not np.allclose(one.outputs, two.outputs)
    assert one.scores != two.scores


def test_the_cache_of_a_store_leaks_nothing(tmp_path: Path) -> None:
    data = zoo(n=21)
    source = stored(tmp_path / "before", *data)
    first = Decided(source)
    assert same(first.parts(), Decided(stored(tmp_path / "after", *scrambled(data))).parts())
    again = Decided(source)  # from the cache
    assert same(first.parts(), again.parts())
    np.testing.assert_array_equal(first.outputs, again.outputs)
    for kind in ("selections", "heads"):
        assert list((tmp_path / "before" / "store" / "cache" / kind).glob("*.npz"))


def test_a_class_that_only_the_test_domain_has_changes_nothing() -> None:
    features, y, domains = zoo(n=18)
    more = y.copy()
    more[np.flatnonzero(domains == TEST)[:5]] = -1  # sorts before all others
    one, two = (Decided(ArraySource(features, labels, domains)) for labels in (y, more))
    for row, twin in zip(one.ranking.rows, two.ranking.rows, strict=True):
        assert row.model == twin.model
        assert row.score == pytest.approx(twin.score, rel=1e-9)
        assert all(fold.skipped == () for fold in twin.folds)
    # The new class is the first of the heads, and they never predict it.
    for name, head in two.heads.candidates.items():
        assert head.setting == one.heads.candidates[name].setting
        assert head.test is not None
        assert np.isneginf(head.test[:, 0]).all()
        np.testing.assert_array_equal(head.test[:, 1:], one.heads.candidates[name].test)
    assert same(one.parts(of_heads=False), two.parts(of_heads=False))
    for way, cell in one.scores.items():
        assert two.scores[way].accuracy < cell.accuracy


# --- with unlabelled images of the held-out domain ------------------------------------------------


@pytest.mark.parametrize("test", ["d0", "d2"])
def test_labels_and_order_of_the_images_of_the_test_domain_change_nothing(test: str) -> None:
    def pool_of(features: Any, y: Any) -> Any:
        source = ArraySource(features, y, domains)
        heads = predict_with_heads(source)[test]

        def target(model: str) -> Any:
            return Columns.all_of(source, [model]).samples(source, [test]).features

        found = pool_for_target(source, heads, choose_pool(heads), target).pool
        without = source.only(heads.domains)  # only the training domains are read from it
        again = pool_for_target(without, heads, choose_pool(heads), target).pool
        np.testing.assert_array_equal(found.test, again.test)
        return found

    features, y, domains = zoo(n=21)
    rows = np.flatnonzero(domains == test)
    order = np.arange(len(y))
    order[rows] = np.random.default_rng(1).permutation(rows)
    before, relabelled = pool_of(features, y), pool_of(features, y[order])
    moved = pool_of({name: array[order] for name, array in features.items()}, y[order])
    assert before.members == relabelled.members == moved.members
    np.testing.assert_array_equal(before.test, relabelled.test)
    inside = order[rows] - rows[0]
    np.testing.assert_allclose(np.exp(before.test)[inside], np.exp(moved.test), atol=1e-4)

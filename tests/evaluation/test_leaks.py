"""The test domain has no influence before it is scored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import zoo

from oodzoo.evaluation.choice import FAST_PEERS, Candidate, Choice, choose
from oodzoo.evaluation.protocol import cells
from oodzoo.evaluation.training import TrainingView, domainbed_trainer, fast_trainer
from oodzoo.features.importing import import_features
from oodzoo.features.source import ArraySource, FeatureSource, StoreSource
from oodzoo.ranking.ranker import rank_for_test_domains
from oodzoo.ranking.result import Ranking

TEST = "d1"


def changed(data: Any) -> Any:
    """The same data with other labels and other features, a thousand times as large, in TEST."""
    features, y, domains = data
    rng = np.random.default_rng(99)
    test = domains == TEST
    y = y.copy()
    y[test] = rng.permutation(y[test])
    features = {
        name: np.where(test[:, None], 1000 * rng.normal(size=array.shape) + 500, array)
        for name, array in features.items()
    }
    return features, y, domains


def decided(source: FeatureSource, protocol: str, auto: bool, trials: int = 1) -> Any:
    ranking = rank_for_test_domains(source)[TEST]
    train = fast_trainer(trials) if protocol == "fast" else domainbed_trainer(2, draws=3, steps=40)
    return ranking, choose(
        TrainingView.without(source, TEST),
        ranking,
        train,
        top_k=None if auto else [1, 3],
        main=None if auto else 3,
        peers=FAST_PEERS,
    )


def require_identical(one: tuple[Ranking, Choice], two: tuple[Ranking, Choice]) -> None:
    assert one[0] == two[0]  # every figure of every model, bit by bit
    first, second = one[1], two[1]
    assert (first.best, first.top_k, first.best_by) == (second.best, second.top_k, second.best_by)
    for kind in ("ensembles", "selections", "singles"):
        mine, theirs = getattr(first, kind), getattr(second, kind)
        assert list(mine) == list(theirs)
        for key in mine:
            require_same_candidate(mine[key], theirs[key])
    assert len(first.random) == len(second.random) >= 5
    for part, other in zip(first.random, second.random, strict=True):
        require_same_candidate(part, other)


def require_same_candidate(one: Candidate, two: Candidate) -> None:
    assert list(one.columns.by_model) == list(two.columns.by_model)
    for model, columns in one.columns.by_model.items():
        assert np.array_equal(columns, two.columns.by_model[model])
    for (head, rows), (other, same_rows) in zip(one.heads, two.heads, strict=True):
        assert np.array_equal(head.weights, other.weights)
        assert np.array_equal(head.bias, other.bias)
        assert head.C == other.C
        assert np.array_equal(rows, same_rows)


@pytest.mark.parametrize(
    ("protocol", "auto", "trials"),
    [("fast", False, 1), ("fast", True, 1), ("fast", False, 2), ("domainbed", False, 2)],
)
def test_labels_and_features_of_the_test_domain_change_nothing_before_scoring(
    protocol: str, auto: bool, trials: int
) -> None:
    data = zoo()
    before, after = ArraySource(*data), ArraySource(*changed(data))
    one, two = decided(before, protocol, auto, trials), decided(after, protocol, auto, trials)
    require_identical(one, two)
    # but scoring depends on it
    assert cells(before, TEST, one[1]) != cells(after, TEST, two[1])


def test_the_cache_of_a_store_leaks_nothing(tmp_path: Path) -> None:
    sources = []
    for name, data in (("before", zoo()), ("after", changed(zoo()))):
        features, y, domains = data
        (tmp_path / name).mkdir()
        path = tmp_path / name / "f.npz"
        np.savez(path, labels=y.astype(str), domains=domains, **features)
        sources.append(StoreSource(import_features([path], tmp_path / name / "store")))
    first, second = (decided(source, "fast", auto=False) for source in sources)
    require_identical(first, second)
    again = decided(sources[0], "fast", auto=False)  # from the cache
    require_identical(first, again)
    assert list((tmp_path / "before" / "store" / "cache" / "selections").glob("*.npz"))


def test_a_class_that_only_the_test_domain_has_changes_nothing() -> None:
    features, y, domains = zoo()
    more = y.copy()
    more[np.flatnonzero(domains == TEST)[:5]] = -1  # sorts before all others
    one, two = (
        decided(ArraySource(features, labels, domains), "fast", auto=False) for labels in (y, more)
    )
    for row, same in zip(one[0].rows, two[0].rows, strict=True):
        assert row.model == same.model
        assert row.score == pytest.approx(same.score, rel=1e-9)
        assert all(fold.skipped == () for fold in same.folds)
    # Everything after the ranking uses the training domains only, so it is identical.
    require_identical((one[0], one[1]), (one[0], two[1]))
    scored = cells(ArraySource(features, more, domains), TEST, two[1])["single"]
    known = cells(ArraySource(features, y, domains), TEST, one[1])["single"]
    assert scored.accuracy < known.accuracy


def test_training_domains_do_matter() -> None:
    features, y, domains = zoo()
    other = y.copy()
    other[domains == "d0"] = (y[domains == "d0"] + 1) % 3
    one, two = (decided(ArraySource(features, labels, domains), "fast", False)
                for labels in (y, other))  # fmt: skip
    with pytest.raises(AssertionError):
        require_identical(one, two)

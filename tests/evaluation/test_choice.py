"""Choices made on the training domains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.combination.data import Costly
from tests.evaluation.data import zoo

import oodzoo
from oodzoo.combining.decision import decide
from oodzoo.combining.evaluation.choice import (
    Candidate,
    Choice,
    Predicted,
    choose,
    random_features,
)
from oodzoo.combining.evaluation.rows import measures
from oodzoo.combining.evaluation.training import TrainingView, fast_trainer
from oodzoo.combining.heads import choose_pool, predict_with_heads
from oodzoo.combining.pool import Limits
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.source import ArraySource
from oodzoo.linear.heads.kinds import fit_head_of
from oodzoo.ranking.ranker import orders_for_test_domains


def test_random_features_are_as_many_and_from_all_models() -> None:
    result = oodzoo.evaluate(*zoo(n=12, n_domains=3), top_k=2, baselines=[])
    for test, cell in result.baselines["random_features"].cells.items():
        assert cell.n_features == result.selection.cells[test].n_features
        assert set(cell.models) == {"poor", "best", "fair", "good"}
    assert set(result.baselines) == {
        "random_features", "oracle", "best_by_accuracy", "best_by_discriminability",
        "paper_selection",
    }  # fmt: skip


def test_random_features_are_the_mean_of_five_draws() -> None:
    features, y, domains = zoo(n=18, n_domains=3)
    result = oodzoo.evaluate(features, y, domains, top_k=2, baselines=[], seed=3)
    source = ArraySource(features, y, domains)
    columns = Columns.all_of(source, source.models)
    draws = random_features(columns, result.selection.cells["d0"].n_features, 3)
    found = []
    for draw in draws:
        head = fit_head_of("classification", draw.samples(source, ["d1", "d2"]), 3)
        test = draw.samples(source, ["d0"])
        found.append(measures(head.probabilities(test.features), test.labels).accuracy)
    assert len({str(draw.by_model) for draw in draws}) == len(draws) == 5
    row = result.baselines["random_features"]
    assert row.measure("accuracy")["d0"] == pytest.approx(np.mean(found))


def chosen(source: ArraySource, test: str = "d1", **options: Any) -> Choice:
    return choose(
        TrainingView.without(source, test),
        orders_for_test_domains(source)[test],
        predict_with_heads(source)[test],
        fast_trainer(1),
        **{"top_k": [2], "peers": None} | options,
    )


def test_what_is_decided_on_the_training_domains_is_trained() -> None:
    source = ArraySource(*zoo(n=18))
    order = orders_for_test_domains(source)["d1"]
    heads = predict_with_heads(source)["d1"]
    training = source.only(["d0", "d2", "d3"])
    found = chosen(source)
    decision = decide(training, order, heads, top_k=2)
    assert found.decision.recommended == decision.recommended
    assert found.decision.pool.members == decision.pool.members == choose_pool(heads).members
    assert found.pool.models == decision.pool.models
    assert found.pool.n_features == 6 * len(decision.pool.models)
    assert found.ensembles[2].columns.models == tuple(order[:2])
    assert len(found.selection.columns) == len(decision.selection)
    assert found.selection_ratio == len(decision.selection) / 24
    head = fit_head_of("classification", decision.selection.samples(training, training.domains), 3)
    np.testing.assert_array_equal(found.selection.heads[0].head.weights, head.weights)
    assert list(found.singles) == [order[0]]
    single = found.singles[order[0]]
    assert isinstance(single, Predicted)
    np.testing.assert_array_equal(single.outputs, heads.alone[order[0]].test)
    assert (found.paper_selections, found.best_by, found.random) == ({}, {}, [])


def test_heads_of_single_models_are_trained_for_trials() -> None:
    source = ArraySource(*zoo(n=18))
    (single,) = chosen(source, retrain=True).singles.values()
    assert isinstance(single, Candidate)
    training = source.only(["d0", "d2", "d3"])
    head = fit_head_of("classification", single.columns.samples(training, training.domains), 3)
    np.testing.assert_array_equal(single.heads[0].head.weights, head.weights)


def test_limits_hold_for_the_single_model_and_the_pool() -> None:
    times = {"poor": 1.0, "best": 9.0, "fair": 2.0, "good": 9.0}
    source = Costly(*zoo(n=18), times)
    found = chosen(source, limits=Limits(max_ms=3))
    assert list(found.singles) == ["fair"]
    assert set(found.pool.models) <= {"fair", "poor"}
    assert found.decision.recommended in ("single", "pool")


def test_training_domains_choose_the_number_of_models() -> None:
    """One model is enough if the others are noise."""
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1], 60), np.repeat(["a", "b", "c"], 40)
    good = np.stack([y, 1 - y], 1) + 0.1 * rng.normal(size=(120, 2))
    noise = {f"noise{i}": rng.normal(size=(120, 20)) for i in range(4)}
    alone = oodzoo.evaluate({"good": good} | noise, y, domains, top_k="auto", baselines=False)
    assert alone.top_k == dict.fromkeys("abc", 1)
    # Three are better than one if each of them shows a third.
    parts = np.tile(np.arange(8), 15)
    views = {f"view{bit}": ((parts >> bit) & 1)[:, None] + 0.1 * rng.normal(size=(120, 1))
             for bit in range(3)}  # fmt: skip
    together = oodzoo.evaluate(views, parts, domains, top_k="auto", baselines=False)
    assert together.top_k == dict.fromkeys("abc", 3)
    assert together.ensemble.average > together.single.average + 20
    assert together.to_dict()["top_k"] == {"a": 3, "b": 3, "c": 3}

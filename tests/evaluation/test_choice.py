"""Choices made on the training domains."""

from __future__ import annotations

import numpy as np
import pytest
from tests.evaluation.data import zoo

import oodzoo
from oodzoo.evaluation.choice import choose_top_k, random_features
from oodzoo.evaluation.metrics import measures
from oodzoo.features.columns import Columns
from oodzoo.features.source import ArraySource
from oodzoo.heads.linear import fit_head


def test_random_features_are_as_many_and_from_the_same_models() -> None:
    result = oodzoo.evaluate(*zoo(), top_k=2, baselines=[])
    for test, cell in result.baselines["random_features"].cells.items():
        assert cell.n_features == result.selection.cells[test].n_features
        assert set(cell.models) <= set(result.ensemble.cells[test].models)
    assert set(result.baselines) == {
        "random_features", "oracle", "best_by_accuracy", "best_by_discriminability"
    }  # fmt: skip


def test_random_features_are_the_mean_of_five_draws() -> None:
    features, y, domains = zoo()
    result = oodzoo.evaluate(features, y, domains, top_k=2, baselines=[], seed=3)
    source = ArraySource(features, y, domains)
    columns = Columns.all_of(source, result.ensemble.cells["d0"].models)
    draws = random_features(columns, result.selection.cells["d0"].n_features, 3)
    found = []
    for draw in draws:
        head = fit_head(draw.samples(source, ["d1", "d2", "d3"]), 3)
        test = draw.samples(source, ["d0"])
        found.append(measures(head.probabilities(test.features), test.labels).accuracy)
    assert len({str(draw.by_model) for draw in draws}) > 1
    row = result.baselines["random_features"]
    assert row.measure("accuracy")["d0"] == pytest.approx(np.mean(found))


def test_training_domains_choose_the_number_of_models() -> None:
    """One model is enough if the others are noise."""
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1], 80), np.repeat(["a", "b", "c", "d"], 40)
    good = np.stack([y, 1 - y], 1) + 0.1 * rng.normal(size=(160, 2))
    noise = {f"noise{i}": rng.normal(size=(160, 40)) for i in range(4)}
    alone = oodzoo.evaluate({"good": good} | noise, y, domains, top_k="auto", baselines=False)
    assert alone.top_k == dict.fromkeys("abcd", 1)
    # Three are better than one if each of them shows a third.
    parts = np.tile(np.arange(8), 20)
    views = {f"view{bit}": ((parts >> bit) & 1)[:, None] + 0.1 * rng.normal(size=(160, 1))
             for bit in range(3)}  # fmt: skip
    together = oodzoo.evaluate(views, parts, domains, top_k="auto", baselines=False)
    assert together.top_k == dict.fromkeys("abcd", 3)
    assert together.ensemble.average > together.single.average + 20
    assert together.to_dict()["top_k"] == {"a": 3, "b": 3, "c": 3, "d": 3}


def test_numbers_beyond_the_models_are_not_tried() -> None:
    source = ArraySource(*zoo())
    assert choose_top_k(source, ["best", "good"], [5, 1, 9]) == 1

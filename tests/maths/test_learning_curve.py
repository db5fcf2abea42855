"""Accuracy against the number of training images."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.evaluation.data import task_zoo, zoo
from tests.oracles import evaluation as oracle
from tests.oracles.ridge import left_out_ridge

from oodzoo.combining.evaluation.learning_curve import (
    CurvePoint,
    FewerDomains,
    LearningCurve,
    Part,
    learning_curve,
    metric_of_all,
    metrics_of,
    parts_of,
    places,
    with_fewer_domains,
)
from oodzoo.combining.heads import predict_with_heads
from oodzoo.extraction.source import ArraySource
from oodzoo.linear.heads.kinds import folds_within
from oodzoo.linear.heads.ridge import SETTINGS
from oodzoo.tasks import Kind


def curve(*averages: float, spread: float = 0.0, metric: str = "accuracy") -> LearningCurve:
    points = [
        CurvePoint(10.0 * 2**number, value, {"a": value, "b": value + spread * number})
        for number, value in enumerate(averages)
    ]
    return LearningCurve(tuple(points), "m", metric)


@pytest.mark.parametrize("test", ["d0", "d2"])
def test_a_part_equals_the_protocol_written_out(test: str) -> None:
    features, y, domains = zoo(n=24)
    source = ArraySource(features, y, domains)
    found = metrics_of(source, Part("fair", (test,), 0.25, 1))
    X, numbers = features["fair"].astype(np.float32), np.repeat(np.arange(4), 24)
    kept = np.concatenate([places(source, f"d{n}", 1) < 0.25 for n in range(4)])
    assert kept.sum() == 24  # two of each of three classes in four domains
    tested = numbers == int(test[1:])
    some, train = kept | tested, kept & ~tested
    by_domain, folds = np.where(train, numbers, -1), np.full(len(y), -1)
    folds[train] = folds_within("classification", y[train], numbers[train])
    final = oracle.chosen_head(X[some], y[some], by_domain[some], folds[some], 3)
    right = [int(np.argmax(row)) == c for row, c in zip(final, y[tested], strict=True)]
    assert found == {test: pytest.approx(100 * sum(right) / len(right))}


@pytest.mark.parametrize("kind", ["classification", "regression", "multilabel"])
def test_all_images_give_the_row_of_the_single_model(kind: Kind) -> None:
    features, y, domains = zoo(n=18) if kind == "classification" else task_zoo(kind, n=20)
    source = ArraySource(features, y, domains, task=kind)
    heads = predict_with_heads(source)
    models = {"d0": "fair", "d1": "good", "d2": "fair", "d3": "fair"}
    found = learning_curve(source, models, heads)
    assert found is not None
    assert (found.model, found.metric) == ("fair, good", source.task.metric)
    for point in found.points:
        assert point.average == pytest.approx(np.mean(list(point.domains.values())))
    images = [point.images_per_class for point in found.points]
    assert images == sorted(images)
    assert images[-1] == (18 if kind == "classification" else 60)
    parts = parts_of(source, models)
    assert {(part.model, part.tests) for part in parts} == {
        ("fair", ("d0", "d2", "d3")),
        ("good", ("d1",)),
    }
    for part in parts:
        whole = metrics_of(source, part._replace(share=1.0))
        for test, value in whole.items():
            expected = metric_of_all(source, heads[test], test, part.model)
            assert value == pytest.approx(expected, abs=1e-3)
            assert found.points[-1].domains[test] == pytest.approx(expected)
        alone = metrics_of(source, part._replace(tests=part.tests[:1]))
        assert alone[part.tests[0]] == metrics_of(source, part)[part.tests[0]]
    few = ArraySource(*zoo(n=3))
    assert learning_curve(few, models, predict_with_heads(few)) is None
    with pytest.raises(ValueError, match="two points or more, got 1"):
        curve(50.0)


@settings(max_examples=40, deadline=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=2, max_size=40),
    share=st.floats(0.05, 1),
    grouped=st.booleans(),
)
def test_parts_are_stratified_and_nested(labels: list[int], share: float, grouped: bool) -> None:
    y = np.array([*labels, *labels])
    domains = np.repeat(["a", "b"], len(labels))
    groups = [f"g{row // 3}" for row in range(len(y))] if grouped else None
    source = ArraySource({"m": np.zeros((len(y), 1))}, y, domains, groups)
    first, second = places(source, "a", 0), places(source, "a", 1)
    for label in set(labels):
        mine = np.array(labels) == label
        assert (first[mine] < share).sum() == math.ceil(round(share * mine.sum(), 9))
        if groups is None:  # the second draw begins with what the first one ends with
            assert first[mine].argmax() == second[mine].argmin()
    assert set(np.flatnonzero(first < share / 2)) <= set(np.flatnonzero(first < share))


# --- one training domain fewer


def test_it_equals_heads_trained_without_each_other_domain() -> None:
    features, y, domains = zoo(n=18)
    source = ArraySource(features, y, domains)
    heads = predict_with_heads(source)
    models = {"d0": "fair", "d1": "good", "d2": "fair", "d3": "good"}
    found = with_fewer_domains(source, models, heads)
    assert found.training == 3
    numbers = np.repeat(np.arange(4), 18)
    for at in (0, 3):
        test = f"d{at}"
        model, inside = models[test], numbers == at
        setting = SETTINGS[heads[test].alone[model].setting]
        shares = []
        for other in set(range(4)) - {at}:
            X = features[model].astype(np.float32)
            (path,) = left_out_ridge(X, y, numbers, {at, other}, [setting], 3)
            predicted = path.argmax(axis=1)[inside[np.isin(numbers, [at, other])]]
            shares.append(100 * np.mean(predicted == y[inside]))
        assert found.fewer[test] == pytest.approx(np.mean(shares))
        assert found.all[test] == metric_of_all(source, heads[test], test, model)


def test_the_gain_and_its_error() -> None:
    found = FewerDomains(3, {"a": 70.0, "b": 80.0}, {"a": 72.0, "b": 81.0})
    assert found.gain == 1.5
    assert found.error == pytest.approx(np.std([2, 1], ddof=1) / math.sqrt(2))
    assert found.helps
    assert not FewerDomains(3, {"a": 70.0, "b": 80.0}, {"a": 74.0, "b": 79.0}).helps
    assert not FewerDomains(3, {"a": 70.0, "b": 80.0}, {"a": 70.4, "b": 80.4}).helps
    assert FewerDomains(3, {"a": 70.0, "b": 80.0}, {"a": 70.5, "b": 80.46}).helps  # shown as 0.5

"""Accuracy against the number of training images."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.evaluation.data import stored, task_zoo, zoo
from tests.oracles import evaluation as oracle

import oodzoo
from oodzoo.combining.evaluation import Evaluation
from oodzoo.combining.evaluation.learning_curve import (
    CurvePoint,
    LearningCurve,
    Part,
    learning_curve,
    metric_of_all,
    metrics_of,
    parts_of,
    places,
)
from oodzoo.combining.heads import predict_with_heads
from oodzoo.extraction.source import ArraySource
from oodzoo.linear.heads.kinds import folds_within
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
    data = zoo(n=18) if kind == "classification" else task_zoo(kind, n=20)
    result = oodzoo.evaluate(*data, task=kind, top_k=1, baselines=False)
    found = result.learning_curve
    assert found is not None
    assert found.points[-1].domains == pytest.approx(result.single.measure(result.metric))
    assert found.metric == result.metric
    for point in found.points:
        assert point.average == pytest.approx(np.mean(list(point.domains.values())))
    images = [point.images_per_class for point in found.points]
    assert images == sorted(images)
    assert images[-1] == (18 if kind == "classification" else 60)
    features, y, domains = data
    source = ArraySource(features, y, domains, task=kind)
    models = {test: cell.models[0] for test, cell in result.single.cells.items()}
    heads = predict_with_heads(source)
    for part in parts_of(source, models):
        whole = metrics_of(source, part._replace(share=1.0))
        for test, value in whole.items():
            expected = metric_of_all(source, heads[test], test, part.model)
            assert value == pytest.approx(expected, abs=1e-3)
    document = json.loads(json.dumps(result.to_dict()))
    assert Evaluation.from_dict(document).learning_curve == found
    assert document["learning_curve"]["text"] == found.text


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


def test_a_part_takes_groups_one_after_the_other() -> None:
    y, domains = np.zeros(24, int), np.repeat(["a", "b"], 12)
    y[::2] = 1
    groups = [f"g{row // 4}" for row in range(24)]
    source = ArraySource({"m": np.zeros((24, 1))}, y, domains, groups)
    kept = np.flatnonzero(places(source, "a", 0) < 1 / 3)
    assert len({groups[row] for row in kept}) == 1  # of three groups, one


def test_it_is_kept_in_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = stored(tmp_path, *zoo(n=18))
    models, heads = dict.fromkeys(source.domains, "fair"), predict_with_heads(source)
    found = learning_curve(source, models, heads)
    monkeypatch.delattr("oodzoo.combining.evaluation.learning_curve._metrics")  # what computes it
    assert learning_curve(source, models, heads) == found


def test_too_few_images_for_parts() -> None:
    result = oodzoo.evaluate(*zoo(n=3), top_k=1, baselines=False)
    assert result.learning_curve is None
    assert "learning_curve" not in result.to_dict()
    with pytest.raises(ValueError, match="two points or more, got 1"):
        curve(50.0)


@pytest.mark.parametrize(
    ("found", "what", "verdict"),
    [
        (
            curve(80.0, 82.3),
            "From 10 to 20 training images per class, the accuracy of the top model rose by 2.3",
            "more images would probably help",
        ),
        (
            curve(80.0, 81.0, 81.2),
            "From 20 to 40 training images per class, the accuracy of the top model rose by 0.2",
            "more images of the same domains would hardly help",
        ),
        (
            curve(80.0, 79.0, metric="explained_variance"),
            "From 10 to 20 training images, the explained variance of the top model fell by 1.0",
            "more images of the same domains would hardly help",
        ),
    ],
)
def test_the_last_step_says_whether_more_images_help(
    found: LearningCurve, what: str, verdict: str
) -> None:
    assert found.text == f"{what} points: {verdict}."


def test_a_gain_within_its_error_is_none() -> None:
    unsure = curve(80.0, 82.0, spread=9.0)  # gains of 2 and 11
    assert unsure.error == pytest.approx(np.std([2.0, 11.0], ddof=1) / math.sqrt(2))
    assert not unsure.helps
    assert unsure.text.endswith(
        "points, within the noise between test domains: it is unclear whether more images would "
        "help."
    )


def test_the_top_model_of_each_test_domain_is_used() -> None:
    source = ArraySource(*zoo(n=18))
    models = {"d0": "fair", "d1": "good", "d2": "fair", "d3": "fair"}
    parts: list[Any] = parts_of(source, models)
    assert {(part.model, part.tests) for part in parts} == {
        ("fair", ("d0", "d2", "d3")),
        ("good", ("d1",)),
    }
    found = learning_curve(source, models, predict_with_heads(source))
    assert found is not None
    assert found.model == "fair, good"
    for part in parts:
        alone = metrics_of(source, part._replace(tests=part.tests[:1]))
        assert alone[part.tests[0]] == metrics_of(source, part)[part.tests[0]]

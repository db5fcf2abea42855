"""What the recommended choice gets right and wrong on each test domain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix
from tests.evaluation.data import zoo

import oodzoo
from oodzoo.combining.evaluation.choice import choose
from oodzoo.combining.evaluation.diagnosis import failing_class, weak_points
from oodzoo.combining.evaluation.scoring import diagnose_choice, score_choice, trial_rows
from oodzoo.combining.evaluation.training import TrainingView, fast_trainer
from oodzoo.combining.heads import choose_pool, predict_with_heads
from oodzoo.combining.verdict import CHOICES
from oodzoo.extraction.source import ArraySource
from oodzoo.tasks.diagnosis.classes import ClassDiagnosis, diagnose_classes


def test_it_is_of_what_is_recommended_whatever_that_is() -> None:
    source = ArraySource(*zoo(n=18))
    view = TrainingView.without(source, "d1")
    heads, ranking = predict_with_heads(source)["d1"], oodzoo.rank(view.source)
    order = [row.model for row in ranking.rows]
    made = choose(view, order, heads, fast_trainer(1), top_k=[2], peers=None)
    rows = trial_rows(source, "d1", "fast", 1)
    cells = score_choice(source, "d1", made, rows)
    for choice in CHOICES:
        recommended = replace(made, decision=replace(made.decision, recommended=choice))
        found = diagnose_choice(source, "d1", recommended, rows)
        assert found is not None
        measured = cells["ensemble 2" if choice == "ensemble" else choice].measures[0]
        errors = (found.accuracy, found.balanced_accuracy, found.reliability.error)
        assert errors == pytest.approx(measured)


def test_every_image_is_counted_where_it_belongs() -> None:
    features, y, domains = zoo(n=21, n_domains=3)
    names = np.array(["x", "y", "z"], object)[y]
    names[np.flatnonzero(domains == "d1")[:4]] = "only here"
    result = oodzoo.evaluate(features, names, domains, top_k=2, baselines=False)
    source = ArraySource(features, names, domains)
    assert set(result.recommended.choices.values()) == {"pool"}  # three domains
    for test, found in result.diagnosis.items():
        pool = choose_pool(predict_with_heads(source)[test]).test
        assert pool is not None
        labels = source.labels(test)
        expected = confusion_matrix(labels, pool.argmax(axis=1), labels=range(4))
        assert found.classes == ("only here", "x", "y", "z")
        assert found.confusion == tuple(map(tuple, expected.tolist()))
        wrong = np.flatnonzero(pool.argmax(axis=1) != labels)
        surest = wrong[np.argsort(-pool.max(axis=1)[wrong], kind="stable")][:12]
        assert [each.path for each in found.mistakes] == [f"row {row}" for row in surest]
        assert {each.domain for each in found.mistakes} <= {test}


def diagnosed(y: Any, predicted: Any, domain: str) -> ClassDiagnosis:
    paths = [f"{at}.jpg" for at in range(len(y))]
    probabilities = np.eye(3)[predicted]
    return diagnose_classes(probabilities, y, ["a", "b", "c"], paths=paths, domains=domain)


def test_the_worst_classes_are_those_of_all_domains_together() -> None:
    y = np.array([0, 0, 1, 1, 2, 2])
    one = diagnosed(y, [0, 0, 1, 0, 2, 2], "d0")
    two = diagnosed(y, [0, 1, 0, 0, 2, 2], "d1")
    assert weak_points({"d0": one, "d1": two}) == (
        "Recognised worst: 'b' (25 %), 'a' (75 %). Most often confused: 'b' taken for 'a' "
        "(3 images), 'a' taken for 'b' (1 image)."
    )
    assert weak_points({"d0": diagnosed(y, y, "d0")}) == weak_points({}) == ""


@pytest.mark.parametrize(("right", "failing"), [(10, None), (8, None), (7, ("b", 70.0))])
def test_a_class_fails_far_below_the_others(right: int, failing: tuple[str, float] | None) -> None:
    y = np.repeat([0, 1, 2], 10)
    predicted = y.copy()
    predicted[10 : 20 - right] = 2  # of class b
    predicted[0] = 2 if failing is None else 0
    assert failing_class({"d": diagnosed(y, predicted, "d")}) == failing
    assert failing_class({}) is None

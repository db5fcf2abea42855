"""The number that the page is about, and what it means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.report.example import DOMAINS, example_run

from oodzoo.diagnostics.classes import diagnose_classes
from oodzoo.evaluation.result import Evaluation
from oodzoo.ranking.result import Ranking
from oodzoo.report.measured import expected, expected_meaning, meaning, measured
from oodzoo.task import Kind


def evaluation(task: Kind = "classification", **changes: Any) -> Evaluation:
    found = example_run(3, task=task).evaluation
    assert found is not None
    return replace(found, recommended=replace(found.recommended, **changes))


def ranking(task: Kind = "classification", **options: Any) -> Ranking:
    found = example_run(options.pop("n_models", 3), task=task, **options).ranking
    assert found is not None
    return found


ACCURACY = dict(zip(DOMAINS, (50.0, 90.0, 70.0, 94.0), strict=True))


def test_the_number_and_its_interval() -> None:
    found = measured(evaluation(average=76.0, interval=(48.6, 99.7), domains=ACCURACY))
    assert found.value == "76.0 %"
    assert found.label == "accuracy on unseen domains, measured"
    assert found.interval == "90 % interval for a new domain: 49–100 %"
    assert found.chart is not None
    assert found.chart.count('class="stroke"') == 4
    assert "sketch 94.0 %" in found.chart
    without = measured(evaluation(average=76.0, interval=None, domains=ACCURACY))
    assert without.interval == ""
    assert "whisker" not in (without.chart or "")


def test_what_it_means_for_a_new_domain() -> None:
    assert meaning(evaluation(average=76.0, interval=(48.6, 99.7), domains=ACCURACY)) == (
        "Of 100 images of a new domain, expect about 76 to be classified correctly: in nine of ten "
        "new domains, between 49 and 100. The hardest of the 4 held-out domains is art_painting, "
        "with 50.0 %; the easiest is sketch, with 94.0 %."
    )
    alone = evaluation(
        average=76.0, interval=None, domains={"only": 76.0}, choices={"only": "pool"}
    )
    assert meaning(alone) == (
        "Of 100 images of a new domain, expect about 76 to be classified correctly."
    )


@pytest.mark.parametrize(
    ("task", "metric", "second", "means"),
    [
        (
            "regression",
            "explained variance",
            "absolute error 0.0123, mean over outputs",
            "about 76 % of the variance of the labels to be predicted",
        ),
        (
            "multilabel",
            "average precision",
            "exact match ",
            "an average precision of about 76 %",
        ),
    ],
)
def test_the_metrics_of_other_tasks_are_named(
    task: Kind, metric: str, second: str, means: str
) -> None:
    chosen = evaluation(task, average=76.0, interval=(-9.0, 90.0))
    assert measured(chosen).label == f"{metric} on unseen domains, measured"
    assert second in measured(chosen).interval
    ends = "between \N{MINUS SIGN}9 and 90 %."
    assert f"{means}: in nine of ten new domains, {ends}" in meaning(chosen)
    assert expected(ranking(task)).label == f"expected {metric} on an unseen domain"


def test_one_number_has_units() -> None:
    alone = example_run(2, task="regression", classes=["age"]).evaluation
    assert alone is not None
    assert "absolute error 0.0123, in the units of the labels" in measured(alone).interval


def test_without_an_evaluation_the_number_is_expected() -> None:
    shown = ranking(n_models=27)
    found = expected(shown)
    assert found.value == "83.7 %"
    assert found.interval == (
        "90 % interval for a new domain: 69–98 %; the choice of the model is part of the estimate"
    )
    assert expected_meaning(shown).endswith("in nine of ten new domains, between 69 and 98.")


def test_the_choice_is_part_of_the_estimate_only_if_it_is_repeated() -> None:
    words = "the choice of the model is part of the estimate"
    assert words not in expected(ranking(score="knn")).interval
    assert words not in expected(ranking(n_models=1)).interval


def test_the_number_is_expected_on_the_target() -> None:
    shown = ranking(target=True)
    assert expected(shown).label == "expected accuracy on the target"
    assert expected(shown).chart is None
    assert expected_meaning(shown).startswith("Of 100 images of the target, expect about ")
    assert "with 90 % certainty, between" in expected_meaning(shown)


def test_a_class_that_fails_is_named() -> None:
    y = np.repeat([0, 1], 4)
    found = diagnose_classes(
        np.eye(2)[[0, 0, 0, 0, 0, 0, 0, 1]], y, ["fig", "kiwi"], paths=["x"] * 8, domains="web"
    )
    text = meaning(replace(evaluation(), diagnosis={"web": found}))
    assert text.endswith(" The hardest class is kiwi: 25 % of its images are recognised.")
    assert "hardest class" not in meaning(replace(evaluation(), diagnosis={}))

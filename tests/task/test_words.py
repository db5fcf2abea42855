"""Words for each kind of task."""

from __future__ import annotations

import pytest

from oodzoo.evaluation.metrics import MEASURES as MEASURED
from oodzoo.task import KINDS, Kind, Task
from oodzoo.task.words import MEASURES, WORDS


@pytest.mark.parametrize("kind", KINDS)
def test_metrics_are_those_of_the_task(kind: Kind) -> None:
    words, task = WORDS[kind], Task(kind)
    assert words.metric is MEASURES[task.metric]
    assert words.second is MEASURES[task.second_metric]
    assert words.metric.name == task.metric.replace("_", " ")
    assert words.metric.unit == " %"  # all code that shows it relies on this


@pytest.mark.parametrize("kind", KINDS)
def test_every_measure_of_an_evaluation_has_words(kind: Kind) -> None:
    names = {"balanced": "balanced_accuracy"}
    for field in MEASURED[kind]._fields:
        assert names.get(field, field) in MEASURES


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_other_metrics_than_accuracy_are_explained(kind: Kind) -> None:
    words = WORDS[kind]
    for measure in (words.metric, words.second):
        assert measure.means.startswith(measure.title)
        assert measure.means in words.explained
    assert WORDS["classification"].explained == ""

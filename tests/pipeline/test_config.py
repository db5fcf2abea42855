"""Options of a run are checked before it starts."""

from __future__ import annotations

from typing import Any

import pytest

from oodzoo.core.errors import InputError
from oodzoo.extraction.config import ExtractionConfig
from oodzoo.pipeline.config import RunConfig
from oodzoo.tasks import Task


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"top_k": 0}, "top_k must be a positive integer"),
        ({"protocol": "slow"}, "unknown protocol 'slow'; expected one of fast, domainbed"),
        ({"score": "zodo"}, "unknown score 'zodo'"),
        ({"max_ms": 0}, "max_ms must be a positive number of milliseconds, got 0"),
        ({"max_parameters": "many"}, "max_parameters must be a positive number .* got 'many'"),
        ({"licence": ""}, "licence must be names or wildcards .* got ''"),
        ({"seed": -1}, "seed must be 0 or more, got -1"),
        ({"budget": "soon"}, "a budget is a duration above 0, such as 30m, .* got 'soon'"),
        ({"engine": "spark"}, "unknown engine 'spark'; expected one of local, ray"),
        ({"address": "head:6379"}, "the address 'head:6379' is of a Ray cluster; add the engine"),
    ],
)
def test_a_wrong_choice_is_refused_before_the_work(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        RunConfig(**wrong)


@pytest.mark.parametrize(
    ("device", "expected"), [("auto", None), ("cpu", None), ("cuda:1", "cuda:1")]
)
def test_moments_are_computed_with_numpy_unless_cuda_is_named(
    device: str, expected: str | None
) -> None:
    assert RunConfig(extraction=ExtractionConfig(device=device)).compute_device == expected


def test_a_budget_is_for_a_race() -> None:
    assert not RunConfig().is_race
    assert RunConfig(race=True).is_race
    assert RunConfig(budget="30m").is_race


@pytest.mark.parametrize(
    ("options", "target", "reason"),
    [
        ({}, True, "a target needs classes, but the task is 'regression'"),
        ({"protocol": "domainbed"}, False, "the protocol 'domainbed' needs classes"),
        ({"published": "PACS"}, False, "published accuracies are of classes"),
        ({"score": "accuracy"}, False, "the score 'accuracy' is not for labels of the kind"),
    ],
)
def test_what_is_for_classes_only(options: dict[str, Any], target: bool, reason: str) -> None:
    config = RunConfig(**options)
    config.require_possible(Task(), target=target)
    with pytest.raises(InputError, match=reason):
        config.require_possible(Task("regression", ("age",)), target=target)
    RunConfig().require_possible(Task("regression", ("age",)), target=False)


def test_an_unknown_data_set() -> None:
    with pytest.raises(InputError, match="no accuracies are published for 'pacs', expected"):
        RunConfig(published="pacs").require_possible(Task(), target=False)

"""What evaluations and fits say to options and data that they cannot use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import evaluated, task_zoo, zoo

import oodzoo
from oodzoo import InputError
from oodzoo.extraction.features import ArraySource


def refused(function: Callable[..., Any], says: str, *given: Any, **options: Any) -> None:
    with pytest.raises(InputError, match=says) as caught:
        function(*given, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"top_k": ()}, r"top_k must be .* got \(\)"),
        ({"top_k": "some"}, "top_k must be .* or 'auto', got 'some'"),
        ({"protocol": "slow"}, "unknown protocol 'slow'; expected one of fast, domainbed"),
        ({"trials": 0}, "trials must be 1 or more, got 0"),
        ({"max_parameters": 0}, "max_parameters must be a positive number .* got 0"),
        ({"licence": ","}, "licence must be names or wildcards .* got ','"),
        ({"tune_device": "cpu"}, r"tune_device is only used with tune \(--tune\); leave it out"),
        ({"selection": "orakel"}, "unknown selection rule 'orakel'; expected one of training-dom"),
        ({"search_space": "domainnet"}, "unknown search space 'domainnet'; expected one of"),
        ({"score": "logmee"}, "unknown score 'logmee'; did you mean logme"),
        ({"device": "cpu,cpu"}, "needs a feature store, not arrays in memory"),
        ({"published": "Office-Home"}, "no accuracies are .* 'Office-Home', .* OfficeHome.*mean O"),
    ],
)
def test_options(options: dict[str, Any], says: str) -> None:
    refused(oodzoo.evaluate, says, *zoo(), **options)


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"protocol": "domainbed"}, "the protocol 'domainbed' needs classes, but the task is '{}'"),
        ({"with_target": True}, "with_target needs classes, but the task is '{}'"),
        ({"baselines": ["h_score"]}, "'h_score' is not for labels of the kind {}"),
        ({"published": "PACS"}, "are of classes, but the task is '{}'"),
    ],
)
def test_what_only_classes_have(kind: Any, options: dict[str, Any], says: str) -> None:
    refused(oodzoo.evaluate, says.format(kind), *task_zoo(kind, n=6), task=kind, **options)


def test_data_that_cannot_be_evaluated() -> None:
    features, y, domains = zoo()
    few = np.flatnonzero((domains != "d1") | (np.arange(len(y)) % 30 < 4))
    small = {name: array[few] for name, array in features.items()}, y[few], domains[few]
    alone = features, np.where(domains == "d2", y, 0), domains
    numbers, ages, places = task_zoo("regression", n=6)
    ages[places != "d2", 1] = 5.0
    _, tags, _ = task_zoo("multilabel", n=6)
    tags[places != "d2"] = [1.0, 0.0]
    groups = [None if d == "d0" else f"{d}-{(d != 'd2') * i % 3}" for i, d in enumerate(domains)]
    times: dict[str, Any] = {"trials": 2}
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (zoo(n=4), {"tune": True}, r"'d0' has 4 samples; splits .* need at least 5"),
        (zoo(n_domains=2), {}, r"needs at least three domains.* got 'd0'"),
        ((features, np.full(120, 7), domains), {}, r"one class, 7 \(120 samples\); at least two"),
        ((features, y, domains), times | {"groups": groups}, "samples of domain 'd2' are of the"),
        (alone, {}, "the domains other than 'd2' have only the class 0"),
        (small, times, "domain 'd1' has 4 samples; splits of 80 %"),
        ((numbers, ages, places), {}, "'y1' is constant, 5, in the domains other than 'd2'"),
        ((numbers, tags, places), {"task": "multilabel"}, "'d2' all have the same labels"),
        ((numbers, np.full(24, 3.0), places), {"task": "regression"}, "y is constant: 3 in all 24"),
    ]
    for data, options, says in cases:
        refused(oodzoo.evaluate, says, *data, **options)
    for data, options in (((features, y, domains), {"groups": groups}), (small, {})):
        assert oodzoo.evaluate(*data, **options, baselines=False, top_k=1).trials == 1  # type: ignore[arg-type]


# --- fits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "bogus"}, "the method must be one of consistent, paper, got 'bogus'"),
        ({"method": "paper"}, r"add choose='selection' \(--choose selection\)"),
        ({"method": "paper", "choose": "pool"}, "and choose='pool'; add"),
        ({"threshold": 1.0}, "threshold"),
        ({"top_k": 2, "choose": "pool"}, r"limit the models of a pool with max_models"),
        ({"top_k": 0}, "top_k must be a positive integer, several"),
        ({"choose": "single", "engine": "spark"}, "unknown engine 'spark'"),
        ({"choose": "ensemble", "max_models": 1}, "uses 3 models, more than max_models or max_ms"),
        ({"models": []}, "each of them once"),
        ({"models": ["nobody"]}, "there are no features of 'nobody'; there are those of"),
    ],
)
def test_options_of_a_fit(options: dict[str, Any], says: str) -> None:
    refused(oodzoo.fit, says, *zoo(n=18), **options)


@pytest.mark.parametrize(
    ("changes", "options", "says"),
    [
        ({}, {"choose": "pool"}, "choose='pool' and recommended exclude each other"),
        ({}, {"selection": True}, "recommended and selection both say what to fit"),
        ({}, {"method": "paper"}, "the method 'paper' is of features that are selected"),
        ({"domains": {"d9": 1.0}}, {}, "the evaluation is of the domains d9, the features"),
        ({"models": ("x",)}, {}, "the evaluation recommends 'x', but there are only features of"),
    ],
)
def test_what_was_recommended_and_cannot_be_fitted(
    changes: dict[str, Any], options: dict[str, Any], says: str
) -> None:
    if "domains" in changes:
        changes = changes | {"choices": dict.fromkeys(changes["domains"], "pool")}
    if "selection" in options:
        options = {"selection": oodzoo.select_features(ArraySource(*zoo(n=18)))}
    best = replace(evaluated().recommended, **changes)
    refused(oodzoo.fit, says, *zoo(n=18), recommended=best, **options)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"x": "0"}, "no features of the model 'x'"),
        ({"poor": "0-99999"}, "the columns of the model 'poor' must be ascending numbers"),
        ({}, "the selection has no columns"),
    ],
)
def test_what_was_selected_and_cannot_be_fitted(columns: dict[str, str], says: str) -> None:
    summary = oodzoo.select_features(ArraySource(*zoo(n=18))).summary()
    refused(oodzoo.fit, says, *zoo(n=18), selection=replace(summary, columns=columns))

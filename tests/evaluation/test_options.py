"""Options of an evaluation, and data that cannot be evaluated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import task_zoo, zoo

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.tasks import Kind


def test_more_models_than_there_are() -> None:
    with pytest.warns(UserWarning, match="only 4 models available, fewer than 9; using all"):
        result = oodzoo.evaluate(*zoo(n=9, n_domains=3), top_k=9, baselines=False)
    assert len(result.ensemble.cells["d0"].models) == result.top_k == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 0}, "top_k must be a positive integer, .* got 0"),
        ({"top_k": ()}, r"top_k must be .* got \(\)"),
        ({"top_k": "some"}, "top_k must be .* or 'auto', got 'some'"),
        ({"top_k": 2.5}, r"top_k must be .* got 2\.5"),
        ({"protocol": "slow"}, "unknown protocol 'slow'; expected one of fast, domainbed"),
        ({"trials": 0}, "trials must be 1 or more, got 0"),
        ({"max_models": 0}, "max_models must be 1 or more, got 0"),
        ({"max_ms": -1}, "max_ms must be a positive number of milliseconds, got -1"),
        ({"max_parameters": 0}, "max_parameters must be a positive number .* got 0"),
        ({"licence": ","}, "licence must be names or wildcards .* got ','"),
        ({"tune_device": "cpu"}, r"tune_device is only used with tune \(--tune\); leave it out"),
        ({"selection": "orakel"}, "unknown selection rule 'orakel'; expected one of training-dom"),
        ({"search_space": "domainnet"}, "unknown search space 'domainnet'; expected one of"),
        ({"score": "logmee"}, "unknown score 'logmee'; did you mean logme"),
        ({"baselines": ["zod"]}, "unknown score 'zod'"),
    ],
)
def test_invalid_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(oodzoo.InputError, match=message):
        oodzoo.evaluate(*zoo(), **options)


def test_too_few_images_to_fine_tune_on_are_reported_first() -> None:
    with pytest.raises(oodzoo.InputError, match=r"'d0' has 4 samples; splits .* need at least 5"):
        oodzoo.evaluate(*zoo(n=4), tune=True)


@pytest.mark.parametrize("n_domains", [1, 2])
def test_too_few_domains(n_domains: int) -> None:
    with pytest.raises(oodzoo.InputError, match=r"needs at least three domains.* got 'd0'"):
        oodzoo.evaluate(*zoo(n_domains=n_domains))


@pytest.mark.parametrize("protocol", ["fast", "domainbed"])
def test_one_class_only(protocol: Any) -> None:
    features, y, domains = zoo()
    with pytest.raises(oodzoo.InputError, match=r"one class, 7 \(120 samples\); at least two"):
        oodzoo.evaluate(features, np.full(len(y), 7), domains, protocol=protocol)


def test_a_domain_of_one_group_cannot_be_split() -> None:
    features, y, domains = zoo()
    groups = [
        None if d == "d0" else f"{d}-{i % 3 if d != 'd2' else 0}" for i, d in enumerate(domains)
    ]
    with pytest.raises(oodzoo.InputError, match="all samples of domain 'd2' are of the group 'd2-"):
        oodzoo.evaluate(features, y, domains, groups=groups, trials=2)
    assert oodzoo.evaluate(features, y, domains, groups=groups, baselines=False).trials == 1


def test_one_class_without_a_domain() -> None:
    features, y, domains = zoo()
    y = np.where(domains == "d2", y, 0)
    with pytest.raises(
        oodzoo.InputError, match="the domains other than 'd2' have only the class 0"
    ):
        oodzoo.evaluate(features, y, domains)


def test_a_domain_too_small_to_split() -> None:
    features, y, domains = zoo()
    keep = np.flatnonzero((domains != "d1") | (np.arange(len(y)) % 30 < 4))
    few = {name: array[keep] for name, array in features.items()}
    with pytest.raises(oodzoo.InputError, match="domain 'd1' has 4 samples; splits of 80 %"):
        oodzoo.evaluate(few, y[keep], domains[keep], trials=2)
    assert oodzoo.evaluate(few, y[keep], domains[keep], baselines=False).trials == 1


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"protocol": "domainbed"}, "the protocol 'domainbed' needs classes, but the task is '{}'"),
        ({"with_target": True}, "with_target needs classes, but the task is '{}'"),
        ({"baselines": ["h_score"]}, "'h_score' is not for labels of the kind {}"),
        ({"score": "balanced_accuracy"}, "'balanced_accuracy' is not for labels of the kind {}"),
    ],
)
def test_what_only_classes_have(kind: Kind, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message.format(kind)):
        oodzoo.evaluate(*task_zoo(kind, n=6), task=kind, **options)


def test_labels_that_do_not_vary_without_a_domain() -> None:
    features, y, domains = task_zoo("regression", n=6)
    y[domains != "d2", 1] = 5.0
    with pytest.raises(InputError, match="'y1' is constant, 5, in the domains other than 'd2'"):
        oodzoo.evaluate(features, y, domains)
    features, y, domains = task_zoo("multilabel", n=6)
    y[domains != "d2"] = [1.0, 0.0]
    with pytest.raises(InputError, match="other than 'd2' all have the same labels"):
        oodzoo.evaluate(features, y, domains, task="multilabel")
    with pytest.raises(InputError, match="y is constant: 3 in all 24 samples"):
        oodzoo.evaluate(features, np.full(24, 3.0), domains, task="regression")

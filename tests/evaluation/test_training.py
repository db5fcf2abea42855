"""Heads trained without the test domain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import zoo
from tests.heads.partition import require_whole

import oodzoo
from oodzoo.combining.evaluation import Evaluation
from oodzoo.combining.evaluation.training import TrainingView, _inside, fast_trainer
from oodzoo.extraction.columns import Columns, Samples
from oodzoo.extraction.source import ArraySource
from oodzoo.linear.heads.domainbed import sweep
from oodzoo.linear.heads.kinds import fit_head_of


def grouped(data: Any) -> list[str | None]:
    """Four groups of each domain, four that occur in all, and a sample without one."""
    numbers = np.random.default_rng(0).integers(0, 8, len(data[1])).tolist()
    groups = [f"{d} {n}" if n < 4 else str(n) for n, d in zip(numbers, data[2], strict=True)]
    return [None, *groups[1:]]


def test_a_trial_trains_on_whole_groups() -> None:
    data = zoo()
    source = ArraySource(*data, grouped(data))
    view, columns = TrainingView.without(source, "d1"), Columns.all_of(source, ["good"])
    samples = columns.samples(view.source, view.source.domains)
    owners = [
        f"row {row}" if group is None else f"{samples.domains[row]} {group}"
        for row, group in enumerate(view.groups())
    ]
    for trial in range(3):
        kept = {tuple(row) for row in samples.features[_inside(samples, view, trial)].tolist()}
        inside = np.array([tuple(row) in kept for row in samples.features.tolist()])
        require_whole(owners, np.flatnonzero(inside), np.flatnonzero(~inside))
        assert 0.7 < inside.mean() < 0.9


@pytest.mark.parametrize("trials", [1, 2])
def test_groups_are_whole_in_the_choice_of_the_regularisation(trials: int) -> None:
    """Each sample is there twice, in a group: the copies must not be in different folds."""
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1, 2], 40), np.repeat(["a", "b", "c", "d"], 30)
    X = np.eye(3)[y] + rng.normal(size=(120, 3))
    features = {"m": np.hstack([X, rng.normal(size=(120, 60))]).repeat(2, axis=0)}
    groups = [f"g{row // 2}" for row in range(240)]
    source = ArraySource(features, y.repeat(2), domains.repeat(2), groups)
    view, columns = TrainingView.without(source, "d"), Columns.all_of(source, ["m"])
    samples = columns.samples(view.source, view.source.domains)
    found = fast_trainer(trials)(view, columns)
    assert len(found) == trials
    for trial, (head, *_) in enumerate(found):
        rows = np.arange(180) if trials == 1 else _inside(samples, view, trial)
        part = Samples(samples.features[rows], samples.labels[rows], samples.domains[rows])
        some = [view.groups()[row] for row in rows.tolist()]
        expected = fit_head_of("classification", part, 3, groups=some)
        np.testing.assert_array_equal(head.weights, expected.weights)
        assert not np.allclose(head.weights, fit_head_of("classification", part, 3).weights)


@pytest.mark.parametrize("with_groups", [False, True])
def test_domainbed_scores_the_in_split_of_the_test_domain(with_groups: bool) -> None:
    features, y, domains = zoo()
    groups = grouped(zoo()) if with_groups else None
    result = oodzoo.evaluate(
        features, y, domains, groups=groups, top_k=1, protocol="domainbed", trials=2, draws=2,
        steps=60, baselines=False, seed=5, search_space="DomainNet",
    )  # fmt: skip
    assert result.to_dict()["protocol"] == "domainbed"
    for number, test in enumerate(result.domains):
        array = features[result.single.cells[test].models[0]].astype(np.float32)
        samples = Samples(array, y, np.unique(domains, return_inverse=True)[1])
        found = sweep(
            samples, 3, groups=groups, test_domains=[number], trials=2, draws=2, steps=60, seed=5,
            search_space="DomainNet",
        )  # fmt: skip
        expected = found.accuracies()[number]
        mine = [each[0] / 100 for each in result.single.cells[test].measures]
        assert mine == pytest.approx(expected)
        for rule, rows in result.by_rule.items():
            mine = [each[0] / 100 for each in rows["single"].cells[test].measures]
            assert mine == pytest.approx(found.accuracies(rule)[number])
    assert list(result.by_rule) == ["training-domain", "leave-one-domain-out", "oracle"]
    assert result.by_rule["leave-one-domain-out"]["selection"] == result.selection
    assert Evaluation.from_dict(result.to_dict()) == result

"""The three rules on records made by hand."""

from __future__ import annotations

import pytest

from oodzoo.heads.domainbed.protocol import Hyperparameters
from oodzoo.heads.domainbed.rules import Record, cell, chosen


def record(
    test_domains: tuple[int, ...],
    inside: list[float],
    outside: list[float],
    draw: int = 0,
    step: int = 0,
) -> Record:
    return Record(
        test_domains,
        0,
        draw,
        step,
        Hyperparameters(),
        dict(enumerate(inside)),
        dict(enumerate(outside)),
    )


def test_training_domain_validation_looks_at_the_others_out_splits() -> None:
    records = [
        record((0,), [0.9, 0, 0], [0.9, 0.5, 0.5], draw=0),  # best on the test domain
        record((0,), [0.1, 0, 0], [0.0, 0.4, 0.8], draw=1),  # best on the average of the others
        record((0,), [0.2, 1, 1], [1.0, 0.3, 0.3], draw=2),
    ]
    found = chosen("training-domain", 0, 0, records)
    assert found is records[1]
    assert found.accuracy == 0.1


def test_leave_one_domain_out_looks_at_the_runs_without_two_domains() -> None:
    records = []
    for draw, (one, two) in enumerate([(0.2, 0.9), (0.6, 0.6), (0.5, 0.5)]):
        records += [
            record((0,), [0.3, 1, 1], [1, 1, 1], draw),
            record((0, 1), [0, one, 1], [0, 0, 0], draw),
            record((0, 2), [0, 1, two], [0, 0, 0], draw),
            record((1, 2), [0, 1, 1], [1, 1, 1], draw),
        ]
    found = chosen("leave-one-domain-out", 0, 0, records)
    assert found is not None
    assert (found.draw, found.test_domains) == (1, (0,))


def test_leave_one_domain_out_needs_all_pairs() -> None:
    records = [record((0,), [1, 1, 1], [1, 1, 1]), record((0, 1), [1, 1, 1], [1, 1, 1])]
    assert chosen("leave-one-domain-out", 0, 0, records) is None


def test_oracle_looks_at_the_last_step_only() -> None:
    records = [
        record((0,), [0.1, 1, 1], [0.9, 1, 1], draw=0, step=0),
        record((0,), [0.2, 1, 1], [0.3, 1, 1], draw=0, step=300),
        record((0,), [0.3, 1, 1], [0.2, 1, 1], draw=1, step=0),
        record((0,), [0.4, 1, 1], [0.4, 1, 1], draw=1, step=300),
    ]
    assert chosen("oracle", 0, 0, records) is records[3]


def test_equals_first_step_and_last_draw() -> None:
    records = [
        record((0,), [0, 0, 0], [0, 0.5, 0.5], draw, step) for draw in (0, 1) for step in (0, 300)
    ]
    assert chosen("training-domain", 0, 0, records) is records[2]


def test_only_the_trial_that_is_asked_for() -> None:
    assert chosen("oracle", 0, 1, [record((0,), [1, 1], [1, 1])]) is None


@pytest.mark.parametrize(
    ("accuracies", "text"), [([0.5], "50.0 +/- 0.0"), ([0.8, 0.82, 0.84], "82.0 +/- 0.9")]
)
def test_cell(accuracies: list[float], text: str) -> None:
    assert cell(accuracies) == text

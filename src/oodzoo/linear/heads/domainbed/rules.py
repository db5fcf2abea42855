"""DomainBed's three selection rules, as pure functions of records, and its table cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.linear.heads.domainbed.protocol import Hyperparameters


@dataclass(frozen=True)
class Record:
    """Accuracies of a run at a checkpoint.

    Attributes
    ----------
    test_domains : tuple of int
        The one or two domains left out of training.
    trial, draw : int
    step : int
        Counted from 0 as in DomainBed: after step 0 one update has been made.
    hyperparameters : Hyperparameters
    inside, outside : dict
        Accuracy on the in-split and on the out-split, by domain.
    """

    test_domains: tuple[int, ...]
    trial: int
    draw: int
    step: int
    hyperparameters: Hyperparameters
    inside: dict[int, float]
    outside: dict[int, float]

    @property
    def accuracy(self) -> float:
        """Accuracy on the in-split of the test domain, as DomainBed reports it."""
        return self.inside[self.test_domains[0]]


Rule = Callable[[int, Sequence[Record], bool], float | None]
"""Validation accuracy for a test domain.

Takes the test domain, the records of one trial, draw and step, and whether that step is the last.
Returns None if the rule does not apply to this step.
"""


def training_domain(test_domain: int, records: Sequence[Record], last: bool) -> float | None:
    """Mean accuracy on the out-splits of the training domains."""
    outside = _alone(test_domain, records).outside
    accuracies = [accuracy for domain, accuracy in outside.items() if domain != test_domain]
    return sum(accuracies) / len(accuracies)


def leave_one_domain_out(test_domain: int, records: Sequence[Record], last: bool) -> float | None:
    """Mean accuracy on each other domain, when left out together with the test domain."""
    others = [d for d in _alone(test_domain, records).inside if d != test_domain]
    accuracy = {}
    for record in records:
        if len(record.test_domains) == 2 and test_domain in record.test_domains:
            (left_out,) = set(record.test_domains) - {test_domain}
            accuracy[left_out] = record.inside[left_out]
    if set(accuracy) != set(others):
        return None
    return sum(accuracy[d] for d in others) / len(others)


def oracle(test_domain: int, records: Sequence[Record], last: bool) -> float | None:
    """Accuracy on the out-split of the test domain at the last step."""
    return _alone(test_domain, records).outside[test_domain] if last else None


RULES: dict[str, Rule] = {
    "training-domain": training_domain,
    "leave-one-domain-out": leave_one_domain_out,
    "oracle": oracle,
}


def require_rule(rule: str) -> None:
    """Raise an InputError if DomainBed has no selection rule of this name."""
    if rule not in RULES:
        raise InputError(f"unknown selection rule {rule!r}; expected one of {', '.join(RULES)}")


def chosen(rule: str, test_domain: int, trial: int, records: Iterable[Record]) -> Record | None:
    """Select the best record of a trial over all draws and steps by a rule, or None.

    As in DomainBed, ties between steps go to the earliest step and ties between draws to the last
    draw.
    """
    mine = [r for r in records if r.trial == trial and test_domain in r.test_domains]
    groups: dict[tuple[int, int], list[Record]] = {}
    for record in mine:
        groups.setdefault((record.draw, record.step), []).append(record)
    last = max((step for _, step in groups), default=0)
    best, value = None, -math.inf
    for draw in sorted({draw for draw, _ in groups}):
        of_draw, of_value = None, -math.inf
        for step in sorted(step for at, step in groups if at == draw):
            here = RULES[rule](test_domain, groups[draw, step], step == last)
            if here is not None and here > of_value:
                of_draw, of_value = _alone(test_domain, groups[draw, step]), here
        if of_draw is not None and of_value >= value:
            best, value = of_draw, of_value
    return best


def cell(accuracies: Sequence[float]) -> str:
    """Format mean and standard error over trials, in percent, as in DomainBed's tables.

    Examples
    --------
    >>> cell([0.80, 0.82, 0.84])
    '82.0 +/- 0.9'
    """
    percent = 100 * np.asarray(accuracies)
    return f"{percent.mean():.1f} +/- {percent.std() / math.sqrt(len(percent)):.1f}"


def _alone(test_domain: int, records: Sequence[Record]) -> Record:
    return next(record for record in records if record.test_domains == (test_domain,))

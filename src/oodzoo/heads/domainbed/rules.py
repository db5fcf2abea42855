"""DomainBed's three ways to choose among runs, as pure functions over records, and its tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from oodzoo.heads.domainbed.protocol import Hyperparameters


@dataclass(frozen=True)
class Record:
    """What a run has reached at a checkpoint.

    Attributes
    ----------
    test_domains : tuple of int
        The one or two domains that the run did not train on.
    trial, draw : int
    step : int
        Counted from 0, as DomainBed does: after step 0 one update has been made.
    hyperparameters : Hyperparameters
    inside, outside : dict
        Accuracy on the in-split and on the out-split of each domain.
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
        """Accuracy on the in-split of the test domain, the figure DomainBed reports."""
        return self.inside[self.test_domains[0]]


Rule = Callable[[int, Sequence[Record], bool], float | None]
"""Validation accuracy for a test domain.

Takes the test domain, the records of one trial, draw and step, and whether that step is the last;
gives None where the rule cannot choose this step.
"""


def training_domain(test_domain: int, records: Sequence[Record], last: bool) -> float | None:
    """Mean accuracy on the out-splits of the training domains."""
    outside = _alone(test_domain, records).outside
    accuracies = [accuracy for domain, accuracy in outside.items() if domain != test_domain]
    return sum(accuracies) / len(accuracies)


def leave_one_domain_out(test_domain: int, records: Sequence[Record], last: bool) -> float | None:
    """Mean over the other domains of the accuracy when that domain was left out as well."""
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
    """Accuracy on the out-split of the test domain itself, at the last step only."""
    return _alone(test_domain, records).outside[test_domain] if last else None


RULES: dict[str, Rule] = {
    "training-domain": training_domain,
    "leave-one-domain-out": leave_one_domain_out,
    "oracle": oracle,
}


def chosen(rule: str, test_domain: int, trial: int, records: Iterable[Record]) -> Record | None:
    """The record of a trial that a rule chooses among all draws and steps, None without any.

    As in DomainBed the best step of each draw counts, the earliest of equals, and among equal
    draws the last one wins.
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
    """Mean and standard error over trials, in percent, as DomainBed's tables print them.

    Examples
    --------
    >>> cell([0.80, 0.82, 0.84])
    '82.0 +/- 0.9'
    """
    percent = 100 * np.asarray(accuracies)
    return f"{percent.mean():.1f} +/- {percent.std() / math.sqrt(len(percent)):.1f}"


def _alone(test_domain: int, records: Sequence[Record]) -> Record:
    return next(record for record in records if record.test_domains == (test_domain,))

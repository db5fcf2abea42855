"""DomainBed's seeds, splits, hyperparameters, folds, selection rules and table cells.

References
----------
.. [1] Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", ICLR 2021.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.linear.heads.samples import Groups, group_numbers

HOLDOUT = 0.2
"""Share of each domain that is held out of training."""

SEARCH_SPACES = {"default": 5.5, "DomainNet": 5.0}
"""Largest exponent of the batch size, 2^U(3, exponent): DomainBed has its own for DomainNet."""

CHECKPOINT_EVERY = {"default": 300, "DomainNet": 1000}
"""Steps between two checkpoints, by search space, as in DomainBed."""


@dataclass(frozen=True)
class Hyperparameters:
    """One point of DomainBed's search space; the defaults are those of DomainBed.

    Attributes
    ----------
    lr : float
        Learning rate of Adam.
    weight_decay : float
        L2 penalty added to the gradient, as in PyTorch's Adam; it includes the bias.
    batch_size : int
        Samples per training domain and step.
    dropout : float
        Probability that a feature of a sample is dropped in a step.
    """

    lr: float = 5e-5
    weight_decay: float = 0.0
    batch_size: int = 32
    dropout: float = 0.0


class Split(NamedTuple):
    """Rows of a domain's in-split (for training or testing) and out-split (held out)."""

    inside: NDArray[np.int64]
    outside: NDArray[np.int64]


def seed_hash(*parts: object) -> int:
    """Derive a seed from values as DomainBed does.

    Examples
    --------
    >>> seed_hash(0, 0)
    894182419
    """
    return int(hashlib.md5(str(parts).encode()).hexdigest(), 16) % 2**31


def split(n: int, trial: int, domain: int, groups: Groups | None = None) -> Split:
    """Split the n samples of a domain in a trial.

    DomainBed has no groups. With groups, the groups are shuffled instead of the samples. One after
    the other is held out if that brings the out-split closer to a fifth of the samples; if all are
    too large for that, the smallest is held out.

    Examples
    --------
    >>> split(10, trial=0, domain=0).outside.tolist()
    [2, 3]
    >>> split(10, trial=0, domain=0, groups=list("aabbccddee")).outside.tolist()
    [0, 1]
    """
    numbers = group_numbers(groups, n)
    positions = np.arange(n if numbers is None else numbers.max() + 1)
    np.random.RandomState(seed_hash(trial, domain)).shuffle(positions)
    held_out = int(n * HOLDOUT)
    if numbers is None:
        return Split(positions[held_out:], positions[:held_out])
    return _grouped_split(numbers, positions, held_out)


def _grouped_split(numbers: NDArray[np.int64], order: NDArray[np.int64], held_out: int) -> Split:
    """Split samples by their groups, which come in the given order."""
    if len(order) < 2:
        raise InputError("a split needs samples of at least two groups, all are of the same group")
    members = np.split(np.argsort(numbers, kind="stable"), np.cumsum(np.bincount(numbers))[:-1])
    inside: list[NDArray[np.int64]] = []
    outside: list[NDArray[np.int64]] = []
    missing = held_out
    for rows in (members[group] for group in order.tolist()):
        if abs(missing - len(rows)) < missing:
            outside.append(rows)
            missing -= len(rows)
        else:
            inside.append(rows)
    if not outside:
        outside.append(inside.pop(int(np.argmin([len(rows) for rows in inside]))))
    return Split(np.concatenate(inside), np.concatenate(outside))


def require_search_space(name: str) -> None:
    """Raise an InputError if DomainBed has no search space of this name here."""
    if name not in SEARCH_SPACES:
        raise InputError(
            f"unknown search space {name!r}; expected one of {', '.join(SEARCH_SPACES)}"
        )


def hyperparameters(draw: int, trial: int, search_space: str = "default") -> Hyperparameters:
    """Draw hyperparameters: draw 0 is the default, others are random with one seed per value.

    `search_space` is "DomainNet" for that data set, where DomainBed draws smaller batches, and
    "default" for all others.

    Examples
    --------
    >>> hyperparameters(0, trial=2)
    Hyperparameters(lr=5e-05, weight_decay=0.0, batch_size=32, dropout=0.0)
    """
    if draw == 0:
        return Hyperparameters()
    seed = seed_hash(draw, trial)

    def random(name: str) -> np.random.RandomState:
        return np.random.RandomState(seed_hash(seed, name))

    return Hyperparameters(
        lr=float(10 ** random("lr").uniform(-5, -3.5)),
        weight_decay=float(10 ** random("weight_decay").uniform(-6, -2)),
        batch_size=int(2 ** random("batch_size").uniform(3, SEARCH_SPACES[search_space])),
        dropout=float(random("resnet_dropout").choice([0.0, 0.1, 0.5])),
    )


def folds(domains: Sequence[int], test_domains: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Domains to leave out of training: each held-out domain alone, and with each other domain.

    The pairs serve leave-one-domain-out selection. They need a third domain to train on, so there
    are none for two domains.

    Examples
    --------
    >>> folds([0, 1, 2], [0])
    ((0,), (0, 1), (0, 2))
    """
    alone = [(domain,) for domain in test_domains]
    pairs = [pair for pair in combinations(domains, 2) if set(pair) & set(test_domains)]
    return (*alone, *(pairs if len(domains) > 2 else []))


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
        """Accuracy on the in-split of the held-out domain, as DomainBed reports it."""
        return self.inside[self.test_domains[0]]


Rule = Callable[[int, Sequence[Record], bool], float | None]
"""Validation accuracy for a held-out domain.

Takes the held-out domain, the records of one trial, draw and step, and whether that step is the
last. Returns None if the rule does not apply to this step.
"""


def training_domain(test_domain: int, records: Sequence[Record], last: bool) -> float | None:
    """Mean accuracy on the out-splits of the training domains."""
    outside = _alone(test_domain, records).outside
    accuracies = [accuracy for domain, accuracy in outside.items() if domain != test_domain]
    return sum(accuracies) / len(accuracies)


def leave_one_domain_out(test_domain: int, records: Sequence[Record], last: bool) -> float | None:
    """Mean accuracy on each other domain, when left out together with the held-out domain."""
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
    """Accuracy on the out-split of the held-out domain at the last step."""
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

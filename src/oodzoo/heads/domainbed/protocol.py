"""What DomainBed fixes before anything is trained: seeds, splits, hyper-parameters and folds.

References
----------
.. [1] Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", ICLR 2021.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HOLDOUT = 0.2
"""The part of each domain that is not trained on."""


@dataclass(frozen=True)
class Hyperparameters:
    """One point of DomainBed's search space; what stands here is where the search begins.

    Attributes
    ----------
    lr : float
        Learning rate of Adam.
    weight_decay : float
        Added to the gradient as in Adam with an L2 penalty, bias included.
    batch_size : int
        Samples of each training domain in a step.
    dropout : float
        Probability that a feature of a sample is left out of a step.
    """

    lr: float = 5e-5
    weight_decay: float = 0.0
    batch_size: int = 32
    dropout: float = 0.0


class Split(NamedTuple):
    """Positions of a domain's samples: trained on or tested on (in), and held out (out)."""

    inside: NDArray[np.int64]
    outside: NDArray[np.int64]


def seed_hash(*parts: object) -> int:
    """The seed that DomainBed derives from some values.

    Examples
    --------
    >>> seed_hash(0, 0)
    894182419
    """
    return int(hashlib.md5(str(parts).encode()).hexdigest(), 16) % 2**31


def split(n: int, trial: int, domain: int) -> Split:
    """The in-split and the out-split of a domain with n samples in a trial.

    Examples
    --------
    >>> split(10, trial=0, domain=0).outside.tolist()
    [2, 3]
    """
    positions = np.arange(n)
    np.random.RandomState(seed_hash(trial, domain)).shuffle(positions)
    held_out = int(n * HOLDOUT)
    return Split(positions[held_out:], positions[:held_out])


def hyperparameters(draw: int, trial: int) -> Hyperparameters:
    """Draw 0 is the default; each other one is random, each value from a seed of its own.

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
        batch_size=int(2 ** random("batch_size").uniform(3, 5.5)),
        dropout=float(random("resnet_dropout").choice([0.0, 0.1, 0.5])),
    )


def folds(domains: Sequence[int], test_domains: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Which domains are left out of training: each test domain, and it with each other domain.

    Those with two are what leave-one-domain-out selection validates on. They need a third domain
    to train on; where there are only two domains, there are none.

    Examples
    --------
    >>> folds([0, 1, 2], [0])
    ((0,), (0, 1), (0, 2))
    """
    alone = [(domain,) for domain in test_domains]
    pairs = [pair for pair in combinations(domains, 2) if set(pair) & set(test_domains)]
    return (*alone, *(pairs if len(domains) > 2 else []))

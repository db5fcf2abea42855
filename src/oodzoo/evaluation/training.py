"""Heads for a test domain, by either protocol, trained on the other domains alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.features.columns import Columns, Samples
from oodzoo.features.source import FeatureSource
from oodzoo.heads.domainbed.protocol import split
from oodzoo.heads.domainbed.sweep import sweep
from oodzoo.heads.linear import LinearHead, fit_head


@dataclass(frozen=True)
class LeftOut:
    """A test domain as those see it who must not know it.

    Attributes
    ----------
    test : str
        Its name.
    place : int
        Its place among all domains.
    n : int
        Its number of samples.
    training : FeatureSource
        All that the other domains have, and nothing else.
    """

    test: str
    place: int
    n: int
    training: FeatureSource

    @classmethod
    def of(cls, source: FeatureSource, test: str) -> LeftOut:
        others = [domain for domain in source.domains if domain != test]
        n = len(source.labels(test))
        return cls(test, source.domains.index(test), n, source.only(others))


class Trained(NamedTuple):
    """The head of one trial, and which rows of the test domain it is scored on."""

    head: LinearHead
    rows: NDArray[np.int64]


Train = Callable[[LeftOut, Columns], list[Trained]]
"""Trains a head on kept features, one for each trial."""


def fast(trials: int) -> Train:
    """Logistic regression, its strength chosen by leaving each training domain out in turn.

    One trial trains on everything. Of several, each trains on the 80 % of each training domain
    that DomainBed's split of that trial has inside; that makes up their spread. All of them are
    scored on the whole test domain.
    """

    def train(left_out: LeftOut, columns: Columns) -> list[Trained]:
        training = left_out.training
        samples = columns.samples(training, training.domains)
        n_classes = len(training.classes)
        everything = np.arange(left_out.n)
        if trials == 1:
            return [Trained(fit_head(samples, n_classes), everything)]
        return [
            Trained(fit_head(_inside(samples, left_out, trial), n_classes), everything)
            for trial in range(trials)
        ]

    return train


def domainbed(
    trials: int, draws: int, steps: int, seed: int = 0, device: str | None = None
) -> Train:
    """DomainBed's random search, hyper-parameters chosen by leaving each training domain out.

    A trial is scored on its in-split of the test domain, as DomainBed does.
    """

    def train(left_out: LeftOut, columns: Columns) -> list[Trained]:
        training = left_out.training
        samples = columns.samples(training, training.domains)
        found = sweep(
            _with_blank_test_domain(samples, left_out),
            len(training.classes),
            test_domains=[left_out.place],
            trials=trials,
            draws=draws,
            steps=steps,
            seed=seed,
            device=device,
        )
        chosen = found.chosen("leave-one-domain-out")[left_out.place]
        return [
            Trained(each.head, split(left_out.n, trial, left_out.place).inside)
            for trial, each in enumerate(chosen)
        ]

    return train


def _inside(samples: Samples, left_out: LeftOut, trial: int) -> Samples:
    """What a trial trains on: the in-split of each training domain."""
    numbers = _numbers(samples, left_out)
    parts = []
    for number in np.unique(numbers):
        rows = np.flatnonzero(numbers == number)
        parts.append(rows[split(len(rows), trial, int(number)).inside])
    rows = np.sort(np.concatenate(parts))
    return Samples(samples.features[rows], samples.labels[rows], samples.domains[rows])


def _with_blank_test_domain(samples: Samples, left_out: LeftOut) -> Samples:
    """The sweep counts the test domain among the others; what it is given of it is empty."""
    blank = np.zeros((left_out.n, samples.features.shape[1]), samples.features.dtype)
    return Samples(
        np.concatenate([samples.features, blank]),
        np.concatenate([samples.labels, np.zeros(left_out.n, np.int64)]),
        np.concatenate([_numbers(samples, left_out), np.full(left_out.n, left_out.place)]),
    )


def _numbers(samples: Samples, left_out: LeftOut) -> NDArray[np.int64]:
    """The domain of each sample by its place among all domains, the test domain counted."""
    return samples.domains + (samples.domains >= left_out.place)

"""Train heads on the training domains of a fold, with either protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.extraction.columns import Columns, Samples
from oodzoo.extraction.source import FeatureSource, groups_of
from oodzoo.linear.heads.domainbed.protocol import Split, split
from oodzoo.linear.heads.domainbed.rules import RULES
from oodzoo.linear.heads.domainbed.sweep import sweep
from oodzoo.linear.heads.kinds import fit_head_of
from oodzoo.linear.heads.linear import LinearHead


@dataclass(frozen=True)
class TrainingView:
    """Training view without the test domain: only its place, its number of samples, its groups."""

    position: int
    n_test: int
    source: FeatureSource
    """The training domains only."""
    test_groups: Sequence[str | None] | None = None
    """The group of each test sample: the in-split of the test domain keeps groups whole."""

    @classmethod
    def without(cls, source: FeatureSource, test: str) -> TrainingView:
        others = [domain for domain in source.domains if domain != test]
        position, n_test = source.domains.index(test), len(source.labels(test))
        return cls(position, n_test, source.only(others), source.groups(test))

    def groups(self) -> list[str | None]:
        """The group of each sample of the training domains."""
        return groups_of(self.source, self.source.domains)

    def test_split(self, trial: int) -> Split:
        """Split the test domain in a trial."""
        return split(self.n_test, trial, self.position, self.test_groups)


class TrainedHead(NamedTuple):
    """Head of one trial, and the rows of the test domain to score it on.

    `rules` has the heads that DomainBed's rules select, by rule; `head` is one of them.
    """

    head: LinearHead
    rows: NDArray[np.int64]
    rules: Mapping[str, LinearHead] = MappingProxyType({})


Trainer = Callable[[TrainingView, Columns], list[TrainedHead]]
"""Trains one head per trial on some columns."""

Oracle = Callable[[Columns, Sequence[LinearHead], NDArray[np.int64]], LinearHead]
"""Finds the head that is most accurate on rows of the test domain: DomainBed's oracle."""


def fast_trainer(trials: int) -> Trainer:
    """Linear heads as :func:`~oodzoo.linear.heads.kinds.fit_head_of` fits them.

    A single trial trains on all samples. With several, each trains on the 80 % of every training
    domain in DomainBed's split of that trial. All are scored on the whole test domain.
    """

    def train(view: TrainingView, columns: Columns) -> list[TrainedHead]:
        samples = columns.samples(view.source, view.source.domains)
        kind, n_outputs = view.source.task.kind, len(view.source.classes)
        every, groups = np.arange(view.n_test), view.groups()
        heads = []
        for trial in range(trials):
            part, some = samples, groups
            if trials > 1:
                rows = _inside(samples, view, trial)
                part = Samples(samples.features[rows], samples.labels[rows], samples.domains[rows])
                some = [groups[row] for row in rows.tolist()]
            heads.append(TrainedHead(fit_head_of(kind, part, n_outputs, groups=some), every))
        return heads

    return train


def domainbed_trainer(
    trials: int,
    draws: int,
    steps: int,
    seed: int = 0,
    device: str | None = None,
    search_space: str = "default",
    selection: str = "leave-one-domain-out",
    oracle: Oracle | None = None,
) -> Trainer:
    """DomainBed's random search, with one of its selection rules.

    A trial is scored on its in-split of the test domain, as in DomainBed. Only the rule "oracle"
    sees the test domain, by `oracle`; there is no such rule without it.
    """

    def train(view: TrainingView, columns: Columns) -> list[TrainedHead]:
        found = sweep(
            _with_blank_test_domain(columns.samples(view.source, view.source.domains), view),
            len(view.source.classes),
            groups=[*view.groups(), *(view.test_groups or [None] * view.n_test)],
            test_domains=[view.position],
            trials=trials,
            draws=draws,
            steps=steps,
            search_space=search_space,
            seed=seed,
            device=device,
        )
        at, splits = view.position, [view.test_split(trial) for trial in range(trials)]
        heads = {r: [c.head for c in found.chosen(r)[at]] for r in RULES if r != "oracle"}
        if oracle is not None:
            heads["oracle"] = [
                oracle(columns, found.last(at, trial), each.outside)
                for trial, each in enumerate(splits)
            ]
        return [
            TrainedHead(heads[selection][trial], each.inside, {r: heads[r][trial] for r in heads})
            for trial, each in enumerate(splits)
        ]

    return train


def _inside(samples: Samples, view: TrainingView, trial: int) -> NDArray[np.int64]:
    """The rows of the in-split of each training domain in a trial."""
    positions = _positions(samples, view)
    parts = []
    for position, domain in zip(np.unique(positions), view.source.domains, strict=True):
        rows = np.flatnonzero(positions == position)
        groups = view.source.groups(domain)
        parts.append(rows[split(len(rows), trial, int(position), groups).inside])
    return np.sort(np.concatenate(parts))


def _with_blank_test_domain(samples: Samples, view: TrainingView) -> Samples:
    """Append zeros in place of the test domain, which the sweep expects among the domains."""
    blank = np.zeros((view.n_test, samples.features.shape[1]), samples.features.dtype)
    return Samples(
        np.concatenate([samples.features, blank]),
        np.concatenate([samples.labels, np.zeros(view.n_test, np.int64)]),
        np.concatenate([_positions(samples, view), np.full(view.n_test, view.position)]),
    )


def _positions(samples: Samples, view: TrainingView) -> NDArray[np.int64]:
    """Domain of each sample, as its position among all domains including the test domain."""
    return samples.domains + (samples.domains >= view.position)

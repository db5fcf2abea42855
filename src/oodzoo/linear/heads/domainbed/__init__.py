"""DomainBed's protocol on cached features [1]_.

Splits, random search, Adam, the three selection rules, trials and tables follow the reference.
Image augmentation is not reproduced, since the features of each image are computed only once.

References
----------
.. [1] Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", ICLR 2021.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from oodzoo.core.backend import backend
from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.core.threads import Prefetch
from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.domainbed.protocol import (
    CHECKPOINT_EVERY,
    RULES,
    Hyperparameters,
    Record,
    Split,
    cell,
    chosen,
    folds,
    hyperparameters,
    require_rule,
    require_search_space,
    split,
)
from oodzoo.linear.heads.domainbed.training import Checkpoint, Group, Problem, train
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.linear.heads.samples import Groups, check_samples, group_numbers
from oodzoo.tasks.classification import require_two_classes

__all__ = ["RULES", "Chosen", "Hyperparameters", "Record", "Split", "Sweep", "cell", "sweep"]

STEPS = 5001
_DEVICE_BYTES = 2**33
_MIN_SAMPLES = 5
"""Minimum number of samples per domain; with fewer, none would be held out."""

_Key = tuple[str, int, int, int]
"""Rule, held-out domain, trial, draw."""


class Chosen(NamedTuple):
    """The record that a rule selects, and its classifier."""

    record: Record
    head: LinearHead


@dataclass(frozen=True)
class Sweep:
    """All runs of a random search.

    Attributes
    ----------
    test_domains : tuple of int
    trials : int
    records : list of Record
        One record per run and checkpoint.
    splits : dict
        Rows of the in-split and the out-split, by (trial, domain).
    """

    test_domains: tuple[int, ...]
    trials: int
    records: list[Record]
    splits: dict[tuple[int, int], Split]
    _heads: dict[_Key, LinearHead]

    def chosen(self, rule: str = "leave-one-domain-out") -> dict[int, list[Chosen]]:
        """Select one run per held-out domain and trial.

        Parameters
        ----------
        rule : {"leave-one-domain-out", "training-domain", "oracle"}

        Returns
        -------
        dict
            ``result[domain][trial].record.accuracy`` is the accuracy that DomainBed reports, on the
            in-split of the held-out domain (rows ``sweep.splits[trial, domain].inside``).
        """
        require_rule(rule)
        result: dict[int, list[Chosen]] = {}
        for domain in self.test_domains:
            result[domain] = []
            for trial in range(self.trials):
                record = chosen(rule, domain, trial, self.records)
                if record is None:
                    raise InputError(
                        f"selection rule {rule!r} needs three domains, got two; "
                        "use 'training-domain'"
                    )
                head = self._heads[rule, domain, trial, record.draw]
                result[domain].append(Chosen(record, head))
        return result

    def accuracies(self, rule: str = "leave-one-domain-out") -> dict[int, list[float]]:
        """Return the accuracy that DomainBed reports, per held-out domain and trial."""
        return {d: [c.record.accuracy for c in each] for d, each in self.chosen(rule).items()}

    def last(self, domain: int, trial: int) -> list[LinearHead]:
        """Return the head of each draw after the last step of a trial without a held-out domain."""
        draws = sorted({record.draw for record in self.records})
        return [self._heads["oracle", domain, trial, draw] for draw in draws]


def sweep(
    samples: Samples,
    n_classes: int,
    *,
    groups: Groups | None = None,
    test_domains: Sequence[int] | None = None,
    draws: int = 10,
    trials: int = 3,
    steps: int = STEPS,
    checkpoint_every: int | None = None,
    search_space: str = "default",
    seed: int = 0,
    device: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Run DomainBed's random search over linear classifiers of fixed features.

    All draws, trials and folds are trained as one batched problem. Each run trains as in DomainBed:
    with its own initial weights, cross-entropy, Adam, and batches from each training domain. Runs
    that differ only in the domains left out of training share batches and dropout.

    Parameters
    ----------
    samples : Samples
        Samples of all domains, including held-out domains.
    n_classes : int
    groups : sequence, optional
        Group of each sample (a patient, a video), None for a sample without one; splits keep the
        samples of a group in a domain together. DomainBed has no groups.
    test_domains : sequence of int, optional
        Domains to test on, one at a time; all domains if None.
    draws : int
        Number of hyperparameter draws; draw 0 is DomainBed's default.
    trials : int
        Number of repetitions with other splits, draws and batches.
    steps : int
    checkpoint_every : int, optional
        Accuracies are computed at every multiple of this step, and after the last step. By default
        as in DomainBed: 1,000 for DomainNet, 300 for the other data sets.
    search_space : {"default", "DomainNet"}
        Distribution of the draws: DomainBed draws the batch size from 2^U(3, 5) for DomainNet, and
        from 2^U(3, 5.5) for the other data sets.
    seed : int
        Random seed of initial weights, batches and dropout. Splits and draws follow DomainBed.
    device : str, optional
        Compute with NumPy if None, else with PyTorch on this device.
    progress : callable, optional
        Called with the number of finished runs and of all runs.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> labels, domains = np.arange(60) % 2, np.repeat([0, 1, 2], 20)
    >>> features = (rng.normal(size=(60, 4)) + 9 * labels[:, None]).astype(np.float32)
    >>> found = sweep(Samples(features, labels, domains), 2, draws=1, trials=1, steps=50)
    >>> sorted(found.accuracies("training-domain"))
    [0, 1, 2]
    """
    be = backend(device)
    domains = tuple(np.unique(samples.domains).tolist())
    tested = domains if test_domains is None else tuple(test_domains)
    _check_domains(samples, domains, tested)
    check_samples(samples, n_classes)
    require_two_classes(samples.labels)
    require_search_space(search_space)
    if checkpoint_every is None:
        checkpoint_every = CHECKPOINT_EVERY[search_space]
    counts = {
        "draws": draws,
        "trials": trials,
        "steps": steps,
        "checkpoint_every": checkpoint_every,
    }
    for name, number in counts.items():
        if number < 1:
            raise InputError(f"{name} must be at least 1, got {number}")
    problem = Problem(
        backend=be,
        features=be.asarray(np.ascontiguousarray(samples.features, np.float32)),
        labels=samples.labels,
        n_classes=n_classes,
        folds=folds(domains, tested),
        splits=_splits(samples.domains, domains, trials, groups),
        domains=domains,
        seed=seed,
    )
    runs = itertools.product(range(trials), range(draws))
    run_groups = [Group(t, draw, hyperparameters(draw, t, search_space)) for t, draw in runs]
    blocks = _blocks(problem, run_groups)
    calls = [(problem, block, steps, checkpoint_every) for block in blocks]
    records: list[Record] = []
    heads: dict[_Key, LinearHead] = {}
    done = 0
    # Products of one group are small: one thread per group is faster than threads within BLAS.
    with threadpool_limits(1 if be.is_numpy else None):
        results = (
            Prefetch(_run, calls, n_threads=cpu_count())
            if be.is_numpy
            else itertools.starmap(_run, calls)
        )
        for block, (new_records, new_heads) in zip(blocks, results, strict=True):
            records += new_records
            heads |= new_heads
            done += len(block)
            if progress is not None:
                progress(done * len(problem.folds), len(run_groups) * len(problem.folds))
    return Sweep(tested, trials, records, dict(problem.splits), heads)


def _check_domains(samples: Samples, domains: tuple[int, ...], tested: tuple[int, ...]) -> None:
    if len(domains) < 2:
        raise InputError(f"DomainBed's protocol needs at least two domains, got {len(domains)}")
    if not tested or set(tested) - set(domains) or len(set(tested)) < len(tested):
        raise InputError(
            f"test_domains must be distinct domains of {list(domains)}, got {list(tested)}"
        )
    for domain in domains:
        n = int(np.sum(samples.domains == domain))
        if n < _MIN_SAMPLES:
            raise InputError(
                f"domain {domain} has {count(n, 'sample')}; at least {_MIN_SAMPLES} are needed"
            )


def _splits(
    of_row: NDArray[np.int64], domains: tuple[int, ...], trials: int, groups: Groups | None
) -> dict[tuple[int, int], Split]:
    numbers = group_numbers(groups, len(of_row))
    splits = {}
    for domain in domains:
        rows = np.flatnonzero(of_row == domain)
        inner = None if numbers is None else numbers[rows].tolist()
        if inner is not None and len(set(inner)) < 2:
            raise InputError(
                f"all samples of domain {domain} are of one group; a split keeps groups whole and "
                "needs at least two"
            )
        for trial in range(trials):
            inside, outside = split(len(rows), trial, domain, inner)
            splits[trial, domain] = Split(rows[inside], rows[outside])
    return splits


def _blocks(problem: Problem, groups: list[Group]) -> list[list[Group]]:
    """Partition groups into blocks of similar batch size, to reduce padding."""
    size = _fitting(problem, groups) if problem.on_cuda else 1
    if size >= len(groups):
        return [groups]
    if size > 1:
        groups = sorted(groups, key=lambda group: group.hyperparameters.batch_size)
    return [groups[at : at + size] for at in range(0, len(groups), size)]


def _fitting(problem: Problem, groups: list[Group]) -> int:
    """Number of groups whose batches, weights and Adam moments fit on the device."""
    dim = problem.features.shape[1]
    rows = len(problem.domains) * max(group.hyperparameters.batch_size for group in groups)
    columns = len(problem.folds) * problem.n_classes
    bytes_each = 4 * (dim * (3 * rows + 8 * columns) + 8 * rows * columns)
    return max(1, int(_DEVICE_BYTES // bytes_each))


def _run(
    problem: Problem, block: list[Group], steps: int, checkpoint_every: int
) -> tuple[list[Record], dict[_Key, LinearHead]]:
    """Train a block; keep the weights of each run at its best checkpoint per rule."""
    records: list[Record] = []
    best: dict[_Key, tuple[float, NDArray[np.float32]]] = {}
    for checkpoint in train(problem, block, steps, checkpoint_every):
        last = checkpoint.step == steps - 1
        for at, group in enumerate(block):
            new = _records(problem, group, at, checkpoint)
            records += new
            for place, fold in enumerate(problem.folds):
                for name, rule in RULES.items() if len(fold) == 1 else ():
                    key = (name, fold[0], group.trial, group.draw)
                    value = rule(fold[0], new, last)
                    if value is not None and (key not in best or value > best[key][0]):
                        best[key] = value, checkpoint.parameters[at, :, place].copy()
    decay = {(g.trial, g.draw): g.hyperparameters.weight_decay for g in block}
    heads = {
        key: _head(problem, key[1], key[2], decay[key[2:]], parameters)
        for key, (_, parameters) in best.items()
    }
    return records, heads


def _records(problem: Problem, group: Group, at: int, checkpoint: Checkpoint) -> list[Record]:
    records = []
    for fold, accuracy in zip(problem.folds, checkpoint.accuracy[at], strict=True):
        inside, outside = (
            dict(zip(problem.domains, column, strict=True)) for column in accuracy.T.tolist()
        )
        run = (fold, group.trial, group.draw, checkpoint.step, group.hyperparameters)
        records.append(Record(*run, inside, outside))
    return records


def _head(
    problem: Problem, test_domain: int, trial: int, decay: float, parameters: NDArray[np.float32]
) -> LinearHead:
    """Convert parameters to a head; weight decay δ corresponds to C = 1 / (n δ)."""
    trained = [domain for domain in problem.domains if domain != test_domain]
    n = sum(len(problem.splits[trial, domain].inside) for domain in trained)
    values = parameters.T.astype(np.float64)
    return LinearHead(values[:, :-1], values[:, -1], 1 / (n * decay) if decay else math.inf)

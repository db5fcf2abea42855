"""DomainBed's protocol on cached features: all draws, trials and folds, and what is chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from joblib import Parallel, cpu_count, delayed
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from oodzoo.backend import backend
from oodzoo.errors import InputError
from oodzoo.features.columns import Samples
from oodzoo.heads.domainbed.protocol import Split, folds, hyperparameters, split
from oodzoo.heads.domainbed.rules import RULES, Record, chosen
from oodzoo.heads.domainbed.training import Checkpoint, Group, Problem, train
from oodzoo.heads.linear import LinearHead

STEPS = 5001
CHECKPOINT_EVERY = 300
_DEVICE_BYTES = 2**33
_SMALLEST = 5
"""Samples of a domain: of fewer, nothing would be held out."""

_Key = tuple[str, int, int, int]
"""Rule, test domain, trial, draw."""


class Chosen(NamedTuple):
    """A run at the checkpoint that a rule has chosen, and its classifier."""

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
        Every run at every checkpoint.
    splits : dict
        Rows of the samples in the in-split and the out-split, by (trial, domain).
    """

    test_domains: tuple[int, ...]
    trials: int
    records: list[Record]
    splits: dict[tuple[int, int], Split]
    _heads: dict[_Key, LinearHead]

    def chosen(self, rule: str = "leave-one-domain-out") -> dict[int, list[Chosen]]:
        """For each test domain, what a rule chooses in each trial.

        Parameters
        ----------
        rule : {"leave-one-domain-out", "training-domain", "oracle"}

        Returns
        -------
        dict
            ``result[domain][trial].record.accuracy`` is the accuracy that DomainBed reports: on the
            in-split of the test domain, whose rows are ``sweep.splits[trial, domain].inside``.
        """
        if rule not in RULES:
            raise InputError(f"selection rule {rule!r} is not known; one of {', '.join(RULES)}")
        result: dict[int, list[Chosen]] = {}
        for domain in self.test_domains:
            result[domain] = []
            for trial in range(self.trials):
                record = chosen(rule, domain, trial, self.records)
                if record is None:
                    raise InputError(
                        f"selection rule {rule!r} needs three domains, and there are two; "
                        "take 'training-domain'"
                    )
                head = self._heads[rule, domain, trial, record.draw]
                result[domain].append(Chosen(record, head))
        return result

    def accuracies(self, rule: str = "leave-one-domain-out") -> dict[int, list[float]]:
        """The accuracy that DomainBed reports, for each test domain and trial."""
        return {d: [c.record.accuracy for c in each] for d, each in self.chosen(rule).items()}


def sweep(
    samples: Samples,
    n_classes: int,
    *,
    test_domains: Sequence[int] | None = None,
    draws: int = 10,
    trials: int = 3,
    steps: int = STEPS,
    checkpoint_every: int = CHECKPOINT_EVERY,
    seed: int = 0,
    device: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Random search over linear classifiers as DomainBed does it, on features as they are.

    All draws, trials and folds are trained as one batched problem. Each run is by itself what
    DomainBed would train on these features: its own weights to begin with, cross-entropy, Adam, and
    batches of each training domain. Runs that differ only in the domains left out see the same
    batches and the same dropout.

    Parameters
    ----------
    samples : Samples
        Of all domains, those to test on included.
    n_classes : int
    test_domains : sequence of int, optional
        Those to be tested on, each by itself; all domains if None.
    draws : int
        Hyper-parameters to try; draw 0 is DomainBed's default.
    trials : int
        Repetitions with other splits, draws and batches.
    steps : int
    checkpoint_every : int
        Accuracies are computed after step 0, after each step that this divides, and after the last.
    seed : int
        Of initial weights, batches and dropout. Splits and draws are those of DomainBed.
    device : str, optional
        NumPy if None, else PyTorch on this device.
    progress : callable, optional
        Called with the number of runs that have ended and of all runs.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> labels, domains = np.arange(60) % 2, np.repeat([0, 1, 2], 20)
    >>> features = (rng.normal(size=(60, 4)) + 9 * labels[:, None]).astype(np.float32)
    >>> found = sweep(Samples(features, labels, domains), 2, draws=1, trials=1, steps=50)
    >>> sorted(found.accuracies("training-domain"))
    [0, 1, 2]
    """
    there = backend(device)
    domains = tuple(np.unique(samples.domains).tolist())
    tested = domains if test_domains is None else tuple(test_domains)
    _check(samples, n_classes, domains, tested)
    for name, number in (("draws", draws), ("trials", trials), ("steps", steps),
                         ("checkpoint_every", checkpoint_every)):  # fmt: skip
        if number < 1:
            raise InputError(f"{name} is {number}; it must be at least 1")
    problem = Problem(
        backend=there,
        features=there.asarray(np.ascontiguousarray(samples.features, np.float32)),
        labels=samples.labels,
        n_classes=n_classes,
        folds=folds(domains, tested),
        splits=_splits(samples.domains, domains, trials),
        domains=domains,
        seed=seed,
    )
    groups = [
        Group(trial, draw, hyperparameters(draw, trial))
        for trial in range(trials)
        for draw in range(draws)
    ]
    blocks = _blocks(problem, groups)
    jobs = min(cpu_count(), len(blocks)) if there.is_numpy else 1
    tasks = (delayed(_run)(problem, block, steps, checkpoint_every) for block in blocks)
    records: list[Record] = []
    heads: dict[_Key, LinearHead] = {}
    done = 0
    # Products of one group are small: a thread for each group does better than many for a product.
    with threadpool_limits(1 if there.is_numpy else None):
        ended = Parallel(jobs, prefer="threads", return_as="generator")(tasks)
        for block, (new, its_heads) in zip(blocks, ended, strict=True):
            records += new
            heads |= its_heads
            done += len(block)
            if progress is not None:
                progress(done * len(problem.folds), len(groups) * len(problem.folds))
    return Sweep(tested, trials, records, dict(problem.splits), heads)


def _check(
    samples: Samples, n_classes: int, domains: tuple[int, ...], tested: tuple[int, ...]
) -> None:
    if len(domains) < 2:
        raise InputError(f"DomainBed's protocol needs two domains, and there are {len(domains)}")
    if not tested or set(tested) - set(domains) or len(set(tested)) < len(tested):
        raise InputError(f"test domains {list(tested)}; name some of {list(domains)}, each once")
    for domain in domains:
        n = int(np.sum(samples.domains == domain))
        if n < _SMALLEST:
            raise InputError(
                f"domain {domain} has {n} samples; of fewer than {_SMALLEST} none can be held out"
            )
    if samples.labels.min() < 0 or samples.labels.max() >= n_classes:
        raise InputError(
            f"labels go from {samples.labels.min()} to {samples.labels.max()}, "
            f"and there are {n_classes} classes, counted from 0"
        )
    bad = np.flatnonzero(~np.isfinite(samples.features).all(axis=1))
    if len(bad):
        raise InputError(
            f"features of sample {bad[0]} are not finite (and of {len(bad) - 1} others); "
            "remove these samples or mend the model"
        )


def _splits(
    of_row: NDArray[np.int64], domains: tuple[int, ...], trials: int
) -> dict[tuple[int, int], Split]:
    splits = {}
    for domain in domains:
        rows = np.flatnonzero(of_row == domain)
        for trial in range(trials):
            inside, outside = split(len(rows), trial, domain)
            splits[trial, domain] = Split(rows[inside], rows[outside])
    return splits


def _blocks(problem: Problem, groups: list[Group]) -> list[list[Group]]:
    """Groups that are trained together; of similar batch sizes, so that little is filled up."""
    size = _fitting(problem, groups) if problem.on_cuda else 1
    if size >= len(groups):
        return [groups]
    if size > 1:
        groups = sorted(groups, key=lambda group: group.hyperparameters.batch_size)
    return [groups[at : at + size] for at in range(0, len(groups), size)]


def _fitting(problem: Problem, groups: list[Group]) -> int:
    """How many groups fit onto the device: their batches, weights, and Adam's moments."""
    dim = problem.features.shape[1]
    rows = len(problem.domains) * max(group.hyperparameters.batch_size for group in groups)
    columns = len(problem.folds) * problem.n_classes
    bytes_each = 4 * (dim * (3 * rows + 8 * columns) + 8 * rows * columns)
    return max(1, int(_DEVICE_BYTES // bytes_each))


def _run(
    problem: Problem, block: list[Group], steps: int, checkpoint_every: int
) -> tuple[list[Record], dict[_Key, LinearHead]]:
    """Train a block; keep the weights of each run where each rule likes it best so far."""
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
    return [
        Record(
            fold,
            group.trial,
            group.draw,
            checkpoint.step,
            group.hyperparameters,
            dict(zip(problem.domains, checkpoint.right[at, place, :, 0].tolist(), strict=True)),
            dict(zip(problem.domains, checkpoint.right[at, place, :, 1].tolist(), strict=True)),
        )
        for place, fold in enumerate(problem.folds)
    ]


def _head(
    problem: Problem, test_domain: int, trial: int, decay: float, parameters: NDArray[np.float32]
) -> LinearHead:
    """As a head; weight decay δ is a penalty of strength C = 1 / (n δ)."""
    trained = [domain for domain in problem.domains if domain != test_domain]
    n = sum(len(problem.splits[trial, domain].inside) for domain in trained)
    values = parameters.T.astype(np.float64)
    return LinearHead(values[:, :-1], values[:, -1], 1 / (n * decay) if decay else math.inf)

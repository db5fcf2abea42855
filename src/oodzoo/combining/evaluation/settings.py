"""The options of an evaluation, checked."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import msgspec
import numpy as np

from oodzoo.combining.evaluation.choice import (
    FAST_PEERS,
    Oracle,
    Trainer,
    domainbed_trainer,
    fast_trainer,
)
from oodzoo.core.errors import InputError
from oodzoo.core.limits import Limits
from oodzoo.core.text import count
from oodzoo.extraction.features import FeatureSource
from oodzoo.linear.heads.adaptive import MIN_IMAGES
from oodzoo.linear.heads.samples import require_classes_for
from oodzoo.ranking import scores
from oodzoo.ranking.constraints import TOP_K
from oodzoo.ranking.ranker import require_score_of_task
from oodzoo.tasks import Task

_MIN_SPLIT_SAMPLES = 5
"""Fewest samples of a domain that can be split into 80 % and 20 %."""


def parse_peers(baselines: bool | Sequence[str], task: Task) -> tuple[str, ...] | None:
    """Names of the scores to compare with; None for no baselines."""
    if isinstance(baselines, bool):
        fast = tuple(name for name in FAST_PEERS if task.kind in scores.get(name).tasks)
        return fast if baselines else None
    names = (baselines,) if isinstance(baselines, str) else tuple(baselines)
    for name in names:
        require_score_of_task(scores.get(name), task)
    return tuple(scores.get(name).name for name in names)


def limited_top_k(numbers: Sequence[int], n_models: int) -> list[int]:
    """Limit numbers of models to those there are, with a warning."""
    if max(numbers) > n_models:
        warnings.warn(
            f"only {count(n_models, 'model')} available, fewer than {max(numbers)}; using all",
            stacklevel=3,  # evaluate
        )
    return sorted({min(k, n_models) for k in numbers})


def require_seed(seed: int) -> None:
    """Raise an InputError if the seed is negative."""
    if seed < 0:
        raise InputError(f"seed must be 0 or more, got {seed}")


def resolve_trials(protocol: str, trials: int | None = None) -> int:
    """Validate a protocol and its number of trials; the default number if None."""
    if protocol not in ("fast", "domainbed"):
        raise InputError(f"unknown protocol {protocol!r}; expected one of fast, domainbed")
    if trials is None:
        return 1 if protocol == "fast" else 3
    if trials < 1:
        raise InputError(f"trials must be 1 or more, got {trials!r}")
    return trials


def require_target_images(source: FeatureSource) -> None:
    """Require classes, and enough images of each domain to adapt to them."""
    require_classes_for(source.task, "with_target")
    for domain in source.domains:
        n = len(source.labels(domain))
        if n < MIN_IMAGES:
            raise InputError(
                f"domain {domain!r} has {count(n, 'sample')}; with_target needs at least "
                f"{MIN_IMAGES} to adapt to; leave it out"
            )


def require_usable(source: FeatureSource, *, with_splits: bool) -> None:
    """Require three domains, labels that vary without any one domain, and samples to split."""
    names = source.domains
    if len(names) < 3:
        raise InputError(
            "an evaluation needs at least three domains, one to test on and two to rank models on; "
            f"got {', '.join(map(repr, names)) or 'none'}"
        )
    for test in names:
        _require_variation_without(source, test)
        n = len(source.labels(test))
        if with_splits and n < _MIN_SPLIT_SAMPLES:
            raise InputError(
                f"domain {test!r} has {count(n, 'sample')}; splits of 80 % and 20 % need at least "
                f"{_MIN_SPLIT_SAMPLES}"
            )
        groups = set(source.groups(test) or ()) if with_splits else set()
        if len(groups) == 1 and None not in groups:
            raise InputError(
                f"all samples of domain {test!r} are of the group {groups.pop()!r}; "
                "splits of 80 % and 20 % keep groups whole and need at least two; use the protocol "
                "'fast' with one trial, or leave the groups out"
            )


def _require_variation_without(source: FeatureSource, test: str) -> None:
    training = source.only([domain for domain in source.domains if domain != test])
    if source.task.one_class:
        if len(training.classes) < 2:
            raise InputError(
                f"the domains other than {test!r} have only the class {training.classes[0]!r}; a "
                "classifier needs at least two"
            )
        return
    labels = np.concatenate([training.labels(domain) for domain in training.domains])
    constant = (labels == labels[0]).all(axis=0)
    if source.task.has_probabilities and constant.all():
        raise InputError(
            f"the samples of the domains other than {test!r} all have the same labels; nothing can "
            "be learned from them"
        )
    if not source.task.has_probabilities and constant.any():
        at = int(np.argmax(constant))
        raise InputError(
            f"{source.classes[at]!r} is constant, {labels[0, at]:g}, in the domains other than "
            f"{test!r}; nothing can be learned from it"
        )


class Settings(msgspec.Struct, frozen=True):
    """Options of an evaluation, checked; see :func:`oodzoo.evaluate`.

    `top_k` is None if K is chosen on the training domains, `peers` is None without baselines.
    """

    top_k: list[int] | None
    protocol: str
    score: str
    trials: int
    draws: int
    steps: int
    search_space: str
    selection: str
    seed: int
    peers: tuple[str, ...] | None
    with_target: bool
    max_models: int | None
    max_ms: float | None

    @property
    def main_top_k(self) -> int | None:
        """The number of models for the main rows: 3 if present, else the first."""
        if self.top_k is None:
            return None
        return TOP_K if TOP_K in self.top_k else self.top_k[0]

    @property
    def limits(self) -> Limits:
        return Limits(max_models=self.max_models, max_ms=self.max_ms)

    def trainer(self, device: str | None, oracle: Oracle | None = None) -> Trainer:
        if self.protocol == "domainbed":
            return domainbed_trainer(
                self.trials,
                self.draws,
                self.steps,
                self.seed,
                device,
                self.search_space,
                self.selection,
                oracle,
            )
        return fast_trainer(self.trials)

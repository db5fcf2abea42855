"""Fine-tuning under DomainBed's protocol [1]_: ERM with a random search.

Splits, hyperparameters, training, accuracies and selection follow DomainBed's code, except that:

- The model is any that can be trained, and its images have the size that it expects.
- Images are drawn from other random numbers, and a domain may have fewer images than a minibatch.
- For a final model there is no held-out domain. It is trained on the training splits of all
  domains.

References
----------
.. [1] Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", ICLR 2021.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.events import Stage
from oodzoo.core.text import count
from oodzoo.linear.heads.domainbed.protocol import (
    Record,
    chosen,
    folds,
    hyperparameters,
    require_search_space,
    training_domain,
)
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.tuning.erm import ErmKey, ErmRun, ErmRuns
from oodzoo.tuning.network import import_torch
from oodzoo.tuning.problem import RULES, Problem
from oodzoo.tuning.tuner import ModelTuner
from oodzoo.zoo.model import Trainable

UNSEEN = -1
"""Number of the held-out domain of a final model, which has no images here."""


@dataclass(frozen=True)
class ErmSettings:
    """Settings of ERM under DomainBed's protocol; the defaults are those of DomainBed.

    Attributes
    ----------
    choose_by : {"leave-one-domain-out", "training-domain"}
        Selection rule.
    draws : int
        Number of hyperparameter draws; draw 0 is DomainBed's default.
    steps : int
        Updates of each run.
    search_space : {"default", "DomainNet"}
        Distribution of the draws. DomainBed draws smaller minibatches for DomainNet, and computes
        accuracies every 1,000 steps in place of every 300.
    seed : int
        Random seed of classifiers, images, augmentation and dropout. Splits and draws follow
        DomainBed.
    """

    choose_by: Literal["leave-one-domain-out", "training-domain"] = "leave-one-domain-out"
    draws: int = 20
    steps: int = 5001
    search_space: str = "default"
    seed: int = 0

    def __post_init__(self) -> None:
        require_search_space(self.search_space)
        if self.choose_by not in RULES:
            raise InputError(f"choose_by must be one of {', '.join(RULES)}, got {self.choose_by!r}")
        for name, least in (("draws", 1), ("steps", 1), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, Integral):
                raise InputError(f"{name} must be a whole number, got {value!r}")
            if value < least:
                raise InputError(f"{name} must be {least} or more, got {value}")
            object.__setattr__(self, name, int(value))  # for JSON

    def to_dict(self) -> dict[str, Any]:
        """The settings, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class ErmTuned:
    """A model tuned under DomainBed's protocol.

    Attributes
    ----------
    record : Record
        Hyperparameters, draw and step that were chosen, and the accuracies of the model on the
        images of all domains, most of which it was trained on.
    accuracy : dict of str to float
        Accuracy in percent in each domain that they were chosen by: on its held-out images, or, by
        a run that left the domain out, on its training split.
    left_out : dict of str to array
        Log-probabilities (n, C) of all images of each domain by a run that left it out, with the
        chosen hyperparameters and step; empty for the rule "training-domain".
    seconds : float
        Time of all training runs.
    trainable : Trainable
        The model with its new weights, on the CPU.
    head : LinearHead
        Its classifier.
    """

    record: Record
    accuracy: dict[str, float]
    left_out: dict[str, NDArray[np.float32]]
    seconds: float
    trainable: Trainable
    head: LinearHead


class ErmTuner(ModelTuner):
    """Fine-tunes one model under DomainBed's protocol; finished runs are kept and used again.

    Parameters
    ----------
    load : callable
        Returns the model as a module that can be trained.
    problem : Problem
    settings : ErmSettings
    device : str, default "auto"
        "cpu", "cuda", "cuda:1", "mps", or "auto".
    folder : path, optional
        Where finished runs are kept. A run that was stopped is repeated from its first step.
    stage : Stage, optional
        Receives progress and losses.
    """

    def __init__(
        self,
        load: Callable[[], Trainable],
        problem: Problem,
        settings: ErmSettings,
        *,
        device: str = "auto",
        folder: Path | None = None,
        stage: Stage | None = None,
    ) -> None:
        import_torch()
        _check(problem)
        super().__init__(load, problem, device, stage)
        self.settings = settings
        space, seed = settings.search_space, settings.seed
        # runs of other draws or steps may be in the same folder
        identity = self._identity("domainbed", space, seed, problem.fingerprint)
        self._runs = ErmRuns(self._network, problem, space, seed, folder, identity)

    def sweep(self, test_domains: Sequence[str] | None = None, trials: int = 3) -> list[Record]:
        """Run DomainBed's whole search: all draws, trials and folds.

        Parameters
        ----------
        test_domains : sequence of str, optional
            Domains to test on, one at a time; all domains by default.
        trials : int
            Number of repetitions with other splits, draws and minibatches.

        Returns
        -------
        list of Record
            One for each run and checkpoint; :func:`oodzoo.linear.heads.domainbed.protocol.chosen`
            selects from them by any rule.
        """
        names = self.problem.domains
        numbers = range(len(names))
        tested = numbers if test_domains is None else [names.index(each) for each in test_domains]
        keys = [
            self._key(fold, draw, trial)
            for trial in range(trials)
            for fold in folds(numbers, tested)
            for draw in range(self.settings.draws)
        ]
        self._plan(keys)
        return [record for key in keys for record in self._run(key).records]

    def tuned(self) -> ErmTuned:
        """Train on all domains, with the hyperparameters and the number of steps that are best."""
        by_domain = self.settings.choose_by == "leave-one-domain-out"
        search = self._keys()
        self._plan(search, self.settings.steps if by_domain else 0)
        final = self._by_domain(search) if by_domain else self._by_held_out_images(search)
        key, step = final
        weights = self._runs.weights(key)
        if weights is None:
            self._runs.do(key, self._events, lambda record: record.step == step)
            weights = self._runs.weights(key)
            assert weights is not None
        found = {each: self._run(each) for each in {*search, key}}
        at = found[key].position(step)
        accuracy = found[key].records[at].outside
        left_out = {}
        if by_domain:
            inner = {each.left_out[0]: found[each] for each in search if each.draw == key.draw}
            at_step = {domain: run.position(step) for domain, run in inner.items()}
            accuracy = {d: run.records[at_step[d]].inside[d] for d, run in inner.items()}
            left_out = {d: run.outputs[d][at_step[d]] for d, run in inner.items()}
        names, network = self.problem.domains, self._network
        network.load(weights)
        head = network.head()
        network.trainable.module.to("cpu")
        return ErmTuned(
            found[key].records[at],
            {names[domain]: 100 * value for domain, value in accuracy.items()},
            {names[domain]: outputs for domain, outputs in left_out.items()},
            sum(run.seconds for run in found.values()),
            network.trainable,
            head,
        )

    def planned_steps(self) -> int:
        """Number of steps, at most, of the runs that :meth:`tuned` still has to do."""
        missing = [key for key in self._keys() if self._runs.get(key) is None]
        by_domain = self.settings.choose_by == "leave-one-domain-out"
        return (len(missing) + by_domain) * self.settings.steps

    def estimated_seconds(self) -> float:
        """Estimate the time of the runs that :meth:`tuned` still has to do from that of one step.

        The time of the accuracies is not part of it.
        """
        return self.planned_steps() * self._runs.seconds_per_step(self._key((), 0))

    def _keys(self) -> list[ErmKey]:
        """The runs that the final model is chosen by."""
        left_out: list[tuple[int, ...]] = [()]
        if self.settings.choose_by == "leave-one-domain-out":
            left_out = [(domain,) for domain in range(len(self.problem.domains))]
        return [self._key(each, draw) for draw in range(self.settings.draws) for each in left_out]

    def _by_held_out_images(self, search: Sequence[ErmKey]) -> tuple[ErmKey, int]:
        """Choose by the held-out images of all domains; keep the weights of the best run only."""
        records: list[Record] = []
        for at, key in enumerate(search):
            run = self._run(key, _best_so_far())
            records += [_unseen(record) for record in run.records]
            best = _chosen("training-domain", records)
            for other in search[: at + 1]:
                if other.draw != best.draw:
                    self._runs.forget_weights(other)
        return self._key((), best.draw), best.step

    def _by_domain(self, search: Sequence[ErmKey]) -> tuple[ErmKey, int]:
        """Choose by runs that leave each domain out, then train on all domains."""
        records: list[Record] = []
        for key in search:
            for record in self._run(key).records:
                pair = replace(record, test_domains=(UNSEEN, *record.test_domains))
                # stands for the run on all domains, whose accuracies the rule does not use
                unknown = dict.fromkeys(record.inside, math.nan)
                alone = replace(record, test_domains=(UNSEEN,), inside=unknown, outside=unknown)
                records += [pair, alone]
        best = _chosen("leave-one-domain-out", records)
        final = self._key((), best.draw)._replace(steps=best.step + 1)
        self._total = self._done + final.steps
        self._run(final, lambda record: record.step == best.step)
        return final, best.step

    def _key(self, left_out: tuple[int, ...], draw: int, trial: int = 0) -> ErmKey:
        return ErmKey(left_out, trial, draw, self.settings.steps)

    def _run(self, key: ErmKey, keep: Callable[[Record], bool] = lambda record: False) -> ErmRun:
        """A finished run; does it if it has not been done."""
        found = self._runs.get(key)
        if found is None:
            names = [self.problem.domains[domain] for domain in key.left_out]
            chosen = hyperparameters(key.draw, key.trial, self.settings.search_space)
            self._say(names, f"{chosen.lr:.1e}")
            found = self._runs.do(key, self._events, keep)
        return found

    def _plan(self, keys: Sequence[ErmKey], more: int = 0) -> None:
        self._done = 0
        self._total = more + sum(key.steps for key in keys if self._runs.get(key) is None)


def _check(problem: Problem) -> None:
    if not problem.task.one_class:
        raise InputError(
            f"DomainBed's protocol is for classes, and the data are {problem.task.kind}"
        )
    if len(problem.domains) < 2:
        raise InputError(
            "DomainBed's protocol needs at least two domains, got "
            f"{count(len(problem.domains), 'domain')}: {', '.join(problem.domains)}"
        )


def _unseen(record: Record) -> Record:
    return replace(record, test_domains=(UNSEEN,))


def _chosen(rule: str, records: Sequence[Record]) -> Record:
    found = chosen(rule, UNSEEN, 0, records)
    assert found is not None  # every run has records
    return found


def _best_so_far() -> Callable[[Record], bool]:
    """Whether a record of a run is better on held-out images than all before."""
    best = -math.inf

    def keep(record: Record) -> bool:
        nonlocal best
        value = training_domain(UNSEEN, [_unseen(record)], False) or 0.0
        if value <= best:
            return False
        best = value
        return True

    return keep

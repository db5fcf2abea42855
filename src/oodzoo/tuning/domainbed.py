"""Fine-tuning under DomainBed's protocol [1]_: ERM with a random search.

Splits, hyperparameters, training, accuracies and selection follow DomainBed's code, except that:

- The model is any that can be trained, and its images have the size that it expects.
- Images are drawn from other random numbers, and a domain may have fewer images than a minibatch.
- For a final model there is no held-out domain. It is trained on the training splits of all
  domains.

In empirical risk minimisation (ERM), the features pass through dropout to a linear classifier, and
all weights are trained, with Adam and an L2 penalty on the mean loss of all minibatches, one of
each training domain.

References
----------
.. [1] Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", ICLR 2021.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.events import Stage
from oodzoo.core.text import count
from oodzoo.linear.heads.domainbed.protocol import (
    CHECKPOINT_EVERY,
    Hyperparameters,
    Record,
    chosen,
    folds,
    hyperparameters,
    require_search_space,
    seed_hash,
    training_domain,
)
from oodzoo.tuning.problem import RULES, TuningData, require_whole_numbers
from oodzoo.tuning.runs import TrainingRun
from oodzoo.tuning.trainer import Recipe, Trainer
from oodzoo.tuning.tuner import ModelTuner, Tuned
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
        require_whole_numbers(self, draws=1, steps=1, seed=0)

    @property
    def by_domain(self) -> bool:
        """Whether the choice is made on domains that are left out."""
        return self.choose_by == "leave-one-domain-out"

    def to_dict(self) -> dict[str, Any]:
        """The settings, for JSON."""
        return asdict(self)


class ErmKey(NamedTuple):
    """A run: the numbers of the domains left out, trial, draw, and number of steps."""

    left_out: tuple[int, ...]
    trial: int
    draw: int
    steps: int


Keep = Callable[[Record], bool]
"""Whether to keep the weights of a checkpoint; the last ones kept replace those before."""


class ErmTuner(ModelTuner):
    """Fine-tunes one model under DomainBed's protocol.

    A run that was stopped is repeated from its first step.

    Parameters
    ----------
    load, data, device, folder, stage
        As for :class:`oodzoo.tuning.tuner.ModelTuner`.
    settings : ErmSettings
    """

    def __init__(
        self,
        load: Callable[[], Trainable],
        data: TuningData,
        settings: ErmSettings,
        *,
        device: str = "auto",
        folder: Path | None = None,
        stage: Stage | None = None,
    ) -> None:
        if not data.task.one_class:
            raise InputError(
                f"DomainBed's protocol is for classes, and the data are {data.task.kind}"
            )
        if len(data.domains) < 2:
            raise InputError(
                "DomainBed's protocol needs at least two domains, got "
                f"{count(len(data.domains), 'domain')}: {', '.join(data.domains)}"
            )
        # runs of other draws or steps may be in the same folder
        identity = ["domainbed", settings.search_space, settings.seed, data.fingerprint]
        super().__init__(load, data, identity, device, folder, stage)
        self.settings = settings

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
        names = self.data.domains
        numbers = range(len(names))
        tested = numbers if test_domains is None else [names.index(each) for each in test_domains]
        keys = [
            self.key(fold, draw, trial)
            for trial in range(trials)
            for fold in folds(numbers, tested)
            for draw in range(self.settings.draws)
        ]
        self._plan(keys)
        return [record for key in keys for record in self.run(key, _never).records]

    def tuned(self) -> Tuned:
        """Train on all domains, with the hyperparameters and the number of steps that are best."""
        by_domain, names = self.settings.by_domain, self.data.domains
        search = self._keys()
        self._plan(search, self.settings.steps if by_domain else 0)
        key, step = (self._by_domain if by_domain else self._by_held_out_images)(search)
        (weights,) = self.weights(key, lambda record: record.step == step).values()
        found = {each: self.run(each, _never) for each in {*search, key}}
        record = _at(found[key], step)
        accuracy = {names[domain]: value for domain, value in record.outside.items()}
        left_out = {}
        if by_domain:
            for each in search:
                if each.draw == key.draw:
                    (domain,), run = each.left_out, found[each]
                    inner = _at(run, step)
                    accuracy[names[domain]] = inner.inside[domain]
                    left_out[names[domain]] = run.outputs[names[domain]][run.records.index(inner)]
        choice = {
            "name": "erm",
            "learning_rate": record.hyperparameters.lr,
            "draw": record.draw,
            "step": record.step,
            "hyperparameters": asdict(record.hyperparameters),
        }
        return self._tuned(
            weights,
            choice=choice,
            metrics={"erm": {domain: 100 * value for domain, value in accuracy.items()}},
            left_out=left_out,
            seconds=sum(run.seconds for run in found.values()),
        )

    def planned_steps(self) -> int:
        """Number of steps, at most, of the runs that :meth:`tuned` still has to do."""
        missing = [key for key in self._keys() if self.runs.get(key) is None]
        return (len(missing) + self.settings.by_domain) * self.settings.steps

    def estimated_seconds(self) -> float:
        """Estimate the time of the runs that :meth:`tuned` still has to do from that of one step.

        The time of the accuracies is not part of it.
        """
        trainer, _, _ = self._begin(self.key((), 0)._replace(steps=2))
        return self.planned_steps() * trainer.seconds_per_step()

    def train(self, key: ErmKey, keep: Keep) -> TrainingRun:
        """Train from the pre-trained model and a new classifier; record accuracies."""
        import torch

        names = [self.data.domains[domain] for domain in key.left_out]
        trainer, chosen, seed = self._begin(key)
        self._say(names, f"{chosen.lr:.1e}")
        every = CHECKPOINT_EVERY[self.settings.search_space]
        records: list[Record] = []
        outputs: dict[str, list[NDArray[np.float32]]] = {name: [] for name in names}
        kept: dict[str, Any] | None = None
        losses: list[Any] = []
        seconds, begun = 0.0, time.perf_counter()
        for step, loss in trainer.steps():
            losses.append(loss)
            self._events.step()
            if step % every and step < key.steps - 1:
                continue
            self._events.metric("loss", float(torch.stack(losses).mean()), step)
            seconds += time.perf_counter() - begun
            record, found = self._evaluated(key, step, chosen, seed)
            records.append(record)
            for name, each in found.items():
                outputs[name].append(each)
            if keep(record):
                kept = {name: each.cpu() for name, each in self.network.weights().items()}
            losses, begun = [], time.perf_counter()
        stacked = {name: np.stack(each) for name, each in outputs.items()}
        run = TrainingRun(stacked, {}, seconds, records)
        self.runs.keep(key, run, None if kept is None else {"kept": kept})
        return run

    def key(self, left_out: tuple[int, ...], draw: int, trial: int = 0) -> ErmKey:
        """The run that leaves out some domains."""
        return ErmKey(left_out, trial, draw, self.settings.steps)

    def _begin(self, key: ErmKey) -> tuple[Trainer, Hyperparameters, int]:
        """Start a run; its hyperparameters, and its seed.

        As in DomainBed, the seed depends on everything but the number of steps.
        """
        import torch

        chosen = hyperparameters(key.draw, key.trial, self.settings.search_space)
        seed = seed_hash(self.settings.seed, "ERM", list(key.left_out), key.draw, key.trial)
        self.network.load(self._pretrained)
        self.network.load(self.network.random_head(seed))
        recipe = Recipe(
            lambda parameters: torch.optim.Adam(parameters, weight_decay=chosen.weight_decay),
            lambda step: chosen.lr,
            key.steps,
            chosen.batch_size,
            seed,
            as_domainbed=True,
            dropout=chosen.dropout,
        )
        inside = [
            self.data.split(name, key.trial)[0]
            for domain, name in enumerate(self.data.domains)
            if domain not in key.left_out
        ]
        return Trainer(self.network, self.data, inside, recipe), chosen, seed

    def _evaluated(
        self, key: ErmKey, step: int, chosen: Hyperparameters, seed: int
    ) -> tuple[Record, dict[str, NDArray[np.float32]]]:
        """Accuracies on both splits of all domains, and outputs for those left out.

        As in DomainBed, the images of training domains are augmented here, too.
        """
        inside, outside, outputs = {}, {}, {}
        labels, predict = self.data.labels, self.network.log_probabilities
        for domain, name in enumerate(self.data.domains):
            splits = self.data.split(name, key.trial)
            if domain in key.left_out:
                rows = self.data.rows(name)
                outputs[name] = self.computed(rows, predict)
                right = labels[rows] == outputs[name].argmax(axis=1)
                both = [right[np.isin(rows, part)] for part in splits]
            else:
                both = [
                    labels[part]
                    == self.computed(part, predict, seed_hash(seed, step, domain, at)).argmax(1)
                    for at, part in enumerate(splits)
                ]
            inside[domain], outside[domain] = (float(each.mean()) for each in both)
        run = (key.left_out, key.trial, key.draw, step, chosen)
        return Record(*run, inside, outside), outputs

    def _keys(self) -> list[ErmKey]:
        """The runs that the final model is chosen by."""
        left_out: list[tuple[int, ...]] = [()]
        if self.settings.by_domain:
            left_out = [(domain,) for domain in range(len(self.data.domains))]
        return [self.key(each, draw) for draw in range(self.settings.draws) for each in left_out]

    def _by_held_out_images(self, search: Sequence[ErmKey]) -> tuple[ErmKey, int]:
        """Choose by the held-out images of all domains; keep the weights of the best run only."""
        records: list[Record] = []
        for at, key in enumerate(search):
            run = self.run(key, _best_so_far())
            records += [_unseen(record) for record in run.records]
            best = _chosen("training-domain", records)
            for other in search[: at + 1]:
                if other.draw != best.draw:
                    self.runs.forget_weights(other)
        return self.key((), best.draw), best.step

    def _by_domain(self, search: Sequence[ErmKey]) -> tuple[ErmKey, int]:
        """Choose by runs that leave each domain out, then train on all domains."""
        records: list[Record] = []
        for key in search:
            for record in self.run(key, _never).records:
                pair = replace(record, test_domains=(UNSEEN, *record.test_domains))
                # stands for the run on all domains, whose accuracies the rule does not use
                unknown = dict.fromkeys(record.inside, math.nan)
                alone = replace(record, test_domains=(UNSEEN,), inside=unknown, outside=unknown)
                records += [pair, alone]
        best = _chosen("leave-one-domain-out", records)
        final = self.key((), best.draw)._replace(steps=best.step + 1)
        self._total = self._done + final.steps
        self.run(final, lambda record: record.step == best.step)
        return final, best.step

    def _plan(self, keys: Sequence[ErmKey], more: int = 0) -> None:
        self._done = 0
        self._total = more + sum(key.steps for key in keys if self.runs.get(key) is None)


def _never(record: Record) -> bool:
    return False


def _at(run: TrainingRun, step: int) -> Record:
    return next(record for record in run.records if record.step == step)


def _unseen(record: Record) -> Record:
    return replace(record, test_domains=(UNSEEN,))


def _chosen(rule: str, records: Sequence[Record]) -> Record:
    found = chosen(rule, UNSEEN, 0, records)
    assert found is not None  # every run has records
    return found


def _best_so_far() -> Keep:
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

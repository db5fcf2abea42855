"""Fine-tuning of one model: which runs are done, and what is chosen from them.

The learning rate, and the weights that are taken from the path of a run, are chosen on domains that
are left out in turn. For that, the model is trained without each training domain, and every
candidate (:mod:`oodzoo.tuning.choice`) predicts the images of the domain left out. The linear head
on the frozen model is one of the candidates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import resolve_device
from oodzoo.core.errors import InputError
from oodzoo.core.events import Stage
from oodzoo.core.io import json_bytes
from oodzoo.core.text import count
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.tuning.choice import CANDIDATES, Choice, choose
from oodzoo.tuning.network import Network, import_torch
from oodzoo.tuning.problem import Problem, TuneSettings
from oodzoo.tuning.runs import Key, Outputs, Run, Runs
from oodzoo.tuning.training import Events
from oodzoo.zoo.model import Trainable
from oodzoo.zoo.torch_model import weights_digest


@dataclass(frozen=True)
class Judged:
    """How a tuned model predicts domains that it was trained without.

    Attributes
    ----------
    choice : Choice
    outputs : dict
        Outputs (n, C) for the domains that were left out (:mod:`oodzoo.linear.heads.outputs`).
    head_outputs : dict
        The same of the linear head on the frozen model, fitted to the same images.
    left_out : dict
        Outputs (n, C) for each training domain by a run that left it out as well; empty if the
        choice was made on held-out images.
    head_left_out : dict
        The same of the linear head on the frozen model.
    seconds : float
        Time of all training runs that this needed.
    """

    choice: Choice
    outputs: Outputs
    head_outputs: Outputs
    left_out: Outputs
    head_left_out: Outputs
    seconds: float


@dataclass(frozen=True)
class Tuned(Judged):
    """A tuned model.

    Attributes
    ----------
    trainable : Trainable
        The model with the chosen weights, on the CPU.
    head : LinearHead
        Its head.
    """

    trainable: Trainable
    head: LinearHead


class ModelTuner:
    """What the protocols of fine-tuning share: a network, its identity, and progress.

    Parameters
    ----------
    load : callable
        Returns the model as a module that can be trained.
    problem : Problem
    device : str
        "cpu", "cuda", "cuda:1", "mps", or "auto".
    stage : Stage, optional
        Receives progress and losses.
    """

    def __init__(
        self, load: Callable[[], Trainable], problem: Problem, device: str, stage: Stage | None
    ) -> None:
        self.problem = problem
        self._stage = stage
        trainable = load()
        # layers of one network have the same weights, but names of their own
        self._model = [
            trainable.name,
            asdict(trainable.preprocessing),
            weights_digest(trainable.module),
        ]
        self._network = Network(trainable, problem.n_outputs, resolve_device(device, "torch"))
        self._events = Events(self._count_step, self._emit)
        self._done = self._total = 0

    @property
    def device(self) -> str:
        """The device of the training."""
        return str(self._network.device)

    def _identity(self, *facts: Any) -> str:
        """Identifies network, images and settings."""
        return hashlib.sha256(json_bytes([*facts, self._model])).hexdigest()

    def _say(self, left_out: Sequence[str], learning_rate: str) -> None:
        without = f"without {', '.join(left_out)}" if left_out else "on all domains"
        if self._stage is not None:
            self._stage.say(f"training {without}, learning rate {learning_rate}")

    def _count_step(self) -> None:
        self._done += 1
        if self._stage is not None:
            self._stage.progress(min(self._done, self._total), self._total)

    def _emit(self, name: str, value: float, step: int) -> None:
        if self._stage is not None:
            self._stage.events.metric("tuning", name, value, step=step)


class Tuner(ModelTuner):
    """Fine-tunes one model; finished runs are kept and used again.

    Parameters
    ----------
    load : callable
        Returns the model as a module that can be trained.
    problem : Problem
    settings : TuneSettings
    device : str, default "auto"
        "cpu", "cuda", "cuda:1", "mps", or "auto".
    folder : path, optional
        Where finished runs and checkpoints are kept, so that a tuner that was stopped continues.
    stage : Stage, optional
        Receives progress and losses.
    """

    def __init__(
        self,
        load: Callable[[], Trainable],
        problem: Problem,
        settings: TuneSettings,
        *,
        device: str = "auto",
        folder: Path | None = None,
        stage: Stage | None = None,
    ) -> None:
        import_torch()
        super().__init__(load, problem, device, stage)
        self.settings = settings
        identity = self._identity(problem.fingerprint, settings.to_dict())
        self._runs = Runs(self._network, problem, settings, folder, identity)

    def judged(self, left_out: Sequence[str]) -> Judged:
        """Train without some domains and predict them; everything is chosen on the others."""
        return self._judged(left_out, keep_weights=False)

    def tuned(self) -> Tuned:
        """Train on all domains; further calls of the tuner would change the weights."""
        judged = self._judged((), keep_weights=True)
        choice, network = judged.choice, self._network
        self._runs.load((frozenset(), choice.learning_rate), choice.candidate, self._events)
        head = network.head(self.problem.task)
        network.trainable.module.to("cpu")
        return Tuned(**vars(judged), trainable=network.trainable, head=head)

    def planned_steps(self, left_out: Sequence[str] = ()) -> int:
        """Number of steps of all runs that are still to be done."""
        missing = sum(self._runs.get(key) is None for key in self._keys(left_out))
        if self._by_domain:  # one more on all domains, with the chosen learning rate
            final = [(frozenset(left_out), rate) for rate in self.settings.learning_rates]
            missing += any(self._runs.get(key) is None for key in final)
        return missing * self.settings.steps

    def estimated_seconds(self, left_out: Sequence[str] = ()) -> float:
        """Estimate the time of the runs that are still to be done from that of one step."""
        training = self.problem.left(left_out)
        rate = self.settings.learning_rates[0]
        seconds = self._runs.training(training, rate).seconds_per_step()
        self._runs.reset()
        return self.planned_steps(left_out) * seconds

    @property
    def _by_domain(self) -> bool:
        return self.settings.choose_by == "leave-one-domain-out"

    def _keys(self, left_out: Sequence[str]) -> list[Key]:
        """The runs that the choice needs."""
        without = [frozenset(left_out)]
        if self._by_domain:
            without = [frozenset([*left_out, v]) for v in self.problem.left(left_out)]
        return [(each, rate) for rate in self.settings.learning_rates for each in without]

    def _judged(self, left_out: Sequence[str], *, keep_weights: bool) -> Judged:
        self._require_domains(left_out)
        self._done, self._total = 0, self.planned_steps(left_out)
        keys = self._keys(left_out)
        for key in keys:
            self._run(key, keep_weights and not self._by_domain)
        found, labels = self._chosen_on(left_out)
        choice = choose(found, labels, self.problem.task)
        final = frozenset(left_out), choice.learning_rate
        run = self._run(final, keep_weights)
        at = CANDIDATES.index(choice.candidate)
        _require_numbers(run, at, choice.learning_rate)
        inner = found[choice.learning_rate] if self._by_domain else {}
        return Judged(
            choice,
            {domain: outputs[at] for domain, outputs in run.outputs.items()},
            {domain: outputs[0] for domain, outputs in run.outputs.items()},
            {domain: outputs[at] for domain, outputs in inner.items()},
            {domain: outputs[0] for domain, outputs in inner.items()},
            sum(self._run(key, False).seconds for key in {*keys, final}),
        )

    def _chosen_on(
        self, left_out: Sequence[str]
    ) -> tuple[dict[float, Outputs], dict[str, NDArray[Any]]]:
        """Outputs of all candidates, by learning rate, that the choice is made on; and labels."""
        problem, training = self.problem, self.problem.left(left_out)
        found: dict[float, Outputs] = {}
        for rate in self.settings.learning_rates:
            if self._by_domain:
                keys = {v: (frozenset([*left_out, v]), rate) for v in training}
                found[rate] = {v: self._run(key, False).outputs[v] for v, key in keys.items()}
            else:
                found[rate] = self._run((frozenset(left_out), rate), False).held_out
        rows = {
            v: problem.rows(v) if self._by_domain else problem.split(v, self.settings.seed)[1]
            for v in training
        }
        return found, {v: problem.labels[here] for v, here in rows.items()}

    def _run(self, key: Key, keep_weights: bool) -> Run:
        """A finished run; does it if it has not been done."""
        found = self._runs.get(key)
        if found is None:
            left_out, rate = key
            self._say(sorted(left_out), f"{rate:g}")
            found = self._runs.do(key, self._events, keep_weights=keep_weights)
        return found

    def _require_domains(self, left_out: Sequence[str]) -> None:
        training = self.problem.left(left_out)
        if len(training) < (2 if self._by_domain else 1):
            raise InputError(
                "fine-tuning leaves a training domain out to choose the weights, so it needs at "
                f"least two; got {count(len(training), 'domain')}: {', '.join(training)}"
            )


def _require_numbers(run: Run, at: int, learning_rate: float) -> None:
    """Raise an InputError if the last run has diverged, unlike those that it was chosen by."""
    found = [outputs[at] for outputs in (*run.outputs.values(), *run.held_out.values())]
    if any(np.isnan(outputs).any() for outputs in found):
        raise InputError(
            f"training with the learning rate {learning_rate:g} diverged after it was chosen: the "
            "outputs are not numbers; use a lower learning rate"
        )

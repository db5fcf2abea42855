"""Fine-tuning of one model: which runs are done, and what is chosen from them.

The learning rate, and the weights that are taken from the path of a run, are chosen on domains that
are left out in turn. For that, the model is trained without each training domain, and every
candidate predicts the images of the domain left out. The linear head on the frozen model is one of
the candidates.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import default_batch_size, resolve_device
from oodzoo.core.errors import InputError
from oodzoo.core.events import Stage, advance
from oodzoo.core.text import count
from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.domainbed.protocol import seed_hash
from oodzoo.linear.heads.kinds import fit_head_of
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.tasks import Task
from oodzoo.tuning.averages import mixed
from oodzoo.tuning.images import augmented, prefetched
from oodzoo.tuning.network import (
    HeadedNetwork,
    add_adapters,
    head_weights,
    import_torch,
    merge_adapters,
)
from oodzoo.tuning.problem import Rows, TuneSettings, TuningData
from oodzoo.tuning.runs import DomainOutputs, Parts, RunKey, TrainingRun, TrainingRuns
from oodzoo.tuning.trainer import Recipe, RunEvents, Trainer, train_and_average
from oodzoo.zoo.model import Trainable
from oodzoo.zoo.torch_model import weights_digest

CPU_HOURS = 3.0
"""Longest fine-tuning on the CPU, unless a limit is given."""

MIXINGS = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class CandidateWeights:
    """Weights that a training run leads to.

    Attributes
    ----------
    weights : {"start", "last", "average"}
        Those of the linear head on the frozen network; after the last step; or SWAD's average
        along the path.
    mixing : float
        Share of these weights; the rest are those before the training (WiSE-FT).
    """

    weights: Literal["start", "last", "average"]
    mixing: float

    @property
    def name(self) -> str:
        """Name of the candidate.

        Examples
        --------
        >>> [candidate.name for candidate in CANDIDATES[:3]]
        ['linear head', 'average 0.25', 'average 0.5']
        """
        return "linear head" if self.mixing == 0 else f"{self.weights} {self.mixing:g}"

    def of(self, ends: Parts) -> dict[str, Any]:
        """These weights, from those of a run."""
        if self.mixing == 0:
            return ends["start"]
        return mixed(ends.get("random", ends["start"]), ends[self.weights], self.mixing)


CANDIDATES = (
    CandidateWeights("start", 0.0),
    *(CandidateWeights(weights, mixing) for weights in ("average", "last") for mixing in MIXINGS),
)
"""All candidates of a run; the first is the linear head on the frozen network."""


@dataclass(frozen=True)
class Judged:
    """How a tuned model predicts domains that it was trained without.

    Attributes
    ----------
    candidate : CandidateWeights
    learning_rate : float
    metrics : dict of str to dict
        For each candidate of the chosen learning rate (such as "average 0.5"), the main metric in
        percent in each domain that it was chosen on. After training that has diverged, candidates
        whose outputs are not numbers are left out.
    outputs : dict
        Outputs (n, C) for the domains that were left out (:class:`oodzoo.tasks.Task`).
    head_outputs : dict
        The same of the linear head on the frozen model, fitted to the same images.
    left_out : dict
        Outputs (n, C) for each training domain by a run that left it out as well; empty if the
        choice was made on held-out images.
    seconds : float
        Time of all training runs that this needed.
    """

    candidate: CandidateWeights
    learning_rate: float
    metrics: dict[str, dict[str, float]]
    outputs: DomainOutputs
    head_outputs: DomainOutputs
    left_out: DomainOutputs
    seconds: float


@dataclass(frozen=True)
class Tuned:
    """A tuned model.

    Attributes
    ----------
    choice : dict
        Name of the chosen weights ("erm" under DomainBed's protocol), learning rate, and more, for
        JSON.
    metrics : dict of str to dict
        For each name of weights, the main metric in percent in each domain that they were chosen
        on: on its held-out images, or by a run that left the domain out.
    left_out : dict
        Outputs (n, C) for each domain by a run that left it out; empty if the choice was made on
        held-out images.
    seconds : float
        Time of all training runs.
    trainable : Trainable
        The model with the chosen weights, on the CPU.
    head : LinearHead
        Its head.
    """

    choice: dict[str, Any]
    metrics: dict[str, dict[str, float]]
    left_out: DomainOutputs
    seconds: float
    trainable: Trainable
    head: LinearHead


def choose_weights(
    outputs: Mapping[float, Mapping[str, NDArray[Any]]],
    labels: Mapping[str, NDArray[Any]],
    task: Task,
) -> tuple[float, CandidateWeights, dict[str, dict[str, float]]]:
    """Choose a learning rate and a candidate; all domains weigh alike.

    Parameters
    ----------
    outputs : dict
        For each learning rate and domain, the outputs (candidates, n, C) of the head, see
        :class:`oodzoo.tasks.Task`.
    labels : dict
        For each domain, (n,) or (n, C).
    task : Task

    Returns
    -------
    learning_rate : float
    candidate : CandidateWeights
    metrics : dict
        As in :class:`Judged`.
    """
    quality = {rate: _quality(task, found, labels) for rate, found in outputs.items()}
    rate = max(quality, key=lambda each: float(quality[each].max()))
    metrics = {
        candidate.name: {
            domain: 100 * task.score(outputs[rate][domain][at], here)
            for domain, here in labels.items()
        }
        for at, candidate in enumerate(CANDIDATES)
        if quality[rate][at] > -np.inf
    }
    return rate, CANDIDATES[int(np.argmax(quality[rate]))], metrics


def _quality(
    task: Task, outputs: Mapping[str, NDArray[Any]], labels: Mapping[str, NDArray[Any]]
) -> NDArray[np.float64]:
    """Mean quality of each candidate; -inf after training that has diverged."""
    numbers = (lambda array: ~np.isnan(array)) if task.one_class else np.isfinite
    usable = np.all([numbers(outputs[domain]).all(axis=(1, 2)) for domain in labels], axis=0)
    found = np.full(len(usable), -np.inf)
    if usable.any():
        here = [outputs[domain][usable] for domain in labels]
        found[usable] = task.quality(here, list(labels.values())).mean(axis=0)
    return found


# --- tuners ---------------------------------------------------------------------------------------


class ModelTuner(ABC):
    """Fine-tunes one model in training runs; finished runs are kept and used again.

    Parameters
    ----------
    load : callable
        Returns the model as a module that can be trained.
    data : TuningData
    identity : list
        Identifies settings and images: a folder with runs of another identity is an error.
    device : str
        "cpu", "cuda", "cuda:1", "mps", or "auto".
    folder : path, optional
        Where finished runs and checkpoints are kept, so that a tuner that was stopped continues.
    stage : Stage, optional
        Receives progress and losses.
    """

    def __init__(
        self,
        load: Callable[[], Trainable],
        data: TuningData,
        identity: list[Any],
        device: str,
        folder: Path | None,
        stage: Stage | None,
    ) -> None:
        import_torch()
        self.data = data
        trainable = load()
        # layers of one network have the same weights, but names of their own
        preprocessing, weights = asdict(trainable.preprocessing), weights_digest(trainable.module)
        identity = [*identity, [trainable.name, preprocessing, weights]]
        self.network = HeadedNetwork(trainable, data.n_outputs, resolve_device(device, "torch"))
        self.runs = TrainingRuns(folder, identity)
        self._pretrained = self.network.weights()
        self._stage = stage
        self._events = RunEvents(self._count_step, self._emit)
        self._done = self._total = 0

    @property
    def device(self) -> str:
        """The device of the training."""
        return str(self.network.device)

    def hours_allowed(self, max_hours: float | None) -> float:
        """The longest time of the training, given a limit or none."""
        if max_hours is None:
            return CPU_HOURS if self.device == "cpu" else math.inf
        return max_hours

    @abstractmethod
    def train(self, key: Any, keep: Any) -> TrainingRun:
        """Do a run, and keep its result; and weights if `keep` says so."""

    def run(self, key: RunKey, keep: Any = False) -> TrainingRun:
        """A finished run; does it if it has not been done."""
        found = self.runs.get(key)
        return self.train(key, keep) if found is None else found

    def weights(self, key: RunKey, keep: Any = True) -> Parts:
        """The weights kept of a run, on the CPU; does the run if there are none."""
        if self.runs.weights(key) is None:
            self.train(key, keep)
        found = self.runs.weights(key)
        assert found is not None
        return found

    def computed(
        self, rows: Rows, function: Callable[[Any], Any], seed: int | None = None
    ) -> NDArray[np.float32]:
        """Apply a function to images as in inference, in float32; augmented, with a seed."""
        import torch

        images, network = self.data.images, self.network
        size = default_batch_size(network.device.type)
        tops = range(0, len(rows), size)

        def pixels(top: int) -> NDArray[np.uint8]:
            here = rows[top : top + size]
            return images.prepared(here) if seed is None else images.cropped(here, seed + top)

        network.parts.eval()
        parts = []
        with torch.inference_mode():
            for top, found in zip(tops, prefetched(pixels, tops), strict=True):
                batch = network.images(found)
                if seed is not None:
                    batch = augmented(batch, seed + top)
                parts.append(function(batch).float().cpu().numpy())
        return np.concatenate(parts)

    def _say(self, left_out: Sequence[str], learning_rate: str) -> None:
        without = f"without {', '.join(left_out)}" if left_out else "on all domains"
        if self._stage is not None:
            self._stage.say(f"training {without}, learning rate {learning_rate}")

    def _count_step(self) -> None:
        self._done += 1
        if self._stage is not None:
            self._stage.progress(min(self._done, self._total), self._total)
        advance(self._done, self._total)

    def _emit(self, name: str, value: float, step: int) -> None:
        if self._stage is not None:
            self._stage.events.metric("tuning", name, value, step=step)

    def _tuned(self, weights: Mapping[str, Any], **facts: Any) -> Tuned:
        """The model with these weights; further runs would change them."""
        self.network.load(weights)
        head = self.network.head(self.data.task)
        self.network.trainable.module.to("cpu")
        return Tuned(**facts, trainable=self.network.trainable, head=head)


class Tuner(ModelTuner):
    """Fine-tunes one model from a linear head, with averages of weights.

    A run is identified by the domains that it leaves out, and its learning rate. Weights are kept
    of the "start" (the linear head), "last" and "average"; and "random" if the training began with
    a random head.

    Parameters
    ----------
    load, data, device, folder, stage
        As for :class:`ModelTuner`.
    settings : TuneSettings
    """

    def __init__(
        self,
        load: Callable[[], Trainable],
        data: TuningData,
        settings: TuneSettings,
        *,
        device: str = "auto",
        folder: Path | None = None,
        stage: Stage | None = None,
    ) -> None:
        super().__init__(load, data, [data.fingerprint, settings.to_dict()], device, folder, stage)
        self.settings = settings
        self._features: NDArray[np.float32] | None = None

    def judged(self, left_out: Sequence[str], *, keep_weights: bool = False) -> Judged:
        """Train without some domains and predict them; everything is chosen on the others."""
        data, by_domain = self.data, self.settings.by_domain
        training, rates = data.left(left_out), self.settings.learning_rates
        if len(training) < (2 if by_domain else 1):
            raise InputError(
                "fine-tuning leaves a training domain out to choose the weights, so it needs at "
                f"least two; got {count(len(training), 'domain')}: {', '.join(training)}"
            )
        self._done, self._total = 0, self.planned_steps(left_out)
        keys = self._keys(left_out)
        for key in keys:
            self.run(key, keep_weights and not by_domain)
        found: dict[float, DomainOutputs] = {}
        for rate in rates:
            if by_domain:
                inner = {v: self.run((frozenset([*left_out, v]), rate)) for v in training}
                found[rate] = {v: run.outputs[v] for v, run in inner.items()}
            else:
                found[rate] = self.run((frozenset(left_out), rate)).held_out
        rows = {v: data.rows(v) if by_domain else self._split(v)[1] for v in training}
        labels = {v: data.labels[here] for v, here in rows.items()}
        rate, candidate, metrics = choose_weights(found, labels, data.task)
        final = frozenset(left_out), rate
        run, at = self.run(final, keep_weights), CANDIDATES.index(candidate)
        last = [*run.outputs.values(), *run.held_out.values()]
        if any(np.isnan(outputs[at]).any() for outputs in last):  # unlike those it was chosen by
            raise InputError(
                f"training with the learning rate {rate:g} diverged after it was chosen: the "
                "outputs are not numbers; use a lower learning rate"
            )
        return Judged(
            candidate,
            rate,
            metrics,
            {domain: outputs[at] for domain, outputs in run.outputs.items()},
            {domain: outputs[0] for domain, outputs in run.outputs.items()},
            {v: outputs[at] for v, outputs in found[rate].items()} if by_domain else {},
            sum(self.run(key).seconds for key in {*keys, final}),
        )

    def tuned(self) -> Tuned:
        """Train on all domains; further calls of the tuner would change the weights."""
        judged = self.judged((), keep_weights=True)
        candidate, rate = judged.candidate, judged.learning_rate
        return self._tuned(
            candidate.of(self.weights((frozenset(), rate))),
            choice={"name": candidate.name, "learning_rate": rate, **asdict(candidate)},
            metrics=judged.metrics,
            left_out=judged.left_out,
            seconds=judged.seconds,
        )

    def planned_steps(self, left_out: Sequence[str] = ()) -> int:
        """Number of steps of all runs that are still to be done."""
        missing = sum(self.runs.get(key) is None for key in self._keys(left_out))
        if self.settings.by_domain:  # one more on all domains, with the chosen learning rate
            final = [(frozenset(left_out), rate) for rate in self.settings.learning_rates]
            missing += any(self.runs.get(key) is None for key in final)
        return missing * self.settings.steps

    def estimated_seconds(self, left_out: Sequence[str] = ()) -> float:
        """Estimate the time of the runs that are still to be done from that of one step."""
        trainer = self._trainer(self.data.left(left_out), self.settings.learning_rates[0])
        seconds = trainer.seconds_per_step()
        self._reset()
        return self.planned_steps(left_out) * seconds

    def train(self, key: tuple[frozenset[str], float], keep: bool = False) -> TrainingRun:
        """Train without some domains; all candidates predict these and the held-out images."""
        left_out, rate = key
        self._say(sorted(left_out), f"{rate:g}")
        domains = self.data.left(tuple(left_out))
        held_out = {domain: self._split(domain)[1] for domain in domains}
        ends = self._begin(domains)
        trajectory = train_and_average(
            self._trainer(domains, rate),
            np.concatenate(list(held_out.values())),
            self.runs.checkpoints(key),
            self._events,
        )
        for name, weights in (
            ("average", trajectory.average.weights),
            ("last", trajectory.last),
        ):
            self.network.load(weights)
            names = ends["start"]
            ends[name] = {each: self.network.weight(each).detach().clone() for each in names}
        self._reset()
        outputs = self._predicted({d: self.data.rows(d) for d in sorted(left_out)}, ends)
        run = TrainingRun(outputs, self._predicted(held_out, ends), trajectory.seconds)
        self.runs.keep(key, run, ends if keep else None)
        return run

    def all_features(self) -> NDArray[np.float32]:
        """Features of all images by the frozen model, computed once."""
        if self._features is None:
            self._features = self.computed(np.arange(len(self.data.labels)), self.network.features)
        return self._features

    def _keys(self, left_out: Sequence[str]) -> list[RunKey]:
        """The runs that the choice needs."""
        without = [frozenset(left_out)]
        if self.settings.by_domain:
            without = [frozenset([*left_out, v]) for v in self.data.left(left_out)]
        return [(each, rate) for rate in self.settings.learning_rates for each in without]

    def _split(self, domain: str) -> tuple[Rows, Rows]:
        return self.data.split(domain, self.settings.seed)

    def _trainer(self, domains: Iterable[str], learning_rate: float) -> Trainer:
        """A training run from the current weights."""
        import torch

        settings = self.settings
        if settings.lora is not None:
            add_adapters(self.network.parts["features"], settings.lora, seed=settings.seed)
        recipe = Recipe(
            lambda parameters: torch.optim.AdamW(
                parameters,
                weight_decay=settings.weight_decay,
                fused=self.network.device.type == "cuda",
            ),
            lambda step: settings.rate(learning_rate, step),
            settings.steps,
            settings.batch_size,
            settings.seed,
            settings.augment,
        )
        inside = [self._split(domain)[0] for domain in domains]
        return Trainer(self.network, self.data, inside, recipe)

    def _reset(self) -> None:
        """Return to the weights of the frozen model, without adapters."""
        if self.settings.lora is not None:
            merge_adapters(self.network.parts["features"])
        self.network.load(self._pretrained)

    def _begin(self, domains: Iterable[str]) -> Parts:
        """Load and return the weights before a run: of a linear probe, or those of a random head.

        The probe is always one of the results.
        """
        self._reset()  # a run that was interrupted has left its weights
        rows = [self._split(domain)[0] for domain in domains]
        together = np.concatenate(rows)
        data, network = self.data, self.network
        samples = Samples(
            self.all_features()[together],
            data.labels[together],
            np.repeat(np.arange(len(rows)), [len(each) for each in rows]),
        )
        groups = [data.groups[row] for row in together]
        network.load(head_weights(fit_head_of(data.task, samples, data.n_outputs, groups=groups)))
        ends = {"start": network.weights()}
        if self.settings.start == "random":
            network.load(network.random_head(seed_hash(self.settings.seed, "head")))
            ends["random"] = network.weights()
        return ends

    def _predicted(self, rows: Mapping[str, Rows], ends: Parts) -> DomainOutputs:
        """Outputs of all candidates for some images of each domain."""
        found: dict[str, list[NDArray[Any]]] = {domain: [] for domain in rows}
        one_class = self.data.task.one_class
        function = self.network.log_probabilities if one_class else self.network.outputs
        for candidate in CANDIDATES:
            self.network.load(candidate.of(ends))
            for domain, here in rows.items():
                found[domain].append(self.computed(here, function))
        self.network.load(self._pretrained)
        return {domain: np.stack(outputs) for domain, outputs in found.items()}

"""Training runs that leave domains out, and the predictions of all candidates that they lead to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import default_batch_size
from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.domainbed.protocol import seed_hash
from oodzoo.linear.heads.kinds import fit_head_of
from oodzoo.tuning.averages import Facts, FinishedRuns, Tensors, mixed
from oodzoo.tuning.choice import CANDIDATES, Candidate
from oodzoo.tuning.network import (
    Network,
    Weights,
    add_adapters,
    head_weights,
    merge_adapters,
)
from oodzoo.tuning.problem import Problem, Rows, TuneSettings
from oodzoo.tuning.training import Events, Training

Outputs = dict[str, NDArray[Any]]
"""Outputs by domain (:mod:`oodzoo.linear.heads.outputs`): (candidates, n, C), or (n, C) of one of
them."""

Key = tuple[frozenset[str], float]
"""A run: the domains that it leaves out, and its learning rate."""

Ends = dict[str, Weights]
"""Weights of a run by name: "start" (a linear probe), "last" and "average"; and "random", of a run
that began with a random head."""


@dataclass(frozen=True)
class Run:
    """A finished training run.

    Attributes
    ----------
    outputs : dict
        Outputs of all candidates for the images of each domain that was left out.
    held_out : dict
        The same for the held-out images of each training domain.
    window : tuple of int
        First and last step of the average.
    seconds : float
        Time of the training.
    """

    outputs: Outputs
    held_out: Outputs
    window: tuple[int, int]
    seconds: float


class Runs(FinishedRuns[Key, Run]):
    """Does training runs, one at a time, and keeps their results.

    Parameters
    ----------
    network : Network
        With the weights of the frozen model.
    problem : Problem
    settings : TuneSettings
    folder : path, optional
        Where results and checkpoints are kept.
    identity : str
        Identifies network, images and settings. A folder with another identity is an error.
    """

    def __init__(
        self,
        network: Network,
        problem: Problem,
        settings: TuneSettings,
        folder: Path | None,
        identity: str,
    ) -> None:
        super().__init__(folder, identity)
        self.network = network
        self._problem = problem
        self._settings = settings
        self._frozen = network.weights()
        self._features: NDArray[np.float32] | None = None

    def ends(self, key: Key, events: Events) -> Ends:
        """The weights before and after a run, and its average; does the run if they are not kept.

        They are on the CPU.
        """
        found = self.weights(key)
        if found is None:
            self.do(key, events, keep_weights=True)
            found = self.weights(key)
            assert found is not None
        ends: Ends = {}
        for path, tensor in found.items():
            end, _, name = path.partition("/")
            ends.setdefault(end, {})[name] = tensor
        return ends

    def do(self, key: Key, events: Events, *, keep_weights: bool = False) -> Run:
        """Train without some domains, and predict these domains and the held-out images."""
        left_out, rate = key
        training = self._problem.left(tuple(left_out))
        ends = self._begin(training)
        trajectory = self.training(training, rate).run(self.checkpoints(key), events)
        for name, weights in (("average", trajectory.average), ("last", trajectory.last)):
            self.network.load(weights)
            names = ends["start"]
            ends[name] = {each: self.network.weight(each).detach().clone() for each in names}
        self.reset()
        run = Run(
            self._predict_all(sorted(left_out), self._problem.rows, ends),
            self._predict_all(training, self._held_out, ends),
            trajectory.window,
            trajectory.seconds,
        )
        paths = {f"{end}/{name}": each for end, part in ends.items() for name, each in part.items()}
        self.keep(key, run, paths if keep_weights else None)
        return run

    def training(self, domains: Iterable[str], learning_rate: float) -> Training:
        """A training run from the current weights."""
        seed = self._settings.seed
        parts = [self._problem.split(domain, seed) for domain in domains]
        if self._settings.lora is not None:
            add_adapters(self.network.parts["features"], self._settings.lora, seed=seed)
        return Training(
            self.network,
            self._problem,
            [inside for inside, _ in parts],
            np.concatenate([outside for _, outside in parts]),
            self._settings,
            learning_rate,
        )

    def reset(self) -> None:
        """Return to the weights of the frozen model, without adapters."""
        if self._settings.lora is not None:
            merge_adapters(self.network.parts["features"])
        self.network.load(self._frozen)

    def load(self, key: Key, candidate: Candidate, events: Events) -> None:
        """Load the weights of a candidate of a run into the network."""
        self.network.load(_weights_of(self.ends(key, events), candidate))

    def _begin(self, domains: Iterable[str]) -> Ends:
        """Load and return the weights before a run: of a linear probe, or those of a random head.

        The probe is always one of the results.
        """
        self.reset()  # a run that was interrupted has left its weights
        rows = [self._problem.split(domain, self._settings.seed)[0] for domain in domains]
        together = np.concatenate(rows)
        samples = Samples(
            self.all_features()[together],
            self._problem.labels[together],
            np.repeat(np.arange(len(rows)), [len(each) for each in rows]),
        )
        groups = [self._problem.groups[row] for row in together]
        problem = self._problem
        found = fit_head_of(problem.task, samples, problem.n_outputs, groups=groups)
        self.network.load(head_weights(found))
        ends = {"start": self.network.weights()}
        if self._settings.start == "random":
            self.network.load(self._random_head())
            ends["random"] = self.network.weights()
        return ends

    def _random_head(self) -> Weights:
        import torch

        head = self.network.parts["head"]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_hash(self._settings.seed, "head"))
            fresh = torch.nn.Linear(head.in_features, head.out_features)
        return {f"head.{name}": each for name, each in fresh.named_parameters()}

    def all_features(self) -> NDArray[np.float32]:
        """Features of all images by the frozen model, computed once."""
        if self._features is None:
            rows = np.arange(len(self._problem.labels))
            self._features = self._computed(rows, self.network.features)
        return self._features

    def _held_out(self, domain: str) -> Rows:
        return self._problem.split(domain, self._settings.seed)[1]

    def _predict_all(
        self, domains: Iterable[str], rows: Callable[[str], Rows], ends: Ends
    ) -> Outputs:
        """Outputs of all candidates for some images of each domain."""
        images = {domain: rows(domain) for domain in domains}
        found: dict[str, list[NDArray[Any]]] = {domain: [] for domain in images}
        classes = self._problem.task.one_class
        function = self.network.log_probabilities if classes else self.network.outputs
        for candidate in CANDIDATES:
            self.network.load(_weights_of(ends, candidate))
            for domain, here in images.items():
                found[domain].append(self._computed(here, function))
        self.network.load(self._frozen)
        return {domain: np.stack(outputs) for domain, outputs in found.items()}

    def _computed(self, rows: Rows, function: Callable[[Any], Any]) -> NDArray[np.float32]:
        """Apply a function to images as in inference, in float32."""
        import torch

        size = default_batch_size(self.network.device.type)
        parts = []
        with torch.inference_mode():
            for top in range(0, len(rows), size):
                batch = self.network.images(self._problem.images.prepared(rows[top : top + size]))
                parts.append(function(batch).float().cpu().numpy())
        return np.concatenate(parts)

    def _to_tensors(self, run: Run) -> tuple[Tensors, Facts]:
        import torch

        tensors = {
            f"{part}/{domain}": torch.from_numpy(array)
            for part in ("outputs", "held_out")
            for domain, array in getattr(run, part).items()
        }
        facts = {"start": run.window[0], "end": run.window[1], "seconds": run.seconds}
        return tensors, {name: repr(value) for name, value in facts.items()}

    def _from_tensors(self, tensors: Tensors, facts: Facts) -> Run:
        parts: dict[str, Outputs] = {"outputs": {}, "held_out": {}}
        for name, tensor in tensors.items():
            part, _, domain = name.partition("/")
            parts[part][domain] = tensor.numpy()
        window = int(facts["start"]), int(facts["end"])
        return Run(**parts, window=window, seconds=float(facts["seconds"]))


def _weights_of(ends: Ends, candidate: Candidate) -> Weights:
    if candidate.weights == "start":
        return ends["start"]
    return mixed(ends.get("random", ends["start"]), ends[candidate.weights], candidate.mixing)

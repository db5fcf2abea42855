"""Empirical risk minimisation as in DomainBed [1]_: its model, its update, and training runs.

Each step draws its images, their augmentation and the dropout from the seed of the run and its own
number. Accuracies are computed at every checkpoint.

References
----------
.. [1] Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", ICLR 2021.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import default_batch_size
from oodzoo.linear.heads.domainbed.protocol import (
    CHECKPOINT_EVERY,
    Hyperparameters,
    Record,
    hyperparameters,
    seed_hash,
)
from oodzoo.tuning.averages import Facts, FinishedRuns, Tensors
from oodzoo.tuning.images import augmented, prefetched
from oodzoo.tuning.network import Network, Weights
from oodzoo.tuning.problem import Problem, Rows
from oodzoo.tuning.training import Events, find_batch_size

Tensor = Any  # torch.Tensor; torch is imported when a network is


class Erm:
    """A network that is trained as by DomainBed's algorithm ERM.

    The features pass through dropout to a linear classifier. All weights are trained, with Adam
    and an L2 penalty. Batch norms keep their statistics, as in DomainBed; their scales and shifts
    are trained. Other layers that behave differently in training do so.

    Parameters
    ----------
    network : Network
        With the weights to start from.
    hyperparameters : Hyperparameters
    """

    def __init__(self, network: Network, hyperparameters: Hyperparameters) -> None:
        torch: Any = import_module("torch")
        self._network = network
        self._dropout = torch.nn.Dropout(hyperparameters.dropout)
        self._optimiser = torch.optim.Adam(
            network.parts.parameters(),
            lr=hyperparameters.lr,
            weight_decay=hyperparameters.weight_decay,
        )

    def outputs(self, batch: Tensor) -> Tensor:
        """Outputs (n, C) for images (n, 3, height, width) with values from 0 to 1."""
        return self._network.parts["head"](self._dropout(self._network.features(batch)))

    def train(self) -> None:
        """Enter training mode; batch norms stay as they are in inference."""
        torch: Any = import_module("torch")
        self._network.parts.train()
        self._dropout.train()
        for layer in self._network.parts.modules():
            if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
                layer.eval()

    def eval(self) -> None:
        """Enter inference mode."""
        self._network.parts.eval()
        self._dropout.eval()

    def gradients(
        self, minibatches: Sequence[tuple[Tensor, Tensor]], images_per_pass: int | None = None
    ) -> Tensor:
        """Compute the gradients of the mean loss; return the loss, still on the device."""
        torch: Any = import_module("torch")
        images = torch.cat([x for x, _ in minibatches])
        labels = torch.cat([y for _, y in minibatches])
        size = images_per_pass or len(images)
        self._optimiser.zero_grad()
        total: Any = 0.0
        for x, y in zip(images.split(size), labels.split(size), strict=True):
            loss = torch.nn.functional.cross_entropy(self.outputs(x), y) * (len(x) / len(images))
            loss.backward()
            total = total + loss.detach()
        return total

    def step(self) -> None:
        """Update the weights with the gradients."""
        self._optimiser.step()


def erm_update(
    erm: Erm,
    minibatches: Sequence[tuple[Tensor, Tensor]],
    images_per_pass: int | None = None,
) -> Tensor:
    """Make one update, as DomainBed's ERM: a step of Adam on the mean loss of all minibatches.

    Parameters
    ----------
    erm : Erm
        In training mode.
    minibatches : sequence of (images, labels)
        One for each training domain, in their order.
    images_per_pass : int, optional
        Divide the images into several passes, to save memory; the gradients are those of one pass.

    Returns
    -------
    Tensor
        The loss before the update, still on the device.
    """
    loss = erm.gradients(minibatches, images_per_pass)
    erm.step()
    return loss


# --- runs -----------------------------------------------------------------------------------------


class ErmKey(NamedTuple):
    """A run: the numbers of the domains left out, trial, draw, and number of steps."""

    left_out: tuple[int, ...]
    trial: int
    draw: int
    steps: int


@dataclass(frozen=True)
class ErmRun:
    """A finished run.

    Attributes
    ----------
    records : list of Record
        Accuracies at each checkpoint.
    outputs : dict
        Log-probabilities (checkpoints, n, C) of all images of each domain left out, by its number.
    seconds : float
        Time of the training, without that of the accuracies.
    """

    records: list[Record]
    outputs: dict[int, NDArray[np.float32]]
    seconds: float

    def position(self, step: int) -> int:
        """Position of the checkpoint after a step."""
        return [record.step for record in self.records].index(step)


class ErmRuns(FinishedRuns[ErmKey, ErmRun]):
    """Does runs, one at a time, and keeps their results.

    Parameters
    ----------
    network : Network
        With the weights of the pre-trained model.
    problem : Problem
    search_space : {"default", "DomainNet"}
    seed : int
    folder : path, optional
        Where results are kept.
    identity : str
        Identifies network, images and settings. A folder with another identity is an error.
    """

    def __init__(
        self,
        network: Network,
        problem: Problem,
        search_space: str,
        seed: int,
        folder: Path | None,
        identity: str,
    ) -> None:
        super().__init__(folder, identity)
        self.network = network
        self._problem = problem
        self._search_space = search_space
        self._seed = seed
        self._pretrained = network.weights()

    def do(self, key: ErmKey, events: Events, keep: Callable[[Record], bool]) -> ErmRun:
        """Train from the pre-trained model and a new classifier.

        Parameters
        ----------
        key : ErmKey
        events : Events
        keep : callable
            Called with the record of each checkpoint: whether to keep the weights of this one. The
            last ones kept replace those before.
        """
        chosen = hyperparameters(key.draw, key.trial, self._search_space)
        records: list[Record] = []
        outputs: dict[int, list[NDArray[np.float32]]] = {domain: [] for domain in key.left_out}
        kept: Weights | None = None
        seconds = 0.0
        for erm, step, here in self._steps(key, chosen, events):
            seconds += here
            record, found = self._evaluated(erm, key, step, chosen)
            records.append(record)
            for domain, each in found.items():
                outputs[domain].append(each)
            if keep(record):
                kept = {name: each.cpu() for name, each in self.network.weights().items()}
        run = ErmRun(records, {d: np.stack(each) for d, each in outputs.items()}, seconds)
        self.keep(key, run, kept)
        return run

    def seconds_per_step(self, key: ErmKey) -> float:
        """Time a step of a run: the second one."""
        chosen = hyperparameters(key.draw, key.trial, self._search_space)
        *_, (_, _, seconds) = self._steps(key._replace(steps=2), chosen, Events(), every=1)
        return seconds

    def _steps(
        self, key: ErmKey, chosen: Hyperparameters, events: Events, every: int | None = None
    ) -> Iterator[tuple[Erm, int, float]]:
        """Train; yield the model, the step and the seconds since then at each checkpoint.

        The model is in inference mode.
        """
        torch: Any = import_module("torch")
        every = every or CHECKPOINT_EVERY[self._search_space]
        seed = self._run_seed(key)
        training, size = self._training(key), chosen.batch_size
        with self._reproducible():
            self._start(seed)
            erm = Erm(self.network, chosen)
            erm.train()
            images_per_pass = self._images_per_pass(erm, training, size)
            losses: list[Any] = []
            begun = time.perf_counter()
            for step, (rows, pixels) in enumerate(
                prefetched(lambda step: self._drawn(training, size, seed, step), range(key.steps))
            ):
                batch = augmented(self.network.images(pixels), seed_hash(seed, step, "colours"))
                labels = self._labels(rows)
                minibatches = zip(batch.split(size), labels.split(size), strict=True)
                torch.manual_seed(seed_hash(seed, step, "dropout"))
                losses.append(erm_update(erm, list(minibatches), images_per_pass))
                events.step()
                if step % every and step < key.steps - 1:
                    continue
                events.metric("loss", float(torch.stack(losses).mean()), step)
                seconds = time.perf_counter() - begun
                erm.eval()
                yield erm, step, seconds
                erm.train()
                losses, begun = [], time.perf_counter()
            erm.eval()

    def _evaluated(
        self, erm: Erm, key: ErmKey, step: int, chosen: Hyperparameters
    ) -> tuple[Record, dict[int, NDArray[np.float32]]]:
        """Accuracies on both splits of all domains, and outputs for those left out.

        As in DomainBed, the images of training domains are augmented here, too.
        """
        seed = self._run_seed(key)
        inside, outside, outputs = {}, {}, {}
        for domain, name in enumerate(self._problem.domains):
            splits = self._problem.split(name, key.trial)
            if domain in key.left_out:
                rows = self._problem.rows(name)
                outputs[domain] = self._outputs(erm, rows)
                right = self._problem.labels[rows] == outputs[domain].argmax(axis=1)
                both = [right[np.isin(rows, part)] for part in splits]
            else:
                both = [
                    self._problem.labels[part]
                    == self._outputs(erm, part, seed_hash(seed, step, domain, at)).argmax(axis=1)
                    for at, part in enumerate(splits)
                ]
            inside[domain], outside[domain] = (float(each.mean()) for each in both)
        run = (key.left_out, key.trial, key.draw, step, chosen)
        return Record(*run, inside, outside), outputs

    def _outputs(self, erm: Erm, rows: Rows, seed: int | None = None) -> NDArray[np.float32]:
        """Log-probabilities (n, C) of images; augmented with this seed, if there is one."""
        torch: Any = import_module("torch")
        size = default_batch_size(self.network.device.type)
        images, parts = self._problem.images, []

        def pixels(top: int) -> NDArray[np.uint8]:
            here = rows[top : top + size]
            return images.prepared(here) if seed is None else images.cropped(here, seed + top)

        tops = range(0, len(rows), size)
        with torch.inference_mode():
            for top, found in zip(tops, prefetched(pixels, tops), strict=True):
                batch = self.network.images(found)
                if seed is not None:
                    batch = augmented(batch, seed + top)
                parts.append(erm.outputs(batch).log_softmax(1).cpu().numpy())
        return np.concatenate(parts)

    def _training(self, key: ErmKey) -> list[Rows]:
        """Rows of the training images of each training domain."""
        return [
            self._problem.split(name, key.trial)[0]
            for domain, name in enumerate(self._problem.domains)
            if domain not in key.left_out
        ]

    def _drawn(
        self, training: list[Rows], size: int, seed: int, step: int
    ) -> tuple[Rows, NDArray[np.uint8]]:
        """Draw a minibatch of each training domain, with replacement, and crop the images."""
        rng = np.random.default_rng(seed_hash(seed, step, "images"))
        rows = np.concatenate([rng.choice(each, size) for each in training])
        return rows, self._problem.images.cropped(rows, seed_hash(seed, step, "crops"))

    def _labels(self, rows: Rows) -> Any:
        torch: Any = import_module("torch")
        return torch.from_numpy(self._problem.labels[rows]).to(self.network.device)

    def _run_seed(self, key: ErmKey) -> int:
        """As in DomainBed, it depends on everything but the number of steps."""
        return seed_hash(self._seed, "ERM", list(key.left_out), key.draw, key.trial)

    def _start(self, seed: int) -> None:
        """Load the weights of the pre-trained model, and a new classifier."""
        torch: Any = import_module("torch")
        self.network.load(self._pretrained)
        torch.manual_seed(seed)
        head = self.network.parts["head"]
        fresh = torch.nn.Linear(head.in_features, head.out_features)
        self.network.load({f"head.{name}": each for name, each in fresh.named_parameters()})

    def _images_per_pass(self, erm: Erm, training: list[Rows], batch_size: int) -> int:
        torch: Any = import_module("torch")
        row = training[0][:1]
        pixels = self._problem.images.prepared(row)
        moments = 2 * sum(each.numel() for each in self.network.parts.parameters())

        def attempt(n: int) -> None:
            _reserved = torch.empty(moments, device=self.network.device)  # Adam will need it
            images = self.network.images(np.repeat(pixels, n, axis=0))
            erm.gradients([(images, self._labels(np.repeat(row, n)))])

        return find_batch_size(attempt, len(training) * batch_size, self.network.device)

    @contextmanager
    def _reproducible(self) -> Iterator[None]:
        """Deterministic algorithms, as in DomainBed; the random state is restored."""
        torch: Any = import_module("torch")
        devices = [self.network.device] if self.network.device.type == "cuda" else []
        with (
            torch.random.fork_rng(devices=devices),
            torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True),
        ):
            yield

    def _to_tensors(self, run: ErmRun) -> tuple[Tensors, Facts]:
        torch: Any = import_module("torch")
        tensors = {str(domain): torch.from_numpy(each) for domain, each in run.outputs.items()}
        records = json.dumps([asdict(record) for record in run.records])
        return tensors, {"records": records, "seconds": repr(run.seconds)}

    def _from_tensors(self, tensors: Tensors, facts: Facts) -> ErmRun:
        records = [
            Record(
                **each
                | {
                    "test_domains": tuple(each["test_domains"]),
                    "hyperparameters": Hyperparameters(**each["hyperparameters"]),
                    "inside": {int(domain): value for domain, value in each["inside"].items()},
                    "outside": {int(domain): value for domain, value in each["outside"].items()},
                }
            )
            for each in json.loads(facts["records"])
        ]
        outputs = {int(domain): each.numpy() for domain, each in tensors.items()}
        return ErmRun(records, outputs, float(facts["seconds"]))

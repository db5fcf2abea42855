"""One training run: updates, averages of weights along its path, checkpoints.

Each step draws its images, their augmentation and the dropout from the seed and its own number, so
that a run that continues from a checkpoint takes the same steps as one that was never stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.core.io import remove_temporaries
from oodzoo.linear.heads.domainbed.protocol import seed_hash
from oodzoo.tuning.averages import LossValley, RunningMean
from oodzoo.tuning.images import DeviceImages, ahead_of_time, augmented, prefetched, to_device
from oodzoo.tuning.network import HeadedNetwork, Weights, find_batch_size, loss
from oodzoo.tuning.problem import Rows, TuningData
from oodzoo.tuning.runs import CHECKPOINT, Parts, read_tensors, write_tensors

Tensor = Any  # torch.Tensor; torch is imported when a network is

EVALUATIONS = 20
"""Number of segments of a run; after each of them, the held-out images are classified."""

CHECKPOINT_SECONDS = 30.0
"""Least time between two checkpoints."""


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    Attributes
    ----------
    optimiser : callable
        Makes an optimiser of parameters.
    rate : callable
        Learning rate of each step.
    steps : int
    batch_size : int
        Images of each domain in a step.
    seed : int
        Of the images, their augmentation and the dropout.
    augment : bool
    as_domainbed : bool
        Compute in float32 with deterministic algorithms. Layers behave as in training, with dropout
        of the features; batch norms keep their statistics. By default, all layers behave as in
        inference.
    dropout : float
    """

    optimiser: Callable[[list[Tensor]], Any]
    rate: Callable[[int], float]
    steps: int
    batch_size: int
    seed: int
    augment: bool = True
    as_domainbed: bool = False
    dropout: float = 0.0


@dataclass(frozen=True)
class RunEvents:
    """What a run reports: every step; and the loss in each segment, by name."""

    step: Callable[[], None] = lambda: None
    metric: Callable[[str, float, int], None] = lambda name, value, step: None


class Trainer:
    """Trains a network, from the weights that it has.

    Parameters
    ----------
    network : HeadedNetwork
    data : TuningData
    training : sequence of arrays
        Rows of the training images, one array for each domain.
    recipe : Recipe
    """

    def __init__(
        self,
        network: HeadedNetwork,
        data: TuningData,
        training: Sequence[Rows],
        recipe: Recipe,
    ) -> None:
        import torch

        self.network = network
        self.recipe = recipe
        self.images_per_pass = 0
        self._data = data
        self._training = training
        labels = torch.from_numpy(data.labels)
        labels = labels if data.task.one_class else labels.float()
        self._labels = labels.to(network.device)  # some devices have no float64
        self._scale: Any = None
        if not data.task.has_probabilities:
            std = data.labels[np.concatenate(training)].std(axis=0)
            scale = np.where(std > 0, std, 1).astype(np.float32)
            self._scale = torch.from_numpy(scale).to(network.device)
        network.parts["dropout"].p = recipe.dropout
        self._optimiser = recipe.optimiser(
            [each for each in network.parts.parameters() if each.requires_grad]
        )
        self._on_device: DeviceImages | None = None
        if recipe.augment and not recipe.as_domainbed:
            rows = np.concatenate(training)
            self._on_device = DeviceImages.if_they_fit(data.images, rows, network.device)

    def steps(self, first: int = 0) -> Iterator[tuple[int, Tensor]]:
        """Take the steps; yield the number of each and the loss before it, still on the device."""
        with self._as_domainbed() if self.recipe.as_domainbed else nullcontext():
            self.find_images_per_pass()
            numbers = range(first, self.recipe.steps)
            for step, batch in zip(numbers, self._batches(numbers), strict=True):
                yield step, self._step(step, batch)

    def seconds_per_step(self) -> float:
        """Time a step; the second, if the first was quick. The weights change."""
        self.find_images_per_pass()
        begun = time.perf_counter()
        for step, _ in self.steps():
            self.synchronise()
            seconds = time.perf_counter() - begun
            if step or seconds > 1:
                break
            begun = time.perf_counter()
        return seconds

    def mean_loss(self, rows: Rows) -> float:
        """Mean loss of other images; those of classes that are not trained do not count."""
        import torch

        if self._data.task.one_class:  # a class that is not learnt has an infinite loss
            learnt = np.unique(self._data.labels[np.concatenate(self._training)])
            rows = rows[np.isin(self._data.labels[rows], learnt)]
        total: Any = 0.0
        with torch.inference_mode():
            for top in range(0, len(rows), self.images_per_pass):
                here = rows[top : top + self.images_per_pass]
                batch = self.network.images(self._data.images.prepared(here))
                total = total + self._loss(batch, self._labels[here], len(rows))
        return float(total)

    def find_images_per_pass(self) -> None:
        """Find how many images fit into memory in a forward and a backward pass."""
        if self.images_per_pass:
            return
        row = self._training[0][:1]
        pixels = self._data.images.prepared(row)
        reserved = 2 * sum(each.numel() for each in self.network.parts.parameters())

        def attempt(n: int) -> None:
            import torch

            if self.recipe.as_domainbed:
                self.network.train()
                _reserved = torch.empty(reserved, device=self.network.device)  # Adam will need it
            self.images_per_pass = n
            batch = self.network.images(np.repeat(pixels, n, axis=0))
            self._gradients(batch, self._labels[np.repeat(row, n)])

        wanted = self.recipe.batch_size * len(self._training)
        self.images_per_pass = find_batch_size(attempt, wanted, self.network.device)
        self._optimiser.zero_grad()

    def synchronise(self) -> None:
        """Wait for the device."""
        if self.network.device.type == "cuda":
            import torch

            torch.cuda.synchronize(self.network.device)

    def _rows(self, step: int) -> Rows:
        """Draw the images of a step: as many of each domain, with replacement."""
        rng = np.random.default_rng(self._seed(step, "images"))
        drawn = [rng.choice(rows, self.recipe.batch_size) for rows in self._training]
        return np.concatenate(drawn)

    def _batches(self, steps: Sequence[int]) -> Iterator[Tensor]:
        """The images of each step, with values from 0 to 1, on the device."""
        if self._on_device is not None:
            yield from ahead_of_time(self._made_on_device, steps, self.network.device)
            return
        for step, pixels in zip(steps, prefetched(self._pixels, steps), strict=True):
            batch = self.network.images(pixels)
            if self.recipe.augment:
                batch = augmented(batch, self._seed(step, "colours"))
            yield batch

    def _made_on_device(self, step: int) -> Tensor:
        assert self._on_device is not None
        batch = self._on_device.cropped(self._rows(step), self._seed(step, "crops"))
        return augmented(batch, self._seed(step, "colours"))

    def _pixels(self, step: int) -> Any:
        rows, images = self._rows(step), self._data.images
        if not self.recipe.augment:
            return images.prepared(rows)
        return images.cropped(rows, self._seed(step, "crops"))

    def _seed(self, step: int, what: str) -> int:
        return seed_hash(self.recipe.seed, step, what)

    def _step(self, step: int, batch: Tensor) -> Tensor:
        """Update the weights once; return the loss before, still on the device."""
        import torch

        labels = self._labels[to_device(self._rows(step), self.network.device)]
        for group in self._optimiser.param_groups:
            group["lr"] = self.recipe.rate(step)
        if self.recipe.as_domainbed:
            if not self.network.parts.training:  # at the start, and after predictions
                self.network.train()
            torch.manual_seed(self._seed(step, "dropout"))
        while True:
            try:
                total = self._gradients(batch, labels)
                break
            except RuntimeError as error:
                self._halve(error)
        self._optimiser.step()
        return total

    def _gradients(self, batch: Tensor, labels: Tensor) -> Tensor:
        """Compute the gradients of the mean loss, in several passes if memory is short."""
        self._optimiser.zero_grad()
        total: Any = 0.0
        for top in range(0, len(batch), self.images_per_pass):
            here = slice(top, top + self.images_per_pass)
            value = self._loss(batch[here], labels[here], len(batch))
            value.backward()
            total = total + value.detach()
        return total

    def _loss(self, batch: Tensor, labels: Tensor, n: int) -> Tensor:
        """The share of some images in the mean loss of n."""
        import torch

        cast: AbstractContextManager[Any] = nullcontext()
        if self.network.precision != torch.float32 and not self.recipe.as_domainbed:
            cast = torch.autocast(self.network.device.type, self.network.precision)
        with cast:
            outputs = self.network.outputs(batch)
        return loss(self._data.task, outputs, labels, self._scale) * (len(batch) / n)

    def _halve(self, error: RuntimeError) -> None:
        """After an error for lack of memory, divide the passes; raise any other error."""
        import torch

        if not isinstance(error, torch.cuda.OutOfMemoryError):
            raise error
        if self.images_per_pass == 1:
            raise InputError(
                "out of memory: the network and one image do not fit on "
                f"{self.network.device}; free memory there, train adapters only (--lora 8), or "
                "choose a smaller model"
            ) from error
        self.images_per_pass = -(-self.images_per_pass // 2)
        torch.cuda.empty_cache()

    @contextmanager
    def _as_domainbed(self) -> Iterator[None]:
        """Deterministic algorithms; the random state is restored, and layers as in inference."""
        import torch

        devices = [self.network.device] if self.network.device.type == "cuda" else []
        with (
            torch.random.fork_rng(devices=devices),
            torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True),
        ):
            try:
                yield
            finally:
                self.network.parts.eval()

    # --- checkpoints ---------------------------------------------------------------------------

    def state(self) -> Parts:
        """The trained weights, and AdamW's moments."""
        named = [n for n, each in self.network.parts.named_parameters() if each.requires_grad]
        state = self._optimiser.state_dict()["state"]
        moments = {
            f"{kind}.{name}": state[number][kind]
            for number, name in enumerate(named)
            if number in state  # not that of weights that the outputs do not depend on
            for kind in ("exp_avg", "exp_avg_sq")
        }
        return {"weights": self.network.trained(), "moments": moments}

    def restore(self, state: Parts, step: int) -> None:
        """Continue from the result of `state` before a step."""
        import torch

        self.network.load(state["weights"])
        # AdamW counts its steps on the device if its kernels are fused
        counted_on = self.network.device if self.network.device.type == "cuda" else "cpu"
        for name, parameter in self.network.parts.named_parameters():
            if f"exp_avg.{name}" not in state["moments"]:
                continue
            # in the memory format of the weights, which fused kernels demand
            moments = {kind: torch.zeros_like(parameter) for kind in ("exp_avg", "exp_avg_sq")}
            for kind, each in moments.items():
                each.copy_(state["moments"][f"{kind}.{name}"])
            count = torch.tensor(float(step), device=counted_on)
            self._optimiser.state[parameter] = {"step": count, **moments}


# --- a run with averages along its path -----------------------------------------------------------


@dataclass(frozen=True)
class Trajectory:
    """Where a training run led.

    Attributes
    ----------
    last : dict of str to Tensor
        Weights after the last step.
    average : RunningMean
        SWAD's average along the path.
    seconds : float
        Time of all steps, without that of a run before it that was stopped.
    """

    last: Weights
    average: RunningMean
    seconds: float


def train_and_average(
    trainer: Trainer,
    held_out: Rows,
    folder: Path | None = None,
    events: RunEvents | None = None,
) -> Trajectory:
    """Take all steps, and average the weights where the loss of held-out images is low.

    Parameters
    ----------
    trainer : Trainer
    held_out : array
        Rows of the images whose loss guides the average.
    folder : path, optional
        Continue from the checkpoint in it, and write there.
    events : RunEvents, optional
    """
    events, valley, first = events or RunEvents(), LossValley(), 0
    network, steps = trainer.network, trainer.recipe.steps
    every = segment_steps(steps)
    file = None if folder is None else folder / CHECKPOINT
    if folder is not None:
        remove_temporaries(folder)
    if file is not None and (found := read_tensors(file)) is not None:
        parts, facts = found
        first, trainer.images_per_pass = facts["step"], facts["images_per_pass"]
        trainer.restore(parts, first)
        valley.restore(parts["valley"], network.device)
        for _ in range(first):
            events.step()
    trainer.find_images_per_pass()
    mean, saved = RunningMean(), time.monotonic()
    total: Any = 0.0
    begun = time.perf_counter()
    for step, value in trainer.steps(first):
        total = total + value
        mean.add(network.trained(), step, step)
        events.step()
        if (step + 1) % every and step + 1 < steps:
            continue
        validation = trainer.mean_loss(held_out)
        valley.add(mean, validation)
        events.metric("loss", float(total) / mean.count, step)
        events.metric("validation_loss", validation, step)
        mean, total = RunningMean(), 0.0
        due = time.monotonic() - saved >= CHECKPOINT_SECONDS
        if file is not None and due and step + 1 < steps:
            facts = {"step": step + 1, "images_per_pass": trainer.images_per_pass}
            write_tensors(file, trainer.state() | {"valley": valley.state()}, facts)
            saved = time.monotonic()
    average = valley.result()
    trainer.synchronise()
    seconds = time.perf_counter() - begun
    last = {name: each.clone() for name, each in network.trained().items()}
    return Trajectory(last, average, seconds)


def segment_steps(steps: int) -> int:
    """Number of steps between two validations of a run."""
    return max(1, steps // EVALUATIONS)

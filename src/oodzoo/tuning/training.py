"""One training run: AdamW, averages along its path, checkpoints, batches that fit into memory.

Each step draws its images and their augmentation from the seed and its own number, so that a run
that continues from a checkpoint takes the same steps as one that was never stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from oodzoo.core.backend import available_memory
from oodzoo.core.errors import InputError
from oodzoo.core.text import file_size
from oodzoo.linear.heads.domainbed.protocol import seed_hash
from oodzoo.tuning.averages import (
    Checkpoint,
    LossValley,
    RunningMean,
    read_checkpoint,
    write_checkpoint,
)
from oodzoo.tuning.images import DeviceImages, ahead_of_time, augmented, prefetched, to_device
from oodzoo.tuning.network import Network, Weights, loss
from oodzoo.tuning.problem import Problem, Rows, TuneSettings

RESERVE = 0.5
"""Share of the free main memory for what a pass needs beside the tensors saved for its backward
part: their gradients, and buffers of the operators."""

Step = Callable[[int], None]
"""Runs a forward and a backward pass for this number of images."""


def find_batch_size(step: Step, wanted: int, device: Any) -> int:
    """Return the largest number of images per pass that fits: `wanted`, its half, its quarter, ….

    On CUDA, passes are tried. Elsewhere, the bytes that autograd saves for each image are measured
    and compared with the free main memory, since a process that takes more may be killed.

    Parameters
    ----------
    step : callable
        Runs a forward and a backward pass for a number of images.
    wanted : int
    device : str or torch.device
        The device on which `step` computes.

    Raises
    ------
    InputError
        If not even one image fits.
    """
    torch: Any = import_module("torch")
    device = torch.device(device)
    on_cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_cuda else []):
        fits = _fits_on_cuda(step, device) if on_cuda else _fits_in_main_memory(step, wanted)
        size = wanted
        while not fits(size):
            size = max(1, size // 2)
        return size


def _fits_on_cuda(step: Step, device: Any) -> Callable[[int], bool]:
    torch: Any = import_module("torch")

    def fits(size: int) -> bool:
        torch.cuda.reset_peak_memory_stats(device)
        try:
            step(size)
            torch.cuda.synchronize(device)
            return True
        except torch.cuda.OutOfMemoryError:
            pass
        # after the exception, whose traceback keeps the tensors of the pass
        used = torch.cuda.max_memory_allocated(device)
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(device)
        if size == 1:
            raise InputError(
                f"training does not fit on {device} even with one image at a time: it needs more "
                f"than {file_size(used)}, {file_size(free)} of {file_size(total)} are free; use a "
                "smaller model, adapters of low rank, or another device"
            )
        return False

    return fits


def _fits_in_main_memory(step: Step, wanted: int) -> Callable[[int], bool]:
    one = _saved_bytes(step, 1)
    # Weights and what else does not depend on the number of images cancel out.
    each = _saved_bytes(step, 2) - one if wanted > 1 else one
    free = available_memory()

    def fits(size: int) -> bool:
        needed = one + (size - 1) * each
        if needed <= (1 - RESERVE) * free:
            return True
        if size == 1:
            raise InputError(
                f"training does not fit into main memory even with one image at a time: it needs "
                f"about {file_size(int(needed / (1 - RESERVE)))}, {file_size(free)} are free; use "
                "a smaller model, adapters of low rank, or a GPU"
            )
        return False

    return fits


def _saved_bytes(step: Step, size: int) -> int:
    """Bytes of all tensors that autograd saves in a pass."""
    graph: Any = import_module("torch.autograd.graph")
    storages: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        step(size)
    return sum(storages.values())


EVALUATIONS = 20
"""Number of segments of a run; after each of them, the held-out images are classified."""

CHECKPOINT_SECONDS = 30.0
"""Least time between two checkpoints."""


@dataclass(frozen=True)
class Trajectory:
    """Where a training run led.

    Attributes
    ----------
    last : dict of str to Tensor
        Weights after the last step.
    average : dict of str to Tensor
        SWAD's average along the path.
    window : tuple of int
        First and last step of the average.
    seconds : float
        Time of all steps, without that of a run before it that was stopped.
    """

    last: Weights
    average: Weights
    window: tuple[int, int]
    seconds: float


@dataclass(frozen=True)
class Events:
    """What a run reports: every step; and the loss in each segment, by name."""

    step: Callable[[], None] = lambda: None
    metric: Callable[[str, float, int], None] = lambda name, value, step: None


class Training:
    """Trains a network on some images and validates it on others.

    Parameters
    ----------
    network : Network
        With the weights to start from.
    problem : Problem
    training : sequence of arrays
        Rows of the training images, one array for each domain.
    held_out : array
        Rows of the images whose loss guides the average; those of classes that are not among the
        training images do not count.
    settings : TuneSettings
    learning_rate : float
    """

    def __init__(
        self,
        network: Network,
        problem: Problem,
        training: Sequence[Rows],
        held_out: Rows,
        settings: TuneSettings,
        learning_rate: float,
    ) -> None:
        import torch

        self.network = network
        self._problem = problem
        self._training = training
        self._held_out = held_out
        if problem.task.one_class:  # a class that is not learnt has an infinite loss
            learnt = np.unique(problem.labels[np.concatenate(training)])
            self._held_out = held_out[np.isin(problem.labels[held_out], learnt)]
        self._settings = settings
        self._rate = learning_rate
        labels = torch.from_numpy(problem.labels)
        labels = labels if problem.task.one_class else labels.float()
        self._labels = labels.to(network.device)  # some devices have no float64
        self._scale: Any = None
        if not problem.task.has_probabilities:
            std = problem.labels[np.concatenate(training)].std(axis=0)
            scale = np.where(std > 0, std, 1).astype(np.float32)
            self._scale = torch.from_numpy(scale).to(network.device)
        parameters = [each for each in network.parts.parameters() if each.requires_grad]
        self._optimiser = torch.optim.AdamW(
            parameters,
            lr=learning_rate,
            weight_decay=settings.weight_decay,
            fused=network.device.type == "cuda",
        )
        self._images_per_pass = 0
        self._on_device: DeviceImages | None = None
        if settings.augment:
            rows = np.concatenate(training)
            self._on_device = DeviceImages.if_they_fit(problem.images, rows, network.device)

    def run(self, folder: Path | None = None, events: Events | None = None) -> Trajectory:
        """Take all steps; with a folder, continue from the checkpoint in it, and write there."""
        events = events or Events()
        steps, every = self._settings.steps, self.segment
        valley = LossValley()
        first = self._restore(folder, valley, events)
        self._find_images_per_pass()
        mean, saved = RunningMean(), time.monotonic()
        total: Any = 0.0
        begun = time.perf_counter()
        for step, batch in zip(range(first, steps), self._batches(first), strict=True):
            total = total + self._step(step, batch)
            mean.add(self.network.trained())
            events.step()
            if (step + 1) % every and step + 1 < steps:
                continue
            validation = self._validate()
            valley.add(mean.weights, validation, step + 1 - mean.count, step)
            events.metric("loss", float(total) / mean.count, step)
            events.metric("validation_loss", validation, step)
            mean, total = RunningMean(), 0.0
            due = time.monotonic() - saved >= CHECKPOINT_SECONDS
            if folder is not None and due and step + 1 < steps:
                self._save(folder, valley, step + 1)
                saved = time.monotonic()
        average, start, end = valley.result()
        self._synchronise()
        seconds = time.perf_counter() - begun
        last = {name: each.clone() for name, each in self.network.trained().items()}
        return Trajectory(last, average, (start, end), seconds)

    @property
    def segment(self) -> int:
        """Number of steps between two validations."""
        return max(1, self._settings.steps // EVALUATIONS)

    def seconds_per_step(self) -> float:
        """Time a step; the second, if the first was quick. The weights change."""
        self._find_images_per_pass()
        batches = self._batches(0)
        for number in range(min(2, self._settings.steps)):
            begun = time.perf_counter()
            self._step(number, next(batches))
            self._synchronise()
            seconds = time.perf_counter() - begun
            if seconds > 1:
                break
        return seconds

    def _rows(self, step: int) -> Rows:
        """Draw the images of a step: as many of each domain, with replacement."""
        rng = np.random.default_rng(self._seed(step, "images"))
        drawn = [rng.choice(rows, self._settings.batch_size) for rows in self._training]
        return np.concatenate(drawn)

    def _batches(self, first: int) -> Iterator[Any]:
        """The images of each step, with values from 0 to 1, on the device."""
        steps = range(first, self._settings.steps)
        if self._on_device is not None:
            yield from ahead_of_time(self._made_on_device, steps, self.network.device)
            return
        for step, pixels in zip(steps, prefetched(self._pixels, steps), strict=True):
            batch = self.network.images(pixels)
            if self._settings.augment:
                batch = augmented(batch, self._seed(step, "colours"))
            yield batch

    def _made_on_device(self, step: int) -> Any:
        assert self._on_device is not None
        batch = self._on_device.cropped(self._rows(step), self._seed(step, "crops"))
        return augmented(batch, self._seed(step, "colours"))

    def _pixels(self, step: int) -> Any:
        rows, images = self._rows(step), self._problem.images
        if not self._settings.augment:
            return images.prepared(rows)
        return images.cropped(rows, self._seed(step, "crops"))

    def _seed(self, step: int, what: str) -> int:
        return seed_hash(self._settings.seed, step, what)

    def _step(self, step: int, batch: Any) -> Any:
        """Update the weights once; return the loss before, still on the device."""
        labels = self._labels[to_device(self._rows(step), self.network.device)]
        for group in self._optimiser.param_groups:
            group["lr"] = self._settings.rate(self._rate, step)
        while True:
            try:
                total = self._gradients(batch, labels)
                break
            except RuntimeError as error:
                self._halve(error)
        self._optimiser.step()
        return total

    def _gradients(self, batch: Any, labels: Any) -> Any:
        """Compute the gradients of the mean loss, in several passes if memory is short."""
        self._optimiser.zero_grad()
        total: Any = 0.0
        for top in range(0, len(batch), self._images_per_pass):
            part = batch[top : top + self._images_per_pass]
            with self._autocast():
                outputs = self.network.outputs(part)
            here = labels[top : top + self._images_per_pass]
            value = loss(self._problem.task, outputs, here, self._scale)
            value = value * (len(part) / len(batch))
            value.backward()
            total = total + value.detach()
        return total

    def _halve(self, error: RuntimeError) -> None:
        """After an error for lack of memory, divide the passes; raise any other error."""
        import torch

        if not isinstance(error, torch.cuda.OutOfMemoryError):
            raise error
        if self._images_per_pass == 1:
            raise InputError(
                "out of memory: the network and one image do not fit on "
                f"{self.network.device}; free memory there, train adapters only (--lora 8), or "
                "choose a smaller model"
            ) from error
        self._images_per_pass = -(-self._images_per_pass // 2)
        torch.cuda.empty_cache()

    def _find_images_per_pass(self) -> None:
        if self._images_per_pass:
            return
        wanted = self._settings.batch_size * len(self._training)
        pixels = self._problem.images.prepared(self._training[0][:1])

        def attempt(n: int) -> None:
            self._images_per_pass = n
            batch = self.network.images(np.repeat(pixels, n, axis=0))
            self._gradients(batch, self._labels[np.repeat(self._training[0][:1], n)])

        self._images_per_pass = find_batch_size(attempt, wanted, self.network.device)
        self._optimiser.zero_grad()

    def _validate(self) -> float:
        """Loss of the held-out images."""
        import torch

        total: Any = 0.0
        with torch.inference_mode():
            for top in range(0, len(self._held_out), self._images_per_pass):
                rows = self._held_out[top : top + self._images_per_pass]
                batch = self.network.images(self._problem.images.prepared(rows))
                with self._autocast():
                    outputs = self.network.outputs(batch)
                here = self._labels[rows]
                value = loss(self._problem.task, outputs, here, self._scale)
                total = total + value * (len(rows) / len(self._held_out))
        return float(total)

    def _autocast(self) -> AbstractContextManager[Any]:
        import torch

        if self.network.precision == torch.float32:
            return nullcontext()
        cast: AbstractContextManager[Any] = torch.autocast(
            self.network.device.type, self.network.precision
        )
        return cast

    def _synchronise(self) -> None:
        if self.network.device.type == "cuda":
            import torch

            torch.cuda.synchronize(self.network.device)

    # --- checkpoints ---------------------------------------------------------------------------

    def _save(self, folder: Path, valley: LossValley, step: int) -> None:
        named = [n for n, each in self.network.parts.named_parameters() if each.requires_grad]
        state = self._optimiser.state_dict()["state"]
        moments = {
            f"{kind}.{name}": state[number][kind]
            for number, name in enumerate(named)
            if number in state  # not that of weights that the outputs do not depend on
            for kind in ("exp_avg", "exp_avg_sq")
        }
        write_checkpoint(
            folder,
            Checkpoint(
                step,
                self._images_per_pass,
                self.network.trained(),
                moments,
                valley.state(),
            ),
        )

    def _restore(self, folder: Path | None, valley: LossValley, events: Events) -> int:
        """Continue from a checkpoint; return the number of the next step."""
        import torch

        found = None if folder is None else read_checkpoint(folder)
        if found is None:
            return 0
        self.network.load(found.weights)
        for name, parameter in self.network.parts.named_parameters():
            if f"exp_avg.{name}" not in found.moments:
                continue
            # in the memory format of the weights, which fused kernels demand
            moments = {kind: torch.zeros_like(parameter) for kind in ("exp_avg", "exp_avg_sq")}
            for kind, each in moments.items():
                each.copy_(found.moments[f"{kind}.{name}"])
            count = torch.tensor(float(found.step), device=self._step_device())
            self._optimiser.state[parameter] = {"step": count, **moments}
        device = self.network.device
        valley.restore(
            {k: each if k == "numbers" else each.to(device) for k, each in found.valley.items()}
        )
        self._images_per_pass = found.images_per_pass
        for _ in range(found.step):
            events.step()
        return found.step

    def _step_device(self) -> Any:
        """Where AdamW counts its steps: on the device if its kernels are fused."""
        return self.network.device if self.network.device.type == "cuda" else "cpu"

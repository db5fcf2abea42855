"""Averages of weights, running means, SWAD's valley [1]_; what fine-tuning keeps on disk.

Weights are dicts from names to tensors on any device. Integers among them, such as the number of
batches that a batch norm has counted, are not averaged: the newer value is taken.

References
----------
.. [1] Cha et al., "SWAD: Domain Generalization by Seeking Flat Minima", NeurIPS 2021.

Each is one safetensors file with a checksum, replaced as a whole. A damaged file counts as absent:
what it had is computed again.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from oodzoo.core.errors import InputError
from oodzoo.core.io import (
    explaining_disk_errors,
    is_temporary,
    json_bytes,
    remove_temporaries,
    write_bytes,
    write_json,
)
from oodzoo.store.format import sealed_bytes, unsealed_bytes

Tensor = Any  # torch.Tensor; torch is imported only when weights are computed
Weights = Mapping[str, Tensor]


def mixed(start: Weights, end: Weights, mixing: float) -> dict[str, Tensor]:
    """Interpolate between two sets of weights: (1 - mixing) start + mixing end.

    WiSE-FT [1]_ interpolates between the weights before and after fine-tuning.

    References
    ----------
    .. [1] Wortsman et al., "Robust fine-tuning of zero-shot models", CVPR 2022.
    """
    torch: Any = import_module("torch")
    _require_same_names(start, end)
    return {
        name: torch.lerp(start[name], value, mixing) if value.is_floating_point() else value
        for name, value in end.items()
    }


class RunningMean:
    """Mean of the weights added so far, of the same type and on the same device as these.

    Parameters
    ----------
    weights, count
        Mean of an earlier object and number of weights in it, to continue from; `weights` is
        changed in place.
    """

    def __init__(self, weights: dict[str, Tensor] | None = None, count: int = 0) -> None:
        self.weights: dict[str, Tensor] = {} if weights is None else weights
        """The mean; empty before the first weights are added."""
        self.count = count

    def add(self, weights: Weights) -> None:
        """Add weights, which are not kept."""
        torch: Any = import_module("torch")
        self.count += 1
        with torch.no_grad():
            if self.count == 1:
                self.weights = {name: value.detach().clone() for name, value in weights.items()}
                return
            _require_same_names(self.weights, weights)
            means, values = [], []
            for name, mean in self.weights.items():
                if mean.is_floating_point():
                    means.append(mean)
                    values.append(weights[name].detach())
                else:
                    mean.copy_(weights[name])
            # one call for all tensors: hundreds of small operations would delay each step
            torch._foreach_lerp_(means, values, 1 / self.count)

    def copy(self) -> RunningMean:
        """Return an independent copy."""
        weights = {name: value.clone() for name, value in self.weights.items()}
        return RunningMean(weights, self.count)


def _require_same_names(first: Weights, second: Weights) -> None:
    if first.keys() != second.keys():
        differing = sorted(first.keys() ^ second.keys())
        raise ValueError(f"weights have differing names: {', '.join(differing)}")


# --- SWAD -----------------------------------------------------------------------------------------


N_CONVERGE = 3
"""N_s in the paper."""
N_TOLERANCE = 6
"""N_e in the paper, greater than N_s."""
TOLERANCE_RATIO = 1.3
"""r in the paper; the authors' code calls r - 1 by this name."""


class Segment(NamedTuple):
    """Mean weights over some steps, and the validation loss after the last of them."""

    weights: dict[str, Tensor]
    loss: float
    start: int
    end: int


class _Average:
    """Mean of the segments included so far, with the first and the last step."""

    def __init__(self, mean: RunningMean, start: int = -1, end: int = -1) -> None:
        self.mean = mean
        self.start = start
        self.end = end

    def include(self, segment: Segment) -> None:
        if not self.mean.count:
            self.start = segment.start
        self.mean.add(segment.weights)
        self.end = segment.end


class LossValley:
    """Average of the weights over the valley of the validation loss, as in SWAD [1]_.

    The path of the training is divided into segments, each ending with a validation. The valley
    begins where the loss has not improved for `N_CONVERGE` segments. It ends where the losses of
    `N_TOLERANCE` consecutive segments all exceed `TOLERANCE_RATIO` times the mean loss of these
    `N_CONVERGE` segments. The result is the mean of the segments of the valley.

    This follows the authors' code, which differs from Algorithm 1 of the paper in two ways: low
    losses just before the valley also count as part of it, and segments around its beginning may
    be counted twice.

    References
    ----------
    .. [1] Cha et al., "SWAD: Domain Generalization by Seeking Flat Minima", NeurIPS 2021.
    """

    def __init__(self) -> None:
        self.dead = False
        """Whether the valley has ended; later segments are ignored."""
        self._recent: list[Segment] = []
        self._converged: int | None = None  # last step of the segment with the lowest loss
        self._threshold = math.inf
        self._average = _Average(RunningMean())

    def add(
        self, averages: dict[str, Tensor], validation_loss: float, start: int, end: int
    ) -> None:
        """Add the next segment of the path.

        Parameters
        ----------
        averages : dict
            Mean weights over the steps of the segment. They are kept, not copied.
        validation_loss : float
            Loss after the last step of the segment; NaN counts as infinite.
        start, end : int
            First and last step of the segment.
        """
        if self.dead:
            return
        loss = math.inf if math.isnan(validation_loss) else validation_loss
        self._recent.append(Segment(averages, loss, start, end))
        del self._recent[:-N_TOLERANCE]
        if self._converged is None:
            self._look_for_start()
        elif self._tolerated[0].end >= self._converged:
            if self._exceeded(self._tolerated):
                self.dead = True
            else:
                self._average.include(self._tolerated[0])

    def result(self) -> tuple[dict[str, Tensor], int, int]:
        """Return the mean weights of the valley, and its first and last step.

        If no valley has begun, this is the last segment. The weights may share memory with this
        object; copy them before changing them.
        """
        if not self._recent:
            raise ValueError("a valley has no weights before the first segment is added")
        if self._converged is None:
            return self._recent[-1].weights, self._recent[-1].start, self._recent[-1].end
        average = _Average(self._average.mean.copy(), self._average.start, self._average.end)
        if not self.dead:
            rest = self._tolerated[1:]
            while rest and not self._exceeded(rest):
                average.include(rest.pop(0))
        if not average.mean.count:
            (lowest,) = (segment for segment in self._recent if segment.end == self._converged)
            return lowest.weights, lowest.start, lowest.end
        return average.mean.weights, average.start, average.end

    def state(self) -> dict[str, Tensor]:
        """Return everything that `restore` needs, as tensors that share no memory."""
        torch: Any = import_module("torch")
        average = self._average
        numbers = [
            [self.dead, -1 if self._converged is None else self._converged, self._threshold],
            [average.mean.count, average.start, average.end],
            *([segment.loss, segment.start, segment.end] for segment in self._recent),
        ]
        state = {"numbers": torch.tensor(numbers, dtype=torch.float64)}
        parts = {"mean": average.mean.weights}
        parts |= {f"segment{at}": segment.weights for at, segment in enumerate(self._recent)}
        for part, weights in parts.items():
            state |= {f"{part}.{name}": value.detach().clone() for name, value in weights.items()}
        return state

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from the result of `state`."""
        first, (count, start, end), *rows = state["numbers"].tolist()
        self.dead, self._threshold = bool(first[0]), first[2]
        self._converged = None if first[1] < 0 else int(first[1])
        self._average = _Average(
            RunningMean(_part(state, "mean"), int(count)), int(start), int(end)
        )
        self._recent = [
            Segment(_part(state, f"segment{at}"), loss, int(start), int(end))
            for at, (loss, start, end) in enumerate(rows)
        ]

    @property
    def _tolerated(self) -> list[Segment]:
        return self._recent[-N_TOLERANCE:]

    def _exceeded(self, segments: list[Segment]) -> bool:
        return min(segment.loss for segment in segments) > self._threshold

    def _look_for_start(self) -> None:
        """Begin the valley if the oldest of the last `N_CONVERGE` losses is the lowest."""
        window = self._recent[-N_CONVERGE:]
        losses = [segment.loss for segment in window]
        if len(window) < N_CONVERGE or not math.isfinite(losses[0]) or min(losses) < losses[0]:
            return
        self._converged = window[0].end
        self._threshold = TOLERANCE_RATIO * sum(losses) / len(losses)
        before = self._tolerated[: N_TOLERANCE - N_CONVERGE + 1]
        above = [at for at, segment in enumerate(before) if segment.loss > self._threshold]
        # The authors' code skips the first one that is low enough, too.
        for segment in before[above[-1] + 2 if above else 1 :]:
            self._average.include(segment)


def _part(state: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    prefix = f"{part}."
    return {
        name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)
    }


Tensors = dict[str, Tensor]
Facts = dict[str, str]
Key = TypeVar("Key", bound=tuple[Any, ...])
Run = TypeVar("Run")

FILE = "checkpoint.safetensors"


class FinishedRuns(ABC, Generic[Key, Run]):
    """Finished runs and weights of some of them: in memory and, with a folder, on the disk.

    Parameters
    ----------
    folder : path, optional
    identity : str
        Identifies network, images and settings. A folder with another identity is an error.
    """

    def __init__(self, folder: Path | None, identity: str) -> None:
        self._folder = folder
        self._found: dict[Key, Run] = {}
        self._weights: dict[Key, Tensors] = {}
        if folder is not None:
            _require_own_folder(folder, identity)

    @abstractmethod
    def _to_tensors(self, run: Run) -> tuple[Tensors, Facts]:
        """The content of a run's file."""

    @abstractmethod
    def _from_tensors(self, tensors: Tensors, facts: Facts) -> Run:
        """The run that a file has."""

    def get(self, key: Key) -> Run | None:
        """A finished run; None if it has not been done."""
        if key not in self._found and self._folder is not None:
            found = read_tensors(self._file(key, "run"))
            if found is not None:
                self._found[key] = self._from_tensors(*found)
        return self._found.get(key)

    def weights(self, key: Key) -> Tensors | None:
        """The weights kept of a run, on the CPU; None if there are none."""
        if key not in self._weights and self._folder is not None:
            found = read_tensors(self._file(key, "weights"))
            if found is not None:
                self._weights[key] = found[0]
        return self._weights.get(key)

    def keep(self, key: Key, run: Run, weights: Tensors | None) -> None:
        """Keep a run that has been done, with some of its weights; its checkpoint is removed."""
        self._found[key] = run
        if weights is not None:
            self._weights[key] = {name: each.cpu() for name, each in weights.items()}
        if self._folder is None:
            return
        if weights is not None:
            write_tensors(self._file(key, "weights"), self._weights[key], {})
        write_tensors(self._file(key, "run"), *self._to_tensors(run))
        shutil.rmtree(self._file(key, "run").with_suffix(""), ignore_errors=True)

    def forget_weights(self, key: Key) -> None:
        """Remove the weights kept of a run."""
        self._weights.pop(key, None)
        if self._folder is not None:
            self._file(key, "weights").unlink(missing_ok=True)

    def checkpoints(self, key: Key) -> Path | None:
        """The folder of the checkpoint of a run that is not finished."""
        return None if self._folder is None else self._file(key, "run").with_suffix("")

    def _file(self, key: Key, what: str) -> Path:
        assert self._folder is not None
        plain = [sorted(each) if isinstance(each, frozenset) else each for each in key]
        name = hashlib.sha256(json_bytes(plain)).hexdigest()[:16]
        return self._folder / f"{name}-{what}.safetensors"


def _require_own_folder(folder: Path, identity: str) -> None:
    """Use a folder that is empty, or that the same work was begun in."""
    name = hashlib.sha256(identity.encode()).hexdigest()[:16]
    file = folder / f"tuning-{name}.json"  # the name is what is read: no flipped bit can change it
    with explaining_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if file.exists():
            return
        if any(folder.glob("tuning-*.json")):
            raise InputError(
                f"{str(folder)!r} has checkpoints of another model, of other images or settings; "
                "remove it, or choose another folder"
            )
        if any(not is_temporary(each.name) for each in folder.iterdir()):
            raise InputError(
                f"{str(folder)!r} is not empty and has no checkpoints of fine-tuning; choose "
                "another folder"
            )
        write_json(file, {"identity": identity})


@dataclass(frozen=True)
class Checkpoint:
    """State of a run between two steps.

    Attributes
    ----------
    step : int
        Number of the next step.
    images_per_pass : int
    weights, moments, valley : dict of str to Tensor
        Trained weights, AdamW's moments, and what the average needs.
    """

    step: int
    images_per_pass: int
    weights: dict[str, Tensor]
    moments: dict[str, Tensor]
    valley: dict[str, Tensor]


_PARTS = ("weights", "moments", "valley")


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint into a folder, in place of an earlier one."""
    tensors = {
        f"{part}/{name}": tensor
        for part in _PARTS
        for name, tensor in getattr(checkpoint, part).items()
    }
    numbers = {"step": checkpoint.step, "images_per_pass": checkpoint.images_per_pass}
    with explaining_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(folder / FILE, tensors, {k: str(v) for k, v in numbers.items()})


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """Read the checkpoint in a folder; None if there is none."""
    remove_temporaries(folder)
    found = read_tensors(folder / FILE)
    if found is None:
        return None
    tensors, facts = found
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in _PARTS}
    for key, tensor in tensors.items():
        part, _, name = key.partition("/")
        parts[part][name] = tensor
    return Checkpoint(int(facts["step"]), int(facts["images_per_pass"]), **parts)


def write_tensors(file: Path, tensors: Mapping[str, Tensor], facts: Facts) -> None:
    """Write tensors and facts to a file; at any moment it has the old content or the new one."""
    from safetensors.torch import save

    content = {name: each.detach().cpu().contiguous() for name, each in tensors.items()}
    write_bytes(file, sealed_bytes(save(content, facts)))


def read_tensors(file: Path) -> tuple[Tensors, Facts] | None:
    """Read tensors and facts; None if there is no file, or it is damaged."""
    from safetensors.torch import load

    try:
        content = unsealed_bytes(file)
    except InputError:
        return None
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return load(content), header.get("__metadata__", {})

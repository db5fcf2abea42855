"""Averages of weights along a training run: running means, SWAD's valley [1]_, mixtures.

Weights are dicts from names to tensors on any device. Integers among them, such as the number of
batches that a batch norm has counted, are not averaged: the newer value is taken.

References
----------
.. [1] Cha et al., "SWAD: Domain Generalization by Seeking Flat Minima", NeurIPS 2021.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from oodzoo.tuning.network import Weights

Tensor = Any  # torch.Tensor; torch is imported when a network is


def mixed(start: Mapping[str, Tensor], end: Mapping[str, Tensor], mixing: float) -> Weights:
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
    weights, count, start, end
        Mean of an earlier object, number of weights in it, and first and last step, to continue
        from; `weights` is changed in place.
    """

    def __init__(
        self, weights: Weights | None = None, count: int = 0, start: int = -1, end: int = -1
    ) -> None:
        self.weights: Weights = {} if weights is None else weights
        """The mean; empty before the first weights are added."""
        self.count = count
        self.start = start
        self.end = end

    def add(self, weights: Mapping[str, Tensor], start: int, end: int) -> None:
        """Add weights of some steps, which are not kept."""
        torch: Any = import_module("torch")
        self.count += 1
        self.end = end
        with torch.no_grad():
            if self.count == 1:
                self.start = start
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
        weights = {name: value.detach().clone() for name, value in self.weights.items()}
        return RunningMean(weights, self.count, self.start, self.end)


def _require_same_names(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> None:
    if first.keys() != second.keys():
        differing = sorted(first.keys() ^ second.keys())
        raise ValueError(f"weights have differing names: {', '.join(differing)}")


N_CONVERGE = 3
"""N_s in the paper."""


N_TOLERANCE = 6
"""N_e in the paper, greater than N_s."""


TOLERANCE_RATIO = 1.3
"""r in the paper; the authors' code calls r - 1 by this name."""


class Segment(NamedTuple):
    """Mean weights over some steps, and the validation loss after the last of them."""

    mean: RunningMean
    loss: float


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
        self._average = RunningMean()

    def add(self, mean: RunningMean, validation_loss: float) -> None:
        """Add the next segment of the path.

        Parameters
        ----------
        mean : RunningMean
            Mean weights over the steps of the segment. They are kept, not copied.
        validation_loss : float
            Loss after the last step of the segment; NaN counts as infinite.
        """
        if self.dead:
            return
        self._recent.append(
            Segment(mean, math.inf if math.isnan(validation_loss) else validation_loss)
        )
        del self._recent[:-N_TOLERANCE]
        if self._converged is None:
            self._look_for_start()
        elif self._recent[0].mean.end >= self._converged:
            if self._exceeded(self._recent):
                self.dead = True
            else:
                _include(self._average, self._recent[0])

    def result(self) -> RunningMean:
        """Return the mean weights of the valley.

        If no valley has begun, this is the last segment. The weights may share memory with this
        object; copy them before changing them.
        """
        if not self._recent:
            raise ValueError("a valley has no weights before the first segment is added")
        if self._converged is None:
            return self._recent[-1].mean
        average = self._average.copy()
        if not self.dead:
            rest = self._recent[1:]
            while rest and not self._exceeded(rest):
                _include(average, rest.pop(0))
        if average.count:
            return average
        return next(each.mean for each in self._recent if each.mean.end == self._converged)

    def state(self) -> Weights:
        """Return everything that `restore` needs, as tensors that share no memory."""
        torch: Any = import_module("torch")
        means = [self._average, *(segment.mean for segment in self._recent)]
        losses = [self._threshold, *(segment.loss for segment in self._recent)]
        converged = -1 if self._converged is None else self._converged
        numbers: list[list[float]] = [[self.dead, converged, 0, 0]]
        numbers += [
            [each.count, each.start, each.end, value]
            for each, value in zip(means, losses, strict=True)
        ]
        state = {"numbers": torch.tensor(numbers, dtype=torch.float64)}
        for at, mean in enumerate(means):
            state |= {f"{at}.{name}": value for name, value in mean.copy().weights.items()}
        return state

    def restore(self, state: Mapping[str, Tensor], device: Any = "cpu") -> None:
        """Continue from the result of `state`, with weights on a device."""
        (dead, converged, *_), *rows = state["numbers"].tolist()
        self.dead = bool(dead)
        self._converged = None if converged < 0 else int(converged)
        means: list[RunningMean] = [RunningMean({}, *map(int, row[:3])) for row in rows]
        for key, value in state.items():
            at, _, name = key.partition(".")
            if key != "numbers":
                means[int(at)].weights[name] = value.to(device)
        self._average, self._threshold = means[0], rows[0][3]
        self._recent = [Segment(mean, row[3]) for mean, row in zip(means, rows, strict=True)][1:]

    def _exceeded(self, segments: Sequence[Segment]) -> bool:
        return min(segment.loss for segment in segments) > self._threshold

    def _look_for_start(self) -> None:
        """Begin the valley if the oldest of the last `N_CONVERGE` losses is the lowest."""
        window = self._recent[-N_CONVERGE:]
        losses = [segment.loss for segment in window]
        if len(window) < N_CONVERGE or not math.isfinite(losses[0]) or min(losses) < losses[0]:
            return
        self._converged = window[0].mean.end
        self._threshold = TOLERANCE_RATIO * sum(losses) / len(losses)
        before = self._recent[: N_TOLERANCE - N_CONVERGE + 1]
        above = [at for at, segment in enumerate(before) if segment.loss > self._threshold]
        # The authors' code skips the first one that is low enough, too.
        for segment in before[above[-1] + 2 if above else 1 :]:
            _include(self._average, segment)


def _include(average: RunningMean, segment: Segment) -> None:
    average.add(segment.mean.weights, segment.mean.start, segment.mean.end)

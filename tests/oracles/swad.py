"""Loss valley of SWAD, transcribed from the authors' code (domainbed/swad.py, lib/swa_utils.py).

A model is an array of weights. Names and order of operations are those of the code.
"""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray


class AveragedModel:
    """Copies the model; the first update overwrites the copy."""

    def __init__(self, model: Any) -> None:
        self.start_step = -1
        self.end_step = -1
        if isinstance(model, AveragedModel):
            model = model.module
        self.module: NDArray[np.float64] = np.array(model, np.float64)
        self.n_averaged = 0
        self.end_loss = np.nan

    def update_parameters(
        self,
        model: Any,
        step: int | None = None,
        start_step: int | None = None,
        end_step: int | None = None,
    ) -> None:
        if isinstance(model, AveragedModel):
            model = model.module
        if self.n_averaged == 0:
            self.module = model.copy()
        else:
            self.module = self.module + (model - self.module) / (self.n_averaged + 1)
        self.n_averaged += 1
        if step is not None:
            if start_step is None:
                start_step = step
            if end_step is None:
                end_step = step
        if start_step is not None and self.n_averaged == 1:
            self.start_step = start_step
        if end_step is not None:
            self.end_step = end_step


class LossValley:
    """`tolerance_ratio` is that of the code, 0.3 where the paper has r = 1.3."""

    def __init__(self, n_converge: int, n_tolerance: int, tolerance_ratio: float) -> None:
        self.n_converge = n_converge
        self.n_tolerance = n_tolerance
        self.tolerance_ratio = tolerance_ratio
        self.converge_Q: deque[AveragedModel] = deque(maxlen=n_converge)
        self.smooth_Q: deque[AveragedModel] = deque(maxlen=n_tolerance)
        self.final_model: Any = None
        self.converge_step: int | None = None
        self.dead_valley = False
        self.threshold: Any = np.nan

    def get_smooth_loss(self, idx: int) -> float:
        return min([model.end_loss for model in list(self.smooth_Q)[idx:]])

    def update_and_evaluate(self, segment_swa: AveragedModel, val_loss: float) -> None:
        if self.dead_valley:
            return
        frozen = copy.deepcopy(segment_swa)
        frozen.end_loss = val_loss
        self.converge_Q.append(frozen)
        self.smooth_Q.append(frozen)
        if self.converge_step is None:
            if len(self.converge_Q) < self.n_converge:
                return
            min_idx = np.argmin([model.end_loss for model in self.converge_Q])
            untilmin_segment_swa = self.converge_Q[int(min_idx)]
            if min_idx == 0:
                self.converge_step = self.converge_Q[0].end_step
                self.final_model = AveragedModel(untilmin_segment_swa)
                th_base = np.mean([model.end_loss for model in self.converge_Q])
                self.threshold = th_base * (1.0 + self.tolerance_ratio)
                if self.n_tolerance < self.n_converge:
                    for i in range(self.n_converge - self.n_tolerance):
                        model = self.converge_Q[1 + i]
                        self.final_model.update_parameters(
                            model, start_step=model.start_step, end_step=model.end_step
                        )
                elif self.n_tolerance > self.n_converge:
                    converge_idx = self.n_tolerance - self.n_converge
                    Q = list(self.smooth_Q)[: converge_idx + 1]
                    start_idx = 0
                    for i in reversed(range(len(Q))):
                        model = Q[i]
                        if model.end_loss > self.threshold:
                            start_idx = i + 1
                            break
                    for model in Q[start_idx + 1 :]:
                        self.final_model.update_parameters(
                            model, start_step=model.start_step, end_step=model.end_step
                        )
            return
        if self.smooth_Q[0].end_step < self.converge_step:
            return
        if self.get_smooth_loss(0) > self.threshold:
            self.dead_valley = True
            return
        model = self.smooth_Q[0]
        self.final_model.update_parameters(
            model, start_step=model.start_step, end_step=model.end_step
        )

    def get_final_model(self) -> AveragedModel:
        if self.converge_step is None:
            return self.converge_Q[-1]
        if not self.dead_valley:
            self.smooth_Q.popleft()
            while self.smooth_Q:
                if self.get_smooth_loss(0) > self.threshold:
                    break
                segment_swa = self.smooth_Q.popleft()
                self.final_model.update_parameters(segment_swa, step=segment_swa.end_step)
        final: AveragedModel = self.final_model
        return final

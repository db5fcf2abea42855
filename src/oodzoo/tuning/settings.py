"""Settings of fine-tuning."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any, Literal

from oodzoo.core.errors import InputError

SCHEDULES = ("cosine", "constant")
RULES = ("leave-one-domain-out", "training-domain")
STARTS = ("probe", "random")


@dataclass(frozen=True)
class TuneSettings:
    """Settings of fine-tuning.

    Attributes
    ----------
    learning_rates : tuple of float
        Learning rates of AdamW. One of several is chosen as `choose_by` says.
    steps : int
        Updates of each run.
    batch_size : int
        Images of each domain in a step. Passes that need more memory than there is are divided;
        the update is the same.
    weight_decay : float
    schedule : {"cosine", "constant"}
        The learning rate rises for a tenth of the steps and then falls to zero along a cosine; or
        it is constant.
    start : {"probe", "random"}
        The head at the start: logistic regression on the features (LP-FT; Kumar et al.,
        ICLR 2022), or random.
    lora : int, optional
        Rank of adapters that are trained in place of the weights; all weights by default.
    augment : bool
        Whether to augment images as DomainBed does: random crops, flips, colours.
    choose_by : {"leave-one-domain-out", "training-domain"}
        Where the learning rate, the average and the mixing are chosen: on domains that are left out
        in turn, or on a fifth of the images of each training domain.
    seed : int
    """

    learning_rates: tuple[float, ...] = (1e-4, 1e-3)
    steps: int = 300
    batch_size: int = 32
    weight_decay: float = 1e-4
    schedule: Literal["cosine", "constant"] = "cosine"
    start: Literal["probe", "random"] = "probe"
    lora: int | None = None
    augment: bool = True
    choose_by: Literal["leave-one-domain-out", "training-domain"] = "leave-one-domain-out"
    seed: int = 0

    def __post_init__(self) -> None:
        rates = self.learning_rates
        if not rates or not all(math.isfinite(rate) and rate > 0 for rate in rates):
            raise InputError(f"learning rates must be positive numbers, got {list(rates)}")
        if len(set(rates)) < len(rates):
            raise InputError(f"learning rates must differ, got {list(rates)}")
        whole = {"steps": 1, "batch_size": 1, "seed": 0} | (
            {} if self.lora is None else {"lora": 1}
        )
        for name, least in whole.items():
            value = getattr(self, name)
            what = "the rank of LoRA adapters" if name == "lora" else name
            if not isinstance(value, Integral):
                raise InputError(f"{what} must be a whole number, got {value!r}")
            if value < least:
                raise InputError(f"{what} must be {least} or more, got {value}")
            object.__setattr__(self, name, int(value))  # for JSON
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise InputError(f"weight_decay must be 0 or more, got {self.weight_decay}")
        for name, known in (("schedule", SCHEDULES), ("start", STARTS), ("choose_by", RULES)):
            if getattr(self, name) not in known:
                raise InputError(
                    f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}"
                )

    def rate(self, learning_rate: float, step: int) -> float:
        """The learning rate of a step.

        Examples
        --------
        >>> settings = TuneSettings(steps=100)
        >>> [settings.rate(1.0, step) for step in (0, 9, 10)]
        [0.1, 1.0, 1.0]
        >>> round(settings.rate(1.0, 99), 4)
        0.0003
        """
        if self.schedule == "constant":
            return learning_rate
        warm = math.ceil(self.steps / 10)
        if step < warm:
            return learning_rate * (step + 1) / warm
        passed = (step - warm) / (self.steps - warm)
        return learning_rate * (1 + math.cos(math.pi * passed)) / 2

    def to_dict(self) -> dict[str, Any]:
        """The settings, for JSON."""
        return asdict(self) | {"learning_rates": list(self.learning_rates)}

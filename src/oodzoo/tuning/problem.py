"""What a network is tuned on, images and labels, and the settings of fine-tuning."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.io import json_bytes
from oodzoo.data.dataset import ImageDomains
from oodzoo.linear.heads.domainbed.protocol import split
from oodzoo.tasks import Task
from oodzoo.tuning.images import TrainingImages
from oodzoo.zoo.preprocessing import Geometry

Rows = NDArray[np.int64]

FEWEST_IMAGES = 5
"""Fewest images of a domain of which a fifth can be held out."""


@dataclass(frozen=True)
class TuningData:
    """Images of several domains with their labels.

    Attributes
    ----------
    images : TrainingImages
    labels : array (n,) or (n, n_outputs)
        Numbers of classes; or numbers, or zeros and ones.
    numbers : array (n,)
        Number of the domain of each image.
    domains : tuple of str
        Names of the domains.
    groups : sequence of str or None
        Group of each image, None for an image without one.
    task : Task
    n_outputs : int
        Number of classes, numbers or labels.
    fingerprint : str
        Identifies images and labels.
    """

    images: TrainingImages
    labels: NDArray[Any]
    numbers: NDArray[np.int64]
    domains: tuple[str, ...]
    groups: Sequence[str | None]
    task: Task
    n_outputs: int
    fingerprint: str

    def rows(self, domain: str) -> Rows:
        """The images of a domain."""
        return np.flatnonzero(self.numbers == self.domains.index(domain))

    def split(self, domain: str, seed: int) -> tuple[Rows, Rows]:
        """Divide the images of a domain, as DomainBed does: for training, and a fifth held out."""
        rows = self.rows(domain)
        groups = [self.groups[row] for row in rows]
        require_images_to_hold_out(domain, groups)
        parts = split(len(rows), seed, self.domains.index(domain), groups)
        return rows[parts.inside], rows[parts.outside]

    def left(self, without: Sequence[str]) -> tuple[str, ...]:
        """The domains without some of them."""
        return tuple(domain for domain in self.domains if domain not in without)


def require_images_to_hold_out(domain: str, groups: Sequence[str | None]) -> None:
    """Raise an InputError if a fifth of the images of a domain, given their groups, is nothing."""
    if len(groups) > 1 and groups[0] is not None and len(set(groups)) == 1:
        raise InputError(
            f"all images of the domain {domain!r} are of one group, so that none can be held out"
        )
    grouped = any(group is not None for group in groups)  # the smallest group is held out
    if len(groups) < (2 if grouped else FEWEST_IMAGES):
        raise InputError(
            f"the domain {domain!r} has too few images to hold out a fifth of them: {len(groups)}; "
            f"at least {FEWEST_IMAGES} are needed"
        )


@contextmanager
def opened(data: ImageDomains, geometry: Geometry) -> Iterator[TuningData]:
    """Open the images of a data set, for a network with this geometry."""
    classes = {name: number for number, name in enumerate(data.classes)}
    texts = [sample.label for sample in data.samples]
    if data.task.one_class:
        labels: NDArray[Any] = np.array([classes[text] for text in texts], np.int64)
    else:
        labels = data.task.decode(texts)
    positions = {name: number for number, name in enumerate(data.domains)}
    groups = [sample.group for sample in data.samples]
    identity = [data.fingerprint, list(data.classes), groups]
    with TrainingImages(data.files, geometry) as images:
        yield TuningData(
            images=images,
            labels=labels,
            numbers=np.array([positions[sample.domain] for sample in data.samples], np.int64),
            domains=data.domains,
            groups=groups,
            task=data.task,
            n_outputs=len(data.classes),
            fingerprint=hashlib.sha256(json_bytes(identity)).hexdigest(),
        )


def require_whole_numbers(settings: Any, **least: int) -> None:
    """Raise an InputError unless some settings are whole numbers that are not too small."""
    for name, lowest in least.items():
        value = getattr(settings, name)
        what = "the rank of LoRA adapters" if name == "lora" else name
        if not isinstance(value, Integral):
            raise InputError(f"{what} must be a whole number, got {value!r}")
        if value < lowest:
            raise InputError(f"{what} must be {lowest} or more, got {value}")
        object.__setattr__(settings, name, int(value))  # for JSON


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
        require_whole_numbers(self, steps=1, batch_size=1, seed=0)
        if self.lora is not None:
            require_whole_numbers(self, lora=1)
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise InputError(f"weight_decay must be 0 or more, got {self.weight_decay}")
        for name, known in (("schedule", SCHEDULES), ("start", STARTS), ("choose_by", RULES)):
            if getattr(self, name) not in known:
                raise InputError(
                    f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}"
                )

    @property
    def by_domain(self) -> bool:
        """Whether the choice is made on domains that are left out."""
        return self.choose_by == "leave-one-domain-out"

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

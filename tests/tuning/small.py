"""A small network and few images of three domains, for tests of fine-tuning."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from oodzoo.data.files import LocalFile
from oodzoo.tasks import Kind, task_of
from oodzoo.tuning.images import TrainingImages
from oodzoo.tuning.problem import TuningData
from oodzoo.zoo.model import Trainable
from oodzoo.zoo.preprocessing import square

SIZE, CLASSES, DIM = 8, 3, 6
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
PREPROCESSING = square(SIZE, MEAN, STD)
DOMAINS = ("art", "photo", "sketch")


def features() -> Any:
    """A network with batch norms whose statistics differ from those of the images."""
    torch = pytest.importorskip("torch")
    nn = torch.nn
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(),
        nn.Conv2d(5, DIM, 3), nn.BatchNorm2d(DIM), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip
    for layer in module:
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
    return module.eval()


def trainable() -> Trainable:
    return Trainable("small", features(), PREPROCESSING, DIM, lambda file: None)


def colour_blind() -> Trainable:
    """The same network, but its features say nothing about colours, and so about the classes.

    Training gains much, on any processor.
    """
    found = trainable()
    kernel = found.module[0].weight
    scale = kernel.new_tensor(STD)[:, None, None]
    kernel.data = 3 * scale * kernel.data.mean(dim=1, keepdim=True)
    return found


@contextmanager
def problem(
    folder: Path, domains: tuple[str, ...] = DOMAINS, kind: Kind = "classification"
) -> Iterator[TuningData]:
    """Images of noise around the colour of their class; 10, 11, 12 of the domains.

    Files that exist are not written again.
    """
    rng = np.random.default_rng(0)
    numbers = np.repeat(np.arange(len(domains)), 10 + np.arange(len(domains)))
    labels = rng.integers(CLASSES, size=len(numbers))
    files = []
    for row, label in enumerate(labels.tolist()):
        pixels = rng.integers(0, 120, (10, 12, 3), dtype=np.uint8)
        pixels[:, :, label] += 100
        if not (folder / f"{row}.png").exists():
            Image.fromarray(pixels).save(folder / f"{row}.png")
        files.append(LocalFile(str(folder / f"{row}.png")))
    with TrainingImages(files, PREPROCESSING.geometry) as images:
        groups = [None] * len(labels)
        values = labels_of(kind, labels)
        yield TuningData(
            images, values, numbers, domains, groups, task_of(kind), CLASSES, "few images"
        )


def labels_of(kind: Kind, classes: NDArray[np.int64]) -> NDArray[Any]:
    """Classes, or labels (n, CLASSES) that depend on them: numbers of several scales, or bits."""
    if kind == "classification":
        return classes
    several = np.arange(CLASSES) >= classes[:, None]
    noise = np.random.default_rng(1).normal(size=several.shape)
    numbers: NDArray[Any] = (several + noise / 4) * [1.0, 30.0, 0.01] + [0, 500, 0]
    return numbers if kind == "regression" else several.astype(np.float64)

"""Speed of fine-tuning: images per second, relative to a bare PyTorch loop of the same model.

The bare loop takes the same steps (forward and backward pass in the same precision, AdamW) on one
batch that stays on the device: it loads, crops and augments nothing, and averages no weights. The
second loop is what one would write with PyTorch's DataLoader and DomainBed's transforms of
torchvision. The target is a ratio of at least 0.95 to the bare loop on a GPU.

    python benchmarks/tune.py [--model SPEC] [--device cuda] [--steps N] [--batch-size N]

By default, the model is timm's ResNet-50 (ResNet-18 on a CPU) with random weights, and the images
are 600 drawn ones of 256 pixels. Each loop runs three times in turn; medians are printed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import oodzoo
from oodzoo.core.packages import import_torchvision
from oodzoo.tasks import CLASSIFICATION
from oodzoo.tuning.network import HeadedNetwork, loss
from oodzoo.tuning.problem import TuneSettings, TuningData, opened
from oodzoo.tuning.trainer import Recipe, Trainer, train_and_average
from oodzoo.zoo import ModelSpec, load_model
from oodzoo.zoo.sources import load_trainable

DOMAINS = ("drawing", "photo", "sketch")
CLASSES = ("cat", "dog")


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", help="a timm model")
    parser.add_argument("--steps", type=int, help="steps of each loop")
    parser.add_argument("--batch-size", type=int, default=32, help="images of each domain")
    options = parser.parse_args()
    on_cpu = options.device == "cpu"
    model = options.model or ("resnet18" if on_cpu else "resnet50")
    steps = options.steps or (6 if on_cpu else 150)
    warnings.simplefilter("ignore")
    spec = ModelSpec(model, f"timm/{model}", pretrained=False)
    preprocessing = load_model(spec, device="cpu").info.preprocessing
    settings = TuneSettings(steps=steps, batch_size=options.batch_size, schedule="constant")
    with tempfile.TemporaryDirectory() as folder:
        data = oodzoo.ImageDomains(_write_images(Path(folder)))
        with opened(data, preprocessing.geometry) as problem:
            network = HeadedNetwork(
                load_trainable(spec, preprocessing), len(CLASSES), options.device
            )
            rows = [problem.rows(domain) for domain in DOMAINS]
            problem.images.prepared(np.concatenate(rows))
            loops: dict[str, Callable[[], float]] = {
                "bare loop": lambda: _bare(network, settings),
                "oodzoo": lambda: _ours(network, problem, rows, settings),
                "DataLoader": lambda: _loader(network, data, problem, settings),
            }
            found: dict[str, list[float]] = {name: [] for name in loops}
            for _ in range(3):
                for name, run in loops.items():
                    found[name].append(steps * len(DOMAINS) * options.batch_size / run())
    name = "cpu" if on_cpu else torch.cuda.get_device_name()
    print(
        f"{model} on {name}, {os.cpu_count()} cores, {settings.batch_size} x {len(DOMAINS)} images"
    )
    bare = statistics.median(found["bare loop"])
    for loop, rates in found.items():
        rate = statistics.median(rates)
        print(f"{loop:12} {rate:9.1f} images/s  {rate / bare:6.3f} of the bare loop")


def _ours(
    network: HeadedNetwork, problem: TuningData, rows: list[Any], settings: TuneSettings
) -> float:
    """Seconds of all steps, with loading, augmentation, averaging; one image is validated."""
    recipe = Recipe(
        lambda parameters: _optimiser(network, settings),
        lambda step: 1e-6,
        settings.steps,
        settings.batch_size,
        settings.seed,
    )
    training = Trainer(network, problem, rows, recipe)
    return train_and_average(training, rows[0][:1]).seconds


def _bare(network: HeadedNetwork, settings: TuneSettings) -> float:
    import torch

    n = settings.batch_size * len(DOMAINS)
    height, width = network.trainable.preprocessing.geometry.crop
    pixels = np.random.default_rng(0).integers(0, 256, (n, height, width, 3), np.uint8)
    batch = network.images(pixels)
    labels = torch.arange(n, device=network.device) % len(CLASSES)
    optimiser = _optimiser(network, settings)
    _synchronise(network)
    begun = time.perf_counter()
    for _ in range(settings.steps):
        _update(network, optimiser, batch, labels)
    _synchronise(network)
    return time.perf_counter() - begun


def _loader(
    network: HeadedNetwork, data: oodzoo.ImageDomains, problem: TuningData, settings: TuneSettings
) -> float:
    """A loop with DataLoader and torchvision's transforms, one process for each core."""
    import_torchvision(extra="tune", purpose="the benchmark")
    from torch.utils.data import DataLoader, RandomSampler
    from torchvision import transforms

    height, width = network.trainable.preprocessing.geometry.crop
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop((height, width), scale=(0.7, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(0.3, 0.3, 0.3, 0.3),
            transforms.RandomGrayscale(),
            transforms.ToTensor(),
        ]
    )
    n = settings.batch_size * len(DOMAINS)
    images: Any = _Images(data, problem.labels, transform)
    loader: Any = DataLoader(
        images,
        n,
        sampler=RandomSampler(images, replacement=True, num_samples=n * settings.steps),
        num_workers=os.cpu_count() or 1,
        pin_memory=network.device.type == "cuda",
    )
    optimiser = _optimiser(network, settings)
    batches = iter(loader)
    first = next(batches)  # the processes have started
    begun = time.perf_counter()
    done = 0
    for batch, labels in itertools.chain([first], batches):
        batch = batch.to(network.device, non_blocking=True)
        labels = labels.to(network.device, non_blocking=True)
        _update(network, optimiser, batch, labels)
        done += 1
    _synchronise(network)
    assert done == settings.steps
    return time.perf_counter() - begun


class _Images:
    """A data set of PyTorch."""

    def __init__(self, data: oodzoo.ImageDomains, labels: Any, transform: Any) -> None:
        assert data.root is not None
        self._files = [data.root / sample.path for sample in data.samples]
        self._labels = labels
        self._transform = transform

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, at: int) -> tuple[Any, int]:
        with Image.open(self._files[at]) as image:
            return self._transform(image.convert("RGB")), int(self._labels[at])


def _update(network: HeadedNetwork, optimiser: Any, batch: Any, labels: Any) -> None:
    import torch

    optimiser.zero_grad()
    with torch.autocast(
        network.device.type, torch.bfloat16, enabled=network.precision != torch.float32
    ):
        outputs = network.outputs(batch)
    loss(CLASSIFICATION, outputs.float(), labels).backward()
    optimiser.step()


def _optimiser(network: HeadedNetwork, settings: TuneSettings) -> Any:
    import torch

    return torch.optim.AdamW(
        network.parts.parameters(),
        lr=1e-6,
        weight_decay=settings.weight_decay,
        fused=network.device.type == "cuda",
    )


def _synchronise(network: HeadedNetwork) -> None:
    import torch

    if network.device.type == "cuda":
        torch.cuda.synchronize()


def _write_images(folder: Path) -> Path:
    """Draw blurred noise, as JPEG files of 256 pixels."""
    rng = np.random.default_rng(0)
    for domain in DOMAINS:
        for name in CLASSES:
            inner = folder / domain / name
            inner.mkdir(parents=True)
            for number in range(100):
                small = Image.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8))
                small.resize((256, 256)).save(inner / f"{number}.jpg", quality=90)
    return folder


if __name__ == "__main__":
    main()

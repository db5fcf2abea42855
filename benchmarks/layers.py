"""Cost of extracting all layers of a network, relative to the last one.

Each network is loaded twice: for its usual features, and for all layers (`@all`). Both run in turn
on the same batches, and the ratio is that of the times of a pair of passes; the median and the
quartiles over the pairs are printed. The same for a whole extraction into a store, with decoding
and writing. The target is a ratio of at most 1.1.

    python benchmarks/layers.py [--zoo SPEC,SPEC] [--batches N] [--images N]

By default, the networks are two timm models with random weights, and two real ONNX files of
`$OODZOO_SHARED/zoo` (or `../shared/zoo`) if they are there. Two passes of the same network, taken
as if they were different, show how noisy the machine is ("noise").
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

import oodzoo
from oodzoo.zoo import Model, ModelSpec, load_zoo
from oodzoo.zoo.model import collect_together, launch_together
from oodzoo.zoo.sources import load_network
from oodzoo.zoo.zoos import expand_layers

BATCH = 16
RANDOM = ("timm/vit_tiny_patch16_224", "timm/resnet18")
REAL = ("mobilenet_v2_torchvision_imagenet", "open_nsfw_resnet50thin")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--zoo", help="model specs, separated by commas, without layers")
    parser.add_argument("--batches", type=int, default=15, help="pairs of passes")
    parser.add_argument("--images", type=int, default=192, help="images of the extraction")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        f"{'network':36} {'layers':>6} {'ms/image':>9} {'forward':>20} {'noise':>20} {'store':>6}"
    )
    for spec in _networks(options.zoo):
        layers = expand_layers(replace(spec, source=f"{spec.source}@all"), "the benchmark")
        own, everything = (_load(specs) for specs in ([spec], layers))
        pixels = _pixels(own[0])
        forward = _ratios(own, everything, pixels, options.batches)
        noise = _ratios(own, own, pixels, options.batches)
        milliseconds = 1000 * _seconds(own, pixels) / BATCH
        stored = _stored_ratio(spec, layers, options.images)
        print(
            f"{spec.name:36} {len(layers):6} {milliseconds:9.2f} {_shown(forward):>20} "
            f"{_shown(noise):>20} {stored:6.2f}",
            flush=True,
        )


def _networks(zoo: str | None) -> list[ModelSpec]:
    if zoo is not None:
        return load_zoo(zoo)
    networks = [ModelSpec(source.replace("/", "-"), source, pretrained=False) for source in RANDOM]
    beside = Path(__file__).parents[2] / "shared"
    real = Path(os.environ.get("OODZOO_SHARED", beside)) / "zoo" / "zoo.toml"
    if real.exists():
        networks += [spec for spec in load_zoo(real) if spec.name in REAL]
    return networks


def _load(specs: Sequence[ModelSpec]) -> list[Model]:
    found = load_network(specs, device="cpu", precision="float32")
    return [model for model in found if isinstance(model, Model)]


def _pixels(model: Model) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    crop = model.info.preprocessing.geometry.crop
    return np.random.default_rng(0).integers(0, 256, (BATCH, *crop, 3), dtype=np.uint8)


def _seconds(models: list[Model], pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> float:
    start = time.perf_counter()
    collect_together(models, launch_together(models, models[0].prepare(pixels)))
    return time.perf_counter() - start


def _ratios(
    one: list[Model],
    other: list[Model],
    pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]],
    n: int,
) -> list[float]:
    """Time of the second relative to the first; which of them runs first alternates."""
    ratios = []
    for number in range(n + 2):
        first, second = (one, other) if number % 2 else (other, one)
        a, b = _seconds(first, pixels), _seconds(second, pixels)
        ratios.append(b / a if number % 2 else a / b)
    return ratios[2:]  # the first passes allocate memory


def _shown(ratios: list[float]) -> str:
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return f"{median:.2f} ({low:.2f} to {high:.2f})"


def _stored_ratio(own: ModelSpec, layers: list[ModelSpec], n: int) -> float:
    """Ratio of the times of two extractions, the smaller of two times for each."""
    noise = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(n):
            path = Path(folder, "images", f"d{number % 2}", f"c{number % 3}", f"{number}.jpg")
            path.parent.mkdir(parents=True, exist_ok=True)
            small = noise.integers(0, 256, (12, 16, 3), dtype=np.uint8)
            Image.fromarray(small).resize((320, 240)).save(path, quality=90)
        data = oodzoo.ImageDomains(Path(folder, "images"))
        times: dict[int, list[float]] = {1: [], len(layers): []}
        for repetition in range(2):
            for specs in ([own], layers):
                start = time.perf_counter()
                oodzoo.extract(data, specs, Path(folder, f"{len(specs)}-{repetition}"))
                times[len(specs)].append(time.perf_counter() - start)
    return min(times[len(layers)]) / min(times[1])


if __name__ == "__main__":
    main()

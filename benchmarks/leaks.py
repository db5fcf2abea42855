"""How many near-duplicates are found, how many pairs are false alarms, and how long it takes.

    python benchmarks/leaks.py [DATA ...] [--zoo ZOO] [--stores FOLDER] [--copies 20]

Copies of random images of each data set are changed in one of 13 ways, put into another domain of
the set under a new name, and extracted with the models of the zoo; `FOLDER/NAME` may be a store of
the data set NAME with features of the other images. Without arguments the data set is the embedded
digits. For each data set:

- recall in percent of each kind of change, by features alone and with the pixels;
- pairs of different domains, and of one domain, that are found in the original data set: look at
  them, they may be real near-duplicates.

The last table has the time to compare all pairs of simulated features, by whole rows and by
sketches, and what the latter means for larger data sets.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance, ImageOps

import oodzoo
import oodzoo.demo
from oodzoo.extraction.extract import run_extraction
from oodzoo.extraction.outcome import ExtractionConfig
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.leaks import similar as leak_pairs
from oodzoo.store.leaks.search import PairSearch, SampleColumns, Sketch, plan_pairs
from oodzoo.store.leaks.similar import NearDuplicates, similar_images

Change = Callable[[Image.Image], Image.Image]


def crop(image: Image.Image, share: float) -> Image.Image:
    lost = [max(1, round(side * share)) for side in image.size]
    left, top = (random.randint(0, pixels) for pixels in lost)
    return image.crop((left, top, image.width - lost[0] + left, image.height - lost[1] + top))


def scale(image: Image.Image, factor: float) -> Image.Image:
    size = [max(1, round(side * factor)) for side in image.size]
    return image.resize((size[0], size[1]), Image.Resampling.BICUBIC)


def brighten(image: Image.Image, factor: float) -> Image.Image:
    return ImageEnhance.Brightness(image).enhance(factor)


def border(image: Image.Image) -> Image.Image:
    width = max(1, round(min(image.size) * 0.05))
    return ImageOps.expand(image, width, random.choice(["white", "black"]))


def watermark(image: Image.Image) -> Image.Image:
    layer = Image.new("RGBA", image.size)
    draw, (w, h) = ImageDraw.Draw(layer), image.size
    draw.rectangle((w * 0.55, h * 0.82, w * 0.97, h * 0.95), fill=(255, 255, 255, 140))
    size = max(6, h * 0.09)
    draw.text((w * 0.58, h * 0.83), "(c) photos", fill=(0, 0, 0, 200), font_size=size)
    return Image.alpha_composite(image.convert("RGBA"), layer).convert("RGB")


CHANGES: dict[str, tuple[Change, int]] = {
    "JPEG 90": (lambda image: image, 90),
    "JPEG 50": (lambda image: image, 50),
    "size 0.9": (lambda image: scale(image, 0.9), 90),
    "size 0.5": (lambda image: scale(image, 0.5), 90),
    "crop 5 %": (lambda image: crop(image, 0.05), 90),
    "crop 10 %": (lambda image: crop(image, 0.1), 90),
    "brighter": (lambda image: brighten(image, 1.25), 90),
    "darker": (lambda image: brighten(image, 0.75), 90),
    "mirrored": (ImageOps.mirror, 90),
    "border": (border, 90),
    "watermark": (watermark, 90),
    "grey": (lambda image: image.convert("L").convert("RGB"), 90),
    "several": (lambda image: watermark(crop(scale(brighten(image, 1.15), 0.7), 0.05)), 70),
}
"""The change of an image, and the JPEG quality of the copy."""


def plant(data: Path, out: Path, n: int) -> dict[frozenset[str], str]:
    """Write a data set with n copies of each kind; the kind by the paths of each pair."""
    dataset = oodzoo.ImageDomains(data)
    for sample in dataset.samples:
        path = out / sample.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to((data / sample.path).resolve())
    random.seed(zlib.crc32(data.name.encode()))
    planted = {}
    chosen = random.sample(dataset.samples, min(n * len(CHANGES), len(dataset)))
    for at, sample in enumerate(chosen):
        kind = list(CHANGES)[at % len(CHANGES)]
        change, quality = CHANGES[kind]
        other = random.choice([domain for domain in dataset.domains if domain != sample.domain])
        copy = out / other / sample.label / f"new_{at:04d}.jpg"
        copy.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(data / sample.path) as image:
            change(image.convert("RGB")).save(copy, quality=quality)
        planted[frozenset((sample.path, copy.relative_to(out).as_posix()))] = kind
    return planted


def open_store(data: Path, zoo: str, store: Path, known: Path | None) -> FeatureStore:
    """Extract what is missing in a copy of a store."""
    if known is not None:
        shutil.copytree(known, store)
    config = ExtractionConfig(device="cpu")
    return run_extraction(oodzoo.ImageDomains(data), oodzoo.load_zoo(zoo), store, config)[0]


def recall(found: NearDuplicates, planted: dict[frozenset[str], str]) -> dict[str, float]:
    paths = {frozenset(pair.paths) for pair in found.across.worst}
    hits: dict[str, list[bool]] = {}
    for pair, kind in planted.items():
        hits.setdefault(kind, []).append(pair in paths)
    rates = {kind: 100 * float(np.mean(each)) for kind, each in hits.items()}
    return rates | {"all": 100 * float(np.mean([hit for each in hits.values() for hit in each]))}


def measure(data: Path, zoo: str, stores: Path | None, copies: int, folder: Path) -> None:
    """Print the recall of planted pairs, and what is found without them."""
    changed = folder / "data"
    planted = plant(data, changed, copies)
    known = stores / data.name if stores is not None else None
    store = open_store(changed, zoo, folder / "store", known)
    files = oodzoo.ImageDomains(changed).files_by_digest
    original = {image: file for image, file in files.items() if "/new_" not in str(file)}
    print(f"\n{data.name}: {store.n_images:,} images, {len(planted)} of them copies")
    by_features, by_pixels = similar_images(store), similar_images(store, files=files)
    rates = recall(by_features, planted), recall(by_pixels, planted)
    print(f"  {'recall %':12}features  pixels, too")
    for kind in rates[0]:
        print(f"  {kind:12}{rates[0][kind]:8.0f}{rates[1][kind]:13.0f}")
    print(f"  threshold {by_features.threshold:.2f}, {len(by_features.models)} models")
    start = time.perf_counter()
    alone = similar_images(store, files=original)
    seconds = time.perf_counter() - start
    print(f"  without copies: {alone.across} in different domains")
    print(f"                  {alone.within} in the same domain; {seconds:.1f} s")
    for pair in alone.across.worst[:25]:
        print(f"    {pair.similarity:.2f} {pair.evidence}: {' '.join(pair.paths)}")


class Simulated:
    """Unit rows with a decaying spectrum, as whitened features of networks have it."""

    def __init__(self, n: int, width: int, copies: int) -> None:
        rng = np.random.default_rng(0)
        self.width = width
        scale = 1 / np.sqrt(1 + np.arange(width) / 40)
        rows = rng.normal(size=(n, width)).astype(np.float32) * scale.astype(np.float32)
        rows[1 : 2 * copies : 2] = rows[: 2 * copies : 2] + rows[1 : 2 * copies : 2]
        self.all: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def rows(self, positions: NDArray[np.intp]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self.all[positions]
        return found


def measure_time(n: int) -> None:
    """Print the CPU time of all pairs, by whole rows and by sketches, and an estimate for more."""
    low = 0.5
    names = [str(at) for at in range(n)]
    none = np.full(n, -1)
    samples = SampleColumns(
        names, names, np.arange(n) % 4, none, np.arange(n) % 10, none, tuple("abcd"), ()
    )
    plan = plan_pairs(samples.strata, 1, "all")
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    print(f"\nall pairs of {n:,} images, simulated features, threads: {threads}")
    print("  features  exact s  sketch s  ratio  same pairs  100,000 images, s  588,800")
    for width in (1024, 7000):
        space: Any = Simulated(n, width, copies=n // 20)
        times, found = [], []
        for by_sketch in (False, True):
            start = time.process_time()
            sketch = Sketch.if_cheaper(space, n, low) if by_sketch else None
            search = PairSearch(space, samples, low, low, sketch)
            search.run(plan)
            times.append(time.process_time() - start)
            tops = (search.across, search.within)
            found.append([{tuple(pair) for pair in top.places.tolist()} for top in tops])
        exact, short = times
        same = "yes" if found[0] == found[1] else "no"
        larger = [short * (images / n) ** 2 for images in (100_000, 588_800)]
        print(
            f"  {width:8,} {exact:8.1f} {short:9.1f} {exact / short:6.1f} {same:>11} "
            f"{larger[0]:18,.0f} {larger[1]:8,.0f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="*", type=Path)
    parser.add_argument("--zoo", default="demo")
    parser.add_argument("--stores", type=Path)
    parser.add_argument("--copies", type=int, default=20)
    parser.add_argument("--images", type=int, default=16_000)
    options = parser.parse_args()
    leak_pairs.MOST = 100_000  # all pairs are counted
    with tempfile.TemporaryDirectory() as temporary:
        sets = options.data or [oodzoo.demo.write_digits(Path(temporary) / "digits")]
        for at, data in enumerate(sets):
            folder = Path(temporary) / str(at)
            measure(Path(data), options.zoo, options.stores, options.copies, folder)
    measure_time(options.images)


if __name__ == "__main__":
    main()

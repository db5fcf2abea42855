"""Extraction time relative to a lower bound: decoding once plus bare forward passes.

    python benchmarks/extract.py [--shared ../shared] [--images 280] [--all] [--photos]

The lower bound ("floor") is the time to read, decode and resize every image once, plus the time of
bare `InferenceSession.run` on prepared tensors for each model, both with all threads. It is
measured for one medium-sized model and for the whole zoo, alternating with the extraction in one
run.

With `--photos`, the images are photos of 12 and 48 megapixels, made of those at hand: enlarged,
with the noise of a camera. An extraction that decodes them at a reduced scale is compared with one
that decodes them at full size (CPU time of all threads), and with its own floor: decoding by
libjpeg at that scale alone, and bare forward passes. So are the features.
"""

from __future__ import annotations

import argparse
import copy
import io
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
from joblib import Parallel, cpu_count, delayed
from PIL import Image

from oodzoo.core.backend import default_batch_size
from oodzoo.data import pixels
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.files import ImageFile
from oodzoo.extraction.extract import run_extraction
from oodzoo.extraction.outcome import ExtractionConfig
from oodzoo.store.feature_store import FeatureStore
from oodzoo.zoo import ModelSpec, load_zoo

MEDIUM = "mobilenet_v2_torchvision_imagenet"
TARGET = 1.2


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def decode_floor(data: ImageDomains) -> float:
    """Read, decode and resize every image once, with all threads."""

    def one(file: ImageFile) -> None:
        pixels.read(file).resize((224, 224))

    files = list(data.files)
    pool = Parallel(n_jobs=cpu_count(), prefer="threads")
    return seconds(lambda: pool(delayed(one)(file) for file in files))


def forward_floor(spec: ModelSpec, n: int) -> float:
    """Run bare `InferenceSession.run` on prepared tensors for n images, with all threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cpu_count()
    session = onnxruntime.InferenceSession(spec.file, options, providers=["CPUExecutionProvider"])
    outputs = [name for name in (spec.features, spec.logits) if name is not None]
    given = session.get_inputs()[0]
    batch = default_batch_size("cpu")
    size = spec.input_size or 224
    shape = (batch, 3, size, size)
    ready = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    session.run(outputs, {given.name: ready})

    def run() -> None:
        for start in range(0, n, batch):
            session.run(outputs, {given.name: ready[: min(batch, n - start)]})

    return seconds(run)


def compare(title: str, data: ImageDomains, zoo: Sequence[ModelSpec], repeats: int) -> float:
    """Return the median ratio of extraction to floor over the repeats."""
    ratios = []
    for _ in range(repeats):
        data = copy.copy(data)
        data.__dict__.pop("_hashes", None)  # reading the images for their fingerprint counts
        data.__dict__.pop("fingerprint", None)
        decode = decode_floor(data)
        forward = sum(forward_floor(spec, len(data)) for spec in zoo)
        store = Path(tempfile.mkdtemp(prefix="oodzoo-bench-"))
        try:
            start = time.perf_counter()
            _, done = run_extraction(data, list(zoo), store, ExtractionConfig(device="cpu"))
            took = time.perf_counter() - start
        finally:
            shutil.rmtree(store)
        ratios.append(took / (decode + forward))
        print(
            f"{title}: floor {decode + forward:.1f} s (decode {decode:.1f}, "
            f"forward {forward:.1f}), "
            f"extraction {took:.1f} s, ratio {ratios[-1]:.2f}; "
            f"{done.decoded} images decoded of {len(data)}",
            flush=True,
        )
        if done.decoded != len(data):
            sys.exit(f"each image must be decoded once, and {done.decoded} were")
    return float(np.median(ratios))


# --- photos -----------------------------------------------------------------------------------

PHOTOS = {"12 megapixels": ((4032, 3024), 8), "48 megapixels": ((8064, 6048), 4)}
"""Width and height, and number of different photos."""

COPIES = 6
"""Files of each photo, which differ in a comment."""

THREE = (MEDIUM, "efficientnet_lite0_imagenet", "mobilenet_v1_100_224_imagenet")


def write_photos(data: ImageDomains, root: Path, size: tuple[int, int], n: int) -> Path:
    """Enlarge images of two domains and two classes to the size of photos."""
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 4, (size[1] // 4, size[0] // 4, 3))
    for number in range(n):
        domain, label = data.domains[number % 2], data.classes[number // 2 % 2]
        known = [at for at, s in enumerate(data) if (s.domain, s.label) == (domain, label)]
        image = pixels.read(data.files[known[number]]).resize(size, Image.Resampling.BICUBIC)
        grain = np.tile(np.roll(noise, number, axis=1), (4, 4, 1))
        noisy = np.clip(np.asarray(image) + grain, 0, 255).astype(np.uint8)
        encoded = io.BytesIO()
        Image.fromarray(noisy).save(encoded, "JPEG", quality=90)
        content = encoded.getvalue()
        folder = root / domain / label
        folder.mkdir(parents=True, exist_ok=True)
        for copied in range(COPIES):
            comment = b"\xff\xfe\x00\x03" + bytes([copied])
            (folder / f"{number}-{copied}.jpg").write_bytes(content[:2] + comment + content[2:])
    return root


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def scaled_floor(files: Sequence[Path], side: int) -> float:
    """Decode photos by libjpeg at the smallest scale with twice the side, and do nothing else."""

    def one(file: Path) -> None:
        with Image.open(file) as image:
            image.draft(None, (2 * side, 2 * side))
            image.load()

    def run() -> None:
        for file in files:
            one(file)

    return cpu_seconds(run)


def compare_photos(title: str, data: ImageDomains, zoo: Sequence[ModelSpec], n: int) -> None:
    """Print what decoding at a reduced scale saves, and what it changes."""
    size, _ = PHOTOS[title]
    with tempfile.TemporaryDirectory(prefix="oodzoo-bench-") as folder:
        photos = ImageDomains(write_photos(data, Path(folder) / "photos", size, n))
        photos.read_all()
        stores, took = {}, {}
        for decode in ("full", "reduced"):
            config = ExtractionConfig(device="cpu", decode=decode)
            path, given = Path(folder) / decode, list(zoo)
            took[decode] = cpu_seconds(partial(run_extraction, photos, given, path, config))
            stores[decode] = FeatureStore(path)
        files = sorted((Path(folder) / "photos").rglob("*.jpg"))
        scaled = scaled_floor(files, max(spec.input_size or 224 for spec in zoo))
        forward = 0.0
        for spec in zoo:
            forward += cpu_seconds(partial(forward_floor, spec, len(files)))
        full, reduced = stores["full"], stores["reduced"]
        cosines = [
            float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
            for model in full.models
            for domain in full.domains
            for a, b in zip(
                full.features(model, domain), reduced.features(model, domain), strict=True
            )
        ]
        print(
            f"{title}, {len(files)} photos, {len(zoo)} models: full {took['full']:.1f} s, reduced "
            f"{took['reduced']:.1f} s of CPU time, full/reduced "
            f"{took['full'] / took['reduced']:.2f}; reduced/floor "
            f"{took['reduced'] / (scaled + forward):.2f} (decode {scaled:.1f} s, forward "
            f"{forward:.1f} s); cosine of features {np.mean(cosines):.5f}, least "
            f"{min(cosines):.4f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument(
        "--images", type=int, default=280, help="number of images for the whole zoo"
    )
    parser.add_argument("--all", action="store_true", help="use all images for the whole zoo")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--photos", action="store_true", help="large JPEG images only")
    arguments = parser.parse_args()
    folder = arguments.shared / "data" / "pacs_mini"
    if not folder.is_dir():
        print(f"no images in {folder}: nothing measured")
        return
    data = ImageDomains(folder)
    zoo = load_zoo(arguments.shared / "zoo" / "zoo.toml")
    if arguments.photos:
        for title, (_, n) in PHOTOS.items():
            compare_photos(title, data, [s for s in zoo if s.name in THREE], n)
        return
    one = compare("one model", data, [s for s in zoo if s.name == MEDIUM], arguments.repeats)
    part = data if arguments.all else data.sample(arguments.images)
    whole = compare(f"{len(zoo)} models", part, zoo, 1 if arguments.all else 2)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"median ratio: one model {one:.2f}, whole zoo {whole:.2f} (target {TARGET})")
    print(f"peak memory of this process: {peak:.1f} GB")


if __name__ == "__main__":
    main()

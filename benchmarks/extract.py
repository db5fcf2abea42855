"""Extraction time relative to a lower bound: decoding once plus bare forward passes.

    python benchmarks/extract.py [--shared ../shared] [--images 280] [--all]

The lower bound ("floor") is the time to read, decode and resize every image once, plus the time of
bare `InferenceSession.run` on prepared tensors for each model, both with all threads. It is
measured for one medium-sized model and for the whole zoo, alternating with the extraction in one
run.
"""

from __future__ import annotations

import argparse
import copy
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from joblib import Parallel, cpu_count, delayed

from oodzoo.core.backend import default_batch_size
from oodzoo.data import pixels
from oodzoo.data.dataset import ImageDomains
from oodzoo.data.files import ImageFile
from oodzoo.extraction.extract import run_extraction
from oodzoo.extraction.outcome import ExtractionConfig
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument(
        "--images", type=int, default=280, help="number of images for the whole zoo"
    )
    parser.add_argument("--all", action="store_true", help="use all images for the whole zoo")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    folder = arguments.shared / "data" / "pacs_mini"
    if not folder.is_dir():
        print(f"no images in {folder}: nothing measured")
        return
    data = ImageDomains(folder)
    zoo = load_zoo(arguments.shared / "zoo" / "zoo.toml")
    one = compare("one model", data, [s for s in zoo if s.name == MEDIUM], arguments.repeats)
    part = data if arguments.all else data.sample(arguments.images)
    whole = compare(f"{len(zoo)} models", part, zoo, 1 if arguments.all else 2)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"median ratio: one model {one:.2f}, whole zoo {whole:.2f} (target {TARGET})")
    print(f"peak memory of this process: {peak:.1f} GB")


if __name__ == "__main__":
    main()

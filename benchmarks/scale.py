"""What spreading the work costs and gains.

    python benchmarks/scale.py tasks [--tasks 10000] [--engine processes ray]
    python benchmarks/scale.py workers [--images 600] [--repeats 3] [--engine processes ray]
    python benchmarks/scale.py gpu [--images 4000] [--only "four processes"]

`tasks`: time per task that does nothing, and memory of this process, as their number grows.
`workers`: the embedded zoo extracted by one process with all cores, and by one worker per core;
the features are equal bit for bit. `gpu`: four small models on one GPU: one after another, together
in one process, and in several processes that share the GPU; needs PyTorch, transformers and CUDA.
The models have random weights, which does not change their speed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from joblib import cpu_count
from PIL import Image

import oodzoo
from oodzoo.core.options import Compute
from oodzoo.demo.digits import write_digits
from oodzoo.extraction.engines import Engine, Work, open_engine
from oodzoo.zoo import ModelSpec

NOTHING = "def nothing(shared, task, worker):\n    return task\n"


@contextmanager
def opened(name: str, n: int) -> Iterator[Engine]:
    """Open an engine with n workers."""
    compute = Compute("cpu", "ray") if name == "ray" else Compute(",".join(["cpu"] * max(2, n)))
    with open_engine(compute) as engine:
        assert engine is not None
        yield engine


def memory() -> float:
    """Resident memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure_tasks(engines: Sequence[str], most: int) -> None:
    """Print the time per task that does nothing, and the memory of this process."""
    folder = tempfile.mkdtemp()
    Path(folder, "idle_task.py").write_text(NOTHING)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, folder)
    work = Work("idle_task:nothing", b"x" * 1_000_000)
    print(f"{'engine':<12}{'tasks':>8}{'seconds':>10}{'ms per task':>13}{'memory, MB':>12}")
    for name in engines:
        with opened(name, cpu_count()) as engine:
            list(engine.run(work, [b"warm"] * 8))
            n = 100
            while n <= most:
                start = time.perf_counter()
                done = sum(1 for _ in engine.run(work, (b"%d" % at for at in range(n))))
                seconds = time.perf_counter() - start
                assert done == n
                per_task = 1000 * seconds / n
                print(f"{name:<12}{n:>8,}{seconds:>10.2f}{per_task:>13.2f}{memory():>12.0f}")
                n *= 10


def features_of(store: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (store / "models").rglob("*.npy")}


def measure_workers(engines: Sequence[str], n_images: int, repeats: int) -> None:
    """Print the time of an extraction by one process and by several workers."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        data = oodzoo.ImageDomains(write_digits(root / "data")).sample(n_images)
        n = cpu_count()
        seconds: dict[str, list[float]] = {"one process": [], **{name: [] for name in engines}}
        reference: dict[str, bytes] = {}
        for repeat in range(repeats):
            for name, times in seconds.items():
                store = root / f"{name} {repeat}"
                options: dict[str, str] = {"device": "cpu"}
                if name == "ray":
                    options["engine"] = "ray"
                elif name == "processes":
                    options["device"] = ",".join(["cpu"] * max(2, n))
                start = time.perf_counter()
                oodzoo.extract(data, "demo", store, **options)  # type: ignore[arg-type]
                times.append(time.perf_counter() - start)
                reference = reference or features_of(store)
                assert features_of(store) == reference, name
        one = statistics.median(seconds["one process"])
        print(f"{n} cores, {len(data):,} images, embedded zoo; median of {repeats}, start included")
        for name, times in seconds.items():
            median = statistics.median(times)
            print(f"{name:<14}{median:>8.1f} s   {median / one:.2f} × one process")


def random_models(folder: Path) -> list[ModelSpec]:
    """Save small vision models of transformers with random weights."""
    import transformers as hf

    configs = {
        "vit_small": (hf.ViTModel, hf.ViTConfig(
            hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536
        )),
        "vit_tiny": (hf.ViTModel, hf.ViTConfig(
            hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768
        )),
        "convnext_tiny": (hf.ConvNextModel, hf.ConvNextConfig()),
        "resnet_50": (hf.ResNetModel, hf.ResNetConfig()),
    }  # fmt: skip
    specs = []
    for name, (kind, config) in configs.items():
        kind(config).save_pretrained(folder / name)
        hf.ViTImageProcessor(size={"height": 224, "width": 224}).save_pretrained(folder / name)
        specs.append(ModelSpec(name=name, source=f"hf/{folder / name}"))
    return specs


def random_images(root: Path, n: int) -> Path:
    """Write JPEG files of 300 × 300 pixels in four domains and ten classes."""
    with ProcessPoolExecutor() as pool:
        list(pool.map(random_image, [root] * n, range(n), chunksize=256))
    return root


def random_image(root: Path, at: int) -> None:
    """Write one JPEG file."""
    small = np.random.default_rng(at).integers(0, 256, (20, 20, 3), np.uint8)
    path = root / f"domain{at % 4}" / f"class{at // 4 % 10}" / f"{at:06d}.jpg"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(small).resize((300, 300), Image.Resampling.BICUBIC).save(path)


def measure_gpu(n_images: int, wanted: Sequence[str] | None) -> None:
    """Print the time of four models on one GPU, in several arrangements."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        specs = random_models(root / "zoo")
        data = oodzoo.ImageDomains(random_images(root / "data", n_images))
        _ = data.digests

        def extract(name: str, models: Sequence[ModelSpec], device: str) -> None:
            oodzoo.extract(data, models, root / name, device=device)

        def one_after_another(name: str) -> None:
            for spec in specs:
                extract(name, [spec], "cuda:0")

        arrangements: dict[str, Callable[[str], None]] = {
            "one after another": one_after_another,
            "together in one process": lambda name: extract(name, specs, "cuda:0"),
            "two processes": lambda name: extract(name, specs, ",".join(["cuda:0"] * 2)),
            "four processes": lambda name: extract(name, specs, ",".join(["cuda:0"] * 4)),
            "eight processes": lambda name: extract(name, specs, ",".join(["cuda:0"] * 8)),
        }
        extract("warm", specs, "cuda:0")  # libraries are loaded, kernels are chosen
        first = None
        print(f"{len(specs)} models, {n_images:,} images, {cpu_count()} cores")
        for name, run in arrangements.items():
            if wanted and name not in wanted:
                continue
            start = time.perf_counter()
            run(name)
            seconds = time.perf_counter() - start
            first = first or seconds
            rate = len(specs) * n_images / seconds
            same = features_of(root / name) == features_of(root / "warm")
            print(
                f"{name:<26}{seconds:>8.1f} s{rate:>9,.0f} images/s"
                f"{first / seconds:>7.2f} × as fast"
                f"{'' if same else '   (features differ in the last bits)'}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=["tasks", "workers", "gpu"])
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--images", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", help="arrangements of gpu, by name")
    parser.add_argument("--engine", nargs="+", default=["processes", "ray"])
    given = parser.parse_args()
    if given.what in (None, "tasks"):
        measure_tasks(given.engine, given.tasks)
    if given.what in (None, "workers"):
        measure_workers(given.engine, given.images or 600, given.repeats)
    if given.what == "gpu":
        measure_gpu(given.images or 4000, given.only)


if __name__ == "__main__":
    main()

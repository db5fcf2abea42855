"""Time the feature store: synchronisation, checksums, opening and planning.

    python benchmarks/store.py [--only sync,checksums,opening,planning] [--repeats 5] [--old PYTHON]

- sync: `oodzoo store sync` after a domain was renamed, against `oodzoo data`, which lists, hashes
  and decodes the same 50,000 images; with --old also against `zood data` of version 0.1, installed
  for that Python. The files are in the disk cache.
- checksums: ranking 20,000 x 1,024 features from disk with and without the verification of their
  checksums. Each repetition verifies every file and computes everything again.
- opening: a store of 50,000 images and 27 models.
- planning: `plan` and `finish` of a store of 2,300 shards (588,800 images) and 30 models.

The stores of the last two have one feature. Repetitions of what is compared alternate; the medians
are printed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import oodzoo
from oodzoo.core.io import npy_bytes
from oodzoo.data.listing import Sample
from oodzoo.extraction.importing import import_features
from oodzoo.store import shards
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.format import ModelRecord, file_name, model_folder
from oodzoo.store.table import SHARD_ROWS, SampleTable, images_digest
from oodzoo.store.writer import writing
from oodzoo.zoo.callable import model_from_callable
from oodzoo.zoo.preprocessing import square

N_DOMAINS, N_CLASSES = 4, 10


class Times(NamedTuple):
    """Seconds; `cpu` includes child processes and depends less on other processes."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:6.2f} s (CPU {self.cpu:.2f} s)"


def timed(work: Callable[[], object]) -> Times:
    cpu, start = sum(os.times()[:4]), time.perf_counter()
    work()
    return Times(time.perf_counter() - start, sum(os.times()[:4]) - cpu)


def alternating(works: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, Times]:
    """Return the median times of each work; repetitions alternate."""
    found: dict[str, list[Times]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            found[name].append(timed(work))
    return {
        name: Times(median(t.wall for t in times), median(t.cpu for t in times))
        for name, times in found.items()
    }


# --- sync ------------------------------------------------------------------------------------


def write_images(folder: Path, n: int) -> None:
    """Write distinct PNG files of 32 x 32 pixels."""
    rng = np.random.default_rng(0)
    for number in range(n):
        domain, label = number % N_DOMAINS, number // N_DOMAINS % N_CLASSES
        path = folder / f"domain-{domain}" / f"class-{label}" / f"{number:06d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), np.uint8)).save(path, compress_level=0)


def mean_colour(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(batch.mean(axis=(2, 3)))


def sync(folder: Path, repeats: int, old: str | None) -> None:
    n = 50_000
    data, store = folder / "images", folder / "store"
    write_images(data, n)
    model = model_from_callable(
        mean_colour, name="mean-colour", preprocessing=square(32, (0, 0, 0), (1, 1, 1)), version="1"
    )
    oodzoo.extract(data, [model], store)

    def command(*arguments: str | Path) -> None:
        subprocess.run(arguments, check=True, capture_output=True)

    own = [sys.executable, "-m", "oodzoo"]
    names = [data / "domain-0", data / "domain-renamed"]

    def synchronise() -> None:
        names[0].rename(names[1])
        names.reverse()
        command(*own, "store", "sync", store, data)

    works: dict[str, Callable[[], object]] = {
        "oodzoo store sync": synchronise,
        "oodzoo data": lambda: command(*own, "data", data),
    }
    if old is not None:
        works["zood data (0.1)"] = lambda: command(Path(old).with_name("zood"), "data", data)
    times = alternating(works, repeats)
    base = times["oodzoo store sync"]
    for name, value in times.items():
        print(
            f"{n:,} images: {name:18}{value.wall:6.2f} s, ratio {value.wall / base.wall:.2f}; "
            f"CPU {value.cpu:.2f} s, ratio {value.cpu / base.cpu:.2f}"
        )


# --- checksums -------------------------------------------------------------------------------


def checksums(folder: Path, repeats: int) -> None:
    n, d = 20_000, 1_024
    rng = np.random.default_rng(0)
    y = rng.integers(0, N_CLASSES, n)
    X = rng.normal(size=(n, d)).astype(np.float32)
    X[:, :N_CLASSES] += np.eye(N_CLASSES, dtype=np.float32)[y]
    file = folder / "net.npz"
    np.savez(file, labels=y.astype(str), domains=rng.integers(0, N_DOMAINS, n).astype(str), net=X)
    store = import_features([file], folder / "store").path

    def rank() -> None:
        shards._verified.clear()
        shutil.rmtree(store / "cache", ignore_errors=True)
        oodzoo.rank(store)

    def rank_unverified() -> None:
        with patch.object(shards, "_verify"):
            rank()

    def verify() -> None:
        shards._verified.clear()
        opened = FeatureStore(store)
        for path, shard_file in opened.shard_files():
            shards._verify(np.memmap(path, np.uint8, "r"), shard_file)

    rank()
    works = {"verified": rank, "unverified": rank_unverified, "alone": verify}
    times = alternating(works, repeats)
    with_, without, alone = times["verified"], times["unverified"], times["alone"]
    for kind in ("wall", "cpu"):
        on, off, verifying = (getattr(value, kind) for value in (with_, without, alone))
        print(
            f"ranking {n:,} x {d:,} from disk, {kind} time: {on:.3f} s with checksums, {off:.3f} s "
            f"without, {100 * (on / off - 1):+.1f} % (target 5); verifying alone "
            f"{1000 * verifying:.0f} ms, {100 * verifying / off:.1f} %"
        )


# --- opening and planning --------------------------------------------------------------------


def samples(n_shards: int, n_images: int) -> SampleTable:
    """Make a table whose images fill a number of shards."""
    each = n_shards // N_DOMAINS * SHARD_ROWS
    found = []
    for number in range(n_images):
        domain, label = f"domain-{min(number // each, N_DOMAINS - 1)}", f"class-{number % 10}"
        sample = Sample(f"{domain}/{label}/{number:07d}.png", domain, label)
        found.append((sample, hashlib.sha256(sample.path.encode()).hexdigest()))
    return SampleTable.of_samples(found)


def record() -> ModelRecord:
    return ModelRecord(
        source="import",
        fingerprint="0",
        feature_dim=1,
        n_logits=None,
        parameters=None,
        pretraining=None,
        precision="float32",
        dtype="float32",
        preprocessing=None,
    )


def write_models(store: Path, table: SampleTable, n_models: int) -> None:
    """Write an index and the finished shards of models, without syncing each file to disk."""
    with writing(store) as writer:
        writer.set_table(table)
        writer.add_images()
        names = [f"model-{number:02d}" for number in range(n_models)]
        for name in names:
            writer.add_model(name, record())
        identity = record().identity
        for shard, images in writer.index.shards.items():
            content = npy_bytes(np.zeros((len(images), 1), np.float32))
            sha256 = hashlib.sha256(content).hexdigest()
            file = shards.ShardFile(
                file_name(shard, "features", sha256), sha256, shards.checksum(content)
            )
            digest = images_digest(images)
            finished = shards.Shard(shard, file, model=identity, images=digest).content
            for name in names:
                target = model_folder(store, name)
                (target / file.file).write_bytes(content)
                shards.record_file(target, shard).write_bytes(finished)


def opening(folder: Path, repeats: int) -> None:
    n_models, n_images = 27, 50_000
    store = folder / "store"
    table = samples(n_images // SHARD_ROWS, n_images)
    write_models(store, table, n_models)
    with writing(store) as writer:
        writer.set_table(table)
        writer.finish()
    times = alternating({"open": lambda: FeatureStore(store)}, repeats)
    opened = FeatureStore(store)
    every = timed(lambda: [opened.coverage(name) for name in opened.models])
    print(f"{opened.n_images:,} images, {len(opened.models)} models:")
    print(f"  opening {times['open']}")
    print(f"  finding the rows of all models {every}")


def planning(folder: Path, repeats: int) -> None:
    n_shards, n_models = 2_300, 30
    store = folder / "store"
    table = samples(n_shards, n_shards * SHARD_ROWS)
    write_models(store, table, n_models)
    images = list(table.images())
    times = {}
    with writing(store) as writer:
        writer.set_table(table)
        times["finish, no model in the manifest"] = timed(writer.finish)
    times["opening for writing"] = timed(lambda: open_writer(store))
    with writing(store) as writer:
        names = sorted(writer.manifest.models)
        times["plan, nothing to compute"] = timed(lambda: writer.plan(names, images))
        writer.add_model("new", record())
        times["plan, a new model"] = timed(lambda: writer.plan(["new"], images))
        times["finish, all other models in the manifest"] = timed(writer.finish)
    again = alternating({"open": lambda: FeatureStore(store)}, repeats)
    times["opening for reading"] = again["open"]
    print(f"{n_shards:,} shards ({len(images):,} images), {n_models} models:")
    for name, value in times.items():
        print(f"  {name:42}{value}")


def open_writer(store: Path) -> None:
    with writing(store):
        pass


def main() -> None:
    parts = ("sync", "checksums", "opening", "planning")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(parts), help="parts, separated by commas")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--old", metavar="PYTHON", help="Python with zood 0.1 installed")
    arguments = parser.parse_args()
    for part in arguments.only.split(","):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if part == "sync":
                sync(folder, arguments.repeats, arguments.old)
            elif part == "checksums":
                checksums(folder, arguments.repeats)
            elif part == "opening":
                opening(folder, arguments.repeats)
            elif part == "planning":
                planning(folder, arguments.repeats)
            else:
                parser.error(f"unknown part {part!r}; expected one of {', '.join(parts)}")


if __name__ == "__main__":
    main()

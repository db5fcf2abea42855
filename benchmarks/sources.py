"""Extraction from every kind of source, relative to local files.

    python benchmarks/sources.py [FOLDER] [--images 600] [--repeats 3] [--only "S3"]

The same images, by default the embedded digits, are read from a local folder, WebDataset archives,
Parquet files, a data set of Hugging Face on disk, NumPy arrays, and from an S3 server in another
process of this machine: directly, with a latency of 20 ms for each request, and with one request
that stalls for 20 s. Each measurement has a process of its own, and opens the source itself.

`decode`: every image is read, hashed and decoded. `extract`: a model of the embedded zoo is run,
too; the features are equal bit for bit. `cold`, `warm`: before and after the objects are in the
local cache. `idle`: seconds between the first and the last image in which none was hashed or
decoded. "bare requests" reads the objects as fast as the server sends them, and does nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import pytest

import oodzoo
from oodzoo.data import contents, files
from oodzoo.demo.digits import write_digits
from oodzoo.features import pixels
from oodzoo.features.config import ExtractionConfig
from oodzoo.features.extract import run_extraction

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.s3 import SIGNED, FaultyProxy, S3Server
from tests.sources import DECODED, WITH_FILES, tars

MODEL = "separable_glyphs_colour"
READERS = 32


class Measured(NamedTuple):
    """One pass over the images; with `features`, of an extraction."""

    seconds: float
    idle: float
    features: str | None = None


@contextmanager
def busy_times() -> Iterator[list[tuple[float, float]]]:
    """Record when images are hashed and decoded, after they were read."""
    times: list[tuple[float, float]] = []
    lock = threading.Lock()
    original = files.reading

    @contextmanager
    def reading(file: Any) -> Iterator[bytes]:
        with original(file) as content:
            start = time.perf_counter()
            try:
                yield content
            finally:
                with lock:
                    times.append((start, time.perf_counter()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents, "reading", reading)
        patch.setattr(pixels, "reading", reading)
        yield times


def idle(times: Sequence[tuple[float, float]]) -> float:
    """Sum the gaps between intervals."""
    total, last = 0.0, None
    for start, end in sorted(times):
        if last is not None:
            total += max(0.0, start - last)
        last = end if last is None else max(last, end)
    return total


def open_source(name: str, given: str, folder: Path) -> Callable[[], oodzoo.ImageDomains]:
    """Prepare a source, and return the function that opens it."""
    known = {**WITH_FILES, **DECODED}
    if name not in known:
        return lambda: oodzoo.ImageDomains(given)
    (folder / "source").mkdir()
    made = known[name](oodzoo.ImageDomains(given), folder / "source")
    return lambda: oodzoo.ImageDomains(made.source, **made.options)


def measure(
    name: str, given: str, extracts: bool, passes: int, environment: Mapping[str, str]
) -> list[Measured] | str:
    """Measure passes over a source, the first one with an empty cache; in a process of its own."""
    os.environ.update(environment)
    model = [spec for spec in oodzoo.load_zoo("demo") if spec.name == MODEL]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["OODZOO_CACHE"] = str(folder / "cache")
        with tempfile.TemporaryDirectory() as small:  # libraries are loaded
            first = oodzoo.ImageDomains(write_digits(small)).sample(60)
            run_extraction(first, model, folder / "warm", ExtractionConfig(device="cpu"))
        try:
            opened = open_source(name, given, folder)
        except pytest.skip.Exception as error:
            return str(error)
        measured = []
        for number in range(passes):
            store = folder / f"store{number}"
            with busy_times() as times:
                start = time.perf_counter()
                data = opened()
                if extracts:
                    run_extraction(data, model, store, ExtractionConfig(device="cpu"))
                else:
                    data.check()
                seconds = time.perf_counter() - start
            digest = digest_of(oodzoo.FeatureStore(store)) if extracts else None
            measured.append(Measured(seconds, idle(times), digest))
        return measured


def digest_of(store: oodzoo.FeatureStore) -> str:
    """SHA-256 of all features, in the order of the images."""
    total = hashlib.sha256()
    for domain in store.domains:
        total.update(store.features(MODEL, domain).tobytes())
    return total.hexdigest()


def bare_requests(
    endpoint: str, bucket: str, keys: Sequence[str], environment: Mapping[str, str]
) -> list[Measured]:
    """Read objects with as many threads as remote images are read with."""

    def read(part: Sequence[str]) -> None:
        for key in part:
            connection = HTTPConnection(urlsplit(endpoint).netloc)
            connection.request("GET", f"/{bucket}/{quote(key)}", headers=SIGNED)
            connection.getresponse().read()
            connection.close()

    start = time.perf_counter()
    with ThreadPoolExecutor(READERS) as pool:
        list(pool.map(read, [keys[at::READERS] for at in range(READERS)]))
    return [Measured(time.perf_counter() - start, 0.0)]


def in_a_process(function: Callable[..., Any], *arguments: Any) -> Any:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


class Row(NamedTuple):
    """A line of the table: what is opened, through what."""

    name: str
    source: str
    given: str
    server: S3Server | FaultyProxy | None = None
    prepare: Callable[[], None] = lambda: None


def rows_of(
    data: oodzoo.ImageDomains, folder: Path, server: S3Server, proxy: FaultyProxy
) -> list[Row]:
    """Upload the images, and list what is measured."""
    local = str(data.root)
    bucket = server.create_bucket("photos")
    for i, sample in enumerate(data.samples):
        bucket.put(f"folder/{sample.path}", data.open(i))
    (folder / "tars").mkdir()
    tars(data, folder / "tars")
    archives = bucket.upload(folder / "tars", "tars") + "/{0..1}.tar"
    middle = quote(data.samples[len(data) // 2].path)

    def slow() -> None:
        proxy.slow("", seconds=0.02)

    def stall() -> None:
        proxy.stall(f"^GET .*/{middle}$", seconds=20)

    remote = f"{bucket.url}/folder"
    return [
        Row("local folder", "folder", local),
        Row("tars", "tars", local),
        Row("Parquet", "Parquet", local),
        Row("HF on disk", "HF on disk", local),
        Row("NumPy", "NumPy", local),
        Row("S3", "S3", remote, server),
        Row("S3, 20 ms", "S3", remote, proxy, slow),
        Row("S3, a stall", "S3", remote, proxy, stall),
        Row("S3 tars", "S3", archives, server),
        Row("S3 tars, 20 ms", "S3", archives, proxy, slow),
    ]


def measure_row(row: Row, repeats: int, proxy: FaultyProxy) -> dict[str, list[Measured]] | str:
    """Measure cold and warm passes, without and with a model; or why that is not possible."""
    found: dict[str, list[Measured]] = {}
    for _ in range(1 if row.server else repeats):
        for what, extracts in (("decode", False), ("extract", True)):
            proxy.forget()
            row.prepare()
            environment = row.server.environment if row.server else {}
            passes = 2 if row.server else 1
            done = in_a_process(measure, row.source, row.given, extracts, passes, environment)
            if isinstance(done, str):
                return done
            for temperature, measured in zip(("cold", "warm"), done, strict=False):
                found.setdefault(f"{what} {temperature}", []).append(measured)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--images", type=int, default=600)
    parser.add_argument("--repeats", type=int, default=3, help="of sources on the local disk")
    parser.add_argument("--only", help="sources whose name contains this, and the local folder")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as temporary,
        S3Server() as server,
        FaultyProxy(server.endpoint) as proxy,
    ):
        folder = Path(temporary)
        whole = oodzoo.ImageDomains(given.folder or write_digits(folder / "digits"))
        data = copy_of(whole.sample(given.images), folder / "images")
        n = len(data)
        size = sum(len(data.open(i)) for i in range(n)) / n / 1e3
        print(f"{n:,} images of {size:.0f} kB on average, {multiprocessing.cpu_count()} cores")
        print(f"{'':<24}{'decode':>21}{'extract':>25}{'idle, s':>14}")
        print(f"{'source':<18}{'cache':>6}" + f"{'images/s':>12}{'× local':>9}" * 2)
        reference: dict[str, float] = {}
        features = set()
        for row in rows_of(data, folder, server, proxy):
            if given.only and given.only not in row.name and row.name != "local folder":
                continue
            found = measure_row(row, given.repeats, proxy)
            if isinstance(found, str):
                print(f"{row.name:<18}{'':>6}  {found}")
                continue
            for temperature in ("cold", "warm"):
                if f"decode {temperature}" not in found:
                    continue
                line = f"{row.name:<18}{temperature if row.server else '':>6}"
                gaps = []
                for what in ("decode", "extract"):
                    each = found[f"{what} {temperature}"]
                    rate = n / statistics.median(one.seconds for one in each)
                    reference.setdefault(what, rate)
                    line += f"{rate:>12,.0f}{rate / reference[what]:>9.2f}"
                    gaps.append(max(one.idle for one in each))
                    features |= {one.features for one in each if one.features}
                print(line + f"{gaps[0]:>7.1f}{gaps[1]:>7.1f}", flush=True)
        keys = [key for key in server.keys("photos") if key.startswith("folder/")]
        bare = in_a_process(bare_requests, server.endpoint, "photos", keys, server.environment)
        rate = n / bare[0].seconds
        print(f"{'S3, bare requests':<24}{rate:>12,.0f}{rate / reference['decode']:>9.2f}")
        if len(features) != 1:
            sys.exit(f"features differ between sources: {len(features)} kinds")
        print("features of all sources are equal bit for bit")


def copy_of(data: oodzoo.ImageDomains, root: Path) -> oodzoo.ImageDomains:
    """Write a sample of images into a folder of its own."""
    for i, sample in enumerate(data.samples):
        path = root / sample.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.open(i))
    return oodzoo.ImageDomains(root)


if __name__ == "__main__":
    main()

"""Extraction from every kind of source, relative to local files.

    python benchmarks/sources.py [FOLDER] [--images 600] [--repeats 3] [--only "S3"]

The same images, by default the embedded digits, are read from a local folder, WebDataset archives,
Parquet files, a data set of Hugging Face on disk, NumPy arrays, and from an S3 server in another
process of this machine: at once, and with a latency of 20 ms for each request. Each measurement has
a process of its own, and opens the source itself.

`decode`: every image is read, hashed and decoded. `extract`: a model of the embedded zoo is run,
too; the features are equal bit for bit. `cold`, `warm`: before and after the objects are in the
local cache. `gap`: the longest time in seconds, between the first and the last image, in which none
was hashed or decoded. "bare requests" reads the objects as fast as the server sends them, and does
nothing else: the server is written in Python, and slower than real ones.
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
from oodzoo.data import files, listing
from oodzoo.data.listing import REMOTE_READERS
from oodzoo.demo.digits import write_digits
from oodzoo.extraction import forward
from oodzoo.extraction.extract import run_extraction
from oodzoo.extraction.outcome import ExtractionConfig

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.s3 import SIGNED, Bucket, FaultyProxy, S3Server
from tests.sources.kinds import DECODED, WITH_FILES, tars

LOCAL = ("folder", "tars", "Parquet", "HF on disk", "NumPy")
MODEL = "separable_glyphs_colour"


class Measured(NamedTuple):
    """One pass over the images; with `features`, of an extraction."""

    seconds: float
    gap: float
    features: str | None = None


class Row(NamedTuple):
    """A line of the table: a source of `tests.sources.kinds`, or a URL, with latency or without."""

    name: str
    url: str | None = None
    is_slow: bool = False


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
        patch.setattr(listing, "reading", reading)
        patch.setattr(forward, "reading", reading)
        yield times


def longest_gap(times: Sequence[tuple[float, float]]) -> float:
    """Return the longest time between intervals."""
    longest, last = 0.0, None
    for start, end in sorted(times):
        if last is not None:
            longest = max(longest, start - last)
        last = end if last is None else max(last, end)
    return longest


def open_source(row: Row, local: str, folder: Path) -> Callable[[], oodzoo.ImageDomains]:
    """Prepare a source, and return the function that opens it."""
    if row.url:
        return lambda: oodzoo.ImageDomains(row.url)
    (folder / "source").mkdir()
    make = {**WITH_FILES, **DECODED}[row.name]
    return make(oodzoo.ImageDomains(local), folder / "source").open


def measure(
    row: Row, local: str, extracts: bool, environment: Mapping[str, str]
) -> list[Measured] | str:
    """Measure passes over a source, the first one with an empty cache; in a process of its own."""
    os.environ.update(environment)
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    model = [spec for spec in oodzoo.load_zoo("demo") if spec.name == MODEL]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["OODZOO_CACHE"] = str(folder / "cache")
        warm = folder / "warm"  # libraries are loaded, files are in memory
        run_extraction(oodzoo.ImageDomains(local), model, warm, ExtractionConfig(device="cpu"))
        try:
            opened = open_source(row, local, folder)
        except pytest.skip.Exception as error:
            return str(error)
        measured = []
        for number in range(2 if row.url else 1):
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
            measured.append(Measured(seconds, longest_gap(times), digest))
        return measured


def digest_of(store: oodzoo.FeatureStore) -> str:
    """SHA-256 of all features, in the order of the images."""
    total = hashlib.sha256()
    for domain in store.domains:
        total.update(store.features(MODEL, domain).tobytes())
    return total.hexdigest()


def bare_requests(endpoint: str, bucket: str, keys: Sequence[str]) -> float:
    """Return the seconds to read objects with as many threads as remote images are read with."""

    def read(part: Sequence[str]) -> None:
        connection = HTTPConnection(urlsplit(endpoint).netloc)
        for key in part:
            connection.request("GET", f"/{bucket}/{quote(key)}", headers=SIGNED)
            connection.getresponse().read()
        connection.close()

    start = time.perf_counter()
    with ThreadPoolExecutor(REMOTE_READERS) as pool:
        list(pool.map(read, [keys[at::REMOTE_READERS] for at in range(REMOTE_READERS)]))
    return time.perf_counter() - start


def in_a_process(function: Callable[..., Any], *arguments: Any) -> Any:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


def upload(data: oodzoo.ImageDomains, folder: Path, server: S3Server) -> list[Row]:
    """Upload the images, as a folder and in archives, and list what is measured there."""
    bucket = server.create_bucket("photos")
    for i, sample in enumerate(data.samples):
        bucket.put(f"folder/{sample.path}", data.open(i))
    (folder / "tars").mkdir()
    tars(data, folder / "tars")
    archives = bucket.upload(folder / "tars", "tars") + "/{0..1}.tar"
    images = f"{bucket.url}/folder"
    return [
        Row("S3", images),
        Row("S3, 20 ms", images, is_slow=True),
        Row("S3 tars", archives),
        Row("S3 tars, 20 ms", archives, is_slow=True),
    ]


def measure_row(
    row: Row, data: oodzoo.ImageDomains, repeats: int, proxy: FaultyProxy
) -> dict[str, list[Measured]] | str:
    """Measure cold and warm passes, without and with a model; or why that is not possible."""
    found: dict[str, list[Measured]] = {}
    environment = proxy.environment if row.url else {}
    for _ in range(1 if row.url else repeats):
        for what in ("decode", "extract"):
            proxy.forget()
            if row.is_slow:
                proxy.slow("", seconds=0.02)
            done = in_a_process(measure, row, str(data.root), what == "extract", environment)
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
        print(f"{'':<24}{'decode':>21}{'extract':>21}{'gap, s':>16}")
        titles = f"{'images/s':>12}{'× local':>9}" * 2
        print(f"{'source':<18}{'cache':>6}{titles}{'decode':>8}{'extract':>8}")
        reference: dict[str, float] = {}
        features = set()
        for row in [*map(Row, LOCAL), *upload(data, folder, server)]:
            if given.only and given.only not in row.name and row.name != LOCAL[0]:
                continue
            found = measure_row(row, data, given.repeats, proxy)
            if isinstance(found, str):
                print(f"{row.name:<18}{'':>6}  {found}")
                continue
            for temperature in ("cold", "warm"):
                if f"decode {temperature}" not in found:
                    continue
                line = f"{row.name:<18}{temperature if row.url else '':>6}"
                gaps = []
                for what in ("decode", "extract"):
                    each = found[f"{what} {temperature}"]
                    rate = n / statistics.median(one.seconds for one in each)
                    reference.setdefault(what, rate)
                    line += f"{rate:>12,.0f}{rate / reference[what]:>9.2f}"
                    gaps.append(max(one.gap for one in each))
                    features |= {one.features for one in each if one.features}
                print(line + f"{gaps[0]:>8.1f}{gaps[1]:>8.1f}", flush=True)
        every = Bucket(server, "photos").keys()
        keys = [key for key in every if key.startswith("folder/")]
        proxy.forget()
        rate = n / in_a_process(bare_requests, proxy.endpoint, "photos", keys)
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

"""Compare this version with another one, command by command.

    python benchmarks/versions.py OTHER [--repeats 3] [--only rank evaluate] [--models 10]

OTHER is a checkout of another version. Both run in turn, each command in a process of its own, from
the same data; the table shows the least CPU time and wall time of the repeats, and their ratios.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

HERE = Path(__file__).parents[1]
COMMANDS = {
    "demo": ["demo", "--out", "{fresh}"],
    "extract": ["extract", "{digits}", "--zoo", "demo", "--store", "{fresh}"],
    "rank": ["rank", "{store}"],
    "rank zood": ["rank", "{store}", "--score", "zood"],
    "evaluate": ["evaluate", "{store}", "--no-baselines"],
    "fit": ["fit", "{store}", "--out", "{fresh}"],
}


class Cost(NamedTuple):
    """CPU time and wall time, in seconds."""

    cpu: float
    wall: float


def run(source: Path, arguments: Sequence[str]) -> Cost:
    """Run a command of the version in a source folder."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "oodzoo", *arguments],
        env={**os.environ, "PYTHONPATH": str(source)},
        check=True,
        capture_output=True,
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu, wall)


def make_store(folder: Path, rows: int, models: int, width: int) -> Path:
    """Import simulated features of four domains and seven classes into a store."""
    rng = np.random.default_rng(0)
    label, domain = rng.integers(7, size=rows), rng.integers(4, size=rows)
    files = []
    for at in range(models):
        centres = rng.normal(size=(7, width)) * (0.3 + 0.5 * at / models)
        shift = rng.normal(size=(4, width)) * 0.5
        features = centres[label] + shift[domain] + rng.normal(size=(rows, width))
        files.append(folder / f"model_{at}.npy")
        np.save(files[-1], features.astype(np.float32))
    table = folder / "rows.csv"
    lines = [f"{d},{y}" for d, y in zip(domain, label, strict=True)]
    table.write_text("\n".join(["domain,label", *lines]) + "\n")
    store = folder / "store"
    run(HERE / "src", ["import", *map(str, files), "--table", str(table), "--store", str(store)])
    return store


def measure(source: Path, name: str, folder: Path) -> Cost:
    """Run one command on fresh copies of what it reads, and on an empty folder."""
    places = {each: str(folder / "work" / each) for each in ("fresh", "store", "digits")}
    shutil.rmtree(folder / "work", ignore_errors=True)
    for each in ("store", "digits"):
        shutil.copytree(folder / each, places[each])
    return run(source, [part.format(**places) for part in COMMANDS[name]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="checkout of another version")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(COMMANDS), default=list(COMMANDS))
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--width", type=int, default=512)
    options = parser.parse_args()
    sources = {"other": options.other.resolve() / "src", "this": HERE / "src"}
    print(f"{'':<12}{'CPU s':>8}{'other':>8}{'ratio':>8}{'wall s':>10}{'other':>8}{'ratio':>8}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_store(folder, options.rows, options.models, options.width)
        from oodzoo.demo.digits import write_digits

        write_digits(folder / "digits")
        for command in options.only:
            costs: dict[str, list[Cost]] = {"other": [], "this": []}
            for at in range(options.repeats):
                for version in sorted(costs, reverse=bool(at % 2)):
                    costs[version].append(measure(sources[version], command, folder))
            best = {
                each: Cost(*map(min, zip(*found, strict=True))) for each, found in costs.items()
            }
            row = f"{command:<12}"
            for this, other in zip(best["this"], best["other"], strict=True):
                row += f"{this:>8.2f}{other:>8.2f}{this / other:>8.2f}  "
            print(row, flush=True)


if __name__ == "__main__":
    main()

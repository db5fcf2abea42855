"""What an evaluation of many classes costs, beside one of a few.

    python benchmarks/many_classes.py [--classes 100 1000] [--samples 4000]

Two models with 40 and 9 features, four domains, random centres of the classes. The time of the
processor is compared per class: 1 if it grows linearly with the number of classes, less if it grows
more slowly.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

import oodzoo


def measure(n_classes: int, n: int) -> float:
    """Evaluate random features; print and return the seconds of the processor."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(n) % n_classes)
    domains = np.repeat(["a", "b", "c", "d"], -(-n // 4))[:n]
    zoo = {}
    for name, d in (("wide", 40), ("narrow", 9)):
        shifts = {domain: 0.3 * rng.normal(size=d) for domain in "abcd"}
        shift = np.stack([shifts[domain] for domain in domains])
        zoo[name] = rng.normal(size=(n_classes, d))[y] + shift + rng.normal(size=(n, d))
    labels = np.array([f"class {number:05}" for number in y])
    started, cpu = time.perf_counter(), time.process_time()
    result = oodzoo.evaluate(zoo, labels, domains, top_k=2)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    print(
        f"{n_classes:5} classes: {seconds:6.1f} s, {cpu:6.1f} s of the processor; "
        f"recommended: {result.recommended.average:.1f} %"
    )
    return cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--samples", type=int, default=4000)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    first, *_, last = arguments.classes
    measure(2, 200)  # imports, and threads
    found = {number: measure(number, arguments.samples) for number in arguments.classes}
    ratio = found[last] / found[first]
    print(
        f"{last} classes take {ratio:.1f} times as long as {first}: "
        f"{ratio * first / last:.2f} times as long per class"
    )


if __name__ == "__main__":
    main()

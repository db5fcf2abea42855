"""Accuracy of fine-tuning on held-out domains, beside that of the linear head.

Each domain is left out once. Rows, all trained on the same images and measured on the domain left
out:

- linear head: logistic regression on the frozen network; also with the images that the other rows
  hold out for validation (a fifth);
- fine-tuning: all weights, from a random head;
- LP-FT: all weights, from the linear head; the last weights;
- average: SWAD's average along the path of LP-FT;
- WiSE-FT: the last weights of LP-FT mixed with the linear head; the mixing is chosen;
- chosen: what `oodzoo tune` takes.

The learning rate of each row, and what is said to be chosen, are chosen without the held-out
domain, by leaving each of the other domains out as well; the learning rate once, with the first
seed. The mean over the domains is printed with its standard error over the seeds, and the time of
the training.

    python benchmarks/tune_quality.py DATA ZOO MODEL [--rates 1e-4,3e-4] [--seeds 3] [--out FILE]

`--out` keeps all that was measured, one run a line; runs that are already there are not repeated.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import oodzoo
from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.kinds import fit_head_of
from oodzoo.tuning.problem import TuneSettings, opened
from oodzoo.tuning.tuner import CANDIDATES, Tuner
from oodzoo.zoo import load_model, load_zoo
from oodzoo.zoo.sources import load_trainable

Job = tuple[str, int, tuple[str, ...], float]
"""Start, seed, domains left out, learning rate."""
Records = dict[Any, dict[str, Any]]
"""What was measured, by job; the linear heads of all images as "head"."""

_AVERAGE, _LAST = (
    [at for at, each in enumerate(CANDIDATES) if each.weights == weights]
    for weights in ("average", "last")
)
ROWS = {
    "linear head": ("probe", [0]),
    "fine-tuning": ("random", [_LAST[-1]]),
    "LP-FT": ("probe", [_LAST[-1]]),
    "average": ("probe", [_AVERAGE[-1]]),
    "WiSE-FT": ("probe", [0, *_LAST]),
    "WiSE-FT of average": ("probe", [0, *_AVERAGE]),
    "average, half": ("probe", [_AVERAGE[1]]),
    "chosen": ("probe", list(range(len(CANDIDATES)))),
}
"""Start of the runs of each row, and the candidates that one is chosen of."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("zoo")
    parser.add_argument("model")
    parser.add_argument("--rates", default="3e-5,1e-4,3e-4,1e-3", help="separated by commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--processes", type=int, default=1, help="runs at a time")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no run after this time")
    parser.add_argument("--out", type=Path, help="JSON lines")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    domains = oodzoo.ImageDomains(options.data).domains
    rates = [float(rate) for rate in options.rates.split(",")]
    records: Records = {}
    if options.out is not None and options.out.exists():
        for line in options.out.read_text().splitlines():
            _keep(records, json.loads(line))
    with _workers(options) as work:
        first = [
            ("probe", 0, without, rate)
            for without in (*_pairs(domains), *((d,) for d in domains))
            for rate in rates
        ]
        first += [("random", *job[1:]) for job in first]
        work(first, records, end, options.out)
        rest = [
            job
            for seed in range(1, options.seeds)
            for start in ("probe", "random")
            for test in domains
            for rate in _useful_rates(records, domains, start, test, rates)
            for job in _runs_for(start, seed, test, domains, rate)
        ]
        work(list(dict.fromkeys(rest)), records, end, options.out)
    show(records, domains, rates, options.seeds)


def _pairs(domains: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return itertools.combinations(domains, 2)


def _runs_for(
    start: str, seed: int, test: str, domains: Sequence[str], rate: float
) -> Iterator[Job]:
    """The run without a held-out domain and, if something is chosen, those without a pair."""
    yield start, seed, (test,), rate
    if start == "probe":
        for other in domains:
            if other != test:
                yield start, seed, (min(test, other), max(test, other)), rate


def _useful_rates(
    records: Records, domains: Sequence[str], start: str, test: str, rates: Sequence[float]
) -> list[float]:
    """The learning rates that some row takes for a held-out domain; none if runs are missing."""
    try:
        chosen = {
            _choose(records, domains, test, 0, rates, of, own)[0]
            for own, of in ROWS.values()
            if own == start
        }
    except KeyError:
        return []
    return sorted(chosen)


def _choose(
    records: Records,
    domains: Sequence[str],
    test: str,
    seed: int,
    rates: Sequence[float],
    of: Sequence[int],
    start: str,
) -> tuple[float, int]:
    """The learning rate and the candidate that are best on the other domains, left out in turn."""
    best = (-np.inf, rates[0], of[0])
    for rate in rates:
        found = [
            np.array(records[start, seed, tuple(sorted((test, other))), rate]["quality"][other])
            for other in domains
            if other != test
        ]
        mean = np.mean(found, axis=0)
        for candidate in of:
            if mean[candidate] > best[0]:
                best = (float(mean[candidate]), rate, candidate)
    return best[1], best[2]


def _accuracy(
    records: Records,
    domains: Sequence[str],
    test: str,
    seed: int,
    rates: Sequence[float],
    name: str,
) -> float:
    """Accuracy of a row on a held-out domain."""
    start, of = ROWS[name]
    rate, candidate = _choose(records, domains, test, 0, rates, of, start)
    if len(of) > 1:
        _, candidate = _choose(records, domains, test, seed, [rate], of, start)
    return float(records[start, seed, (test,), rate]["accuracy"][test][candidate])


def show(records: Records, domains: Sequence[str], rates: Sequence[float], seeds: int) -> None:
    """Print the table."""
    width = max(map(len, ROWS)) + 2
    names = "".join(f"{domain[:10]:>11}" for domain in domains)
    print(f"{'':{width}}{'mean':>7}{'error':>7}{names}")
    for name in ROWS:
        table = []
        for seed in range(seeds):
            try:
                table.append([_accuracy(records, domains, t, seed, rates, name) for t in domains])
            except KeyError:  # some runs have not been done
                continue
        if not table:
            print(f"{name:{width}} not measured")
            continue
        found = 100 * np.array(table)
        mean = found.mean(axis=1)
        error = mean.std(ddof=1) / np.sqrt(len(mean)) if len(mean) > 1 else np.nan
        cells = "".join(f"{value:11.1f}" for value in found.mean(axis=0))
        print(f"{name:{width}}{mean.mean():7.1f}{error:7.2f}{cells}")
    everything = [np.mean([r["all_images"][t] for t in domains]) for r in [records["head"]]]
    print(f"{'linear head, all':{width}}{100 * everything[0]:7.1f}")
    seconds = [record["seconds"] for key, record in records.items() if key != "head"]
    print(f"{len(seconds)} runs, {np.mean(seconds):.1f} s each, {np.sum(seconds):.0f} s together")


# --- runs --------------------------------------------------------------------------------------


@contextmanager
def _workers(options: argparse.Namespace) -> Iterator[Any]:
    """Processes that do runs; yields a function that does all jobs."""
    context = get_context("spawn")
    jobs, results = context.Queue(), context.Queue()
    processes = [
        context.Process(target=_work, args=(options, jobs, results), daemon=True)
        for _ in range(options.processes)
    ]
    for process in processes:
        process.start()

    def work(wanted: Iterable[Job], records: Records, end: float, out: Path | None) -> None:
        missing = [job for job in wanted if job not in records]
        waiting, running = list(missing), 0
        if "head" not in records:
            jobs.put("head")
            running += 1
        while waiting or running:
            while waiting and running < len(processes) and time.monotonic() < end:
                jobs.put(waiting.pop(0))
                running += 1
            if not running:
                break
            record = results.get()
            if "error" in record:
                raise RuntimeError(record["error"])
            running -= 1
            _keep(records, record)
            if out is not None:
                with out.open("a") as file:
                    file.write(json.dumps(record) + "\n")

    try:
        yield work
    finally:
        for _ in processes:
            jobs.put(None)
        for process in processes:
            process.join(30)


def _keep(records: Records, record: dict[str, Any]) -> None:
    job = record["job"]
    key: Any = job if job == "head" else (job[0], job[1], tuple(job[2]), job[3])
    records[key] = record


def _work(options: argparse.Namespace, jobs: Any, results: Any) -> None:
    try:
        _do_jobs(options, jobs, results)
    except BaseException as error:
        results.put({"error": repr(error)})
        raise


def _do_jobs(options: argparse.Namespace, jobs: Any, results: Any) -> None:
    import torch

    torch.set_num_threads(max(1, torch.get_num_threads() // options.processes))
    spec = next(spec for spec in load_zoo(options.zoo) if spec.name == options.model)
    preprocessing = load_model(spec, device="cpu").info.preprocessing
    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    data = oodzoo.ImageDomains(options.data)
    with opened(data, preprocessing.geometry) as problem:
        trainable = load_trainable(spec, preprocessing)

        def tuner_of(settings: TuneSettings) -> Tuner:
            return Tuner(lambda: trainable, problem, settings, device=device)

        made: dict[tuple[str, int], Tuner] = {}
        while (job := jobs.get()) is not None:
            if job == "head":
                tuner = tuner_of(TuneSettings())
                results.put({"job": job, "all_images": _all_images(tuner, problem)})
                continue
            start, seed, without, rate = job
            if (start, seed) not in made:
                made[start, seed] = tuner_of(
                    TuneSettings(steps=options.steps, start=start, seed=seed)
                )
            run = made[start, seed].train((frozenset(without), rate))
            record: dict[str, Any] = {"job": job, "seconds": run.seconds}
            labels = {domain: problem.labels[problem.rows(domain)] for domain in run.outputs}
            held = {d: problem.labels[problem.split(d, seed)[1]] for d in run.held_out}
            for prefix, found, truth in (("", run.outputs, labels), ("held_", run.held_out, held)):
                meaning = problem.task
                record[f"{prefix}quality"] = {
                    d: meaning.quality([each], [truth[d]])[0].tolist() for d, each in found.items()
                }
                record[f"{prefix}accuracy"] = {
                    d: [meaning.score(one, truth[d]) for one in each] for d, each in found.items()
                }
            results.put(record)


def _all_images(tuner: Tuner, problem: Any) -> dict[str, float]:
    """Accuracy of linear heads that are fitted to all images of the other domains."""
    features = tuner.all_features()
    found = {}
    for number, test in enumerate(problem.domains):
        here = problem.numbers == number
        samples = Samples(features[~here], problem.labels[~here], problem.numbers[~here])
        head = fit_head_of(problem.task, samples, problem.n_outputs)
        predicted = head.logits(features[here]).argmax(axis=1)
        found[test] = float((predicted == problem.labels[here]).mean())
    return found


if __name__ == "__main__":
    main()

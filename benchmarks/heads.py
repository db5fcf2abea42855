"""Time DomainBed's sweep against sequential runs, and the fast head against scikit-learn.

    python benchmarks/heads.py [--store STORE] [--models 8] [--device cuda] [--steps 5001]

The sweep: 10 draws x 3 trials x all folds on the 1,280 features of one model, at the size of PACS
(from a store, or simulated), trained as one batch. The same runs one after another in PyTorch on
the same device are estimated: a sample of them is timed and multiplied by the numbers of steps and
runs. Without --steps, both are timed for 200 steps on a CPU, where the full sweep takes minutes,
and for all steps on a GPU.

The logistic probe: C chosen by leaving out each training domain, against LogisticRegressionCV
with the same folds, values of C and standardised features, summed over all held-out domains.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import PredefinedSplit
from threadpoolctl import threadpool_limits

from oodzoo.extraction.columns import Columns, Samples
from oodzoo.linear.heads.domainbed import cell, sweep
from oodzoo.linear.heads.domainbed.protocol import Hyperparameters, folds, hyperparameters
from oodzoo.linear.heads.linear import fit_head
from oodzoo.linear.heads.paths import C_GRID

DIM, N_CLASSES, N_DOMAINS, EACH = 1_280, 7, 4, 350
DRAWS, TRIALS, STEPS = 10, 3, 5001
SAMPLED_RUNS, SAMPLED_STEPS = 8, 200


def simulated() -> Samples:
    """Simulate domains that differ, with classes that overlap; non-negative, as after a ReLU."""
    rng = np.random.default_rng(0)
    n = N_DOMAINS * EACH
    labels, domains = np.arange(n) % N_CLASSES, np.arange(n) // EACH
    centres = rng.normal(size=(N_CLASSES, DIM))
    moved = centres + 1.5 * rng.normal(size=(N_DOMAINS, N_CLASSES, DIM))
    features = 0.15 * moved[domains, labels] + rng.normal(size=(n, DIM))
    return Samples(np.maximum(features, 0).astype(np.float32), labels, domains)


def stored(store: str) -> dict[str, Samples]:
    """Return the features of the models with 1,280 dimensions."""
    from oodzoo.extraction.features import StoreSource
    from oodzoo.store.feature_store import FeatureStore

    source = StoreSource(FeatureStore(store))
    names = [m for m in source.models if source.facts(m).feature_dim == DIM]
    return {m: Columns.all_of(source, [m]).samples(source, source.domains) for m in names}


def sequential(samples: Samples, device: str, steps: int) -> float:
    """Return the seconds per step of a run of DomainBed, with features on the device."""
    import torch

    X = torch.from_numpy(samples.features).to(device)
    y = torch.from_numpy(samples.labels).to(device)
    rng = np.random.default_rng(0)
    fold = [np.flatnonzero(samples.domains == domain) for domain in range(N_DOMAINS)]
    all_folds = folds(range(N_DOMAINS), range(N_DOMAINS))

    def run(chosen: Hyperparameters, left_out: tuple[int, ...]) -> None:
        layer = torch.nn.Linear(X.shape[1], N_CLASSES).to(device)
        model = torch.nn.Sequential(torch.nn.Dropout(chosen.dropout), layer)
        adam = torch.optim.Adam(model.parameters(), lr=chosen.lr, weight_decay=chosen.weight_decay)
        parts = [rows for domain, rows in enumerate(fold) if domain not in left_out]
        drawn = np.concatenate(
            [rng.choice(rows, (steps, chosen.batch_size)) for rows in parts], axis=1
        )
        batches = torch.from_numpy(drawn).to(device)
        for step in range(steps):
            rows = batches[step]
            loss: Any = torch.nn.functional.cross_entropy(model(X[rows]), y[rows])
            adam.zero_grad()
            loss.backward()
            adam.step()

    run(Hyperparameters(), (0,))
    times = []
    for at in range(SAMPLED_RUNS):  # the mixture of single folds, pairs and draws of a sweep
        left_out = all_folds[(3 * at) % len(all_folds)]
        chosen = hyperparameters(at % DRAWS, at % TRIALS)
        times.append(_seconds(functools.partial(run, chosen, left_out), device))
    return float(np.mean(times)) / steps


def _seconds(work: Callable[[], Any], device: str | None) -> float:
    _wait(device)
    start = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: str | None) -> None:
    if device is not None and device.startswith("cuda"):
        import torch

        torch.cuda.synchronize()


def domainbed(samples: Samples, device: str | None, steps: int) -> None:
    n_runs = DRAWS * TRIALS * len(folds(range(N_DOMAINS), range(N_DOMAINS)))
    if device is not None:  # the first call initialises the device
        sweep(samples, N_CLASSES, draws=2, trials=1, steps=3, device=device)
    start = time.perf_counter()
    found = sweep(samples, N_CLASSES, draws=DRAWS, trials=TRIALS, steps=steps, device=device)
    at_once = time.perf_counter() - start
    print(f"sweep of {n_runs} runs, {steps} steps, on {device or 'NumPy'}: {at_once:.2f} s")
    for rule in ("leave-one-domain-out", "training-domain", "oracle"):
        cells = "  ".join(cell(each) for each in found.accuracies(rule).values())
        print(f"  {rule:22}{cells}")
    if importlib.util.find_spec("torch") is None:
        print("  PyTorch is not installed: sequential runs not timed")
        return
    step = sequential(samples, device or "cpu", min(steps, SAMPLED_STEPS))
    alone = step * steps * n_runs
    print(
        f"  sequentially in PyTorch: {1e6 * step:.0f} us a step, {alone:.0f} s for all "
        f"(without computing accuracies); ratio {alone / at_once:.1f}"
    )


def fast(samples: Samples) -> tuple[float, float, float, float]:
    """Return seconds and accuracy of our head and of scikit-learn's."""
    ours_s = sklearn_s = 0.0
    ours, theirs = [], []
    for domain in range(N_DOMAINS):
        train = samples.domains != domain
        part = Samples(*(array[train] for array in samples))
        X, y = samples.features[~train], samples.labels[~train]
        start = time.perf_counter()
        head = fit_head(part, N_CLASSES)
        ours_s += time.perf_counter() - start
        ours.append(100 * np.mean(head.logits(X).argmax(axis=1) == y))
        start = time.perf_counter()
        mean, std = part.features.mean(axis=0), part.features.std(axis=0)
        std[std == 0] = 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            search = LogisticRegressionCV(
                Cs=list(C_GRID), cv=PredefinedSplit(part.domains), max_iter=300
            ).fit((part.features - mean) / std, part.labels)
        sklearn_s += time.perf_counter() - start
        theirs.append(100 * search.score((X - mean) / std, y))
    return ours_s, float(np.mean(ours)), sklearn_s, float(np.mean(theirs))


def show(name: str, found: tuple[float, float, float, float]) -> None:
    ours_s, ours, sklearn_s, theirs = found
    print(
        f"fast head, {name}: {ours_s:.2f} s, accuracy {ours:.1f}; LogisticRegressionCV "
        f"{sklearn_s:.2f} s, {theirs:.1f}; ratio {sklearn_s / ours_s:.1f} (target 3), "
        f"difference {ours - theirs:+.2f} points (target within 0.3)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", help="a store of the size of PACS; default: simulated features")
    parser.add_argument(
        "--models", type=int, default=1, help="number of models of the store for the fast head"
    )
    parser.add_argument("--device", help="PyTorch device of the sweep; default: NumPy")
    parser.add_argument("--steps", type=int)
    arguments = parser.parse_args()
    known = stored(arguments.store) if arguments.store else {"simulated features": simulated()}
    results = []
    for name in list(known)[: arguments.models]:
        # With more threads than free cores, small matrix products become many times slower.
        with threadpool_limits(1):
            results.append(fast(known[name]))
        show(name, results[-1])
    if len(results) > 1:
        show(f"mean of {len(results)}", tuple(np.mean(results, axis=0).tolist()))
    samples = next(iter(known.values()))
    on_gpu = arguments.device is not None and arguments.device.startswith("cuda")
    domainbed(samples, arguments.device, arguments.steps or (STEPS if on_gpu else SAMPLED_STEPS))


if __name__ == "__main__":
    main()

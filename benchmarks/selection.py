"""Measure the accuracy and the speed of feature selection, and compare its scale rules.

    python benchmarks/selection.py [simulation] [difficult] [rules --store STORE] [speed]
                                   [--jobs 16] [--out FILE] [--device cuda]

simulation: TPR and FPR in the cases of the paper (Appendix C.6), 50 repeats of each, compared with
    the paper's row for the larger batch and with scikit-learn on the same data. A row passes if its
    TPR is not below, and its FPR not above, the paper's by more than two standard errors of the
    difference. "scale none" is the paper's own model, in whose units the data are.
    LassoCV (5 folds) keeps features with non-zero weights, ARDRegression those whose
    precision is below its own threshold, and the univariate F-test those at a false discovery rate
    of 5 % (Benjamini and Hochberg).
difficult: correlated features, heavy noise, pure noise as target, one-hot targets; 10 repeats.
rules: accuracy on the held-out domains of a store of a linear head on the features that each scale
    rule selects, on as many random features, and on as many with the largest ridge weights. Models
    are chosen without the held-out domain. C of the head is chosen on all their features, once per
    held-out domain, by leaving out training domains. "0.5 of weights" scales the targets by half
    the factor of the rule "weights".
speed: one sweep relative to one d × d by d × C product; fits from moments of 10⁴ and 10⁶ samples.

Tables are printed as results arrive and written to --out as Markdown. Fits run in --jobs processes
with one BLAS thread each; times are those of one fit. After --minutes no new fit of the simulation
starts; the table shows the number of repeats. Without the name of a part, a short version of all
parts but `rules` runs.
"""

from __future__ import annotations

import argparse
import csv
import functools
import operator
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed, parallel_config
from numpy.typing import NDArray
from sklearn.feature_selection import SelectFdr, f_regression
from sklearn.linear_model import ARDRegression, LassoCV

from oodzoo.core.backend import backend
from oodzoo.linear.selection.selector import SpikeSlabSelector
from oodzoo.linear.selection.spike_slab import Data, GramSweeps, Iterations, Posterior, Priors
from oodzoo.linear.selection.target_scale import RULES, TargetMoments, scale_samples

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Case = tuple[int, int, int]

PAPER_REPEATS = 50
FIRST_SEED = 20_000
"""The constants of the scale rule were chosen on smaller seeds."""

C_GRID = (1e-4, 1e-3, 1e-2, 1e-1)
"""Candidates for C of the head in `rules`."""


class Page:
    """A Markdown file that is rewritten whenever a table grows."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.parts: list[str] = []

    def begin(self, title: str) -> None:
        self.parts.append("")
        self.table = f"## {title}\n"
        print(self.table, flush=True)

    def show(self, text: str) -> None:
        """Replace the text of the current part."""
        self.parts[-1] = f"{self.table}\n{text}\n"
        if self.path is not None:
            self.path.write_text("\n".join(self.parts), encoding="utf-8")


def markdown(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def spread(tasks: list[Any], jobs: int) -> Iterator[Any]:
    """Yield results as they arrive, from processes with one BLAS thread each."""
    with parallel_config(backend="loky", inner_max_num_threads=1):
        yield from Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(tasks)


def mean_error(values: Any) -> tuple[Floats, Floats]:
    """Return the mean over repeats and its standard error."""
    table = np.array(values)
    error = table.std(axis=0, ddof=min(1, len(table) - 1)) / np.sqrt(len(table))
    return table.mean(axis=0), error


# --- the paper's simulation --------------------------------------------------------------------


class Rates(NamedTuple):
    """TPR and FPR in percent, and their standard deviations over the paper's repeats."""

    tpr: float
    tpr_std: float
    fpr: float
    fpr_std: float


def paper_rates(path: Path) -> dict[Case, Rates]:
    """Read the paper's table by d, k and n; of two rows, the one with the larger batch."""
    found: dict[Case, tuple[int, Rates]] = {}
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            case = (int(row["d"]), int(row["k"]), int(row["n"]))
            names = ("tpr_mean", "tpr_std", "fpr_mean", "fpr_std")
            rates = Rates(*(float(row[name]) for name in names))
            if int(row["batch"]) > found.get(case, (0, rates))[0]:
                found[case] = (int(row["batch"]), rates)
    return {case: rates for case, (_, rates) in found.items()}


def simulate(seed: int, d: int, k: int, n: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, :k] @ rng.uniform(1, 3, size=k) + rng.normal(size=n)


def ours(X: Floats, y: Floats) -> Mask:
    return np.asarray(SpikeSlabSelector().fit(X, y).get_support())


def lasso(X: Floats, y: Floats) -> Mask:
    return np.asarray(LassoCV(cv=5).fit(X, y).coef_ != 0)


def ard(X: Floats, y: Floats) -> Mask:
    model = ARDRegression().fit(X, y)
    return np.asarray(model.lambda_ < model.threshold_lambda)


def univariate(X: Floats, y: Floats) -> Mask:
    return np.asarray(SelectFdr(f_regression, alpha=0.05).fit(X, y).get_support())


def unscaled(X: Floats, y: Floats) -> Mask:
    return np.asarray(SpikeSlabSelector(scale="none").fit(X, y).get_support())


METHODS = {
    "oodzoo": ours,
    "scale none": unscaled,
    "F-test": univariate,
    "LassoCV": lasso,
    "ARDRegression": ard,
}


def one_fit(case: Case, method: str, seed: int, end: float) -> tuple[Case, str, Any]:
    """Return TPR, FPR and seconds of one fit; None if the time is up."""
    if time.time() > end:
        return case, method, None
    warnings.simplefilter("ignore")  # nothing selected, or not converged
    X, y = simulate(seed, *case)
    start = time.perf_counter()
    mask = METHODS[method](X, y)
    seconds = time.perf_counter() - start
    k = case[1]
    return case, method, (100 * mask[:k].mean(), 100 * mask[k:].mean(), seconds)


def simulation(page: Page, options: argparse.Namespace) -> None:
    paper = paper_rates(options.paper)
    page.begin("Simulation")
    end = time.time() + 60 * options.minutes
    tasks = []
    for method in METHODS:
        repeats = options.repeats if method in ("oodzoo", "scale none") else options.peer_repeats
        # Slow cases first, so that the processes finish at about the same time.
        for case in sorted(paper, key=lambda case: (case[0], case[1] - case[2]), reverse=True):
            seeds = range(FIRST_SEED, FIRST_SEED + repeats)
            tasks += [delayed(one_fit)(case, method, seed, end) for seed in seeds]
    left: dict[tuple[Case, str], int] = defaultdict(int)
    for _, (case, method, *_), _ in tasks:
        left[case, method] += 1
    results: dict[tuple[Case, str], list[Any]] = defaultdict(list)
    for case, method, result in spread(tasks, options.jobs):
        left[case, method] -= 1
        if result is not None:
            results[case, method].append(result)
        if not left[case, method] and results[case, method]:
            row = simulation_row(case, method, results[case, method], paper[case])
            print("  ".join(map(str, row)), flush=True)
            page.show(simulation_table(results, paper))
    print("\n" + simulation_table(results, paper), flush=True)


def simulation_row(case: Case, method: str, results: list[Any], paper: Rates) -> list[object]:
    (tpr, fpr, seconds), (tpr_error, fpr_error, _) = mean_error(results)
    root = np.sqrt(PAPER_REPEATS)
    good = tpr >= paper.tpr - 2 * np.hypot(tpr_error, paper.tpr_std / root)
    good &= fpr <= paper.fpr + 2 * np.hypot(fpr_error, paper.fpr_std / root)
    return [
        ", ".join(map(str, case)),
        method,
        len(results),
        f"{tpr:.2f} ± {tpr_error:.2f}",
        f"{paper.tpr:.2f}",
        f"{fpr:.2f} ± {fpr_error:.2f}",
        f"{paper.fpr:.2f}",
        "yes" if good else "NO",
        f"{seconds:.3f}",
    ]


def simulation_table(results: dict[tuple[Case, str], list[Any]], paper: dict[Case, Rates]) -> str:
    head = ["d, k, n", "method", "repeats", "TPR", "paper", "FPR", "paper", "reached", "s"]
    rows = [
        simulation_row(case, method, results[case, method], paper[case])
        for case in paper
        for method in METHODS
        if results.get((case, method))
    ]
    text = markdown(head, rows)
    for method in METHODS:
        mine = [row for row in rows if row[1] == method]
        if mine:
            worse = [str(row[0]) for row in mine if row[7] != "yes"]
            text += f"\n\n{method}: {len(mine) - len(worse)} of {len(mine)} cases reach the paper's"
            text += f"; not {'; '.join(worse)}." if worse else "."
    return text


# --- difficult data ----------------------------------------------------------------------------


def correlated(seed: int, n: int, d: int = 100, size: int = 5) -> tuple[Floats, Floats]:
    """Draw blocks of features with correlation 0.9; the target depends on the first of each."""
    rng = np.random.default_rng(seed)
    common = np.tile(rng.normal(size=(n, d // size)), size)
    X = np.sqrt(0.9) * common + np.sqrt(0.1) * rng.normal(size=(n, d))
    k = d // size
    return X, X[:, :k] @ rng.uniform(1, 3, size=k) + rng.normal(size=n)


def noisy(seed: int, noise: float) -> tuple[Floats, Floats]:
    X, y = simulate(seed, 100, 20, 400)
    return X, y + np.sqrt(noise**2 - 1) * np.random.default_rng([seed, 1]).normal(size=400)


def pure_noise(seed: int, n: int, d: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=n)


def one_hot(seed: int, separation: float) -> tuple[Floats, NDArray[np.int64]]:
    """Draw five classes whose means differ in the first 20 of 100 features."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 5, size=1000)
    X = rng.normal(size=(1000, 100))
    X[:, :20] += separation * rng.normal(size=(5, 20))[y]
    return X, y


DIFFICULT: dict[str, tuple[int, Callable[[int], tuple[Any, Any]]]] = {
    "blocks of correlation 0.9, n = 400, d = 100": (20, functools.partial(correlated, n=400)),
    "blocks of correlation 0.9, n = 120, d = 100": (20, functools.partial(correlated, n=120)),
    "noise 3, n = 400, d = 100": (20, functools.partial(noisy, noise=3)),
    "noise 10, n = 400, d = 100": (20, functools.partial(noisy, noise=10)),
    "noise 30, n = 400, d = 100": (20, functools.partial(noisy, noise=30)),
    "pure noise, n = 1,000, d = 100": (0, functools.partial(pure_noise, n=1000, d=100)),
    "pure noise, n = 200, d = 400": (0, functools.partial(pure_noise, n=200, d=400)),
    "five classes far apart, n = 1,000": (20, functools.partial(one_hot, separation=1.0)),
    "five classes close together, n = 1,000": (20, functools.partial(one_hot, separation=0.4)),
}


def difficult_fit(name: str, rule: str, seed: int) -> tuple[str, str, Any]:
    warnings.simplefilter("ignore")
    k, data = DIFFICULT[name]
    mask = np.asarray(SpikeSlabSelector(scale=rule).fit(*data(seed)).target_support_.any(axis=0))
    return name, rule, (100 * mask[:k].mean() if k else np.nan, 100 * mask[k:].mean())


def difficult(page: Page, options: argparse.Namespace) -> None:
    repeats = min(options.repeats, 10)
    page.begin(f"Difficult data, {repeats} repeats: TPR / FPR by scale rule")
    seeds = range(FIRST_SEED, FIRST_SEED + repeats)
    tasks = [
        delayed(difficult_fit)(name, rule, s) for name in DIFFICULT for rule in RULES for s in seeds
    ]
    results: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for name, rule, result in spread(tasks, options.jobs):
        results[name, rule].append(result)
    rows = []
    for name in DIFFICULT:
        cells = []
        for rule in RULES:
            (tpr, fpr), (tpr_error, fpr_error) = mean_error(results[name, rule])
            found = "–" if np.isnan(tpr) else f"{tpr:.1f} ± {tpr_error:.1f}"
            cells.append(f"{found} / {fpr:.1f} ± {fpr_error:.1f}")
        rows.append([name, *cells])
    table = markdown(["data", *RULES], rows)
    page.show(table)
    print(table + "\n", flush=True)


# --- scale rules on real models --------------------------------------------------------------


def rules(page: Page, options: argparse.Namespace) -> None:
    import oodzoo
    from oodzoo.ranking.ranker import rank_for_test_domains

    page.begin(f"Scale rules on models: the best {options.top_k}, accuracy on held-out domains")
    rankings = rank_for_test_domains(oodzoo.FeatureStore(options.store))
    tasks = []
    for test, ranking in rankings.items():
        models = [row.model for row in ranking.rows[: options.top_k]]
        print(f"without {test}: {', '.join(models)}", flush=True)
        tasks.append(delayed(rules_of)(options.store, test, models, options.draws))
    head = ["held out", "rule", "kept %", "selected", "random", "ridge weights", "all", "s"]
    rows: list[list[object]] = []
    numbers: dict[str, list[Any]] = defaultdict(list)
    for test, found in spread(tasks, options.jobs):
        for rule, (values, deviation, seconds) in found.items():
            numbers[rule].append(values)
            cells = [f"{value:.1f}" for value in values]
            cells[2] += f" ± {deviation:.1f}"
            rows.append([test, rule, *cells, f"{seconds:.0f}"])
            print("  ".join(map(str, rows[-1])), flush=True)
        page.show(markdown(head, rows))
    for rule, table in numbers.items():
        rows.append(["mean", rule, *(f"{v:.1f}" for v in np.mean(table, axis=0)), ""])
    page.show(markdown(head, rows))
    print("\n" + markdown(head, rows[-len(numbers) :]) + "\n", flush=True)


def rules_of(path: Path, test: str, models: list[str], draws: int) -> tuple[str, dict[str, Any]]:
    """Return the share selected, accuracies, their deviation for random features, and seconds."""
    import oodzoo
    from oodzoo.extraction.columns import Columns
    from oodzoo.extraction.features import StoreSource
    from oodzoo.linear.heads.linear import fit_head
    from oodzoo.linear.selection import target_scale

    warnings.simplefilter("ignore")
    # Worker processes import their own copy of the module, so the rules are added here.
    for share in (0.5, 0.7):
        target_scale.RULES[f"{share} of weights"] = functools.partial(_less, share)
    source = StoreSource(oodzoo.FeatureStore(path), models)
    n_classes = len(source.classes)
    everything = Columns.all_of(source, models)
    train = everything.samples(source, [d for d in source.domains if d != test])
    unseen = everything.samples(source, [test])
    C = fit_head(train, n_classes, Cs=C_GRID).C

    def accuracy(mask: Any) -> float:
        some = train._replace(features=train.features[:, mask])
        logits = fit_head(some, n_classes, C=C).logits(unseen.features[:, mask])
        return 100 * float((logits.argmax(axis=1) == unseen.labels).mean())

    full = accuracy(np.ones(len(everything), dtype=np.bool_))
    ridge = ridge_weights(train.features, np.eye(n_classes)[train.labels])
    known: dict[bytes, Any] = {}
    found: dict[str, Any] = {}
    for rule in target_scale.RULES:
        start = time.perf_counter()
        mask = SpikeSlabSelector(scale=rule).fit(train.features, train.labels).get_support()
        seconds = time.perf_counter() - start
        if mask.tobytes() not in known:
            random = [
                accuracy(np.random.default_rng(draw).permutation(mask)) for draw in range(draws)
            ]
            largest = np.argsort(-ridge)[: mask.sum()]
            chance, deviation = np.mean(random), np.std(random, ddof=1)
            values = (100 * mask.mean(), accuracy(mask), chance, accuracy(largest), full)
            known[mask.tobytes()] = (values, deviation)
        found[rule] = (*known[mask.tobytes()], seconds)
    return test, found


def _less(part: float, *arguments: Any) -> Any:
    return part * RULES["weights"](*arguments)


def ridge_weights(features: Any, targets: Floats) -> Floats:
    """Return the largest standardised ridge weight of each feature over classes.

    The ridge penalty maximises the evidence; weights are in units of the standard deviations of
    feature and class.
    """
    X = features.astype(np.float64)
    X, Y = X - X.mean(axis=0), targets - targets.mean(axis=0)
    found = scale_samples(X, Y)
    assert found is not None
    weights = np.zeros(X.shape[1])
    deviations = np.std(Y[:, found.targets], axis=0) * found.factors
    weights[found.features] = np.abs(found.start / deviations).max(axis=1)
    return weights


# --- speed -------------------------------------------------------------------------------------


def best_of(work: Callable[[], object], wait: Callable[[], object], times: int = 5) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        wait()
        taken.append(time.perf_counter() - start)
    return min(taken)


def speed(page: Page, options: argparse.Namespace) -> None:
    device = options.device
    where = backend(device)
    rng = np.random.default_rng(0)
    page.begin(f"Speed on {device or 'NumPy'}")

    def wait() -> None:
        if device is not None and device.startswith("cuda"):
            import torch

            torch.cuda.synchronize()

    lines = []
    for d, n_targets in ((6144, 65), (6144, 345)) if device else ((6144, 65),):
        gram = where.gram(where.float64(rng.normal(size=(2 * d, d))))
        mean = where.float64(rng.normal(size=(d, n_targets)))
        ridge, products = where.xp.abs(mean) + 1, gram @ mean
        squares = 1.1 * where.xp.sum(mean * products, axis=0)
        sweeps = GramSweeps(gram, products, squares, mean)
        posterior = Posterior.start(mean, Priors(), where.xp)
        chain = Iterations(where, Data(gram, products, squares, 2 * d), posterior)
        product = best_of(functools.partial(operator.matmul, gram, mean), wait)
        once = best_of(functools.partial(sweeps.sweep, ridge, mean), wait)
        whole = best_of(chain.step, wait)
        lines.append(
            f"d = {d:,}, C = {n_targets}: one d × d by d × C product takes {product:.3f} s, a "
            f"sweep {once / product:.2f} times and a whole iteration {whole / product:.2f} times "
            "that (target 4)."
        )
    for n in (10_000, 1_000_000):
        parts = []
        for _ in range(n // 10_000):
            X, y = simulate(int(rng.integers(2**31)), 300, 100, 10_000)
            parts.append(TargetMoments.of(X, y[:, None]))
        total = functools.reduce(operator.add, parts)
        start = time.perf_counter()
        selector = SpikeSlabSelector(device=device).fit_moments(total)
        taken = time.perf_counter() - start
        iterations = selector.n_iter_
        lines.append(f"n = {n:,}, d = 300: {taken:.2f} s from moments, {iterations} iterations.")
    page.show("\n".join(lines))
    print("\n".join(lines) + "\n", flush=True)


PARTS = {"simulation": simulation, "difficult": difficult, "rules": rules, "speed": speed}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    here = Path(__file__).parent
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--repeats", type=int, help="default: 50, or 5 if no part is named")
    parser.add_argument(
        "--peer-repeats",
        type=int,
        help="repeats of scikit-learn; default: --repeats, or 1 if no part is named",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--minutes", type=float, default=1e6, help="time limit of the simulation")
    parser.add_argument("--paper", type=Path, default=here / "selection_simulation.csv")
    parser.add_argument("--store", type=Path, help="feature store for rules")
    parser.add_argument("--top-k", type=int, default=3, help="number of models in rules")
    parser.add_argument("--draws", type=int, default=5, help="random subsets of each size in rules")
    parser.add_argument("--device", help="device for speed; default: NumPy")
    parser.add_argument("--out", type=Path, help="a Markdown file to write")
    options = parser.parse_args()
    for name in options.parts:
        if name not in PARTS:
            parser.error(f"{name!r} is not a part; choose from {', '.join(PARTS)}")
    if "rules" in options.parts and options.store is None:
        parser.error("rules needs --store")
    short = not options.parts
    options.repeats = options.repeats or (5 if short else 50)
    options.peer_repeats = options.peer_repeats or (1 if short else options.repeats)
    warnings.simplefilter("ignore")  # nothing selected, or not converged
    page = Page(options.out)
    for name in options.parts or ("simulation", "difficult", "speed"):
        PARTS[name](page, options)


if __name__ == "__main__":
    main()

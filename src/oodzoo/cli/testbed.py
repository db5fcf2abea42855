"""`oodzoo testbed`: compare scores with the accuracy of models on held-out domains."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oodzoo.cli.app import MODELS_CACHED, command
from oodzoo.cli.options import PlotOption, TrackingOptions, compute_device, listening, save_plot
from oodzoo.cli.terminal import Terminal
from oodzoo.core.errors import InputError
from oodzoo.core.events import Events, Listener
from oodzoo.core.text import count, typed

if TYPE_CHECKING:
    from oodzoo.ranking.testbed import Agreement, Comparison, ScoreResult, TestBed
    from oodzoo.ranking.testbed.bed import Interval

WIDTH = 80

# --- the paper -----------------------------------------------------------------------------------


def show_paper(terminal: Terminal, tables: Mapping[str, Comparison]) -> None:
    """Print the paper's two tables, with both correlations."""
    for kind, title in (("weighted_tau", "Weighted tau"), ("tau", "Kendall's tau")):
        for suffix, comparison in tables.items():
            n = len(next(iter(comparison.beds.values())).models)
            which = "with a classifier head" if suffix else "all"
            _show_taus(terminal, comparison, kind, f"{title}, {n} models ({which})")
    terminal.paragraph(
        "Below each value: its 90 % interval, from resampling the models. "
        "~: statistically tied with the best of the row (weighted tau only), corrected "
        "for the number of scores."
    )
    _show_published(terminal)


def _show_published(terminal: Terminal) -> None:
    """Print the paper's accuracies and costs."""
    from oodzoo.ranking.testbed import published

    names = [*published.N_DOMAINS, "average"]
    ratios = published.feature_ratios()
    terminal.table(
        ["method", "from", *names],
        [
            *(
                [method, published.source_of(method), *(_number(row.get(n), 1) for n in names)]
                for method, row in published.accuracies().items()
            ),
            [
                "F. Ratio",
                "ZooD",
                *(f"{100 * ratios[n]:.1f}" if n in ratios else "-" for n in names),
            ],
        ],
        title="Accuracy on unseen domains, %",
        left=2,
    )
    terminal.paragraph(
        "DomainBed, SWAD: a ResNet-50, trained as a whole. ZooD: a head of the top model "
        "(Single), of all features of the top models (Ensemble), of selected ones "
        "(Selection; F. Ratio: % of the features that it keeps); Fine-tuned: the top "
        "model, trained as a whole."
    )
    terminal.table(
        ["data set", "ZooD", "fine-tuning", "speed-up"],
        [
            [dataset, *(f"{row[key]:,.2f}" for key in ("zood", "fine_tuning")), _times(row)]
            for dataset, row in published.gpu_hours().items()
        ],
        title="GPU hours for 35 models",
    )
    terminal.paragraph(
        "ZooD: ranking the models. fine-tuning: training a head of each in DomainBed's "
        "search (10 draws of hyper-parameters, 5 for DomainNet; 3 trials)."
    )


def _times(row: Mapping[str, float]) -> str:
    return f"{row['speed_up']:,.0f} x"


def paper_document(tables: Mapping[str, Comparison]) -> dict[str, Any]:
    """Build the JSON document of the paper's tables; intervals are separate."""
    taus: dict[str, Any] = {}
    intervals: dict[str, Any] = {}
    pairs: dict[str, Any] = {}
    means: dict[str, Any] = {}
    mean_intervals: dict[str, Any] = {}
    for suffix, comparison in tables.items():
        for kind, part in (("weighted_tau", "interval"), ("tau", "tau_interval")):
            taus[kind + suffix] = _nested(comparison, kind)
            intervals[kind + suffix] = _nested(comparison, part)
        of_score = comparison.means.items()
        means["weighted_tau" + suffix] = {score: mean.weighted_tau for score, mean in of_score}
        mean_intervals["weighted_tau" + suffix] = {score: mean.interval for score, mean in of_score}
        pairs["weighted_tau" + suffix] = {
            label: bed.indistinguishable for label, bed in comparison.beds.items()
        }
        pairs["mean" + suffix] = comparison.indistinguishable
    some = next(iter(tables[""].beds.values()))
    from oodzoo.ranking.testbed import published

    accuracy: dict[str, dict[str, float]] = {}
    for method, row in published.accuracies().items():
        for dataset, value in row.items():
            accuracy.setdefault(dataset, {})[method] = value
    return taus | {
        "accuracy": accuracy,
        "feature_ratio": published.feature_ratios(),
        "gpu_hours": published.gpu_hours(),
        "means": means,
        "intervals": intervals | {"means": mean_intervals},
        "indistinguishable": pairs,
        "resamples": some.resamples,
        "seed": some.seed,
    }


def _nested(comparison: Comparison, part: str) -> dict[str, dict[str, Any]]:
    return {
        label: {score: getattr(result, part) for score, result in bed.scores.items()}
        for label, bed in comparison.beds.items()
    }


def _show_taus(terminal: Terminal, comparison: Comparison, kind: str, title: str) -> None:
    scores = list(next(iter(comparison.beds.values())).scores)
    part = "interval" if kind == "weighted_tau" else "tau_interval"
    rows: list[list[str]] = []
    for label, bed in comparison.beds.items():
        values = [_number(getattr(bed.scores[score], kind)) for score in scores]
        if kind == "weighted_tau":
            marks = ["~" if bed.tied(score, bed.best) else " " for score in scores]
            values = [value + mark for value, mark in zip(values, marks, strict=True)]
        rows.append([label, *values])
        rows.append(["", *(_interval(getattr(bed.scores[score], part)) for score in scores)])
    if kind == "weighted_tau":
        rows.append(["mean", *(f"{_number(comparison.means[s].weighted_tau)} " for s in scores)])
        rows.append(["", *(_interval(comparison.means[s].interval) for s in scores)])
    terminal.table(["", *scores], rows, title=title)


# --- a store -------------------------------------------------------------------------------------


def show_bed(terminal: Terminal, bed: TestBed) -> None:
    """Print a test bed, the highest weighted tau first."""
    uneven = len({result.models for result in bed.scores.values()}) > 1
    common = ["same"] if uneven else []
    protocol = bed.data.get("protocol", "unknown")
    terminal.table(
        ["score", "regret", "w. tau", "90 %", "tau", "averaged", *common, "models"],
        [_cells(name, bed, uneven) for name in bed.order],
        title=f"{bed.name}: {count(len(bed.models), 'model')}, protocol {protocol}",
        least=("models", "averaged", "same", "tau"),
    )
    terminal.paragraph(
        "regret: points of accuracy lost on the held-out domain by using the top model. "
        "w. tau, tau: rank correlations with the accuracy of heads on the held-out domain. "
        "All three are computed on each held-out domain and averaged. "
        "90 %: interval of w. tau from resampling models. ~: statistically tied with the "
        "best, corrected for the number of scores. "
        "averaged: w. tau of scores and accuracies averaged over held-out domains first."
    )
    if uneven:
        terminal.line("same: w. tau on the models that have all scores.")
    for name, reasons in bed.left_out.items():
        _warn_of_missing(terminal, name, reasons)


def show_best_score(terminal: Terminal, bed: TestBed, store: Path) -> None:
    """Print the score that orders the models best, and the one that ranks them by default."""
    texts = []
    for name in dict.fromkeys((bed.best, "unseen")):
        if name in bed.scores:
            tied = ", statistically tied" if name != bed.best and bed.tied(name, bed.best) else ""
            texts.append(f"{name} {_number(bed.scores[name].weighted_tau)}{tied}")
    terminal.line(
        f"Agreement with the accuracy on unseen domains (weighted tau): {'; '.join(texts)}."
    )
    terminal.line(f"All {count(len(bed.scores), 'score')}: oodzoo testbed {typed(store)}")


def show_domains(terminal: Terminal, bed: TestBed) -> None:
    """Print regret and weighted tau on each held-out domain."""
    columns = [
        [domain, *(_pair(bed.scores[name].by_domain[domain]) for name in bed.order)]
        for domain in bed.accuracy_by_domain
    ]
    left = [["score", *bed.order]]
    _show_wide(terminal, left, columns, "Regret and weighted tau on each held-out domain")


def _cells(name: str, bed: TestBed, uneven: bool) -> list[str]:
    result = bed.scores[name]
    mark = "~" if bed.tied(name, bed.best) else " "
    return [
        name,
        _number(result.regret, 1),
        _number(result.weighted_tau) + mark,
        _interval(result.interval),
        _number(result.tau),
        _number(result.averaged.weighted_tau),
        *([_number(result.common)] if uneven else []),
        str(result.models),
    ]


def _warn_of_missing(terminal: Terminal, score: str, reasons: Mapping[str, str]) -> None:
    """Name the models that lack a score, at most three, with the reason of the first."""
    names = ", ".join(list(reasons)[:3]) + (", …" if len(reasons) > 3 else "")
    reason = next(iter(reasons.values()))
    terminal.warn(f"{score}: not available for {count(len(reasons), 'model')}: {names} ({reason})")


# --- several -------------------------------------------------------------------------------------


def show_comparison(terminal: Terminal, comparison: Comparison) -> None:
    """Print scores over data sets, in as many tables as needed to fit 80 columns."""
    means = comparison.means
    best = next(iter(means))
    left = [
        ["score", *means],
        ["regret", *(_number(mean.regret, 1) for mean in means.values())],
        ["worst", *(_number(mean.worst_regret, 1) for mean in means.values())],
        [
            "w. tau",
            *(
                _number(mean.weighted_tau) + ("~" if comparison.tied(score, best) else " ")
                for score, mean in means.items()
            ),
        ],
        ["worst", *(_number(mean.worst_weighted_tau) for mean in means.values())],
        ["90 %", *(_interval(mean.interval) for mean in means.values())],
        ["averaged", *(_number(mean.averaged_weighted_tau) for mean in means.values())],
    ]
    sets = count(len(comparison.beds), "data set")
    terminal.table(
        [column[0] for column in left],
        list(zip(*(column[1:] for column in left), strict=True)),
        title=f"Mean and worst over {sets}",
    )
    terminal.paragraph(
        "regret, w. tau: mean over the data sets that have the score, then the worst one. "
        "90 %: interval of the mean w. tau. ~: statistically tied with the best, "
        "corrected for the number of scores. averaged: w. tau in the paper's form, mean."
    )
    columns = [
        [
            label if len(label) <= 24 else f"{label[:23]}…",
            *(_pair(bed.scores[score]) if score in bed.scores else "-" for score in means),
        ]
        for label, bed in comparison.beds.items()
    ]
    _show_wide(terminal, left[:1], columns, "Regret and weighted tau on each data set")


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """Build the JSON document of a comparison."""
    return {
        "regret": _nested(comparison, "regret"),
        "weighted_tau": _nested(comparison, "weighted_tau"),
        "tau": _nested(comparison, "tau"),
        "intervals": {
            "weighted_tau": _nested(comparison, "interval"),
            "tau": _nested(comparison, "tau_interval"),
        },
        "means": {score: dataclasses.asdict(mean) for score, mean in comparison.means.items()},
        "indistinguishable": comparison.indistinguishable,
        "results": {label: bed.to_dict() for label, bed in comparison.beds.items()},
    }


# --- cells ---------------------------------------------------------------------------------------


def _show_wide(
    terminal: Terminal, left: list[list[str]], columns: list[list[str]], title: str
) -> None:
    """Print columns in as many tables as needed to fit 80 columns, each with those on the left."""
    rest = list(columns)
    terminal.line(f"{title}:")  # a title of the table would be wrapped to its width
    while rest:
        table = [*left, rest.pop(0)]
        while rest and _width([*table, rest[0]]) <= WIDTH:
            table.append(rest.pop(0))
        head, *rows = zip(*table, strict=True)
        terminal.table(head, rows)


def _width(columns: Iterable[Sequence[str]]) -> int:
    return sum(max(map(len, column)) + 1 for column in columns)


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:z.{digits}f}"


def _pair(agreement: Agreement | ScoreResult) -> str:
    """Format regret and weighted tau."""
    return f"{_number(agreement.regret, 1)} {_number(agreement.weighted_tau):>5}"


def _interval(interval: Interval) -> str:
    """Format an interval compactly: `.80 .95`."""
    ends = () if interval is None else interval
    return " ".join(f"{end:z.2f}".replace("0.", ".") for end in ends)


@command("testbed", example="oodzoo testbed features/", interrupted=MODELS_CACHED)
def compare_scores(
    terminal: Terminal,
    targets: list[str],
    out: Path | None = None,
    plot: PlotOption = None,
    protocol: str = "unseen",
    values: Path | None = None,
    timm_results: Path | None = None,
    device: str = "cpu",
    *,
    tracking: TrackingOptions,
) -> None:
    """Compare scores by how well they order models by their accuracy on unseen domains.

    Arguments
    ---------
    targets : paper|STORE…|compare RESULT…
        paper: the results published in the ZooD paper; STORE…: one or more feature stores;
        compare RESULT…: files written with --out. (For a store named paper, pass ./paper.)

    Options
    -------
    out : PATH
        One STORE only: write the result to this JSON file.
    protocol : HOW
        STORE only: unseen computes the scores for each held-out domain on the other domains; all
        computes them once on all domains.
    values
        STORE only: CSV file of external scores, such as model,my_score.
    timm_results
        STORE only: timm's results-imagenet.csv, for the score source_accuracy.
    device
        Compute device: cpu (NumPy) or cuda (PyTorch).
    """
    target, *others = targets
    if target not in ("paper", "compare"):
        if out is not None and others:
            raise InputError(
                f"--out takes one store, got {len(targets)}; run the command once for each"
            )
        from oodzoo.ranking.testbed.runner import read_values

        options = {
            "protocol": protocol,
            "values": None if values is None else read_values(values),
            "timm_results": timm_results,
            "device": compute_device(device),
        }
        _stores(terminal, targets, options, out, plot, tracking.listeners())
        return
    computed = protocol if protocol != "unseen" else None
    _reject(target, {"--out": out, "--values": values, "--protocol": computed})
    where = device if device != "cpu" else None
    _reject(target, {"--timm-results": timm_results, "--device": where})
    _reject(target, {f"--{name.replace('_', '-')}": v for name, v in vars(tracking).items()})
    if target == "paper":
        _reject(target, {"other arguments": others})
        _paper(terminal, plot)
    else:
        _compare(terminal, [Path(path) for path in others], plot)


def _reject(target: str, given: dict[str, object]) -> None:
    """Reject options that do not apply."""
    for option, value in given.items():
        if value:
            shown = " ".join(map(str, value)) if isinstance(value, list) else value
            raise InputError(f"oodzoo testbed {target} does not take {option}, got {shown}")


def _stores(
    terminal: Terminal,
    paths: list[str],
    options: dict[str, Any],
    out: Path | None,
    plot: Path | None,
    tracked_by: Sequence[Listener],
) -> None:
    from oodzoo.ranking.testbed import compare, run, save
    from oodzoo.store.feature_store import FeatureStore

    stores = [FeatureStore(path) for path in paths]
    beds = []
    for store in stores:
        with listening(terminal, f"Test bed {store.name}", tracked_by) as listener:
            beds.append(run(store, **options, listener=listener))
    if len(beds) == 1:
        show_bed(terminal, beds[0])
        show_domains(terminal, beds[0])
        if out is not None:
            save(beds[0], out)
            Events(tracked_by).artifact("testbed", out)
            terminal.say(f"Result: {out}")
        terminal.document(beds[0].to_dict())
        save_plot(terminal, beds[0], plot)
        return
    comparison = compare(_labelled(beds, [str(path) for path in paths]))
    show_comparison(terminal, comparison)
    terminal.document(comparison_document(comparison))
    save_plot(terminal, comparison, plot)


def _labelled(beds: Sequence[TestBed], origins: Sequence[str]) -> dict[str, TestBed]:
    """Label each test bed by its name; if several have it, also by its origin."""
    names = [bed.name for bed in beds]
    labels = [
        name if names.count(name) == 1 else f"{name} ({origin})"
        for name, origin in zip(names, origins, strict=True)
    ]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(f"two results are named {label!r}; rename one of them")
    return dict(zip(labels, beds, strict=True))


def _paper(terminal: Terminal, plot: Path | None) -> None:
    from oodzoo.ranking.testbed import compare, paper

    tables = {"": compare(paper()), "_with_head": compare(paper(with_head=True))}
    show_paper(terminal, tables)
    terminal.document(paper_document(tables))
    save_plot(terminal, tables[""], plot)


def _compare(terminal: Terminal, results: list[Path], plot: Path | None) -> None:
    from oodzoo.ranking.testbed import compare, load

    if not results:
        raise InputError(
            "oodzoo testbed compare needs results; write them with: oodzoo testbed STORE --out FILE"
        )
    beds = [load(path) for path in results]
    protocols = dict.fromkeys(str(bed.data.get("protocol", "unknown")) for bed in beds)
    if len(protocols) > 1:
        terminal.warn(f"the results use different protocols: {', '.join(protocols)}")
    if len({bool(bed.accuracy_by_domain) for bed in beds}) > 1:
        terminal.warn("some results have no values by held-out domain; their taus are of the means")
    comparison = compare(_labelled(beds, [path.stem for path in results]))
    show_comparison(terminal, comparison)
    terminal.document(comparison_document(comparison))
    save_plot(terminal, comparison, plot)

"""Tables and JSON documents of test beds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oodzoo._text import count
from oodzoo.cli.terminal import Terminal

if TYPE_CHECKING:
    from oodzoo.testbed import Comparison, TestBed
    from oodzoo.testbed.bed import Interval

WIDTH = 80

# --- the paper -----------------------------------------------------------------------------------


def show_paper(terminal: Terminal, tables: Mapping[str, Comparison]) -> None:
    """Print the paper's two tables, with both correlations."""
    for kind, title in (("weighted_tau", "Weighted tau"), ("tau", "Kendall's tau")):
        for suffix, comparison in tables.items():
            n = len(next(iter(comparison.beds.values())).models)
            which = "with a classifier head" if suffix else "all"
            _show_taus(terminal, comparison, kind, f"{title}, {n} models ({which})")
    terminal.lines(
        "Below each value: its 90 % interval, from resampling the models.\n"
        "~: statistically tied with the best of the row (weighted tau only), as the 90 %\n"
        "interval of the difference contains zero."
    )


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
    return taus | {
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
    """Print a test bed, the best score first."""
    uneven = len({result.models for result in bed.scores.values()}) > 1
    common = ["same"] if uneven else []
    taus = {name: result.weighted_tau for name, result in bed.scores.items()}
    order = sorted(taus, key=lambda name: (taus[name] is None, -(taus[name] or 0.0), name))
    protocol = bed.data.get("protocol", "unknown")
    terminal.table(
        ["score", "w. tau", "90 %", "tau", *common, "regret", "seconds", "models"],
        [_cells(name, bed, uneven) for name in order],
        title=f"{bed.name}: {count(len(bed.models), 'model')}, protocol {protocol}",
    )
    terminal.lines(
        "w. tau: weighted tau with the accuracy of linear probes on test domains.\n"
        "90 %: its interval from resampling models. ~: statistically tied with the best.\n"
        "regret: points of accuracy lost by using the top model under the score."
    )
    if uneven:
        terminal.line("same: weighted tau on the models that have all scores.")
    for name, reasons in bed.left_out.items():
        reason = next(iter(reasons.values()))
        terminal.warn(f"{name}: not available for {count(len(reasons), 'model')} ({reason})")


def _cells(name: str, bed: TestBed, uneven: bool) -> list[str]:
    result = bed.scores[name]
    mark = "~" if bed.tied(name, bed.best) else " "
    return [
        name,
        _number(result.weighted_tau) + mark,
        _interval(result.interval),
        _number(result.tau),
        *([_number(result.common)] if uneven else []),
        _number(result.regret, 1),
        _number(result.seconds, 1),
        str(result.models),
    ]


# --- several -------------------------------------------------------------------------------------


def show_comparison(terminal: Terminal, comparison: Comparison) -> None:
    """Print scores over data sets, in as many tables as needed to fit 80 columns."""
    best = next(iter(comparison.means))
    left = [
        [
            score,
            _number(mean.weighted_tau) + ("~" if comparison.tied(score, best) else " "),
            _interval(mean.interval),
            _number(mean.regret, 1),
        ]
        for score, mean in comparison.means.items()
    ]
    head = ["score", "mean", "90 %", "regret"]
    columns = [_column(label, bed, comparison.means) for label, bed in comparison.beds.items()]
    while columns:
        table = [head, *left]
        while columns and _width([*zip(*table, strict=True), columns[0]]) <= WIDTH:
            table = [[*row, cell] for row, cell in zip(table, columns.pop(0), strict=True)]
        terminal.table(table[0], table[1:])
        head, left = ["score"], [row[:1] for row in left]
    terminal.lines(
        "mean: weighted tau, averaged over the data sets that have the score.\n"
        "90 %: its interval. ~: statistically tied with the best.\n"
        "regret: points of accuracy lost, averaged likewise."
    )


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """Build the JSON document of a comparison."""
    return {
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


def _column(label: str, bed: TestBed, scores: Iterable[str]) -> list[str]:
    taus = [bed.scores[score].weighted_tau if score in bed.scores else None for score in scores]
    return [label if len(label) <= 24 else f"{label[:23]}…", *map(_number, taus)]


def _width(columns: Iterable[Sequence[str]]) -> int:
    return sum(max(map(len, column)) + 1 for column in columns)


# --- cells ---------------------------------------------------------------------------------------


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:z.{digits}f}"


def _interval(interval: Interval) -> str:
    """Format an interval compactly: `.80 .95`."""
    ends = () if interval is None else interval
    return " ".join(f"{end:z.2f}".replace("0.", ".") for end in ends)

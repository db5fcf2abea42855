"""Test beds as tables for people and documents for machines."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from oodzoo.cli.terminal import Terminal
from oodzoo.testbed import Comparison, Judged, TestBed
from oodzoo.testbed.bed import Interval

WIDTH = 80

# --- the paper -----------------------------------------------------------------------------------


def show_paper(terminal: Terminal, tables: Mapping[str, Comparison]) -> None:
    """The paper's two tables, by both correlations."""
    for kind, title in (("weighted_tau", "Weighted tau"), ("tau", "Kendall's tau")):
        for suffix, together in tables.items():
            n = len(next(iter(together.beds.values())).models)
            which = "with a classifier head" if suffix else "all"
            _show_taus(terminal, together, kind, f"{title}, {n} models ({which})")
    terminal.line(
        "Below each value its 90 % interval, from resampling the models.\n"
        "~ (weighted tau of a data set only): cannot be told apart from the best of its\n"
        "row, as the 90 % interval of the difference holds zero."
    )


def paper_document(tables: Mapping[str, Comparison]) -> dict[str, Any]:
    """The paper's tables: plain numbers, intervals apart."""
    taus: dict[str, Any] = {}
    intervals: dict[str, Any] = {}
    pairs: dict[str, Any] = {}
    means: dict[str, Any] = {}
    between: dict[str, Any] = {}
    for suffix, together in tables.items():
        for kind, part in (("weighted_tau", "interval"), ("tau", "tau_interval")):
            taus[kind + suffix] = _nested(together, kind)
            intervals[kind + suffix] = _nested(together, part)
        means["weighted_tau" + suffix] = _means(together, "weighted_tau")
        between["weighted_tau" + suffix] = _means(together, "interval")
        pairs["weighted_tau" + suffix] = {
            label: bed.indistinguishable for label, bed in together.beds.items()
        }
        pairs["mean" + suffix] = together.indistinguishable
    some = next(iter(tables[""].beds.values()))
    return taus | {
        "means": means,
        "intervals": intervals | {"means": between},
        "indistinguishable": pairs,
        "resamples": some.resamples,
        "seed": some.seed,
    }


def _nested(together: Comparison, part: str) -> dict[str, dict[str, Any]]:
    return {
        label: {score: getattr(judged, part) for score, judged in bed.scores.items()}
        for label, bed in together.beds.items()
    }


def _show_taus(terminal: Terminal, together: Comparison, kind: str, title: str) -> None:
    scores = list(next(iter(together.beds.values())).scores)
    part = "interval" if kind == "weighted_tau" else "tau_interval"
    rows: list[list[str]] = []
    for label, bed in together.beds.items():
        values = [_number(getattr(bed.scores[score], kind)) for score in scores]
        if kind == "weighted_tau":
            marks = ["~" if bed.tied(score, bed.best) else " " for score in scores]
            values = [value + mark for value, mark in zip(values, marks, strict=True)]
        rows.append([label, *values])
        rows.append(["", *(_between(getattr(bed.scores[score], part)) for score in scores)])
    if kind == "weighted_tau":
        rows.append(["mean", *(f"{_number(together.means[s].weighted_tau)} " for s in scores)])
        rows.append(["", *(_between(together.means[s].interval) for s in scores)])
    terminal.table(["", *scores], rows, title=title)


# --- a store -------------------------------------------------------------------------------------


def show_bed(terminal: Terminal, bed: TestBed) -> None:
    """One test bed, the best score first."""
    uneven = len({judged.models for judged in bed.scores.values()}) > 1
    common = ["same"] if uneven else []
    order = sorted(bed.scores, key=lambda name: (-_or(bed.scores[name].weighted_tau, -2.0), name))
    terminal.table(
        ["score", "w. tau", "90 %", "tau", *common, "regret", "seconds", "models"],
        [_cells(name, bed, uneven) for name in order],
        title=f"{bed.name}: {len(bed.models)} models, protocol {bed.data.get('protocol', '?')}",
    )
    terminal.line(
        "w. tau: weighted tau with the accuracy of linear probes on left-out domains, and\n"
        "its 90 % interval from resampling models; ~: cannot be told apart from best.\n"
        "regret: points of accuracy lost by taking the first choice of the score."
    )
    if uneven:
        terminal.line("same: weighted tau on the models that have every score.")
    for name, reasons in bed.left_out.items():
        reason = next(iter(reasons.values()))
        terminal.warn(f"{name}: {len(reasons)} models do not have it ({reason})")


def _cells(name: str, bed: TestBed, uneven: bool) -> list[str]:
    judged: Judged = bed.scores[name]
    mark = "~" if bed.tied(name, bed.best) else " "
    return [
        name,
        _number(judged.weighted_tau) + mark,
        _between(judged.interval),
        _number(judged.tau),
        *([_number(judged.common)] if uneven else []),
        "-" if judged.regret is None else f"{judged.regret:.1f}",
        "-" if judged.seconds is None else f"{judged.seconds:.1f}",
        str(judged.models),
    ]


# --- several -------------------------------------------------------------------------------------


def show_comparison(terminal: Terminal, together: Comparison) -> None:
    """Scores over data sets, in as many tables as 80 columns ask for."""
    best = next(iter(together.means))
    left = [
        [
            score,
            _number(mean.weighted_tau) + ("~" if _tied(together, score, best) else " "),
            _between(mean.interval),
            "-" if mean.regret is None else f"{mean.regret:.1f}",
        ]
        for score, mean in together.means.items()
    ]
    head = ["score", "mean", "90 %", "regret"]
    columns = [
        [_short(label), *(_number(_tau(bed, score)) for score in together.means)]
        for label, bed in together.beds.items()
    ]
    while columns:
        table = [head, *left]
        while columns and _width([*_turned(table), columns[0]]) <= WIDTH:
            table = [[*row, cell] for row, cell in zip(table, columns.pop(0), strict=True)]
        terminal.table(table[0], table[1:])
        head, left = ["score"], [row[:1] for row in left]
    terminal.line(
        "mean: of the weighted taus, over the data sets that have the score, and its 90 %\n"
        "interval. ~: cannot be told apart from the first. regret: mean points lost."
    )


def comparison_document(together: Comparison) -> dict[str, Any]:
    """Several test beds together."""
    return {
        "weighted_tau": _nested(together, "weighted_tau"),
        "tau": _nested(together, "tau"),
        "intervals": {
            "weighted_tau": _nested(together, "interval"),
            "tau": _nested(together, "tau_interval"),
        },
        "means": {score: dataclasses.asdict(mean) for score, mean in together.means.items()},
        "indistinguishable": together.indistinguishable,
        "results": {label: bed.to_dict() for label, bed in together.beds.items()},
    }


def _means(together: Comparison, part: str) -> dict[str, Any]:
    return {score: getattr(mean, part) for score, mean in together.means.items()}


def _tied(together: Comparison, one: str, two: str) -> bool:
    pairs = together.indistinguishable
    return (one, two) in pairs or (two, one) in pairs


def _tau(bed: TestBed, score: str) -> float | None:
    return bed.scores[score].weighted_tau if score in bed.scores else None


def _turned(rows: list[list[str]]) -> list[list[str]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _width(columns: list[list[str]]) -> int:
    return sum(max(map(len, column)) + 1 for column in columns)


def _short(label: str) -> str:
    return label if len(label) <= 24 else f"{label[:23]}…"


# --- cells ---------------------------------------------------------------------------------------


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:z.2f}"


def _between(interval: Interval) -> str:
    """An interval in few characters: `.80 .95`."""
    ends = () if interval is None else interval
    return " ".join(f"{end:z.2f}".replace("0.", ".") for end in ends)


def _or(value: float | None, other: float) -> float:
    return other if value is None else value

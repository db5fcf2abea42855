"""One model, several side by side, and the selected features of those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oodzoo.report.blocks import Figure, Key, Section
from oodzoo.report.charts.comparison import Lane, comparison_chart
from oodzoo.report.charts.curve import Line, curve_chart
from oodzoo.report.numbers import is_number, number, span
from oodzoo.report.table import Column, Table

WAYS = {
    "single": ("Single", "single", "circle"),
    "ensemble": ("Ensemble", "ensemble", "square"),
    "selection": ("Selection", "selection", "diamond"),
    "greedy": ("Greedy", "neutral", "triangle"),
}
BASELINES = {"random_features": "Random features", "oracle": "Oracle"}
BEST_BY = "best_by_"


def combination_section(evaluation: dict[str, Any]) -> Section | None:
    """What the models reach on domains that were left out."""
    ways = _ways(evaluation)
    if not ways:
        return None
    blocks = [_comparison(evaluation, ways)]
    if len(evaluation.get("ablation") or []) > 1:
        blocks.append(_curve(evaluation["ablation"]))
    k = _several(evaluation.get("top_k"))
    lead = (
        f"Linear heads on features of the others, tested on the domain that was left out. Single "
        f"is the first model of a ranking made without the test domain, Ensemble {k} side by "
        "side, Selection the features of those that say something about a class."
    )
    if "oracle" in (evaluation.get("baselines") or {}):
        lead += " Oracle chooses with the labels of the test domain, which nobody has."
    if any(key.startswith(BEST_BY) for key in evaluation.get("baselines") or {}):
        lead += " Best by a score, or just its name, is the one model that it puts first."
    return Section("combination", "One model or several", lead, blocks, short="Combination")


def _several(top_k: Any) -> str:
    if isinstance(top_k, dict) and top_k:
        low, high = min(top_k.values()), max(top_k.values())
        return f"the first {low}" if low == high else f"the first {span(low, high)}"
    return f"the first {top_k}" if isinstance(top_k, int) else "the first few"


def _ways(evaluation: dict[str, Any]) -> dict[str, tuple[str, str, str, dict[str, Any]]]:
    """Every way to classify that was tried: title, colour, shape, figures."""
    ways = {
        key: (title, kind, shape, evaluation[key])
        for key, (title, kind, shape) in WAYS.items()
        if evaluation.get(key)
    }
    baselines = {key: row for key, row in (evaluation.get("baselines") or {}).items() if row}
    # the telling ones first, then other scores by name, so that pages can be held side by side
    telling = [key for key in BASELINES if key in baselines]
    for key in [*telling, *sorted(baselines.keys() - BASELINES)]:
        title = BASELINES.get(key, key.replace(BEST_BY, "Best by "))
        ways[key] = (title, "baseline", "line", baselines[key])
    return ways


def _comparison(
    evaluation: dict[str, Any], ways: dict[str, tuple[str, str, str, dict[str, Any]]]
) -> Figure:
    domains = evaluation.get("domains") or list(next(iter(ways.values()))[3]["domains"])
    lanes = {key: _lane(*way, None) for key, way in ways.items()}
    groups: list[tuple[str, Sequence[Lane]]] = [("Average", list(lanes.values()))]
    main = [ways[key] for key in WAYS if key in ways]
    for domain in domains:
        tested = [_lane(*way, domain) for way in main or ways.values() if _has(way[3], domain)]
        if tested:
            groups.append((domain, tested))
    findings = evaluation.get("findings") or []
    told = [
        lane for key, lane in lanes.items() if key in WAYS or (key in BASELINES and not findings)
    ]
    finding = ", ".join(
        f"{lane.title} {number(lane.value, 1)} %" for lane in told or lanes.values()
    )
    finding = f"On average over test domains: {finding}."
    ratio = (evaluation.get("feature_ratio") or {}).get("average")
    if is_number(ratio) and "selection" in ways and not findings:
        finding += f" Selection keeps {number(100 * ratio, 1)} % of the features."
    errors = any(lane.error is not None for lane in lanes.values())
    return Figure(
        title="Accuracy on domains nobody has seen",
        text=" ".join([finding, *findings])
        + (" Lines are standard errors over trials." if errors else ""),
        chart=comparison_chart(groups, finding),
        table=_table(evaluation, ways, domains),
    )


def _has(row: dict[str, Any], domain: str) -> bool:
    return is_number(row["domains"].get(domain))


def _lane(title: str, kind: str, shape: str, row: dict[str, Any], domain: str | None) -> Lane:
    error = row.get("error") or {}
    short = title.removeprefix("Best by ")
    if domain is None:
        return Lane(title, short, kind, shape, row["average"], error.get("average"))
    of_domain = (error.get("domains") or {}).get(domain)
    return Lane(title, short, kind, shape, row["domains"][domain], of_domain)


def _table(
    evaluation: dict[str, Any],
    ways: dict[str, tuple[str, str, str, dict[str, Any]]],
    domains: Sequence[str],
) -> Table:
    columns = [
        Column("Way", "way", text=True),
        Column("Test domain", "domain", text=True),
        Column("Accuracy %", "accuracy", 1),
        Column("Standard error", "standard_error", 2),
        Column("Balanced %", "balanced_accuracy", 1),
        Column("Calibration error %", "calibration_error", 1),
        Column("Features", "n_features", 0),
        Column("Kept %", "kept_percent", 1),
        Column("Models", "models", text=True),
    ]
    ratio = evaluation.get("feature_ratio") or {}
    lines: list[list[Any]] = [
        [
            title,
            domain or "average",
            _figure(row, domain),
            _figure(row.get("error"), domain),
            _figure(row.get("balanced"), domain),
            _figure(row.get("calibration_error"), domain),
            (row.get("n_features") or {}).get(domain),
            _percent(_figure(ratio, domain)) if key == "selection" else None,
            (row.get("models") or {}).get(domain),
        ]
        for key, (title, _, _, row) in ways.items()
        for domain in (None, *domains)
    ]
    return Table("accuracy", "Accuracy on each test domain", columns, lines)


def _figure(row: dict[str, Any] | None, domain: str | None) -> Any:
    if not row:
        return None
    return row.get("average") if domain is None else (row.get("domains") or {}).get(domain)


def _percent(share: Any) -> float | None:
    return 100 * share if is_number(share) else None


def _curve(ablation: list[dict[str, Any]]) -> Figure:
    numbers = [entry["top_k"] for entry in ablation]
    lines = [
        Line(title, kind, shape, [entry[key]["average"] for entry in ablation])
        for key, (title, kind, shape) in WAYS.items()
        if all(entry.get(key) for entry in ablation)
    ]
    best = [
        f"{line.title} is best with {numbers[line.values.index(max(line.values))]} "
        f"({number(max(line.values), 1)} %)"
        for line in lines
    ]
    finding = f"{', '.join(best)}." if best else "No curve is whole."
    columns = [Column("Models", "top_k", 0)]
    columns += [Column(f"{line.title} %", line.title.lower(), 1) for line in lines]
    columns.append(Column("Features kept %", "kept_percent", 1))
    rows = [
        [
            entry["top_k"],
            *(line.values[at] for line in lines),
            _percent(_figure(entry.get("feature_ratio"), None)),
        ]
        for at, entry in enumerate(ablation)
    ]
    return Figure(
        title="Accuracy over the number of models",
        text=f"{finding} Averages over test domains.",
        chart=curve_chart(numbers, lines, finding),
        legend=[Key(line.kind, line.shape, line.title) for line in lines],
        table=Table("accuracy-over-k", "Accuracy over the number of models", columns, rows),
    )

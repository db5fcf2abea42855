"""Which features are kept."""

from __future__ import annotations

from typing import Any

from oodzoo.report.blocks import Figure, Section
from oodzoo.report.charts.histogram import histogram
from oodzoo.report.charts.kept import kept_chart
from oodzoo.report.numbers import number
from oodzoo.report.table import Column, Table


def features_section(selection: dict[str, Any]) -> Section | None:
    """Features kept of each model, and how sure that is."""
    networks = selection.get("per_model") or []
    if not networks:
        return None
    lead = (
        f"Of the models side by side, {number(selection['n_selected'])} of "
        f"{number(selection['n_features'])} features are kept "
        f"({number(100 * selection['ratio'], 1)} %): those that say something about at least one "
        "class. A feature has an inclusion probability for each class; shown is its greatest."
    )
    if selection.get("converged") is False:
        lead += " The iteration stopped before it had converged."
    blocks = [_kept(networks)]
    if any(network.get("inclusion_histogram") for network in networks):
        blocks.append(_inclusion(networks))
    if selection.get("per_class"):
        blocks.append(_classes(selection["per_class"], [network["model"] for network in networks]))
    return Section("features", "Features that are kept", lead, blocks, short="Features")


def _kept(networks: list[dict[str, Any]]) -> Figure:
    triples = [(net["model"], net["n_features"], net["n_selected"]) for net in networks]
    finding = "; ".join(
        f"{model} keeps {number(kept)} of {number(features)}" for model, features, kept in triples
    )
    columns = [
        Column("Model", "model", text=True),
        Column("Features", "n_features", 0),
        Column("Kept", "n_selected", 0),
        Column("Kept %", "kept_percent", 1),
    ]
    rows = [[model, n, kept, 100 * kept / n if n else None] for model, n, kept in triples]
    return Figure(
        title="Kept of each model",
        chart=kept_chart(triples, f"{finding}."),
        table=Table("features-kept", "Features kept of each model", columns, rows),
    )


def _inclusion(networks: list[dict[str, Any]]) -> Figure:
    panels = []
    lines: list[list[Any]] = []
    for network in networks:
        counts = network.get("inclusion_histogram") or []
        if not counts:
            continue
        sure = counts[0] + counts[-1]
        finding = (
            f"{number(sure)} of {number(sum(counts))} features lie in the first or the last of "
            f"{len(counts)} bins, that is, are clearly out or clearly in."
        )
        panels.append(histogram(network["model"], counts, finding))
        for at, count in enumerate(counts):
            lines.append([network["model"], at / len(counts), (at + 1) / len(counts), count])
    columns = [
        Column("Model", "model", text=True),
        Column("From", "low", 2),
        Column("To", "high", 2),
        Column("Features", "features", 0),
    ]
    return Figure(
        title="How sure selection is",
        text="Features by inclusion probability. Heights go with the square root of the count, "
        "so that few are seen beside many.",
        panels=panels,
        table=Table("inclusion-probabilities", "Features by inclusion probability", columns, lines),
    )


def _classes(classes: dict[str, Any], models: list[str]) -> Figure:
    columns = [Column("Class", "class", text=True), Column("Kept", "n_selected", 0)]
    columns += [Column(model, model, 0) for model in models]
    rows = [
        [label, counts["n_selected"], *(counts["per_model"].get(model) for model in models)]
        for label, counts in classes.items()
    ]
    return Figure(
        title="Kept for each class",
        text="A feature may be kept for several classes.",
        table=Table("features-by-class", "Features kept for each class", columns, rows),
        folded=len(rows) > 12,
    )

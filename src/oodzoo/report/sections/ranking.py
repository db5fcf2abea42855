"""The ranking."""

from __future__ import annotations

from typing import Any

from oodzoo.report.blocks import Figure, Key, Section
from oodzoo.report.charts.frame import MOST_ROWS
from oodzoo.report.charts.ranking import ranking_chart
from oodzoo.report.numbers import number, span
from oodzoo.report.table import Column, Table


def ranking_section(ranking: dict[str, Any]) -> Section:
    """The order of the models, why, and how sure it is."""
    rows, score = ranking["ranking"], ranking["score"]
    first = rows[0]
    finding = (
        f"{first['model']} is first of {len(rows)} with a score of {number(first['score'], 3)}: "
        f"discriminability {number(first['discriminability'], 3)}, "
        f"stability {number(first['stability'], 2)}, "
        f"expected accuracy {number(first['expected_accuracy'], 1)} %"
        f"{_interval(first)}."
    )
    figure = Figure(
        title="Two terms, one order",
        text=finding + _how_to_read(rows, score),
        chart=ranking_chart(rows, score, finding),
        legend=_legend(rows, score),
        table=ranking_table(rows, score),
        folded=False,
    )
    lead = (
        "Each domain is left out in turn; a Bayesian linear model on the features of the others "
        "is asked about it. Discriminability says how well it foresees the labels of the domain "
        "it has not seen, stability how little the features move. For both, more is better."
    )
    if ranking.get("left_out"):
        reasons = "; ".join(f"{name}: {why}" for name, why in ranking["left_out"].items())
        lead += f" Left out of the ranking: {reasons}."
    return Section("ranking", "The ranking", lead, (figure,))


def _interval(row: dict[str, Any]) -> str:
    if not row.get("accuracy_interval"):
        return ""
    return f" (90 % interval {span(*row['accuracy_interval'])} %)"


def _how_to_read(rows: list[dict[str, Any]], score: str) -> str:
    words = ""
    if any(row.get("rank_interval") for row in rows):
        words += " The line under “place” says between which places a model may lie."
    if score != "zood":
        words += f" The order is by the score {score}; both terms of ZooD are shown beside it."
    if len(rows) > MOST_ROWS:
        words += f" The picture shows the first {MOST_ROWS}; the table holds all {len(rows)}."
    return words


def _legend(rows: list[dict[str, Any]], score: str) -> list[Key]:
    keys = []
    if score == "zood":
        keys.append(Key("score", "line", "score: discriminability plus a small share of stability"))
    keys.append(Key("accuracy", "circle", "accuracy expected on an unseen domain, 90 % interval"))
    if any(row.get("pareto_optimal") for row in rows):
        keys.append(
            Key(
                "accuracy front",
                "circle",
                "ring, “not beaten”: no model is at least as accurate and cheaper",
            )
        )
    return keys


def ranking_table(rows: list[dict[str, Any]], score: str) -> Table:
    """Every model with its terms, intervals and costs."""
    columns = [
        Column("Rank", "rank", 0),
        Column("Model", "model", text=True),
        Column("Place", "rank", 0, interval=True),
        Column(f"Score ({score})", "score", 3),
        Column("Discrimin­ability", "discriminability", 3),
        Column("Stability", "stability", 2),
        Column("Accuracy %", "expected_accuracy", 1),
        Column("90 %", "accuracy", 0, interval=True),
        Column("Features", "feature_dim", 0),
        Column("Params, M", "parameters_million", 2),
        Column("ms / image", "milliseconds", 1),
        Column("Not beaten", "pareto_optimal"),
        Column("Tied with", "tied", text=True, shown=False),
    ]
    lines = []
    for row in rows:
        parameters = row.get("parameters")
        lines.append(
            [
                row["rank"],
                row["model"],
                row.get("rank_interval"),
                row["score"],
                row["discriminability"],
                row["stability"],
                row["expected_accuracy"],
                row.get("accuracy_interval"),
                row.get("feature_dim"),
                None if parameters is None else parameters / 1e6,
                row.get("milliseconds"),
                row.get("pareto_optimal"),
                row.get("tied"),
            ]
        )
    return Table("ranking", "The ranking in figures", columns, lines, head=1)

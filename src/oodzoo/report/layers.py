"""The section "Layers": the best layer of each network that was ranked with several."""

from __future__ import annotations

from oodzoo._text import count
from oodzoo.ranking.result import Ranking, Row
from oodzoo.report.blocks import Column, Figure, Section, Table


def networks(ranking: Ranking) -> dict[str, list[Row]]:
    """Group the models that are layers of one network, named `<network>@<layer>`, best first.

    The network itself, if it was ranked, is the one without a layer.
    """
    groups: dict[str, list[Row]] = {}
    for row in ranking.rows:
        groups.setdefault(row.model.partition("@")[0], []).append(row)
    return {name: rows for name, rows in groups.items() if len(rows) > 1}


def layers_section(ranking: Ranking) -> Section:
    """The best layer of each network, and how it compares with the network's own features."""
    groups = networks(ranking)
    columns = [
        Column("Network", "network", text=True),
        Column("Layers", "layers", 0),
        Column("Best layer", "best_layer", text=True),
        Column("Rank", "rank", 0),
        Column(f"Score ({ranking.score})", "score", 3),
        Column("Accuracy %", "expected_accuracy", 1),
        Column("ms / image", "milliseconds"),
        Column("Rank of its own features", "own_rank", 0),
        Column("Accuracy % of these", "own_expected_accuracy", 1),
        Column("ms / image of these", "own_milliseconds"),
        Column("All layers, best first", "all_layers", text=True, shown=False),
    ]
    table = Table(
        "layers",
        "Best layer per network",
        columns,
        [_cells(name, rows) for name, rows in groups.items()],
    )
    better = sum("@" in rows[0].model for rows in groups.values())
    lead = (
        f"Several layers were ranked of {count(len(groups), 'network')}; in {better:,}, an inner "
        "layer ranks above all others. “Own features” are those that a model is used with by "
        "default, near its end. The time is that of a forward pass up to the layer."
    )
    figure = Figure("Best layer per network", table=table, folded=False)
    return Section("layers", "Layers", lead, (figure,))


def _cells(name: str, rows: list[Row]) -> list[object]:
    best = rows[0]
    own = next((row for row in rows if row.model == name), None)
    return [
        name,
        len(rows),
        _layer(best),
        best.rank,
        best.score,
        best.expected_accuracy,
        best.milliseconds,
        None if own is None else own.rank,
        None if own is None else own.expected_accuracy,
        None if own is None else own.milliseconds,
        ", ".join(map(_layer, rows)),
    ]


def _layer(row: Row) -> str:
    return row.model.partition("@")[2] or "own features"

"""The section "Race": the models that were dropped before they saw all images."""

from __future__ import annotations

from collections.abc import Mapping

from oodzoo._text import count
from oodzoo.racing import Dropped
from oodzoo.report.blocks import Column, Figure, Section, Table
from oodzoo.task.words import MEASURES


def race_section(dropped: Mapping[str, Dropped]) -> Section:
    """When each model was dropped, and why."""
    name = next(iter(dropped.values())).metric
    metric = MEASURES[name]
    columns = [
        Column("Model", "model", text=True),
        Column("Round", "round", 0),
        Column("Images", "images", 0),
        Column("Rank", "rank", 0),
        Column("90 % interval", "rank_interval", 0, interval=True),
        Column(f"Expected {metric.name}, %", f"expected_{name}", 1),
        Column("Reason", "reason", text=True),
    ]
    order = sorted(dropped.items(), key=lambda item: (-item[1].round, item[1].rank))
    rows = [
        [
            model,
            each.round,
            each.images,
            each.rank,
            each.rank_interval,
            each.expected_accuracy,
            each.reason,
        ]
        for model, each in order
    ]
    lead = (
        f"Dropped after a look at a sample of the images: {count(len(rows), 'model')}. Rank and "
        f"expected {metric.name} are those on this sample. No other table lists these models. The "
        "sample has images of every domain, so the results of the models that are left, also those "
        "on test domains, are somewhat too good."
    )
    table = Table("race", "Dropped models", columns, rows)
    return Section("race", "Race", lead, [Figure("Dropped models", table, folded=False)])

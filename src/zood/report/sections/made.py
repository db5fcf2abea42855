"""How it was made, so that somebody else can make it again."""

from __future__ import annotations

import json
from typing import Any

from zood.report.blocks import Facts, Figure, Section
from zood.report.document import Run
from zood.report.numbers import duration, is_number
from zood.report.table import Column, Table


def made_section(run: Run) -> Section | None:
    """The command, versions, settings, seed and times."""
    pairs = []
    if run.get("seed") is not None:
        pairs.append(("Seed", str(run["seed"])))
    for title, part in (("", "versions"), ("", "machine"), ("", "settings")):
        pairs += [(f"{title}{key}", _plain(value)) for key, value in (run.get(part) or {}).items()]
    blocks: list[Facts | Figure] = []
    if pairs or run.get("command"):
        blocks.append(Facts(pairs, command=run.get("command")))
    if run.get("stages"):
        blocks.append(_stages(run["stages"]))
    if not blocks:
        return None
    return Section("made", "How it was made", "", blocks, short="Made")


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _stages(stages: list[dict[str, Any]]) -> Figure:
    total = sum(stage["seconds"] for stage in stages if is_number(stage.get("seconds")))
    columns = [
        Column("Stage", "stage", text=True),
        Column("Seconds", "seconds", 1),
        Column("Taken from an earlier run", "skipped"),
    ]
    rows = [[stage["name"], stage.get("seconds"), bool(stage.get("skipped"))] for stage in stages]
    return Figure(
        title="Time",
        text=f"{duration(total)} in all.",
        table=Table("times", "Seconds for each stage", columns, rows),
        folded=False,
    )

"""The section "Provenance": the command, settings, versions, machine and times of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from oodzoo._text import duration
from oodzoo.record import Run, Stage
from oodzoo.report.blocks import Block, Column, Facts, Figure, Section, Table


def provenance_section(run: Run) -> Section:
    """Everything needed to repeat a run."""
    blocks: list[Block] = [Facts(command=run.command)]
    parts = {"Settings": run.settings, "Versions": run.versions, "Machine": run.machine}
    blocks += [Facts(_pairs(part), title=title) for title, part in parts.items() if part]
    if run.stages:
        blocks.append(_stages(run.stages))
    return Section("provenance", "Provenance", "", blocks)


def _pairs(part: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Names and values as text, sorted by name as in `run.json`."""
    pairs = []
    for name, value in sorted(part.items()):
        if isinstance(value, dict):
            pairs += _pairs(value, f"{prefix}{name}.")
        else:
            pairs.append((f"{prefix}{name}", _text(value)))
    return pairs


def _text(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value)) or "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _stages(stages: Sequence[Stage]) -> Figure:
    columns = [
        Column("Stage", "stage", text=True),
        Column("Seconds", "seconds", 1),
        Column("Reused from an earlier run", "reused"),
    ]
    rows = [[stage.name, stage.seconds, stage.reused] for stage in stages]
    return Figure(
        title="Time",
        text=f"{duration(sum(stage.seconds for stage in stages))} in total.",
        table=Table("times", "Seconds per stage", columns, rows),
        folded=False,
    )

"""How it was made, so that somebody else can make it again."""

from __future__ import annotations

import json
from typing import Any

from oodzoo.report.blocks import Facts, Figure, Section
from oodzoo.report.document import Run
from oodzoo.report.numbers import NOTHING, duration, is_number
from oodzoo.report.table import Column, Table


def made_section(run: Run) -> Section | None:
    """The command, versions, settings, seed and times."""
    blocks: list[Facts | Figure] = []
    if run.get("command"):
        blocks.append(Facts((), command=run["command"]))
    settings = dict(run.get("settings") or {})
    if run.get("seed") is not None:
        settings["seed"] = run["seed"]
    parts = (
        ("Settings", settings),
        ("Versions", run.get("versions")),
        ("Machine", run.get("machine")),
    )
    for title, part in parts:
        if part:
            # what was not set was chosen by oodzoo
            unset = "chosen" if title == "Settings" else NOTHING
            blocks.append(Facts(_pairs(part, unset), title=title))
    if run.get("stages"):
        blocks.append(_stages(run["stages"]))
    if not blocks:
        return None
    return Section("made", "How it was made", "", blocks, short="Made")


def _pairs(part: dict[str, Any], unset: str, above: str = "") -> list[tuple[str, str]]:
    pairs = []
    for name, value in part.items():
        if isinstance(value, dict):
            pairs += _pairs(value, unset, f"{above}{name}.")
        else:
            pairs.append((f"{above}{name}", _words(value, unset)))
    return pairs


def _words(value: Any, unset: str) -> str:
    """A value for people."""
    if value is None:
        return unset
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_words(entry, unset) for entry in value) or "none"
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

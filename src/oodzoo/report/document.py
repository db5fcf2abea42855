"""What a run left behind, read back with care."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oodzoo._io import read_json
from oodzoo.errors import InputError
from oodzoo.record import NAME, SCHEMA

Run = dict[str, Any]

PARTS = ("data", "ranking", "selection", "evaluation", "testbed", "versions", "machine", "settings")


def read_run(folder: Path) -> Run:
    """Read `run.json` of a folder.

    Raises
    ------
    InputError
        If it is missing, damaged, or of another kind.
    """
    path = folder / NAME
    if not path.is_file():
        raise InputError(
            f"{str(folder)!r} has no {NAME}; give the folder that `oodzoo run ... --out` wrote"
        )
    run = read_json(path, "the record of a run")
    require_run(run, str(path))
    return run


def require_run(run: Run, where: str) -> None:
    """Refuse what is no record of a run."""
    schema = run.get("schema")
    if schema != SCHEMA:
        raise InputError(
            f"{where!r} has schema {schema!r}, and this oodzoo reads {SCHEMA}; "
            "write it again with `oodzoo run`, or use the oodzoo that wrote it"
        )
    for part in PARTS:
        if run.get(part) is not None and not isinstance(run[part], dict):
            raise InputError(
                f"{where!r} is damaged: its {part!r} is {type(run[part]).__name__}, not an object"
            )

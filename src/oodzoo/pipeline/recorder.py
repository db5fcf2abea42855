"""Writes `run.json` and `report.html` after every stage.

A run that was stopped can be resumed, and from the ranking on there is something to look at.
"""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from oodzoo import __version__
from oodzoo._io import read_json, structured, write_tidily
from oodzoo.errors import InputError
from oodzoo.events import Listener
from oodzoo.record import NAME, SCHEMA, Document, Run, Stage
from oodzoo.report import write_report
from oodzoo.store.documents import sealed, unsealed

_PACKAGES = ("numpy", "scipy", "scikit-learn", "onnxruntime", "torch", "timm", "transformers")


class Recorder(Listener):
    """The record of a run in a folder, written when a stage ends; an earlier one there is read.

    Parameters
    ----------
    folder : path
    command : str
        The command line or call that started the run.
    settings : dict
        Options of the run.

    Attributes
    ----------
    path : Path
    earlier : dict
        The document of the earlier record; empty if there is none.
    """

    def __init__(self, folder: Path, command: str, settings: Document) -> None:
        self.path = folder / NAME
        self.earlier = _read(self.path)
        self._stages: list[Stage] = []
        self._parts: dict[str, Any] = {}
        machine = {"cores": _cores(), "system": platform.platform(terse=True)}
        self._start = Run(command, settings, _versions(), machine)

    def end(self, stage: str, **facts: Any) -> None:
        """Record a stage of the run that has a result."""
        if "inputs" not in facts:
            return
        reused = facts["status"] == "reused"
        self._stages.append(Stage(stage, facts["seconds"], reused, facts["inputs"]))
        self._parts[stage] = facts["result"]
        run = self._write()
        if run.ranking is not None and not reused:
            write_report(self.path.parent, run=run)

    def add(self, name: str, part: Any) -> None:
        """Add a part to the record that is not the result of a stage."""
        self._parts[name] = part

    def finish(self) -> Run:
        """Write the final record, without stages that only earlier runs had."""
        self.earlier = {}
        return self._write()

    def _write(self) -> Run:
        run = replace(self._start, stages=tuple(self._stages), **self._parts)
        done = {stage.name for stage in self._stages}
        # What an earlier run found in later stages stays until this run reaches them.
        later = [s for s in self.earlier.get("stages", []) if s["name"] not in done]
        parts = {s["name"]: self.earlier[s["name"]] for s in later if s["name"] in self.earlier}
        document = run.to_dict()
        document = parts | document | {"stages": [*document["stages"], *later]}
        write_tidily(self.path, sealed(document))
        return run


def _read(path: Path) -> Document:
    """The record of an earlier run; empty if it is missing, damaged or of another schema."""
    what = f"the record of a run {str(path)!r}"
    try:
        document = unsealed(read_json(path, what), what)
    except InputError:
        return {}
    if document.get("schema") != SCHEMA:
        return {}
    stages = structured(document.get("stages", []), list[Stage], what)
    return document | {"stages": msgspec.to_builtins(stages)}


def _versions() -> dict[str, str]:
    versions = {"oodzoo": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

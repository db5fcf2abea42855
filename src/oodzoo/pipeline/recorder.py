"""Writes `run.json` after every stage, so that a run that was stopped can be resumed.

A stage is skipped if the record has its result for the same inputs.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from oodzoo import __version__
from oodzoo._io import json_bytes, read_json, structured, write_tidily
from oodzoo.events import Observer
from oodzoo.record import NAME, SCHEMA, Document, Run, Stage, part_from_dict

_PACKAGES = ("numpy", "scipy", "scikit-learn", "onnxruntime", "torch", "timm", "transformers")

Result = TypeVar("Result")


class Recorder:
    """The record of a run in a folder; an earlier record there is read.

    Parameters
    ----------
    folder : path
    command : str
        The command line or call that started the run.
    settings : dict
        Options of the run.
    observer : Observer
        Called when a stage begins and ends.
    """

    def __init__(
        self, folder: Path, command: str, settings: Document, observer: Observer | None = None
    ) -> None:
        self._path = folder / NAME
        self._earlier = _read(self._path)
        self._observer = observer or Observer()
        self._stages: list[Stage] = []
        self._parts: dict[str, Any] = {}
        machine = {"cores": _cores(), "system": platform.platform(terse=True)}
        self._start = Run(command, settings, _versions(), machine)

    def stage(
        self,
        name: str,
        inputs: Any,
        compute: Callable[[], Result],
        *,
        valid: Callable[[Result], bool] = lambda _: True,
    ) -> Result:
        """Compute the result of a stage, unless it is recorded for the same inputs.

        Parameters
        ----------
        name : str
            Name of the stage and of its part of the record.
        inputs : JSON
            Everything that the result depends on, apart from the version of oodzoo.
        compute : callable
        valid : callable
            Whether files that a recorded result refers to are still there.
        """
        self._observer.begin(name)
        key = _digest([__version__, name, inputs])
        earlier = {stage["name"]: stage for stage in self._earlier.get("stages", [])}.get(name, {})
        reused = earlier.get("inputs") == key and name in self._earlier
        if reused:
            result: Result = part_from_dict(name, self._earlier[name])
            seconds, reused = earlier["seconds"], valid(result)
        if not reused:
            start = time.perf_counter()
            result = compute()
            seconds = time.perf_counter() - start
        self._stages.append(Stage(name, seconds, reused, key))
        self._parts[name] = result
        self._write()
        self._observer.end(name, result, reused=reused)
        return result

    def add(self, name: str, part: Any) -> None:
        """Add a part to the record that is not the result of a stage."""
        self._parts[name] = part

    def finish(self) -> Run:
        """Write the final record, without stages that only earlier runs had."""
        self._earlier = {}
        return self._write()

    def _write(self) -> Run:
        run = replace(self._start, stages=tuple(self._stages), **self._parts)
        done = {stage.name for stage in self._stages}
        # What an earlier run found in later stages stays until this run reaches them.
        later = [s for s in self._earlier.get("stages", []) if s["name"] not in done]
        parts = {s["name"]: self._earlier[s["name"]] for s in later if s["name"] in self._earlier}
        document = run.to_dict()
        document = parts | document | {"stages": [*document["stages"], *later]}
        write_tidily(self._path, json_bytes(document))
        return run


def _read(path: Path) -> Document:
    """The record of an earlier run; empty if there is none, or one of another schema."""
    if not path.is_file():
        return {}
    document = read_json(path, "the record of a run")
    if document.get("schema") != SCHEMA:
        return {}
    what = f"the record of a run {str(path)!r}"
    stages = structured(document.get("stages", []), list[Stage], what)
    return document | {"stages": msgspec.to_builtins(stages)}


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


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

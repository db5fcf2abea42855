"""The stages of a run: one is skipped if an earlier run has its result for the same inputs.

`run.json` and `report.html` are written after every stage, so that a run that was stopped can be
resumed, and from the ranking on there is something to look at.
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
from oodzoo.core.errors import InputError
from oodzoo.core.events import Events, Listener
from oodzoo.core.io import read_json, structured, write_tidily
from oodzoo.core.text import one_line
from oodzoo.report import write_report
from oodzoo.report.record import NAME, SCHEMA, Document, Run, Stage, part_from_dict
from oodzoo.store.format import sealed, unsealed

Result = TypeVar("Result")


class Stages:
    """Computes stages, or reuses their results, and emits their events.

    Parameters
    ----------
    earlier : dict
        The record of an earlier run, see :attr:`oodzoo.pipeline.stages.Recorder.earlier`.
    events : Events
        An end has, besides `status`, `seconds` and `result`, the fact `inputs`: a digest of
        everything that the result depends on.
    """

    def __init__(self, earlier: Document, events: Events) -> None:
        self._events = events
        self._parts = {name: part for name, part in earlier.items() if name != "stages"}
        self._stages = {stage["name"]: stage for stage in earlier.get("stages", [])}

    def stage(
        self,
        name: str,
        inputs: Any,
        compute: Callable[[Listener], Result],
        *,
        valid: Callable[[Result], bool] = lambda _: True,
        artifact: Path | None = None,
    ) -> Result:
        """Compute the result of a stage, unless it is recorded for the same inputs.

        Parameters
        ----------
        name : str
            Name of the stage and of its part of the record.
        inputs : JSON
            Everything that the result depends on, apart from the version of oodzoo.
        compute : callable
            Gets a listener, to which it emits the events of the stage.
        valid : callable
            Whether files that a recorded result refers to are still there.
        artifact : path, optional
            What the stage writes.
        """
        key = _digest([__version__, name, inputs])
        earlier = self._stages.get(name, {})
        if earlier.get("inputs") == key and name in self._parts:
            result: Result = part_from_dict(name, self._parts[name])
            if valid(result):
                self._events.start(name)
                for metric, value in getattr(result, "metrics", {}).items():
                    self._events.metric(name, metric, value)
                self._finish(name, "reused", earlier["seconds"], result, key, artifact)
                return result
        inner = _Within(name, self._events)
        start = time.perf_counter()
        try:
            result = compute(inner)
        except BaseException as error:
            if inner.started:
                seconds = time.perf_counter() - start
                self._events.end(name, status="failed", seconds=seconds, error=one_line(error))
            raise
        self._finish(name, "done", time.perf_counter() - start, result, key, artifact)
        return result

    def skip(self, name: str, reason: str) -> None:
        """Skip a stage, which only ends."""
        self._events.end(name, status="skipped", seconds=0.0, reason=reason)

    def _finish(
        self, name: str, status: str, seconds: float, result: Any, key: str, artifact: Path | None
    ) -> None:
        if artifact is not None:
            self._events.artifact(name, artifact)
        self._events.end(name, status=status, seconds=seconds, result=result, inputs=key)


class _Within(Listener):
    """Passes on what a stage emits, without its end, which is that of the run's stage.

    Stages within it are left out: the run has had them, or they are details.
    """

    def __init__(self, stage: str, events: Events) -> None:
        self.started = False
        self._stage = stage
        self._events = events

    def start(self, stage: str, **facts: Any) -> None:
        if stage == self._stage:
            self.started = True
            self._events.start(stage, **facts)

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        if stage == self._stage:
            self._events.progress(stage, done, total, **facts)

    def metric(self, stage: str, name: str, value: float, *, step: int | None = None) -> None:
        if stage == self._stage:
            self._events.metric(stage, name, value, step=step)

    def artifact(self, stage: str, path: Path) -> None:
        if stage == self._stage:
            self._events.artifact(stage, path)


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


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

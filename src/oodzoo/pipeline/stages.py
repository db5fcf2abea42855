"""The stages of a run: one is skipped if an earlier run has its result for the same inputs."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from oodzoo import __version__
from oodzoo._text import one_line
from oodzoo.events import Events, Listener
from oodzoo.record import Document, part_from_dict

Result = TypeVar("Result")


class Stages:
    """Computes stages, or reuses their results, and emits their events.

    Parameters
    ----------
    earlier : dict
        The record of an earlier run, see :attr:`oodzoo.pipeline.recorder.Recorder.earlier`.
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

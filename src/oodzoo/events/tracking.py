"""What trackers of experiments have in common: one of their runs for each call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from oodzoo.events.facts import plain_facts
from oodzoo.events.listener import Listener


class Tracker(Listener, ABC):
    """Opens a run when a stage starts, and closes it when that stage ends.

    Stages within it are part of the same run. Of a start, the facts are parameters; if a stage
    starts again within a run, those of its first start.
    """

    def __init__(self) -> None:
        self._open: list[str] = []
        self._known: set[str] = set()

    def start(self, stage: str, **facts: Any) -> None:
        if not self._open:
            self._known.clear()
            self._open_run(stage)
        self._open.append(stage)
        described = {f"{stage}/{name}": _text(value) for name, value in plain_facts(facts).items()}
        self._parameters({n: text for n, text in described.items() if n not in self._known})
        self._known |= described.keys()

    def end(self, stage: str, **facts: Any) -> None:
        if not self._open:
            return
        self._tag(f"{stage}/status", facts["status"])
        if "error" in facts:
            self._tag(f"{stage}/error", facts["error"])
        if "seconds" in facts:
            self.metric(stage, "seconds", facts["seconds"])
        if stage in self._open:
            self._open.remove(stage)
            if not self._open:
                self._close_run(failed=facts["status"] == "failed")

    @abstractmethod
    def _open_run(self, stage: str) -> None:
        """A run begins with this stage."""

    @abstractmethod
    def _parameters(self, values: dict[str, str]) -> None:
        """Add parameters to the run."""

    @abstractmethod
    def _tag(self, name: str, value: str) -> None:
        """Set a tag of the run."""

    @abstractmethod
    def _close_run(self, *, failed: bool) -> None:
        """The run ends."""


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

"""A listener that remembers every event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oodzoo.events import Listener


class Heard(Listener):
    """Remembers events as (event, stage, rest)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, dict[str, Any]]] = []

    def start(self, stage: str, **facts: Any) -> None:
        self.events.append(("start", stage, facts))

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        self.events.append(("progress", stage, {"done": done, "total": total, **facts}))

    def metric(self, stage: str, name: str, value: float, *, step: int | None = None) -> None:
        self.events.append(("metric", stage, {"name": name, "value": value, "step": step}))

    def artifact(self, stage: str, path: Path) -> None:
        self.events.append(("artifact", stage, {"path": path}))

    def end(self, stage: str, **facts: Any) -> None:
        self.events.append(("end", stage, facts))

    def of(self, event: str) -> list[tuple[str, dict[str, Any]]]:
        """The stages and facts of all events of a kind."""
        return [(stage, facts) for kind, stage, facts in self.events if kind == event]

    def steps(self) -> list[tuple[int, int]]:
        """What is done, and the total, of progress without a message; each once."""
        all_of_it = [facts for _, facts in self.of("progress") if "message" not in facts]
        return list(dict.fromkeys((facts["done"], facts["total"]) for facts in all_of_it))

    def shares(self) -> list[float]:
        """The shares of the work that were done, where they were known."""
        return [facts["share"] for _, facts in self.of("progress") if "share" in facts]

    def messages(self) -> list[str]:
        return [facts["message"] for _, facts in self.of("progress") if "message" in facts]

    def metrics(self, stage: str) -> dict[str, float]:
        return {facts["name"]: facts["value"] for of, facts in self.of("metric") if of == stage}

    def outline(self) -> list[tuple[str, str]]:
        """The starts and ends, in order, with the status of the ends."""
        return [
            (stage, facts["status"] if kind == "end" else kind)
            for kind, stage, facts in self.events
            if kind in ("start", "end")
        ]

"""A log file: one line for each event."""

from __future__ import annotations

import json
import math
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from oodzoo.core.events.listener import Listener, plain_facts
from oodzoo.core.io import explaining_disk_errors
from oodzoo.core.text import printable

_SECONDS = 1.0


class LogFile(Listener):
    """Appends one line for each event to a file: JSON if its name ends in `.jsonl`, else text.

    Of the progress of a stage, about one line a second is written, and all messages and failures.
    Several processes may append to the same file.

    Parameters
    ----------
    path : path

    Raises
    ------
    DiskError
        If the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path).resolve()
        self._json = self._path.suffix == ".jsonl"
        self._written: dict[str, float] = {}  # when, by stage
        with explaining_disk_errors(self._path):
            self._append("")

    def start(self, stage: str, **facts: Any) -> None:
        self._written.pop(stage, None)
        self._write(stage, "start", facts)

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        now = time.monotonic()
        due = now - self._written.get(stage, -math.inf) >= _SECONDS
        if due or "message" in facts or "failed" in facts:
            self._written[stage] = now
            self._write(stage, "progress", {"done": done, "total": total, **facts})

    def metric(self, stage: str, name: str, value: float, *, step: int | None = None) -> None:
        facts = {"name": name, "value": value}
        self._write(stage, "metric", facts if step is None else {**facts, "step": step})

    def artifact(self, stage: str, path: Path) -> None:
        self._write(stage, "artifact", {"path": path})

    def end(self, stage: str, **facts: Any) -> None:
        self._write(stage, "end", facts)

    def _write(self, stage: str, event: str, facts: dict[str, Any]) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        facts = plain_facts(facts)
        if self._json:
            line = json.dumps({"time": now, "stage": stage, "event": event, **facts})
        else:
            line = printable(" ".join([now, stage, event, *_words(event, facts)]))
        self._append(f"{line}\n")

    def _append(self, line: str) -> None:
        """Append in one write, which no other process divides."""
        with self._path.open("ab", buffering=0) as file:
            file.write(line.encode(errors="backslashreplace"))


def _words(event: str, facts: dict[str, Any]) -> list[str]:
    """Facts as words; of a list the length, a message last and as it is."""
    rest = dict(facts)
    words = []
    if event == "progress":
        words.append(f"{rest.pop('done')}/{rest.pop('total')}")
    if event == "metric":
        words.append(f"{rest.pop('name')} {_word(rest.pop('value'))}")
    message = rest.pop("message", None)
    words += [f"{name}={_word(value)}" for name, value in rest.items()]
    return words if message is None else [*words, str(message)]


def _word(value: Any) -> str:
    if isinstance(value, list | dict):
        return str(len(value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return json.dumps(value, ensure_ascii=False) if " " in str(value) else str(value)

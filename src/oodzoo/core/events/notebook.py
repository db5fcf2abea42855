"""Progress in a notebook: one line that is updated in place."""

from __future__ import annotations

import os
import sys
import time
from html import escape
from typing import Any

from oodzoo.core.events.listener import Listener
from oodzoo.core.text import duration, short_name

SWITCH = "OODZOO_PROGRESS"
"""Environment variable: 0 turns progress in notebooks off."""

_DELAY = 0.5
"""Seconds before anything is shown: quick work shows nothing."""
_EVERY = 0.2
"""Seconds between updates."""
_ENOUGH = 2.0
"""Seconds after which the time left can be estimated."""


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, and progress is not turned off."""
    if os.environ.get(SWITCH, "").strip().lower() in ("0", "no", "off", "false"):
        return False
    ipython = sys.modules.get("IPython")  # a kernel has imported it
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class NotebookProgress(Listener):
    """Shows the progress of a stage, and of those within it, in one line of the output of a cell.

    The line has a bar and the time left. At the end, it says how long the stage took. Public
    functions use it by themselves in a notebook if they get no listener.
    """

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._shown: Any = None
        self._at = 0.0
        self._message = ""

    def start(self, stage: str, **facts: Any) -> None:
        self._open.append(_Open(stage))
        self._message = ""
        self._update()

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        for each in reversed(self._open):
            if each.stage == stage:
                each.done, each.total = done, total
                break
        self._message = facts.get("message", self._message)
        self._update()

    def end(self, stage: str, **facts: Any) -> None:
        at = next((at for at, each in enumerate(self._open) if each.stage == stage), None)
        if at is None:  # it was skipped
            return
        ended = self._open[at]
        del self._open[at:]
        self._message = ""
        if self._open or self._shown is None:
            self._update()
            return
        word = "failed after" if facts.get("status") == "failed" else "done in"
        text = f"{ended.title}: {word} {duration(ended.seconds)}"
        self._shown.update(_bundle(text, escape(text)), raw=True)
        self._shown = None

    def _update(self) -> None:
        """Show where the innermost stage is, unless that was shown just now."""
        now = time.monotonic()
        if not self._open or now - self._open[0].started < _DELAY or now - self._at < _EVERY:
            return
        self._at = now
        stage = self._open[-1]
        bundle = _bundle(stage.text(self._message), stage.html(self._message))
        if self._shown is None:
            from IPython.display import display

            self._shown = display(bundle, raw=True, display_id=True)
        else:
            self._shown.update(bundle, raw=True)


class _Open:
    """A stage that has started."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.started = time.monotonic()
        self.done = self.total = 0

    @property
    def title(self) -> str:
        return self.stage.capitalize()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def words(self, message: str) -> str:
        """How far it is, and what it does."""
        words = []
        if self.total:
            words.append(f"{100 * self.done / self.total:.0f} %")
        spent = self.seconds
        if 0 < self.done < self.total and spent > _ENOUGH:
            words.append(f"about {duration(spent * (self.total - self.done) / self.done)} left")
        else:
            words.append(duration(spent))
        if message:
            words.append(short_name(message, 80))
        return ", ".join(words)

    def text(self, message: str) -> str:
        return f"{self.title}: {self.words(message)}"

    def html(self, message: str) -> str:
        bar = f'<progress value="{self.done}" max="{self.total}"></progress>' if self.total else ""
        return f"{escape(self.title)} {bar} {escape(self.words(message))}"


def _bundle(text: str, html: str) -> dict[str, str]:
    return {"text/plain": text, "text/html": html}

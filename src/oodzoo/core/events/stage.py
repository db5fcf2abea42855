"""One stage of work: its start, and its end whatever happens."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sized
from contextvars import ContextVar
from typing import Any, Protocol, Self

from oodzoo.core.events.listener import Events, Listeners
from oodzoo.core.events.notebook import NotebookProgress, in_notebook
from oodzoo.core.text import one_line

_within: ContextVar[bool] = ContextVar("_within", default=False)
"""Whether a stage is open: what it calls without a listener stays silent."""


def or_notebook(listener: Listeners | None) -> Listeners | None:
    """Return the listener, or in a notebook one that shows progress if there is none.

    `[]` is a listener: nothing is shown.
    """
    if listener is None and not _within.get() and in_notebook():
        return NotebookProgress()
    return listener


class Stage:
    """Emits the events of a stage; a context manager that starts and ends it.

    If the work raises, the stage ends with the status "failed" and the fact `error`, one line; the
    exception goes on.

    Parameters
    ----------
    listener : Listener or sequence of Listener, optional
        If None, progress is shown in a notebook.
    name : str
    **facts
        Facts of the start.

    Attributes
    ----------
    events : Events
        To pass on to functions that have stages of their own.
    """

    def __init__(self, listener: Listeners | None, name: str, **facts: Any) -> None:
        self.events = Events(or_notebook(listener))
        self._result: Any = None
        self._name = name
        self._facts = facts
        self._at = (0, 0)

    def __enter__(self) -> Self:
        self.events.start(self._name, **self._facts)
        self._outside = _within.set(True)
        self._start = time.perf_counter()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        seconds = time.perf_counter() - self._start
        _within.reset(self._outside)
        if error is None:
            self.events.end(self._name, status="done", seconds=seconds, result=self._result)
        else:
            self.events.end(self._name, status="failed", seconds=seconds, error=one_line(error))

    def progress(self, done: int, total: int) -> None:
        """A part is done."""
        self._at = (done, total)
        self.events.progress(self._name, done, total)

    def say(self, message: str) -> None:
        """Emit one line about the current step."""
        self.events.progress(self._name, *self._at, message=message)

    def finish(self, result: Any, metrics: Mapping[str, float]) -> None:
        """Emit what has been measured; the result is a fact of the end."""
        for name, value in metrics.items():
            self.events.metric(self._name, name, value)
        self._result = result


class _Labelled(Protocol):
    """Features of models for labelled samples of domains."""

    models: tuple[str, ...]
    domains: tuple[str, ...]

    def labels(self, domain: str) -> Sized:
        """Return the class of each sample."""


def extent(source: _Labelled) -> dict[str, Any]:
    """Return the facts that describe the features that a stage works on."""
    return {
        "models": list(source.models),
        "domains": list(source.domains),
        "images": sum(len(source.labels(domain)) for domain in source.domains),
    }

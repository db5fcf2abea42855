"""The events of long work, those who listen to them, and facts as plain values.

Five events describe all work: a stage starts, proceeds, measures something, writes a file, ends.
"""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oodzoo.core.errors import InputError
from oodzoo.core.text import one_line

Progress = Callable[[int, int], None]
"""Called with (done, total)."""

Log = Callable[[str], None]
"""Called with one line about the current step."""


class Listener:
    """Receives the events of long work; the base class ignores them.

    The stages are "extraction", "ranking", "selection", "evaluation", "predictor", "tuning", "test"
    and "testbed", and "run", which contains most of them. Stages can be nested: a predictor may
    need an evaluation.
    Facts are values that a listener may use or ignore; further ones may be added.
    """

    def start(self, stage: str, **facts: Any) -> None:
        """A stage starts; most have the facts `models`, `domains` and `images`."""

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        """A part of a stage is done, or, with the fact `message`, there is something to say."""

    def metric(self, stage: str, name: str, value: float, *, step: int | None = None) -> None:
        """A stage has measured something."""

    def artifact(self, stage: str, path: Path) -> None:
        """A stage has written a file or folder."""

    def end(self, stage: str, **facts: Any) -> None:
        """A stage ended; `status` is "done", "reused", "skipped" or "failed".

        `seconds` is what it took, `result` what it returns, `error` why it failed, in one line. A
        stage that is skipped has not started; the fact `reason` says why.
        """


Listeners = Listener | Sequence[Listener]


class Events(Listener):
    """Passes every event on to several listeners, in their order.

    An :class:`~oodzoo.InputError` of a listener stops the work. After any other
    exception the listener is left out, with a warning.
    """

    def __init__(self, listeners: Listeners | None = None) -> None:
        self._listeners: list[Listener] = []
        if isinstance(listeners, Events):
            self._listeners = listeners._listeners  # one that is left out is left out of both
            return
        given = [listeners] if isinstance(listeners, Listener) else listeners or ()
        for listener in given:
            nested = listener._listeners if isinstance(listener, Events) else [listener]
            self._listeners += nested

    def start(self, stage: str, **facts: Any) -> None:
        self._call(lambda listener: listener.start(stage, **facts))

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        self._call(lambda listener: listener.progress(stage, done, total, **facts))

    def metric(self, stage: str, name: str, value: float, *, step: int | None = None) -> None:
        self._call(lambda listener: listener.metric(stage, name, value, step=step))

    def artifact(self, stage: str, path: Path) -> None:
        self._call(lambda listener: listener.artifact(stage, path))

    def end(self, stage: str, **facts: Any) -> None:
        self._call(lambda listener: listener.end(stage, **facts))

    def _call(self, event: Callable[[Listener], None]) -> None:
        for listener in list(self._listeners):
            try:
                event(listener)
            except InputError:
                raise
            except Exception as error:
                self._listeners.remove(listener)
                name = type(listener).__name__
                warnings.warn(
                    f"{name} failed and gets no more events: {type(error).__name__}: "
                    f"{one_line(error)}",
                    stacklevel=3,
                )


def plain_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that JSON can express; the others, such as results, are left out.

    Paths become text, numbers that are not finite None.

    Examples
    --------
    >>> plain_facts({"status": "done", "models": ("a", "b"), "result": object()})
    {'status': 'done', 'models': ['a', 'b']}
    """
    found = {name: _plain(value) for name, value in facts.items()}
    return {name: value for name, value in found.items() if value is not _NEITHER}


_NEITHER = object()


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        inner = {str(key): _plain(each) for key, each in value.items()}
        return _NEITHER if _NEITHER in inner.values() else inner
    if isinstance(value, list | tuple):
        items = [_plain(each) for each in value]
        return _NEITHER if _NEITHER in items else items
    return _NEITHER

"""The events of long work: stages, those who listen to them, progress in notebooks.

Five events describe all work: a stage starts, proceeds, measures something, writes a file, ends.
"""

from __future__ import annotations

import math
import numbers
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from html import escape
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from oodzoo.core.errors import InputError
from oodzoo.core.events.progress import Part, TimeLeft, current_part, shares_of
from oodzoo.core.text import duration, one_line, short_name

T = TypeVar("T")

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
        """A part of a stage is done, or, with the fact `message`, there is something to say.

        The fact `share` is how much of the work is done, from 0 to 1, where it is better known than
        by these numbers: parts may be of different size, and partly done.
        """

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


def share_done(done: int, total: int, facts: Mapping[str, Any]) -> float:
    """The share of the work of a stage that is done, by the facts of its progress.

    Examples
    --------
    >>> share_done(1, 4, {}), share_done(1, 4, {"share": 0.3}), share_done(0, 0, {})
    (0.25, 0.3, 0.0)
    """
    return float(facts.get("share", done / total if total else 0.0))


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


SWITCH = "OODZOO_PROGRESS"
"""Environment variable: 0 turns progress in notebooks off."""

_DELAY = 0.5
"""Seconds before anything is shown: quick work shows nothing."""
_EVERY = 0.2
"""Seconds between updates."""


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
                each.left.reach(share_done(done, total, facts))
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
        self.left = TimeLeft()

    @property
    def title(self) -> str:
        return self.stage.capitalize()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def words(self, message: str) -> str:
        """How far it is, and what it does."""
        words = [f"{100 * self.left.share:.0f} %"] if self.total else []
        left = self.left.words
        words.append(f"about {left}" if left else duration(self.seconds))
        if message:
            words.append(short_name(message, 80))
        return ", ".join(words)

    def text(self, message: str) -> str:
        return f"{self.title}: {self.words(message)}"

    def html(self, message: str) -> str:
        bar = f'<progress value="{self.left.share:.3f}"></progress>' if self.total else ""
        return f"{escape(self.title)} {bar} {escape(self.words(message))}"


def _bundle(text: str, html: str) -> dict[str, str]:
    return {"text/plain": text, "text/html": html}


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
    whole : Part
        All the work, to be divided into parts.
    """

    def __init__(self, listener: Listeners | None, name: str, **facts: Any) -> None:
        self.events = Events(or_notebook(listener))
        self._result: Any = None
        self._name = name
        self._facts = facts
        self._at = (0, 0)
        self._share = 0.0
        self._emitted = 0.0
        self._outer: Part | None = None
        self.whole = Part(self._reach)

    def __enter__(self) -> Self:
        self.events.start(self._name, **self._facts)
        self._token = _within.set(True)
        self._outside = current_part.get()
        self._outer = None if self._outside is None else self._outside.next_loop()
        current_part.set(None)  # until the stage says what its parts are
        self._start = time.perf_counter()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        seconds = time.perf_counter() - self._start
        current_part.set(self._outside)
        _within.reset(self._token)
        if error is None:
            self.events.end(self._name, status="done", seconds=seconds, result=self._result)
        else:
            self.events.end(self._name, status="failed", seconds=seconds, error=one_line(error))

    def progress(self, done: int, total: int) -> None:
        """A part is done."""
        self._at = (done, total)
        if self._outer is not None and total:
            self._outer.reach(self._share or done / total)
        self._emit()

    def phases(self, costs: Mapping[str, float]) -> Callable[[str], AbstractContextManager[None]]:
        """Divide the work into phases with expected costs; the result enters one by its name."""
        ends, names = shares_of(list(costs.values())), list(costs)

        @contextmanager
        def phase(name: str) -> Iterator[None]:
            at = names.index(name)
            if self._at != (at, len(names)):
                self.progress(at, len(names))
            with self.whole.between(ends[at - 1] if at else 0.0, ends[at]):
                yield
            self.progress(at + 1, len(names))

        return phase

    def say(self, message: str) -> None:
        """Emit one line about the current step."""
        self._emit(message=message)

    def tracked(self, items: Sequence[T], *, weights: Sequence[float] | None = None) -> Iterator[T]:
        """Yield items, which are all the work, and count them; see :func:`tracked`."""
        for number, item in enumerate(self.whole.tracked(items, weights=weights)):
            self.progress(number, len(items))
            yield item
        self.progress(len(items), len(items))

    def _reach(self, share: float) -> None:
        """A share of the work is done, of which not all is emitted."""
        self._share = max(share, self._share)
        if self._outer is not None:
            self._outer.reach(self._share)
        now = time.monotonic()
        if self._at[1] and now - self._emitted >= _EVERY:
            self._emitted = now
            self._emit()

    def _emit(self, **facts: Any) -> None:
        self._emitted = time.monotonic()
        if self._share:
            facts["share"] = self._share
        self.events.progress(self._name, *self._at, **facts)

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

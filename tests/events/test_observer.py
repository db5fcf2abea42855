"""The default observer of a run."""

from __future__ import annotations

import inspect

from oodzoo.cli.run import _TerminalObserver
from oodzoo.events import Observer


def test_the_default_does_nothing() -> None:
    observer = Observer()
    observer.begin("ranking")
    observer.progress(1, 3)
    observer.log("message")
    observer.end("ranking", None, reused=False)
    observer.skip("testbed", "two models")
    assert vars(observer) == {}


def test_the_observer_of_the_command_line_has_the_same_methods() -> None:
    for name in ("begin", "progress", "log", "end", "skip"):
        mine, default = (getattr(each, name) for each in (_TerminalObserver, Observer))
        assert list(inspect.signature(mine).parameters) == list(
            inspect.signature(default).parameters
        )

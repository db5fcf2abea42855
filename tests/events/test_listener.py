"""Every event reaches every listener; one that fails does not stop the work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.events.heard import Heard

from oodzoo.errors import InputError
from oodzoo.events import Events, Listener


class Failing(Listener):
    def __init__(self, error: BaseException) -> None:
        self._error = error

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        raise self._error


def emit_all(events: Listener) -> None:
    events.start("ranking", models=["net"])
    events.progress("ranking", 1, 2, message="half")
    events.metric("ranking", "net/score", 0.5, step=3)
    events.artifact("ranking", Path("plot.svg"))
    events.end("ranking", status="done")


ALL = [
    ("start", "ranking", {"models": ["net"]}),
    ("progress", "ranking", {"done": 1, "total": 2, "message": "half"}),
    ("metric", "ranking", {"name": "net/score", "value": 0.5, "step": 3}),
    ("artifact", "ranking", {"path": Path("plot.svg")}),
    ("end", "ranking", {"status": "done"}),
]


def test_every_event_reaches_every_listener() -> None:
    one, two, three = Heard(), Heard(), Heard()
    emit_all(Events([one, Events([two, Listener()]), three]))
    assert one.events == two.events == three.events == ALL


def test_a_listener_that_fails_is_left_out_with_one_warning() -> None:
    heard = Heard()
    events = Events([Failing(RuntimeError("disk\nfull")), heard])
    expected = "Failing failed and gets no more events: RuntimeError: disk full"
    with pytest.warns(UserWarning, match=expected) as caught:
        emit_all(Events(events))
    assert len(caught) == 1
    emit_all(events)
    assert heard.events == ALL + ALL


@pytest.mark.parametrize("error", [InputError("no such folder"), KeyboardInterrupt()])
def test_an_input_error_and_an_interrupt_stop_the_work(error: BaseException) -> None:
    with pytest.raises(type(error)):
        emit_all(Events([Failing(error), Heard()]))

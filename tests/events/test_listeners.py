"""Every event reaches every listener; stages, facts, log files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.events.heard import Heard

from oodzoo.core.errors import InputError
from oodzoo.events import Events, Listener, LogFile, Stage


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


def test_the_events_of_a_stage() -> None:
    heard = Heard()
    with Stage([heard], "ranking", models=["net"]) as stage:
        stage.say("reading")
        stage.progress(1, 2)
        stage.say("half")
        stage.finish("ranked", {"net/score": 0.5})
    end = heard.events.pop()[2]
    assert heard.events == [
        ("start", "ranking", {"models": ["net"]}),
        ("progress", "ranking", {"done": 0, "total": 0, "message": "reading"}),
        ("progress", "ranking", {"done": 1, "total": 2}),
        ("progress", "ranking", {"done": 1, "total": 2, "message": "half"}),
        ("metric", "ranking", {"name": "net/score", "value": 0.5, "step": None}),
    ]
    assert end.pop("seconds") >= 0
    assert end == {"status": "done", "result": "ranked"}


@pytest.mark.parametrize("error", [ValueError("two\nlines"), KeyboardInterrupt()])
def test_a_stage_that_fails_says_why_and_the_exception_goes_on(error: BaseException) -> None:
    heard = Heard()
    with pytest.raises(type(error)), Stage(heard, "ranking"):
        raise error
    [(_, end)] = heard.of("end")
    assert end["status"] == "failed"
    assert end["error"] == ("two lines" if str(error) else "KeyboardInterrupt")
    assert "result" not in end


TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def emit(listener: Listener) -> None:
    listener.start("extraction", models=["a", "b"], images=5)
    listener.progress("extraction", 3, 10, model="a", images=3, seconds=0.25)
    listener.progress("extraction", 3, 10, message="decoding\nslowly")
    listener.progress("extraction", 8, 10, model="b", failed="no such file 'x y'")
    listener.metric("extraction", "a/milliseconds_per_image", 83.3333333333)
    listener.artifact("extraction", Path("store"))
    listener.end("extraction", status="done", seconds=1.5, result=object())


def documents(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_lines_of_text(tmp_path: Path) -> None:
    emit(LogFile(tmp_path / "log.txt"))
    lines = [line.split(" ", 1) for line in (tmp_path / "log.txt").read_text().splitlines()]
    assert all(TIME.fullmatch(time) for time, _ in lines)
    assert [rest for _, rest in lines] == [
        "extraction start models=2 images=5",
        "extraction progress 3/10 model=a images=3 seconds=0.25",
        "extraction progress 3/10 decoding\\nslowly",
        "extraction progress 8/10 model=b failed=\"no such file 'x y'\"",
        "extraction metric a/milliseconds_per_image 83.3333",
        "extraction artifact path=store",
        "extraction end status=done seconds=1.5",
    ]


def test_lines_of_json(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "log.jsonl")
    emit(log)
    kept = {"flag": True, "path": Path("a"), "n": np.int64(3), "x": np.float32(0.5), "t": ("é", 1)}
    log.start("extraction", **kept, nan=float("nan"), deep={"k": [{"x": Path("p")}], "n": None})
    log.start("extraction", e=1, a=object(), b=[object()], c={"d": object()})
    found = documents(tmp_path / "log.jsonl")
    assert all(TIME.fullmatch(each.pop("time")) for each in found)
    assert {each.pop("stage") for each in found} == {"extraction"}
    assert found == [
        {"event": "start", "models": ["a", "b"], "images": 5},
        {"event": "progress", "done": 3, "total": 10, "model": "a", "images": 3, "seconds": 0.25},
        {"event": "progress", "done": 3, "total": 10, "message": "decoding\nslowly"},
        {"event": "progress", "done": 8, "total": 10, "model": "b", "failed": "no such file 'x y'"},
        {"event": "metric", "name": "a/milliseconds_per_image", "value": 83.3333333333},
        {"event": "artifact", "path": "store"},
        {"event": "end", "status": "done", "seconds": 1.5},
        {
            "event": "start", "flag": True, "path": "a", "n": 3, "x": 0.5, "t": ["é", 1],
            "nan": None, "deep": {"k": [{"x": "p"}], "n": None},
        },
        {"event": "start", "e": 1},
    ]  # fmt: skip


def test_progress_is_thinned_but_not_messages_and_failures(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "log.jsonl")
    for stage in ("extraction", "ranking"):
        log.start(stage)
        for done in range(1000):
            log.progress(stage, done, 1000)
            if done % 100 == 0:
                log.progress(stage, done, 1000, message=str(done))
            if done % 250 == 0:
                log.progress(stage, done, 1000, model="net", failed=str(done))
    found = [each for each in documents(tmp_path / "log.jsonl") if each["event"] == "progress"]
    for stage in ("extraction", "ranking"):
        here = [each for each in found if each["stage"] == stage]
        messages = [each["message"] for each in here if "message" in each]
        assert messages == [str(done) for done in range(0, 1000, 100)]
        assert [each["failed"] for each in here if "failed" in each] == ["0", "250", "500", "750"]
        plain = [each for each in here if "message" not in each and "failed" not in each]
        assert (plain[0]["done"], len(plain) < 500) == (0, True)


@pytest.mark.parametrize("place", ["missing/log.txt", "folder", "file/log.txt"])
def test_a_path_that_cannot_be_written_is_one_line_before_the_work(
    tmp_path: Path, place: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write") as caught:
        LogFile(tmp_path / place)
    assert "\n" not in str(caught.value)

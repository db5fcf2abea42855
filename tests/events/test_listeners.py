"""Every event reaches every listener; stages, facts, log files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.events.heard import Heard

from oodzoo.core.errors import InputError
from oodzoo.core.events.listener import plain_facts
from oodzoo.events import Events, Listener, LogFile, Stage, extent
from oodzoo.extraction.source import ArraySource

# --- listener ----------------------------------------------------------------------------------


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


# --- facts -------------------------------------------------------------------------------------


def test_what_json_can_express_stays() -> None:
    facts = {
        "text": "é", "none": None, "flag": True, "path": Path("a") / "b",
        "integer": np.int64(3), "number": np.float32(0.5), "missing": float("nan"),
        "list": ("a", 1), "nested": {"k": [1, {"x": Path("p")}]},
    }  # fmt: skip
    found = plain_facts(facts)
    assert found == {
        "text": "é", "none": None, "flag": True, "path": str(Path("a") / "b"),
        "integer": 3, "number": 0.5, "missing": None,
        "list": ["a", 1], "nested": {"k": [1, {"x": "p"}]},
    }  # fmt: skip
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert type(found["flag"]) is bool


def test_the_rest_is_left_out() -> None:
    assert plain_facts({"a": object(), "b": [object()], "c": {"d": object()}, "e": 1}) == {"e": 1}


# --- stage -------------------------------------------------------------------------------------


def test_the_events_of_a_stage() -> None:
    heard = Heard()
    with Stage([heard], "ranking", models=["net"]) as stage:
        stage.say("reading")
        stage.progress(1, 2)
        stage.say("half")
        stage.finish("ranked", {"net/score": 0.5})
    kinds = [kind for kind, _, _ in heard.events]
    assert kinds == ["start", "progress", "progress", "progress", "metric", "end"]
    assert heard.of("start") == [("ranking", {"models": ["net"]})]
    assert heard.messages() == ["reading", "half"]
    assert [facts["done"] for _, facts in heard.of("progress")] == [0, 1, 1]
    assert heard.metrics("ranking") == {"net/score": 0.5}
    [(_, end)] = heard.of("end")
    assert end.keys() == {"status", "seconds", "result"}
    assert (end["status"], end["result"]) == ("done", "ranked")
    assert end["seconds"] >= 0


@pytest.mark.parametrize("error", [ValueError("two\nlines"), KeyboardInterrupt()])
def test_a_stage_that_fails_says_why_and_the_exception_goes_on(error: BaseException) -> None:
    heard = Heard()
    with pytest.raises(type(error)), Stage(heard, "ranking"):
        raise error
    [(_, end)] = heard.of("end")
    assert end["status"] == "failed"
    assert end["error"] == ("two lines" if str(error) else "KeyboardInterrupt")
    assert "result" not in end


def test_the_extent_of_features() -> None:
    y, domains = np.tile([0, 1], 6), np.repeat(["a", "b", "c"], 4)
    source = ArraySource({"net": np.ones((12, 2))}, y, domains)
    assert extent(source) == {"models": ["net"], "domains": ["a", "b", "c"], "images": 12}


# --- log file ----------------------------------------------------------------------------------


TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def emit(listener: Listener) -> None:
    listener.start("extraction", models=["a", "b"], images=5)
    listener.progress("extraction", 3, 10, model="a", images=3, seconds=0.25)
    listener.progress("extraction", 3, 10, message="decoding\nslowly")
    listener.progress("extraction", 8, 10, model="b", failed="no such file 'x y'")
    listener.metric("extraction", "a/milliseconds_per_image", 83.3333333333)
    listener.artifact("extraction", Path("store"))
    listener.end("extraction", status="done", seconds=1.5, result=object())


def text(path: Path) -> list[str]:
    """The lines of a log without their times."""
    lines = [line.split(" ", 1) for line in path.read_text(encoding="utf-8").splitlines()]
    assert all(TIME.fullmatch(time) for time, _ in lines)
    return [rest for _, rest in lines]


def documents(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_lines_of_text(tmp_path: Path) -> None:
    emit(LogFile(tmp_path / "log.txt"))
    assert text(tmp_path / "log.txt") == [
        "extraction start models=2 images=5",
        "extraction progress 3/10 model=a images=3 seconds=0.25",
        "extraction progress 3/10 decoding\\nslowly",
        "extraction progress 8/10 model=b failed=\"no such file 'x y'\"",
        "extraction metric a/milliseconds_per_image 83.3333",
        "extraction artifact path=store",
        "extraction end status=done seconds=1.5",
    ]


def test_lines_of_json(tmp_path: Path) -> None:
    emit(LogFile(tmp_path / "log.jsonl"))
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
    ]


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
        assert [each["message"] for each in here if "message" in each] == [
            str(done) for done in range(0, 1000, 100)
        ]
        assert [each["failed"] for each in here if "failed" in each] == ["0", "250", "500", "750"]
        plain = [each for each in here if "message" not in each and "failed" not in each]
        assert plain[0]["done"] == 0
        assert len(plain) < 500


@pytest.mark.parametrize("place", ["missing/log.txt", "folder", "file/log.txt"])
def test_a_path_that_cannot_be_written_is_one_line_before_the_work(
    tmp_path: Path, place: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write") as caught:
        LogFile(tmp_path / place)
    assert "\n" not in str(caught.value)


def test_a_log_that_cannot_be_written_later_does_not_stop_the_work(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    events = Events(LogFile(tmp_path / "logs" / "log.txt"))
    (tmp_path / "logs" / "log.txt").unlink()
    (tmp_path / "logs").rmdir()
    with pytest.warns(UserWarning, match="LogFile failed and gets no more events"):
        emit(events)


def test_names_that_are_no_unicode_are_written(tmp_path: Path) -> None:
    for name in ("log.txt", "log.jsonl"):
        LogFile(tmp_path / name).artifact("run", Path("caf\udce9"))
        assert "caf\\udce9" in (tmp_path / name).read_text(encoding="utf-8")


SCRIPT = """
import sys
from oodzoo.events import LogFile
log = LogFile(sys.argv[1])
for step in range(200):
    log.metric("ranking", "net/score", step, step=step)
"""


def test_two_processes_append_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    both = [subprocess.Popen([sys.executable, "-c", SCRIPT, path]) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert sorted(each["step"] for each in documents(path)) == sorted([*range(200)] * 2)


def test_one_listener_or_none() -> None:
    heard = Heard()
    emit_all(Events(heard))
    assert heard.events == ALL
    emit_all(Events())

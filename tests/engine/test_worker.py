"""The process that runs tasks, and the messages to and from it."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.tasks import work

from oodzoo.engine.processes import _PROGRAM
from oodzoo.engine.task import (
    Hello,
    Reply,
    Worker,
    read_message,
    run_task,
    write_message,
)

WORKER = Worker(device="cpu", cores=1)


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore what `limit_threads` changes."""
    for name in ("LOKY_MAX_CPU_COUNT", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "1")


def run(name: str, task: bytes, worker: Worker = WORKER) -> Reply:
    return run_task(work(name).function, b"shared", task, worker)


# --- messages ---------------------------------------------------------------------------------


@given(st.lists(st.binary()))
def test_messages_arrive_whole_and_in_order(messages: list[bytes]) -> None:
    stream = io.BytesIO()
    for message in messages:
        write_message(stream, message)
    stream.seek(0)
    assert [read_message(stream) for _ in messages] == messages
    assert read_message(stream) is None


@given(st.binary(min_size=1), st.data())
def test_a_message_that_was_cut_is_none(message: bytes, data: st.DataObject) -> None:
    stream = io.BytesIO()
    write_message(stream, message)
    stream.truncate(data.draw(st.integers(0, stream.tell() - 1)))
    stream.seek(0)
    assert read_message(stream) is None


# --- the process ------------------------------------------------------------------------------


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A worker process that has got its first messages."""
    # Ctrl-C as in a terminal; a process in the background ignores it.
    ctrl_c = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", ctrl_c + _PROGRAM, *sys.path]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        hello = Hello(work("print_much").function, WORKER)
        write_message(process.stdin, msgspec.json.encode(hello))
        write_message(process.stdin, b"")
        yield process
        process.kill()


def ask(process: subprocess.Popen[bytes], task: bytes) -> Reply:
    assert process.stdin is not None
    assert process.stdout is not None
    write_message(process.stdin, task)
    return msgspec.json.decode(read_message(process.stdout) or b"", type=Reply)


def test_what_a_task_prints_is_not_a_reply(process: subprocess.Popen[bytes]) -> None:
    assert [ask(process, task).result for task in (b"1", b"", b"3")] == [b"1", b"", b"3"]


def test_the_process_ends_when_its_input_is_closed(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    ask(process, b"")
    process.stdin.close()
    assert process.wait(60) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_the_process_ignores_ctrl_c(process: subprocess.Popen[bytes]) -> None:
    """A terminal sends it to all processes; the parent decides."""
    ask(process, b"")
    process.send_signal(signal.SIGINT)
    assert ask(process, b"still here").result == b"still here"

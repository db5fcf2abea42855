"""Tasks in processes of this machine, which may die."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.tasks import work

from oodzoo.extraction.engines.processes import _PROGRAM, Processes
from oodzoo.extraction.engines.task import (
    ATTEMPTS,
    Hello,
    Reply,
    Worker,
    read_message,
    run_task,
    write_message,
)

# --- processes ---------------------------------------------------------------------------------


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs signals")

TWO = Processes(["cpu", "cpu"])
ONE = Processes(["cpu"])

Process = Callable[..., subprocess.Popen[str]]

# Runs tasks that do not return, one in each of two processes.
PARENT = """
import signal
import sys
from pathlib import Path
from tests.engine.tasks import work
from oodzoo.extraction.engines.processes import Processes

signal.signal(signal.SIGINT, signal.default_int_handler)  # also if started in the background
try:
    list(Processes(["cpu", "cpu"]).run(work("wait_forever", Path(sys.argv[1])), [b"1", b"2"]))
except KeyboardInterrupt:
    print("interrupted")
"""


def numbers(n: int) -> Iterator[bytes]:
    return (str(number).encode() for number in range(n))


def test_every_task_has_a_reply_with_its_number() -> None:
    replies = list(TWO.run(work("tell", b"shared"), numbers(20)))
    assert sorted(number for number, _ in replies) == list(range(20))
    cores = max(1, (os.cpu_count() or 1) // 2)
    for number, reply in replies:
        assert reply.result is not None
        words = reply.result.split()
        assert (words[0], words[3:]) == (b"cpu", [b"shared", str(number).encode()])
        assert int(words[1]) == int(words[2]) <= cores


def test_each_device_has_a_process(tmp_path: Path) -> None:
    """Both tasks wait until the other one runs, too."""
    replies = TWO.run(work("meet", tmp_path), [b"1", b"2"])
    assert sorted(str(reply.result) for _, reply in replies) == ["b'1'", "b'2'"]


def test_long_messages() -> None:
    replies = ONE.run(work("count_bytes", bytes(5_000_000)), [bytes(3_000_000)])
    assert list(replies) == [(0, Reply(b"5000000 3000000"))]


def test_a_process_that_was_killed_is_replaced(tmp_path: Path) -> None:
    replies = dict(TWO.run(work("die_once", tmp_path), numbers(4)))
    assert replies == {n: Reply(str(n).encode()) for n in range(4)}


def test_a_task_that_always_dies_is_reported_and_the_others_finish(tmp_path: Path) -> None:
    replies = dict(TWO.run(work("die_at_two", tmp_path), numbers(5)))
    assert replies.pop(2) == Reply(
        error="the worker process for cpu was killed by SIGKILL (often for lack of memory); it "
        "printed: no memory for 2"
    )
    assert replies == {n: Reply(str(n).encode()) for n in (0, 1, 3, 4)}
    attempts = Counter((tmp_path / "attempts").read_text())
    assert attempts == Counter("01" + "2" * ATTEMPTS + "34")


def test_an_exception_is_a_reply_and_the_process_goes_on() -> None:
    replies = dict(ONE.run(work("fail"), numbers(2)))
    assert replies == {n: Reply(error=f"ValueError: bad task {n}") for n in range(2)}


def test_an_error_in_the_list_of_tasks_is_raised() -> None:
    def tasks() -> Iterator[bytes]:
        yield b"1"
        raise ValueError("no more tasks")

    with pytest.raises(ValueError, match="no more tasks"):
        list(TWO.run(work("tell"), tasks()))


def test_a_process_that_cannot_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(FileNotFoundError):
        list(TWO.run(work("tell"), numbers(3)))


def test_files_of_the_current_folder_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("queue", "socket", "msgspec", "oodzoo"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file of the user')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(Path(p).resolve()) for p in sys.path if p])
    assert dict(ONE.run(work("count_bytes"), [b"123"])) == {0: Reply(b"0 3")}


# --- stopping ---------------------------------------------------------------------------------


def waiting(folder: Path) -> list[int]:
    """Wait until two tasks run; return their processes."""
    files = [folder / "1", folder / "2"]
    wait_until(lambda: all(file.exists() for file in files))
    return [int(file.read_text()) for file in files]


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "nothing happens"
        time.sleep(0.01)


def has_ended(pid: int) -> bool:
    """Whether a process has ended; a zombie has, too."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


def test_the_processes_end_with_the_iterator() -> None:
    replies = TWO.run(work("process_id"), numbers(100))
    pids = {int(next(replies)[1].result or b"") for _ in range(20)}
    replies.close()  # type: ignore[attr-defined]
    wait_until(lambda: all(map(has_ended, pids)))


def test_the_processes_end_when_their_parent_is_killed(tmp_path: Path, process: Process) -> None:
    parent = process(PARENT, tmp_path)
    children = waiting(tmp_path)
    assert not any(map(has_ended, children))
    parent.kill()
    wait_until(lambda: all(map(has_ended, children)))


def test_ctrl_c_ends_all_processes(tmp_path: Path, process: Process) -> None:
    parent = process(PARENT, tmp_path)
    children = waiting(tmp_path)
    for pid in (parent.pid, *children):  # as a terminal does
        os.kill(pid, signal.SIGINT)
    assert parent.communicate(timeout=60) == ("interrupted\n", "")
    assert all(map(has_ended, children))


# --- worker ------------------------------------------------------------------------------------


WORKER = Worker(device="cpu", cores=1)


@pytest.mark.parametrize(
    ("name", "reply"),
    [
        ("tell", Reply(b"cpu 1 1 shared 7", machine="node7")),
        ("fail", Reply(error="ValueError: bad task 7", machine="node7")),
        ("refuse", Reply(error="bad input: '7'", fatal=True, machine="node7")),
        (
            "missing",
            Reply(
                error="AttributeError: module 'tests.engine.tasks' has no attribute 'missing'",
                machine="node7",
            ),
        ),
    ],
)
def test_the_reply_to_a_task(monkeypatch: pytest.MonkeyPatch, name: str, reply: Reply) -> None:
    for variable in ("LOKY_MAX_CPU_COUNT", "OMP_NUM_THREADS"):
        monkeypatch.setenv(variable, "2")  # restores what the task changes
    worker = Worker("node7", "cpu", cores=1)
    assert run_task(f"tests.engine.tasks:{name}", b"shared", b"7", worker) == reply
    assert os.environ["OMP_NUM_THREADS"] == "1"


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
def worker_process() -> Iterator[subprocess.Popen[bytes]]:
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


def test_what_a_task_prints_is_not_a_reply(worker_process: subprocess.Popen[bytes]) -> None:
    assert [ask(worker_process, task).result for task in (b"1", b"", b"3")] == [b"1", b"", b"3"]


def test_the_process_ends_when_its_input_is_closed(worker_process: subprocess.Popen[bytes]) -> None:
    assert worker_process.stdin is not None
    ask(worker_process, b"")
    worker_process.stdin.close()
    assert worker_process.wait(60) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_the_process_ignores_ctrl_c(worker_process: subprocess.Popen[bytes]) -> None:
    """A terminal sends it to all processes; the parent decides."""
    ask(worker_process, b"")
    worker_process.send_signal(signal.SIGINT)
    assert ask(worker_process, b"still here").result == b"still here"

"""Tasks in processes of this machine, which may die."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.engine.tasks import work

from oodzoo.extraction.engines import (
    ATTEMPTS,
    Processes,
    Reply,
    Worker,
    run_task,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs signals")

TWO = Processes(["cpu", "cpu"])
ONE = Processes(["cpu"])


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


def test_a_task_that_always_dies_is_reported_and_the_others_finish(tmp_path: Path) -> None:
    replies = dict(TWO.run(work("die_at_two", tmp_path), numbers(5)))
    assert replies.pop(2) == Reply(
        error="the worker process for cpu was killed by SIGKILL (often for lack of memory); it "
        "printed: no memory for 2"
    )
    assert replies == {n: Reply(str(n).encode()) for n in (0, 1, 3, 4)}
    attempts = Counter((tmp_path / "attempts").read_text())
    assert attempts == Counter("01" + "2" * ATTEMPTS + "34")


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

"""Run functions in other processes, many at once, and kill them before a change on disk.

The children are forked from one process, so imports are paid once. A child can kill itself right
before its n-th change on disk: between two changes there is nothing to see from outside.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[1]

STEP = int(os.environ.get("OODZOO_KILL_STEP", "10"))
"""Tests that take long kill before every tenth change, and before every one in `make fuzz`."""

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")

# A line on stdin is a list of jobs, which are started together; the answer is a line too.
PARENT = """
import importlib, json, os, signal, sys, traceback

sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    importlib.import_module(name)
from oodzoo.core.errors import InputError

os.fsync = lambda descriptor: None  # a killed process loses nothing that it has written
CHANGES = {"os.rename", "os.link", "os.remove", "os.rmdir", "os.truncate"}

def watch(moment):
    seen = 0
    def hook(event, args):
        nonlocal seen
        changes = (
            event in CHANGES
            or (event == "os.mkdir" and not os.path.exists(args[0]))
            or (event == "open" and isinstance(args[0], (str, bytes)) and args[2] & os.O_ACCMODE
                and not os.fsdecode(args[0]).startswith("/dev"))
        )
        seen += changes
        if changes and seen == moment:
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

def run(job, start, answer):
    code, message = 1, ""
    os.dup2(2, 1)  # stdout is for the answers of the parent
    try:
        module, _, name = job["function"].partition(":")
        function = getattr(importlib.import_module(module), name)
        if not job["locks"]:
            import oodzoo.core.io
            oodzoo.core.io._try_lock = lambda descriptor, *, shared: True
        os.read(start, 1)
        if job["moment"]:
            watch(job["moment"])
        function(*job["arguments"], **job["options"])
        code = 0
    except InputError as error:
        code, message = 2, str(error)
    except BaseException:
        message = traceback.format_exc()
    os.write(answer, message.encode()[:50_000])
    os._exit(code)

for line in sys.stdin:
    start, go = os.pipe()
    children = []
    for job in json.loads(line):
        answer, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(go)
            run(job, start, theirs)
        os.close(theirs)
        children.append((pid, answer))
    os.close(start)
    os.close(go)  # all start now
    done = []
    for pid, answer in children:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        done.append([code, os.read(answer, 60_000).decode()])
        os.close(answer)
    print(json.dumps(done), flush=True)
"""


class Job(NamedTuple):
    """A function, given as "module:name", its arguments, and the change to die before, from 1.

    Without `locks`, every lock is granted, as on several machines with a shared disk.
    """

    function: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any] = MappingProxyType({})
    moment: int = 0
    locks: bool = True


class Outcome(NamedTuple):
    """Exit code (2: InputError, with its message; 1: another error, with its traceback)."""

    code: int
    message: str


class Children:
    """Runs jobs in children of one process."""

    def __init__(self, parent: subprocess.Popen[str]) -> None:
        self._parent = parent

    def start(self, *jobs: Job) -> None:
        """Start jobs at the same moment; the next call must be `wait`."""
        assert self._parent.stdin is not None
        line = json.dumps(
            [job._asdict() | {"options": dict(job.options)} for job in jobs], default=str
        )
        self._parent.stdin.write(line + "\n")
        self._parent.stdin.flush()

    def wait(self) -> list[Outcome]:
        """Wait until all jobs have ended."""
        assert self._parent.stdout is not None
        return [Outcome(*outcome) for outcome in json.loads(self._parent.stdout.readline())]

    def run(self, *jobs: Job) -> list[Outcome]:
        """Start jobs at the same moment, and wait until all have ended."""
        self.start(*jobs)
        return self.wait()

    def succeed(self, *jobs: Job) -> None:
        """Run jobs, none of which fails."""
        for outcome in self.run(*jobs):
            assert outcome == (0, ""), outcome.message

    def killed(self, moment: int, function: str, *arguments: Any, **options: Any) -> bool:
        """Kill a function before its n-th change on disk; False if it ended first."""
        (outcome,) = self.run(Job(function, arguments, options, moment))
        assert outcome in ((0, ""), (-signal.SIGKILL, "")), outcome.message
        return outcome.code != 0


@contextmanager
def children(*modules: str) -> Iterator[Children]:
    """Start the process that children are forked from, with some modules imported."""
    command = [sys.executable, "-c", PARENT, str(ROOT), *modules]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Children(parent)
    finally:
        parent.kill()
        parent.communicate()

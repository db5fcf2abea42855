"""Replies of tasks on two nodes: results, errors, and workers that die."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.cluster.conftest import SECONDS
from tests.raylets import Cluster, Node

ROOT = Path(__file__).parents[2]

# Ray lets workers import from the current folder of a driver, and so the functions of these tests.
DRIVER = """
import json, sys
from tests.engine.tasks import work
import oodzoo
from oodzoo.extraction.engines.cluster import RayCluster

address, name, shared, *tasks = sys.argv[1:]
with RayCluster(address, "cpu", oodzoo.__version__) as engine:
    print(engine.slots)
    for number, reply in engine.run(work(name, shared.encode()), map(str.encode, tasks)):
        result = None if reply.result is None else reply.result.decode()
        print(json.dumps([tasks[number], result, reply.error, reply.fatal]))
"""

Replies = dict[str, tuple[str | None, str | None, bool]]


@pytest.fixture
def replies(head: Cluster, join: Callable[..., Node]) -> Callable[..., Replies]:
    """Run tasks on two nodes; return the result, the error and its weight for each."""
    join()

    def replies(name: str, tasks: Sequence[str], shared: str | Path = "") -> Replies:
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, head.address, name, os.fspath(shared), *tasks],
            capture_output=True,
            text=True,
            env=head.environment,
            cwd=ROOT,
            timeout=SECONDS,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        slots, *lines = done.stdout.splitlines()
        assert slots == "2"
        assert len(lines) == len(tasks)
        return {task: tuple(reply) for task, *reply in map(json.loads, lines)}

    return replies


def test_results_errors_and_deaths(replies: Callable[..., Replies], tmp_path: Path) -> None:
    """One test for all kinds of replies: to join and to start workers takes seconds."""
    assert replies("tell", ["a", "b"], "x") == {t: (f"cpu 1 1 x {t}", None, False) for t in "ab"}
    assert replies("meet", ["a", "b"], _folder(tmp_path)) == {t: (t, None, False) for t in "ab"}
    assert replies("fail", ["a"]) == {"a": (None, "ValueError: bad task a", False)}
    assert replies("refuse", ["a"]) == {"a": (None, "bad input: 'a'", True)}
    assert replies("die_once", ["a", "b"], _folder(tmp_path)) == {t: (t, None, False) for t in "ab"}
    folder = _folder(tmp_path)
    found = replies("die_at_two", ["1", "2", "3"], folder)
    result, error, fatal = found.pop("2")
    assert (result, fatal) == (None, False)
    assert str(error).startswith("its worker died 3 times (The worker died unexpectedly")
    assert found == {"1": ("1", None, False), "3": ("3", None, False)}
    assert (folder / "attempts").read_text().count("2") == 3


def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / f"folder{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    return folder

"""A Ray cluster for all tests, commands that use it, and what they extract."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Outcome
from tests.raylets import Cluster, Node, cluster

SECONDS = 300

Command = Callable[..., Outcome]


@pytest.fixture(scope="session")
def head() -> Iterator[Cluster]:
    """A cluster whose only node is the head. Tests let others join with `join`."""
    pytest.importorskip("ray", reason='needs Ray: pip install -e ".[ray]"')
    with cluster() as started:
        yield started


@pytest.fixture
def join(head: Cluster) -> Iterator[Callable[..., Node]]:
    """Let a node join the cluster for the time of a test."""
    joined: list[Node] = []

    def join(**options: Any) -> Node:
        joined.append(head.join(**options))
        return joined[-1]

    yield join
    for node in joined:
        node.leave()


@pytest.fixture
def command(head: Cluster) -> Command:
    """Run oodzoo in another process; with `ray`, on the cluster."""

    def command(*arguments: str | Path, ray: bool = True) -> Outcome:
        done = subprocess.run(
            [*program(), *map(str, arguments), *(ray_options(head) if ray else ())],
            capture_output=True,
            text=True,
            env=head.environment,
            timeout=SECONDS,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return command


def program() -> list[str]:
    return [sys.executable, "-m", "oodzoo"]


def ray_options(cluster: Cluster) -> list[str]:
    return ["--engine", "ray", "--address", cluster.address]

"""Ray clusters on one machine: every node is a raylet with its workers, in a session of its own.

The nodes have other addresses (127.0.0.2, …), other folders and one CPU each. A node can be killed
as a machine that loses power is: all of its processes at once.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

import pytest

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None or sys.platform != "linux",
    reason='needs Ray on Linux: pip install -e ".[ray]"',
)

_START = "import sys; from ray.scripts.scripts import main; sys.exit(main())"


class Node:
    """A raylet and all processes that it starts."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: dict[str, str],
        *,
        cpus: int = 1,
        python: Path | str = sys.executable,
        mounts: Mapping[Path, Path] = MappingProxyType({}),
    ) -> None:
        # Sockets are in it, so its name must be short.
        self.folder = tempfile.mkdtemp(prefix="oz", dir="/tmp")
        start = [os.fspath(python), "-c", _START, "start", *arguments, "--num-cpus", str(cpus)]
        start += ["--temp-dir", self.folder, "--object-store-memory", "80000000"]
        start += ["--disable-usage-stats"]
        if mounts:
            # In a mount namespace of this node.
            each = "".join('mount --bind "$1" "$2" && shift 2 && ' for _ in mounts)
            pairs = [os.fspath(path) for seen, other in mounts.items() for path in (other, seen)]
            start = ["unshare", "--mount", "sh", "-c", each + 'exec "$@"', "sh", *pairs, *start]
        self._log = Path(self.folder, "start.log")
        with self._log.open("wb") as log:
            starting = subprocess.Popen(
                start,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self._session = starting.pid
        try:
            code = starting.wait(timeout=180)
        except BaseException:
            starting.kill()
            starting.wait()
            self.kill()
            raise
        if code:
            printed = self._log.read_text(errors="replace")
            self.kill()
            raise RuntimeError(f"ray start failed:\n{printed[-3000:]}")

    @property
    def processes(self) -> list[int]:
        """The processes of the node that are alive."""
        return [pid for pid in _pids() if _session(pid) == self._session]

    @property
    def workers(self) -> list[str]:
        """The processes that a driver uses, by title."""
        titles = map(_command, self.processes)
        return [t for t in titles if t.startswith("ray::") and not t.endswith("Agent")]

    def kill(self) -> None:
        """End all processes at once, and remove the files of the node."""
        while alive := self.processes:
            for pid in alive:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        shutil.rmtree(self.folder, ignore_errors=True)

    def leave(self) -> None:
        """End the node in order: the cluster knows at once that it has gone."""
        for pid in self.processes:
            if "/raylet/raylet" in _command(pid):
                os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + 20
        while time.monotonic() < until and any(
            "/raylet/raylet" in _command(pid) for pid in self.processes
        ):
            time.sleep(0.1)
        self.kill()


class Cluster:
    """A head node, and the nodes that join it.

    Attributes
    ----------
    address : str
    environment : dict of str to str
        What a driver needs: the token of the cluster, among other things.
    """

    def __init__(self, cpus: int = 1) -> None:
        self.environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "RAY_AUTH_MODE": "token",  # nobody else on this machine can connect by accident
            "RAY_AUTH_TOKEN": uuid.uuid4().hex,
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        self.environment.pop("RAY_ADDRESS", None)
        port, client, dashboard = free_ports(3)
        self.address = f"127.0.0.1:{port}"
        self.nodes: list[Node] = []
        head = ["--head", "--port", str(port)]
        head += ["--include-dashboard", "false", "--dashboard-port", str(dashboard)]
        if find_spec("grpc") is not None:  # without it there is no such server
            head += ["--ray-client-server-port", str(client)]
        self.head = self._add(Node(head, self.environment, cpus=cpus))

    def join(
        self,
        *,
        python: Path | str = sys.executable,
        mounts: Mapping[Path, Path] = MappingProxyType({}),
    ) -> Node:
        """Start another node, which may see other folders in the place of some."""
        address = f"127.0.0.{len(self.nodes) + 1}"
        arguments = ["--address", self.address, "--node-ip-address", address]
        # Drivers connect to the node that is noted here; old versions of Ray note the newest one.
        noted = list(Path(self.head.folder).glob("session_[0-9]*/node_ip_address.json"))
        contents = [file.read_bytes() for file in noted]
        node = self._add(Node(arguments, self.environment, python=python, mounts=mounts))
        for file, content in zip(noted, contents, strict=True):
            file.write_bytes(content)
        return node

    def end(self) -> None:
        """Kill all nodes."""
        for node in reversed(self.nodes):
            node.kill()

    def _add(self, node: Node) -> Node:
        self.nodes.append(node)
        return node


@contextmanager
def cluster(cpus: int = 1) -> Iterator[Cluster]:
    """Start a cluster with a head node; nothing of it is left in the end."""
    started = Cluster(cpus)
    try:
        yield started
    finally:
        started.end()


def free_ports(n: int) -> list[int]:
    """Return ports that nobody uses now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _session(pid: int) -> int | None:
    """Return the session of a process; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[3])


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0].decode()
    except OSError:
        return ""

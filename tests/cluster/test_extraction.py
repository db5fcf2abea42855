"""Extraction on two nodes: results, a node or the driver killed, models that fail."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cluster.conftest import SECONDS, Command, program, ray_options
from tests.cluster.data import nothing_but_timings_differs, shards, write_crashing_model, write_zoo
from tests.fixtures import draw_digits
from tests.raylets import Cluster, Node, cluster

from oodzoo.demo import write_digits

Join = Callable[..., Node]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded digits: 1,797 images in 6 domains."""
    return write_digits(tmp_path_factory.mktemp("digits") / "digits")


@pytest.fixture(scope="module")
def alone(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store that one process writes."""
    store = tmp_path_factory.mktemp("alone") / "store"
    extract = [*program(), "extract", images, "--zoo", "demo", "--store", store]
    subprocess.run([*map(str, extract), "--device", "cpu"], check=True, capture_output=True)
    return store


Start = Callable[[Path, Cluster], subprocess.Popen[str]]


@pytest.fixture
def start(images: Path) -> Iterator[Start]:
    """Start an extraction of the digits into a store, on a cluster."""
    started: list[subprocess.Popen[str]] = []

    def start(store: Path, cluster: Cluster) -> subprocess.Popen[str]:
        command = [*program(), "extract", images, "--zoo", "demo", "--store", store]
        started.append(
            subprocess.Popen(
                [*map(str, command), *ray_options(cluster)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=cluster.environment,
            )
        )
        return started[-1]

    yield start
    for running in started:
        running.kill()
        running.communicate()


def test_a_node_killed_midway_costs_time_only(
    start: Start, alone: Path, tmp_path: Path, join: Join, head: Cluster
) -> None:
    node = join()
    store = tmp_path / "store"
    running = start(store, head)
    before = _wait_for_some(store, running)
    node.kill()
    out, err = running.communicate(timeout=SECONDS)
    assert running.returncode == 0, err
    assert before < len(shards(store))
    assert "raylet" not in out + err  # Ray's own report of the death
    assert out.splitlines() == [f"19 models, 1,797 images, 6 domains in {store}"]
    nothing_but_timings_differs(alone, store)


def test_a_driver_killed_midway_resumes(
    start: Start,
    images: Path,
    alone: Path,
    tmp_path: Path,
    join: Join,
    head: Cluster,
    command: Command,
) -> None:
    node = join()
    store = tmp_path / "store"
    running = start(store, head)
    _wait_for_some(store, running)
    running.kill()
    running.communicate()
    _wait_until_idle(head.head, node)
    kept = {path: path.stat().st_mtime_ns for path in shards(store)}
    assert 0 < len(kept) < len(shards(alone))
    time.sleep(1)
    assert kept.keys() == set(shards(store))  # no worker goes on
    done = command("extract", images, "--zoo", "demo", "--store", store, "--json")
    assert done.code == 0, done.err
    assert done.document["shards_written"] == len(shards(alone)) - len(kept)
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
    nothing_but_timings_differs(alone, store)


def test_all_nodes_lost(start: Start, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with cluster(cpus=0) as head:
        node = head.join()
        running = start(store, head)
        _wait_for_some(store, running)
        node.kill()
        _, err = running.communicate(timeout=SECONDS)
    assert running.returncode == 2
    lost = "the Ray cluster has lost all machines that run tasks; what they finished is kept"
    lines = [line for line in err.splitlines()[2:] if not line.startswith("Extracting: ")]
    assert lines == [f"oodzoo: {lost}: start machines again and rerun"]


def test_an_interrupted_driver_leaves_no_worker(
    start: Start, tmp_path: Path, join: Join, head: Cluster
) -> None:
    node = join()
    running = start(tmp_path / "store", head)
    _wait_for_some(tmp_path / "store", running)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=SECONDS)
    assert (running.returncode, out) == (130, "")
    kept = "interrupted; finished features are kept, rerun the command to resume"
    assert err.splitlines()[2:] == [f"oodzoo: {kept}"]
    _wait_until_idle(head.head, node)


def test_without_an_address_a_cluster_is_started_here(
    tmp_path: Path, head: Cluster, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(head.environment, "HOME", str(tmp_path))  # for the token of the cluster
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.delitem(head.environment, name)
    zoo = write_zoo(tmp_path / "zoo", ["separable_shapes"])
    digits = draw_digits(tmp_path / "digits", 4)
    arguments = ["extract", digits, "--zoo", zoo, "--store", tmp_path / "store", "--quiet"]
    done = command(*arguments, "--engine", "ray", ray=False)
    assert done == (0, f"1 model, 36 images, 3 domains in {tmp_path / 'store'}\n", "")


def test_models_that_fail_are_reported_and_the_others_finish(
    tmp_path: Path, join: Join, command: Command
) -> None:
    join()
    zoo = write_zoo(tmp_path / "zoo", ["separable_shapes", "mlp_glyphs_augmented"])
    write_crashing_model(tmp_path / "zoo" / "crashing.onnx")
    (tmp_path / "zoo" / "broken.onnx").write_bytes(b"not a model")
    with zoo.open("a") as file:
        for name in ("crashing", "broken"):
            file.write(f'[[model]]\nname = "{name}"\nsource = "onnx/{name}.onnx"\n')
    digits = draw_digits(tmp_path / "digits", 4)
    done = command("extract", digits, "--zoo", zoo, "--store", tmp_path / "store", "--json")
    assert done.code == 0, done.err
    assert set(done.document["models"]) == {"separable_shapes", "mlp_glyphs_augmented"}
    failed = done.document["failed"]
    assert failed.keys() == {"crashing", "broken"}
    assert failed["crashing"].startswith("its worker died 3 times (The worker died")
    assert "onnxruntime cannot open" in failed["broken"]
    assert "(on the machine " in failed["broken"]
    for name, reason in failed.items():
        assert f"model {name!r} is left out: {reason}" in done.err


def _wait_for_some(store: Path, running: subprocess.Popen[str]) -> int:
    """Wait until a few of the 228 shards are on disk."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and running.poll() is None:
        if (n := len(shards(store))) >= 10:
            return n
        time.sleep(0.02)
    running.kill()
    raise AssertionError(running.communicate())


def _wait_until_idle(*nodes: Node) -> None:
    """Wait until Ray has ended the workers of a driver that has gone."""
    until = time.monotonic() + SECONDS
    while any(node.workers for node in nodes):
        assert time.monotonic() < until, [node.workers for node in nodes]
        time.sleep(0.1)

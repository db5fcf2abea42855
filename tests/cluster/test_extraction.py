"""Extraction on two nodes: results, a node or the driver killed, models that fail."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster.conftest import SECONDS, Command, program, ray_options
from tests.cluster.data import (
    crashing_model,
    nothing_but_timings_differs,
    shards,
    write_zoo,
)
from tests.raylets import Cluster, Node

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


def test_features_are_those_of_one_process(
    images: Path, alone: Path, tmp_path: Path, join: Join, command: Command
) -> None:
    join()
    done = command("extract", images, "--zoo", "demo", "--store", tmp_path / "store", "--json")
    assert done.code == 0, done.err
    assert done.document["images"] == 1797
    assert done.err.splitlines()[1].endswith(" tasks on 2 workers (ray)")
    nothing_but_timings_differs(alone, tmp_path / "store")


def test_a_node_killed_midway_costs_time_only(
    images: Path, alone: Path, tmp_path: Path, join: Join, head: Cluster
) -> None:
    node = join()
    store = tmp_path / "store"
    running = _start(images, store, head)
    before = _wait_for_some(store, running)
    node.kill()
    out, err = running.communicate(timeout=SECONDS)
    assert running.returncode == 0, err
    assert before < len(shards(store))
    assert "raylet" not in out + err  # Ray's own report of the death
    assert out.splitlines() == [f"19 models, 1,797 images, 6 domains in {store}"]
    nothing_but_timings_differs(alone, store)


def test_a_driver_killed_midway_resumes(
    images: Path, alone: Path, tmp_path: Path, join: Join, head: Cluster, command: Command
) -> None:
    node = join()
    store = tmp_path / "store"
    running = _start(images, store, head)
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


def test_models_that_fail_are_reported_and_the_others_finish(
    images: Path, tmp_path: Path, join: Join, command: Command
) -> None:
    join()
    zoo = write_zoo(tmp_path / "zoo", ["separable_shapes", "mlp_glyphs_augmented"])
    crashing_model(tmp_path / "zoo" / "crashing.onnx")
    (tmp_path / "zoo" / "broken.onnx").write_bytes(b"not a model")
    with zoo.open("a") as file:
        for name in ("crashing", "broken"):
            file.write(f'\n[[model]]\nname = "{name}"\nsource = "onnx/{name}.onnx"\n')
            file.write("input_size = 32\nmean = [0.5, 0.5, 0.5]\nstd = [0.5, 0.5, 0.5]\n")
    store = tmp_path / "store"
    done = command("extract", images, "--zoo", zoo, "--store", store, "--limit", "60", "--json")
    assert done.code == 0, done.err
    assert done.document["models"] == ["separable_shapes", "mlp_glyphs_augmented"]
    failed = done.document["failed"]
    assert failed.keys() == {"crashing", "broken"}
    assert failed["crashing"].startswith("its worker died 3 times (The worker died")
    assert "onnxruntime cannot open" in failed["broken"]
    assert "(on the machine " in failed["broken"]
    for name, reason in failed.items():
        assert f"oodzoo: warning: model {name!r} failed, skipped: {reason}" in done.err


def _start(images: Path, store: Path, head: Cluster) -> subprocess.Popen[str]:
    command = [*program(), "extract", images, "--zoo", "demo", "--store", store]
    return subprocess.Popen(
        [*map(str, command), *ray_options(head)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=head.environment,
    )


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

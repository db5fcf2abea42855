"""The engine ray in short; `make cluster` has the rest."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.docs.pages import File, run_page, steps
from tests.raylets import cluster, free_ports, needs_ray

from oodzoo.core.errors import InputError, MissingPackageError
from oodzoo.extraction.engines import RayCluster


@needs_ray
def test_the_section_of_the_tutorial(tmp_path: Path) -> None:
    page = "tutorials/cluster.md"
    (compare,) = [step for step in steps(page) if isinstance(step, File)]
    (tmp_path / compare.name).write_text(compare.text, encoding="utf-8")
    run_page(tmp_path, page, "The data")
    with cluster(cpus=2) as started:
        run_page(
            tmp_path,
            page,
            "Ray",
            environment=started.environment,
            replaced={"HEAD:6379": started.address},
            here=False,
        )
    assert not started.head.processes


def test_without_ray_the_extra_is_named(
    photos: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError):
        RayCluster(None, "auto", "1")
    store = tmp_path / "store"
    done = run("extract", photos, "--zoo", "demo", "--store", store, "--engine", "ray")
    install = 'install it with: pip install "oodzoo[ray]"'
    assert done.complaint == f"oodzoo: the engine ray needs the package ray; {install}"
    assert not store.exists()


@pytest.mark.parametrize("device", ["cuda:1", "cuda:0,cuda:1", "tpu"])
def test_ray_chooses_the_gpu(device: str) -> None:
    with pytest.raises(InputError, match=f"takes the device auto, cpu or cuda, got '{device}'"):
        RayCluster(None, device, "1")


@needs_ray
@pytest.mark.parametrize("address", ["here", "localhost:", ":6379", "localhost:port", "h:123456"])
def test_text_that_is_not_an_address(address: str) -> None:
    with pytest.raises(InputError, match=f"must be HOST:PORT or auto, got '{address}'"):
        RayCluster(address, "auto", "1")


@needs_ray
def test_a_port_where_nobody_listens() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(InputError, match=rf"no Ray cluster answers at '{address}' \(.*refused"):
        RayCluster(address, "auto", "1")

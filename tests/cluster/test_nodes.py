"""Nodes that lack something: the file of a model, the store, the images, the package."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.cluster.conftest import Command
from tests.cluster.data import shards, write_zoo
from tests.fixtures import draw_digits
from tests.raylets import Node

import oodzoo

Join = Callable[..., Node]


class Job(NamedTuple):
    """What to extract, and an empty folder."""

    images: Path
    zoo: Path
    store: Path
    empty: Path

    @property
    def arguments(self) -> list[str | Path]:
        return ["extract", self.images, "--zoo", self.zoo, "--store", self.store, "--quiet"]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    zoo = write_zoo(tmp_path / "zoo", ["separable_shapes", "mlp_glyphs_augmented"])
    for folder in ("empty", "stores"):
        (tmp_path / folder).mkdir()
    images = draw_digits(tmp_path / "images", 12)
    return Job(images, zoo, tmp_path / "stores" / "store", tmp_path / "empty")


@pytest.fixture
def complaint(job: Job, command: Command) -> Callable[[], str]:
    """Extract, and return what is said about the node; no features are written."""

    def complaint() -> str:
        line = command(*job.arguments).complaint
        assert shards(job.store) == []
        found = re.fullmatch(
            r"oodzoo: the machine \S+ \(127\.0\.0\.\d+\) of the Ray cluster (.*)", line
        )
        assert found is not None, line
        return found[1]

    return complaint


Complaint = Callable[[], str]


@pytest.fixture
def _may_mount() -> None:
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip("unshare --mount is not allowed here")


@pytest.mark.usefixtures("_may_mount")
def test_a_node_without_the_file_of_a_model(
    job: Job, join: Join, complaint: Complaint, command: Command
) -> None:
    node = join(mounts={job.zoo.parent: job.empty})
    file = str(job.zoo.parent / "mlp_glyphs_augmented.onnx")
    shared = "put it on a disk that all share"
    assert complaint() == f"cannot read {file!r} of model 'mlp_glyphs_augmented'; {shared}"
    node.leave()
    assert command(*job.arguments).out == f"2 models, 108 images, 3 domains in {job.store}\n"


@pytest.mark.usefixtures("_may_mount")
def test_a_node_that_cannot_see_the_store(job: Job, join: Join, complaint: Complaint) -> None:
    join(mounts={job.store.parent: job.empty})
    shared = "put it on a disk that all machines share"
    assert complaint() == f"cannot see the store {str(job.store)!r}; {shared}"


@pytest.mark.usefixtures("_may_mount")
def test_a_node_with_another_store_at_the_path(
    job: Job, join: Join, complaint: Complaint, command: Command, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    few = draw_digits(tmp_path / "few", 4)
    local = ["--device", "cpu"]
    extracted = command("extract", few, "--zoo", job.zoo, "--store", other, *local, ray=False)
    assert extracted.code == 0, extracted.err
    job.store.mkdir()
    join(mounts={job.store: other})
    shared = "put the store on a disk that all machines share"
    assert complaint() == f"has another store at {str(job.store)!r}; {shared}"


@pytest.mark.usefixtures("_may_mount")
def test_a_node_that_cannot_see_the_images(job: Job, join: Join, complaint: Complaint) -> None:
    join(mounts={job.images: job.empty})
    line = complaint()
    assert line.startswith(f"cannot read the image '{job.images}/")
    assert line.endswith("; put the data on a disk that all share")


def test_a_node_with_another_version_of_the_package(
    join: Join, complaint: Complaint, tmp_path: Path
) -> None:
    python = _python_without_oodzoo(tmp_path / "python")
    copy = tmp_path / "copy" / "oodzoo"
    shutil.copytree(Path(oodzoo.__file__).parent, copy)
    root = copy / "__init__.py"
    line = f'__version__ = "{oodzoo.__version__}"'
    assert line in root.read_text()
    root.write_text(root.read_text().replace(line, '__version__ = "0.0.7"'))
    _library(tmp_path / "python").joinpath("copy.pth").write_text(f"{copy.parent}\n")
    join(python=python)
    version = oodzoo.__version__
    same = "install the same version on all machines"
    assert complaint() == f"has oodzoo 0.0.7, this process {version}; {same}"


def test_a_node_without_the_package(join: Join, complaint: Complaint, tmp_path: Path) -> None:
    join(python=_python_without_oodzoo(tmp_path / "python"))
    reason = "No module named 'oodzoo'"
    install = f"install oodzoo {oodzoo.__version__} there"
    assert complaint() == f"cannot import oodzoo ({reason}); {install}"


def _python_without_oodzoo(folder: Path) -> Path:
    """Create an environment with all packages but those that are installed in editable mode."""
    venv.create(folder, with_pip=False)
    # What .pth files in there add, such as an editable package, is not added.
    here = sysconfig.get_path("purelib")
    _library(folder).joinpath("packages.pth").write_text(f"{here}\n")
    return folder / "bin" / "python"


def _library(environment: Path) -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return environment / "lib" / version / "site-packages"

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
@pytest.mark.parametrize("lacks", ["model", "store", "images", "same store"])
def test_a_node_that_lacks_something(
    job: Job, join: Join, complaint: Complaint, command: Command, tmp_path: Path, lacks: str
) -> None:
    empty, shared, model = job.empty, "put it on a disk that all share", job.zoo.parent
    hidden, other, words = {
        "model": (model, empty, rf"cannot read '{model}/\S+' of model 'mlp\S+'; {shared}"),
        "store": (job.store.parent, empty, f"cannot see the store '{job.store}'; put it on .*"),
        "images": (job.images, empty, f"cannot read the image '{job.images}/.*; put the data .*"),
        "same store": (job.store, tmp_path / "other", f"has another store at '{job.store}'; .*"),
    }[lacks]
    if lacks == "same store":
        few = draw_digits(tmp_path / "few", 4)
        arguments = ["extract", few, "--zoo", job.zoo, "--store", other, "--device", "cpu"]
        assert command(*arguments, ray=False).code == 0
        job.store.mkdir()
    node = join(mounts={hidden: other})
    assert re.fullmatch(words, complaint())
    if lacks == "model":
        node.leave()
        assert command(*job.arguments).out == f"2 models, 108 images, 3 domains in {job.store}\n"


@pytest.mark.parametrize("version", ["0.0.7", None])
def test_a_node_with_another_version_of_the_package_or_none(
    join: Join, complaint: Complaint, tmp_path: Path, version: str | None
) -> None:
    python, here = _python_without_oodzoo(tmp_path / "python"), oodzoo.__version__
    if version:
        copy = tmp_path / "copy" / "oodzoo"
        shutil.copytree(Path(oodzoo.__file__).parent, copy)
        root, line = copy / "__init__.py", '__version__ = "{}"'
        assert line.format(here) in root.read_text()
        root.write_text(root.read_text().replace(line.format(here), line.format(version)))
        _library(tmp_path / "python").joinpath("copy.pth").write_text(f"{copy.parent}\n")
        words = f"has oodzoo 0.0.7, this process {here}; install the same version on all machines"
    else:
        words = f"cannot import oodzoo (No module named 'oodzoo'); install oodzoo {here} there"
    join(python=python)
    assert complaint() == words


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

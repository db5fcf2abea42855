"""The layout of the project: imports go one way, versions agree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "oodzoo"
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts in pyproject.toml for the package in a folder."""
    return subprocess.run(
        [sys.executable, "-c", LINT, "--config", ROOT / "pyproject.toml", "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the package, to break."""
    ignored = shutil.ignore_patterns("__pycache__", "*.onnx")
    return shutil.copytree(PACKAGE, tmp_path / "oodzoo", ignore=ignored)


def test_imports_go_one_way() -> None:
    done = lint_imports(PACKAGE.parent)
    assert done.returncode == 0, done.stdout


def test_other_imports_are_refused(copied: Path) -> None:
    broken = [
        ("linear/moments.py", "import oodzoo.cli", "oodzoo.linear.moments -> oodzoo.cli"),
        ("core/text.py", "def f(): from oodzoo.ranking import ranker", "oodzoo.core.text -> "),
        ("data/listing.py", "import oodzoo.data.dataset", "No cycles are allowed in oodzoo.data"),
        ("new.py", "", "oodzoo.new"),  # in no layer
    ]
    for file, line, _ in broken:
        with (copied / file).open("a", encoding="utf-8") as source:
            source.write(f"\n{line}\n")
    done = lint_imports(copied.parent)
    assert done.returncode == 1
    for _, _, words in broken:
        assert words in done.stdout


def test_the_lowest_versions_are_those_of_the_dependencies() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"]
    tested = [*extras["onnx"], *extras["parquet"], *extras["remote"]]
    dependencies = [*project["dependencies"], *tested]
    listed = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    lowest = [line for line in listed if not line.startswith("#")]
    assert lowest == [dependency.replace(">=", "==") for dependency in dependencies]


def test_the_citation_has_the_current_version() -> None:
    from oodzoo import __version__

    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")

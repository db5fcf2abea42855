"""Files of the project that state versions agree."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


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

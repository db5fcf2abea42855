"""Scores added by other installed packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import oodzoo
from oodzoo.features.importing import import_features

SOURCE = Path(oodzoo.__file__).parents[1]
RUN = "import sys; from oodzoo.cli import main; sys.argv[0] = 'oodzoo'; main()"

SCORE = """
from oodzoo.scores import Score

def spread(X, y, domains):
    assert len(X) == len(y) == len(domains)
    return -float(X.std())

mine = Score("spread", spread, uses_domains=True, title="Minus the spread", reference="nobody")
"""
DECORATED = """
from oodzoo import scores

@scores.score("spread", title="Minus the spread", uses_domains=True)
def spread(X, y, domains):
    return -float(X.std())
"""


def install(site: Path, name: str, module: str, points: str) -> None:
    """Lay down a package as an installer does: its module, and its dist-info."""
    site.mkdir(exist_ok=True)
    (site / f"{name}.py").write_text(module)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[oodzoo.scores]\n{points}\n")


def command(site: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(SOURCE), str(site)])}
    return subprocess.run(
        [sys.executable, "-c", RUN, *map(str, arguments)],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("plugins")
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1, 2], 20), np.repeat(["a", "b", "c"], 20)
    features = {
        name: np.eye(3)[y] + noise * rng.normal(size=(60, 3))
        for name, noise in (("good", 0.3), ("fair", 1.0), ("poor", 3.0))
    }
    np.savez(root / "f.npz", labels=y.astype(str), domains=domains, **features)
    return import_features([root / "f.npz"], root / "store").path


@pytest.mark.parametrize(
    ("module", "point"),
    [(SCORE, "plug:mine"), (DECORATED, "plug"), (DECORATED, "plug:spread")],
    ids=["a Score", "a module", "a decorated function"],
)
def test_a_score_of_another_package(tmp_path: Path, folder: Path, module: str, point: str) -> None:
    install(tmp_path / "site", "plug", module, f"spread = {point}")
    ranked = command(tmp_path / "site", "rank", folder, "--score", "spread", "--json")
    assert ranked.stderr == ""
    order = [row["model"] for row in json.loads(ranked.stdout)["ranking"]]
    assert order == ["good", "fair", "poor"]
    if point == "plug:mine":
        judged = command(tmp_path / "site", "testbed", folder, "--json")
        score = json.loads(judged.stdout)["scores"]["spread"]
        assert score["title"] == "Minus the spread"
        assert score["tau"] == 1
        assert "spread" in command(tmp_path / "site", "rank", "--help").stdout


@pytest.mark.parametrize(
    ("module", "point", "reason"),
    [
        ("import no_such_package", "plug", "ModuleNotFoundError"),
        ("1 / 0", "plug", "ZeroDivisionError"),
        ("thing = 3", "plug:thing", "'plug:thing' is not a Score"),
        ("", "plug:absent", "AttributeError"),
        (SCORE.replace('"spread"', '"logme"'), "plug:mine", "'logme' is already registered"),
        (SCORE.replace('"spread"', '"zood"'), "plug:mine", "'zood' is reserved"),
    ],
)
def test_a_broken_package_is_a_line_and_no_more(
    tmp_path: Path, folder: Path, module: str, point: str, reason: str
) -> None:
    install(tmp_path / "site", "plug", module, f"broken = {point}")
    install(tmp_path / "site", "sound", SCORE, "spread = sound:mine")
    done = command(tmp_path / "site", "rank", folder, "--score", "spread", "--json")
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "warning: the score plugin 'broken' of the package 'plug' failed and is skipped: "
    )
    assert reason in line
    assert len(json.loads(done.stdout)["ranking"]) == 3


def test_help_of_everything_imports_no_package(tmp_path: Path) -> None:
    install(tmp_path / "site", "plug", "print('imported')", "plug = plug")
    assert "imported" not in command(tmp_path / "site", "--help").stdout
    assert "imported" in command(tmp_path / "site", "rank", "--help").stdout

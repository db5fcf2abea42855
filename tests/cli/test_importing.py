"""`oodzoo import`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tests.conftest import Run

COLUMNS: dict[str, Any] = {
    "labels": ["cat", "dog"] * 6,
    "domains": ["day"] * 5 + ["night"] * 7,
}


def test_import(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", net=np.ones((12, 4)), **COLUMNS)
    outcome = run("import", tmp_path / "a.npz", "--store", tmp_path / "s", "--json")
    assert (outcome.code, outcome.document) == (
        0,
        {"store": str(tmp_path / "s"), "models": ["net"], "rows": 12, "domains": ["day", "night"]},
    )
    again = run("import", tmp_path / "a.npz", "--store", tmp_path / "s")
    assert (again.code, again.out) == (0, "1 model, 12 rows, 2 domains\n")


def test_bad_files_are_one_line(run: Run, tmp_path: Path) -> None:
    bad = tmp_path / "b.npz"
    np.savez(bad, net=np.ones((12, 4)), domains=COLUMNS["domains"])
    assert "has no labels" in run("import", bad, "--store", tmp_path / "t").complaint
    assert "no such file" in run("import", "x.npz", "--store", tmp_path / "t").complaint
    assert not (tmp_path / "t").exists()


def test_another_model_of_the_name_is_one_line(run: Run, tmp_path: Path) -> None:
    for name, value in (("a", 1), ("b", 2)):
        np.savez(tmp_path / f"{name}.npz", net=np.full((12, 4), value), **COLUMNS)
    assert run("import", tmp_path / "a.npz", "--store", tmp_path / "s", "-q").code == 0
    outcome = run("import", tmp_path / "b.npz", "--store", tmp_path / "s", "-q")
    assert f"remove the old one with `oodzoo store rm {tmp_path / 's'} net`" in outcome.complaint

"""`oodzoo store check` and `oodzoo import`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tests.conftest import Run
from tests.features import conftest as fixtures

# The digits, models and stores that the tests of features use.
digits, zoo, extract = fixtures.digits, fixtures.zoo, fixtures.extract
made, store = fixtures.made, fixtures.store

SHARD = "separable_shapes/marker/shard-00000.features.npy"


def test_check_json(run: Run, store: Path) -> None:
    outcome = run("store", "check", store, "--json")
    assert (outcome.code, outcome.document) == (
        0,
        {"files": 12, "damaged": [], "unfinished": [], "repaired": False},
    )
    (store / SHARD).write_bytes(b"")
    outcome = run("store", "check", store, "--json", "--quiet")
    assert outcome.code == 2
    assert [entry["path"] for entry in outcome.document["damaged"]] == [SHARD]
    *named, last = outcome.err.splitlines()
    assert any(SHARD in line for line in named)
    assert "has 1 damaged file" in last
    assert "--repair" in last
    outcome = run("store", "check", store, "--json", "--repair")
    assert (outcome.code, outcome.document["repaired"]) == (0, True)


def test_check_of_other_folders_is_one_line(
    run: Run, store: Path, photos: Path, tmp_path: Path
) -> None:
    assert "no such feature store" in run("store", "check", tmp_path / "x", "-q").complaint
    assert "is not a feature store" in run("store", "check", photos, "-q").complaint
    manifest = json.loads((store / "manifest.json").read_text())
    (store / "manifest.json").write_text(json.dumps(manifest | {"schema": 99}))
    assert "upgrade oodzoo" in run("store", "check", store, "-q").complaint
    (store / "manifest.json").write_text("{")
    assert "is damaged" in run("store", "check", store, "-q").complaint


def test_import(run: Run, tmp_path: Path) -> None:
    columns: dict[str, Any] = {"labels": ["cat", "dog"] * 6, "domains": ["day"] * 5 + ["night"] * 7}
    np.savez(tmp_path / "a.npz", net=np.ones((12, 4)), **columns)
    outcome = run("import", tmp_path / "a.npz", "--store", tmp_path / "s", "--json")
    assert (outcome.code, outcome.document) == (
        0,
        {"store": str(tmp_path / "s"), "models": ["net"], "rows": 12, "domains": ["day", "night"]},
    )
    np.savez(tmp_path / "b.npz", net=np.ones((12, 4)), domains=columns["domains"])
    bad = tmp_path / "b.npz"
    assert "has no labels" in run("import", bad, "--store", tmp_path / "t").complaint
    assert "no such file" in run("import", "x.npz", "--store", tmp_path / "t").complaint

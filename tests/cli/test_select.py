"""`oodzoo select`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.selection.data import arrays, store

from oodzoo import SpikeSlabSelector

Run = Callable[..., Any]


def test_selection_as_json_and_as_a_table(run: Run, tmp_path: Path) -> None:
    folder = store(tmp_path).path
    document = run("select", folder, "--top-k", "2", "--json").document
    features, y, _ = arrays()
    X = np.hstack([features["good"], features["fair"]])
    selector = SpikeSlabSelector().fit(X, y)
    assert document["models"] == ["good", "fair"]
    assert document["n_features"] == 12
    assert document["n_selected"] == selector.get_support().sum()
    assert document["ratio"] == document["n_selected"] / 12
    assert 0 < document["ratio"] < 1
    assert [row["n_features"] for row in document["per_model"]] == [7, 5]
    assert sum(row["n_selected"] for row in document["per_model"]) == document["n_selected"]
    counts = [entry["n_selected"] for entry in document["per_class"].values()]
    assert counts == selector.target_support_.sum(axis=1).tolist()
    outcome = run("select", folder)
    assert outcome.code == 0
    assert outcome.out.split()[:6] == ["model", "features", "kept", "0", "1", "2"]
    assert "Kept " in outcome.out
    assert " of 16 features (" in outcome.out


def test_wrong_number_of_models(run: Run, tmp_path: Path) -> None:
    folder = store(tmp_path).path
    complaint = run("select", folder, "--top-k", "0").complaint
    assert complaint == "oodzoo: --top-k must be 1 or more, got 0"
    outcome = run("select", folder, "--top-k", "9", "--json")
    assert "the store has only 3 models, fewer than 9; using all" in outcome.err
    assert len(outcome.document["models"]) == 3

"""`oodzoo select`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.selection.data import arrays, store

from oodzoo import FeatureStore, SpikeSlabSelector
from oodzoo.combining.selection import SelectionSummary, select_features
from oodzoo.extraction.source import StoreSource

Run = Callable[..., Any]


def test_selection_as_json_and_as_a_table(run: Run, tmp_path: Path) -> None:
    folder = store(tmp_path).path
    document = run("select", folder, "--json").document
    assert document["method"] == "consistent"
    assert sorted(document["models"]) == ["fair", "good", "noise"]
    assert document["n_features"] == 16
    expected = select_features(StoreSource(FeatureStore(folder)))
    assert SelectionSummary.from_dict(document) == expected.summary()
    assert 0 < document["ratio"] == document["n_selected"] / 16 < 1
    outcome = run("select", folder)
    assert outcome.code == 0
    assert outcome.out.split()[:6] == ["model", "features", "kept", "0", "1", "2"]
    assert f"Kept {document['n_selected']} of 16 features (" in outcome.out
    assert "for the class that it contributes most to." in outcome.out


def test_the_best_models(run: Run, tmp_path: Path) -> None:
    folder = store(tmp_path).path
    document = run("select", folder, "--top-k", "2", "--json").document
    assert document["models"] == ["good", "fair"]
    assert document["n_features"] == 12
    assert run("select", folder, "--top-k", "all", "--json").document["n_features"] == 16


def test_method_of_the_paper(run: Run, tmp_path: Path) -> None:
    folder = store(tmp_path).path
    options = ["--method", "paper", "--top-k", "2", "--json"]
    document = run("select", folder, *options).document
    features, y, _ = arrays()
    X = np.hstack([features["good"], features["fair"]])
    selector = SpikeSlabSelector().fit(X, y)
    assert document["models"] == ["good", "fair"]
    assert document["n_features"] == 12
    assert document["n_selected"] == selector.get_support().sum()
    assert [row["n_features"] for row in document["per_model"]] == [7, 5]
    assert sum(row["n_selected"] for row in document["per_model"]) == document["n_selected"]
    counts = [entry["n_selected"] for entry in document["per_class"].values()]
    assert counts == selector.target_support_.sum(axis=1).tolist()
    assert run("select", folder, *options, "--threshold", "0").document["n_selected"] == 12
    ranked = run("select", folder, "--method", "paper", "--json").document["models"]
    assert ranked == ["good", "fair", "noise"]  # the best three, not in the order of the store
    outcome = run("select", folder, "--method", "paper")
    assert " of 16 features (" in outcome.out
    assert "each for at least one class" in outcome.out


def test_more_models_than_there_are(run: Run, tmp_path: Path) -> None:
    outcome = run("select", store(tmp_path).path, "--top-k", "9", "--json")
    assert "the store has only 3 models, fewer than 9; using all" in outcome.err
    assert len(outcome.document["models"]) == 3

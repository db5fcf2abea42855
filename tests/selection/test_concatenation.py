"""Models side by side: block moments, and `oodzoo select`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oodzoo.cli import main
from oodzoo.errors import InputError
from oodzoo.features.importing import import_features
from oodzoo.features.source import ArraySource, StoreSource
from oodzoo.features.store import FeatureStore
from oodzoo.moments import Moments
from oodzoo.selection.concatenation import concatenated_moments
from oodzoo.selection.selector import SpikeSlabSelector

Data = tuple[dict[str, Any], Any, Any]


@pytest.fixture
def data() -> Data:
    """Three models on 3 domains x 60 images; one of them has learned nothing."""
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1, 2], 60), np.repeat(["a", "b", "c"], 60)
    one_hot = np.eye(3)[y]
    features = {
        "good": np.hstack([one_hot, np.zeros((180, 4))]) + 0.3 * rng.normal(size=(180, 7)),
        "fair": np.hstack([one_hot, np.zeros((180, 2))]) + 0.6 * rng.normal(size=(180, 5)),
        "noise": rng.normal(size=(180, 4)),
    }
    return {name: f.astype(np.float32) for name, f in features.items()}, y, domains


@pytest.fixture
def store(tmp_path: Path, data: Data) -> FeatureStore:
    features, y, domains = data
    file = tmp_path / "f.npz"
    np.savez(file, labels=y.astype(str), domains=domains, **features)
    return import_features([file], tmp_path / "store")


@pytest.mark.parametrize("kind", ["arrays", "store"])
@pytest.mark.parametrize("models", [["good", "fair", "noise"], ["noise", "good"], ["fair"]])
@pytest.mark.parametrize("domains", [None, ["c", "a"]])
def test_blocks_make_up_the_whole(
    kind: str, models: list[str], domains: list[str] | None, data: Data, store: FeatureStore
) -> None:
    features, y, where = data
    source = ArraySource(features, y, where) if kind == "arrays" else StoreSource(store)
    rows = np.isin(where, domains or ["a", "b", "c"])
    side_by_side = np.hstack([features[model] for model in models])[rows]
    expected = Moments.of(side_by_side, y[rows], 3)
    for _ in range(2):  # computed, then from the cache
        found = concatenated_moments(source, models, domains)
        for name, array in expected.to_dict().items():
            np.testing.assert_allclose(found.to_dict()[name], array, rtol=1e-10, atol=1e-10)


def test_a_pair_is_computed_once(store: FeatureStore, monkeypatch: pytest.MonkeyPatch) -> None:
    source = StoreSource(store)
    first = concatenated_moments(source, ["good", "fair"])
    assert len(list((store.path / "cache" / "cross").glob("*.npz"))) == 3, "one for each domain"

    def never(*_: object) -> None:
        raise AssertionError("the pair is known")

    monkeypatch.setattr("oodzoo.selection.concatenation._compute_cross", never)
    second = concatenated_moments(source, ["fair", "good"])
    np.testing.assert_array_equal(second.gram[:5, 5:], first.gram[7:, :7])


@pytest.mark.parametrize("models", [[], ["good", "good"]])
def test_models_named_twice_or_not_at_all(models: list[str], store: FeatureStore) -> None:
    with pytest.raises(InputError, match="name each of them once"):
        concatenated_moments(StoreSource(store), models)


def select(*arguments: object, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", ["oodzoo", "select", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_the_command(
    store: FeatureStore,
    data: Data,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert select(store.path, "--top-k", 2, "--json", monkeypatch=monkeypatch) == 0
    document = json.loads(capsys.readouterr().out)
    features, y, _ = data
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
    assert select(store.path, monkeypatch=monkeypatch) == 0
    assert "features (" in capsys.readouterr().out


def test_the_command_complains(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert select(store.path, "--top-k", 0, monkeypatch=monkeypatch) == 2
    assert capsys.readouterr().err == "oodzoo: --top-k must be 1 or more, got 0\n"
    assert select(store.path, "--top-k", 9, "--json", monkeypatch=monkeypatch) == 0
    outcome = capsys.readouterr()
    assert "fewer than 9" in outcome.err
    assert len(json.loads(outcome.out)["models"]) == 3

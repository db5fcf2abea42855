"""Real models on real images, from the command line.

Run by `make acceptance` (all models) and `.ci/run` (six small ones); the images and models
cannot be part of the project, so everything here is skipped where they are absent.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import weightedtau
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from oodzoo import FeatureStore

SHARED = Path(os.environ.get("OODZOO_SHARED", "../shared")).resolve()
DATA = SHARED / "data" / "pacs_mini"
ZOO = SHARED / "zoo" / "zoo.toml"
SMALL = (
    "doodlenet_quickdraw",
    "mobilenet_v1_025_128_imagenet",
    "mobilenet_v1_025_96_vww",
    "mobilenet_v1_050_160_imagenet",
    "pplcnet_doc_orientation",
    "resnet20_cifar10",
)

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"there is no {DATA.name} beside us")


def oodzoo(*arguments: str | Path) -> Any:
    """The JSON document of a command that ends well."""
    command = [str(Path(sys.executable).parent / "oodzoo"), *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All models, or a zoo file of six small ones."""
    if os.environ.get("OODZOO_MODELS", "small") == "all":
        return ZOO
    tables = ZOO.read_text(encoding="utf-8").split("[[model]]")[1:]
    chosen = [t for t in tables if any(f'name = "{name}"' in t for name in SMALL)]
    path = tmp_path_factory.mktemp("zoo") / "six.toml"
    text = "".join(f"[[model]]{table}" for table in chosen)
    path.write_text(text.replace('"onnx/', f'"onnx/{ZOO.parent.as_posix()}/'), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def run(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder and the document of the whole job."""
    path = tmp_path_factory.mktemp("job") / "run"
    return path, oodzoo("run", DATA, "--zoo", zoo, "--out", path)


@pytest.fixture(scope="session")
def store(run: tuple[Path, dict[str, Any]]) -> Path:
    return run[0] / "store"


def test_every_model_has_features(zoo: Path, run: tuple[Path, dict[str, Any]]) -> None:
    extraction = run[1]["extraction"]
    assert len(extraction["models"]) == zoo.read_text(encoding="utf-8").count("[[model]]")
    assert not extraction["failed"]
    assert extraction["images"] == 1400


def test_the_four_rows(run: tuple[Path, dict[str, Any]]) -> None:
    evaluation = run[1]["evaluation"]
    average = {row: evaluation[row]["average"] for row in ("single", "ensemble", "selection")}
    assert all(len(evaluation[row]["domains"]) == 4 for row in average)
    assert 0 < evaluation["feature_ratio"]["average"] < 1
    if len(run[1]["ranking"]["ranking"]) == 27:
        assert average["selection"] >= average["single"]
        assert average["selection"] > evaluation["baselines"]["random_features"]["average"]
    assert 50_000 < Path(run[1]["report"]).stat().st_size < 1_500_000


def test_the_predictor_elsewhere(run: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Copied away from store and zoo, and as one ONNX file, on images of every domain."""
    pytest.importorskip("onnx", reason="an export needs the package onnx")
    from onnxruntime import InferenceSession

    from oodzoo import load

    model = shutil.copytree(run[0] / "model", tmp_path / "elsewhere")
    images = sorted(DATA.rglob("*.jpg"))[::70]
    document = oodzoo("predict", model, *images)
    assert [entry["path"] for entry in document["predictions"]] == [str(path) for path in images]
    labels = [entry["label"] for entry in document["predictions"]]
    assert (
        np.mean([label == path.parent.name for label, path in zip(labels, images, strict=True)])
        > 0.8
    )
    oodzoo("export", model, tmp_path / "model.onnx")
    predictor = load(model)
    session = InferenceSession(tmp_path / "model.onnx")
    (exported,) = session.run(None, predictor.preprocess(images))
    assert np.abs(exported - predictor.predict_proba(images)).max() < 1e-5


def test_data_counts() -> None:
    document = oodzoo("data", DATA)
    assert len(document["domains"]) == 4
    assert len(document["classes"]) == 7
    assert {n for row in document["counts"].values() for n in row.values()} == {50}
    assert document["warnings"] == []


def test_the_store_is_sound_and_complete(zoo: Path, store: Path) -> None:
    document = oodzoo("extract", DATA, "--zoo", zoo, "--store", store)
    assert document["decoded"] == document["shards_written"] == 0
    document = oodzoo("store", "check", store)
    assert document["files"] > 0
    assert document["damaged"] == document["unfinished"] == []


def test_ranking_agrees_with_linear_probes(store: Path) -> None:
    """The order against probes that the ranking never sees; a peer is a bar for the whole zoo."""
    rows = oodzoo("rank", store)["ranking"]
    opened = FeatureStore(store)
    probes = [linear_probe(opened, row["model"]) for row in rows]
    tau = {
        term: weightedtau([row[term] for row in rows], probes)[0]
        for term in ("score", "evidence", "expected_accuracy")
    }
    assert len(rows) == len(opened.models)
    assert tau["score"] >= 0.7
    assert tau["expected_accuracy"] >= 0.7
    if len(rows) == 27:  # LogME is the evidence
        assert tau["score"] >= tau["evidence"]


def linear_probe(store: FeatureStore, model: str) -> float:
    X = {d: store.features(model, d).astype(np.float64) for d in store.domains}
    accuracies = []
    for left_out in store.domains:
        kept = [d for d in store.domains if d != left_out]
        train = np.concatenate([X[d] for d in kept])
        mean, spread = train.mean(axis=0), train.std(axis=0)
        spread[spread == 0] = 1
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            head = LogisticRegression(C=0.01, max_iter=300)
            head.fit((train - mean) / spread, np.concatenate([store.labels(d) for d in kept]))
        accuracies.append(head.score((X[left_out] - mean) / spread, store.labels(left_out)))
    return float(np.mean(accuracies))

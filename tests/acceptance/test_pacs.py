"""Real networks on real images, from the command line.

Run by `make acceptance` (all networks) and `.ci/run` (six small ones); the images and networks
cannot be part of the project, so everything here is skipped where they are absent.
"""

from __future__ import annotations

import json
import os
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

from zood import FeatureStore

SHARED = Path(os.environ.get("ZOOD_SHARED", "../shared")).resolve()
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


def zood(*arguments: str | Path) -> Any:
    """The JSON document of a command that ends well."""
    command = [str(Path(sys.executable).parent / "zood"), *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All networks, or a zoo file of six small ones."""
    if os.environ.get("ZOOD_NETWORKS", "small") == "all":
        return ZOO
    tables = ZOO.read_text(encoding="utf-8").split("[[model]]")[1:]
    chosen = [t for t in tables if any(f'name = "{name}"' in t for name in SMALL)]
    path = tmp_path_factory.mktemp("zoo") / "six.toml"
    text = "".join(f"[[model]]{table}" for table in chosen)
    path.write_text(text.replace('"onnx/', f'"onnx/{ZOO.parent.as_posix()}/'), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def store(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "store"
    document = zood("extract", DATA, "--zoo", zoo, "--store", path)
    n_models = zoo.read_text(encoding="utf-8").count("[[model]]")
    assert len(document["models"]) == n_models
    assert not document["failed"]
    assert document["images"] == document["decoded"] == 1400
    return path


def test_data_counts() -> None:
    document = zood("data", DATA)
    assert len(document["domains"]) == 4
    assert len(document["classes"]) == 7
    assert {n for row in document["counts"].values() for n in row.values()} == {50}
    assert document["warnings"] == []


def test_a_second_extraction_has_nothing_to_do(zoo: Path, store: Path) -> None:
    document = zood("extract", DATA, "--zoo", zoo, "--store", store)
    assert document["decoded"] == document["shards_written"] == 0


def test_the_store_is_sound(store: Path) -> None:
    document = zood("store", "check", store)
    assert document["files"] > 0
    assert document["damaged"] == document["unfinished"] == []


def test_ranking_agrees_with_linear_probes(store: Path) -> None:
    """The order against probes that the ranking never sees; a high bar only for the whole zoo."""
    rows = zood("rank", store)["ranking"]
    opened = FeatureStore(store)
    probes = [linear_probe(opened, row["model"]) for row in rows]
    tau = {
        term: weightedtau([row[term] for row in rows], probes)[0]
        for term in ("score", "discriminability", "expected_accuracy")
    }
    assert len(rows) == len(opened.models)
    assert tau["score"] >= tau["discriminability"] - 0.02
    if len(rows) == 27:
        peers = {}
        for peer in ("logme", "knn"):
            document = {
                r["model"]: r["score"] for r in zood("rank", store, "--score", peer)["ranking"]
            }
            peers[peer] = weightedtau([document[row["model"]] for row in rows], probes)[0]
        assert tau["score"] >= max(0.84, tau["discriminability"], *peers.values())


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

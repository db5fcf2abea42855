"""Tracking in MLflow, read back with its client."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oodzoo
from oodzoo.core.errors import InputError, MissingPackageError
from oodzoo.events import MLflowListener, TensorBoardListener

mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")

# MLflow's tables use what SQLAlchemy 2.1 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mlflow") / "mlflow.db"


@pytest.fixture
def uri(database: Path) -> str:
    return f"sqlite:///{database.as_posix()}"


def runs(uri: str, experiment: str) -> list[Any]:
    """The runs of an experiment, the first one first."""
    client = mlflow.MlflowClient(tracking_uri=uri)
    found = client.get_experiment_by_name(experiment)
    return list(reversed(client.search_runs([found.experiment_id])))


def test_parameters_metrics_tags_and_files(uri: str, database: Path, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("report")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "shard.npy").write_text("features")
    listener = MLflowListener(uri, experiment="whole", run_name="mine")
    listener.start("run", data="photos", zoo=["a", "b"], seed=0)
    listener.start("ranking", models=["net@1", "é"])
    listener.metric("ranking", "net@1/score", 0.25)
    listener.metric("ranking", "é/score", 0.5)
    listener.end("ranking", status="done", seconds=1.5)
    listener.start("ranking", models=["another"], score="unseen")  # parameters stay
    listener.end("ranking", status="skipped")
    listener.artifact("run", tmp_path / "store")
    listener.artifact("run", tmp_path / "report.html")
    listener.end("run", status="done", seconds=2.5, result=object())
    [run] = runs(uri, "whole")
    assert (run.info.run_name, run.info.status) == ("mine", "FINISHED")
    assert run.data.params == {
        "run/data": "photos",
        "run/zoo": "a, b",
        "run/seed": "0",
        "ranking/models": "net@1, é",
        "ranking/score": "unseen",
    }
    assert run.data.metrics == {
        "ranking/net_40_1/score": 0.25,
        "ranking/é/score": 0.5,
        "ranking/seconds": 1.5,
        "run/seconds": 2.5,
    }
    assert run.data.tags["run/store"] == str(tmp_path / "store")
    assert (run.data.tags["ranking/status"], run.data.tags["run/status"]) == ("skipped", "done")
    client = mlflow.MlflowClient(tracking_uri=uri)
    listed = client.list_artifacts(run.info.run_id, "run")
    assert [(file.path, file.file_size) for file in listed] == [("run/report.html", 6)]
    assert (database.parent / "mlruns" / run.info.run_id / "artifacts/run/report.html").is_file()


def test_each_call_is_a_run_and_a_failed_one_says_why(uri: str) -> None:
    listener = MLflowListener(uri, experiment="calls")
    y, domains = np.tile([0, 1], 30), np.repeat(["x", "y", "z"], 20)
    rng = np.random.default_rng(0)
    zoo = {"good": rng.normal(size=(60, 2)) + 5 * y[:, None], "noise": rng.normal(size=(60, 2))}
    ranking = oodzoo.rank(zoo, y, domains, listener=listener)
    with pytest.raises(InputError, match="takes two"):
        oodzoo.rank(zoo, y, domains, score=_refuse, listener=listener)
    first, second = runs(uri, "calls")
    assert (first.info.run_name, first.info.status) == ("ranking", "FINISHED")
    assert first.data.params["ranking/score"] == "unseen"
    seconds = first.data.metrics.pop("ranking/seconds")
    assert seconds > 0
    assert first.data.metrics == {f"ranking/{n}": value for n, value in ranking.metrics.items()}
    assert second.info.status == "FAILED"
    assert "takes two" in second.data.tags["ranking/error"]


def _refuse(X: object, y: object) -> float:
    raise InputError("takes two")


@pytest.mark.parametrize(
    "uri", ["nonsense://x", "http://127.0.0.1:9", "http://host:port", "sqlite:////dev/null/a.db"]
)
def test_a_store_that_cannot_be_used_is_one_line_before_the_work(uri: str) -> None:
    with pytest.raises(InputError, match=f"MLflow cannot track in '{uri}': ") as caught:
        MLflowListener(uri)
    assert "\n" not in str(caught.value)


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = [name for name in sys.modules if name.startswith("tensorboard.")]
    for name in ("mlflow", "tensorboard", *imported):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPackageError, match=r"pip install \"oodzoo\[mlflow\]\""):
        MLflowListener("sqlite:///mlflow.db")
    with pytest.raises(MissingPackageError, match=r"pip install \"oodzoo\[tensorboard\]\""):
        TensorBoardListener(tmp_path / "logs")
    assert list(tmp_path.iterdir()) == []

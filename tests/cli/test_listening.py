"""Log files, MLflow and TensorBoard on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.testbed.data import store as bed_store

noload = pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")


def logged(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bed_store(tmp_path_factory.mktemp("bed")).path


@pytest.mark.parametrize(
    ("command", "stage", "metric"),
    [
        ("rank --score zood", "ranking", "best/score"),
        ("evaluate --no-baselines", "evaluation", "pool/accuracy"),
        ("testbed", "testbed", "logme/weighted_tau"),
    ],
)
def test_a_log_file(
    run: Run, folder: Path, tmp_path: Path, command: str, stage: str, metric: str
) -> None:
    log = tmp_path / "log.jsonl"
    name, *options = command.split()
    for times in (1, 2) if name == "rank" else (1,):
        done = run(name, folder, *options, "--log-file", log)
        assert done.code == 0, done.err
        lines = logged(log)
        assert {line["stage"] for line in lines} == {stage}
        assert [line["event"] for line in lines].count("start") == times
        assert [line.get("status") for line in lines].count("done") == times
        assert [line.get("name") for line in lines].count(metric) == times


@noload
def test_mlflow_and_tensorboard(run: Run, folder: Path, tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    uri = f"sqlite:///{(tmp_path / 'mlflow.db').as_posix()}"
    options = ("--mlflow", uri, "--tensorboard", tmp_path / "logs", "--json")
    done = run("rank", folder, *options)
    assert (done.code, done.err) == (0, "")
    scores = {f"ranking/{r['model']}/score": r["score"] for r in done.document["ranking"]}
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("oodzoo").experiment_id
    [tracked] = client.search_runs([experiment])
    assert scores.items() <= tracked.data.metrics.items()
    events: Any = EventAccumulator(str(tmp_path / "logs"))
    events.Reload()
    assert {tag: events.Scalars(tag)[0].value for tag in scores} == pytest.approx(scores)

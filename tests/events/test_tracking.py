"""Runs of trackers: one for each call, whatever stages it has."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from oodzoo.errors import MissingPackageError
from oodzoo.events import MLflowListener, TensorBoardListener
from oodzoo.events.tracking import Tracker


class Listed(Tracker):
    """Lists what it would track."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def metric(self, stage: str, name: str, value: float, *, step: int | None = None) -> None:
        self.lines.append(f"{stage}/{name} {value}")

    def _open_run(self, stage: str) -> None:
        self.lines.append(f"open {stage}")

    def _parameters(self, values: dict[str, str]) -> None:
        self.lines += [f"{name}: {value}" for name, value in sorted(values.items())]

    def _tag(self, name: str, value: str) -> None:
        self.lines.append(f"{name} = {value}")

    def _close_run(self, *, failed: bool) -> None:
        self.lines.append(f"close {failed=}")


def test_stages_within_a_stage_belong_to_its_run() -> None:
    listed = Listed()
    listed.start("run", models=["a", "b"], seed=0)
    listed.start("ranking", score="unseen")
    listed.end("ranking", status="done", seconds=1.5, result=object())
    listed.end("testbed", status="skipped", seconds=0.0, reason="two models")
    listed.end("run", status="failed", seconds=2.0, error="disk full")
    assert listed.lines == [
        "open run",
        "run/models: a, b",
        "run/seed: 0",
        "ranking/score: unseen",
        "ranking/status = done",
        "ranking/seconds 1.5",
        "testbed/status = skipped",
        "testbed/seconds 0.0",
        "run/status = failed",
        "run/error = disk full",
        "run/seconds 2.0",
        "close failed=True",
    ]


def test_parameters_of_a_stage_that_starts_again_are_those_of_its_first_start() -> None:
    listed = Listed()
    listed.start("run")
    listed.start("extraction", images=10)
    listed.end("extraction", status="done")
    listed.start("extraction", images=20, models=["net"])
    assert listed.lines[1:] == [
        "extraction/images: 10",
        "extraction/status = done",
        "extraction/models: net",
    ]


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = [name for name in sys.modules if name.startswith("tensorboard.")]
    for name in ("mlflow", "tensorboard", *imported):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPackageError, match=r"pip install \"oodzoo\[mlflow\]\""):
        MLflowListener("sqlite:///mlflow.db")
    with pytest.raises(MissingPackageError, match=r"pip install \"oodzoo\[tensorboard\]\""):
        TensorBoardListener(tmp_path / "logs")
    assert list(tmp_path.iterdir()) == []

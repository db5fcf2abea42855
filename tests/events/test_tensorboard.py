"""Event files for TensorBoard, read back with its reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oodzoo.core.errors import InputError
from oodzoo.events import TensorBoardListener

pytest.importorskip("tensorboard", reason="TensorBoard is not installed")


def read(folder: Path) -> tuple[dict[str, list[tuple[int, float]]], dict[str, str]]:
    """The scalars (step and value) and the texts in a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events: Any = EventAccumulator(str(folder))
    events.Reload()
    scalars = {
        tag: [(each.step, each.value) for each in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }
    texts = {
        tag: events.Tensors(tag)[-1].tensor_proto.string_val[0].decode()
        for tag in events.Tags()["tensors"]
    }
    return scalars, texts


def test_scalars_and_texts(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "first"
    listener = TensorBoardListener(folder)
    listener.end("testbed", status="skipped")  # without a start
    listener.start("run", zoo=["a", "b"], seed=0)
    listener.start("ranking", score="unseen")
    listener.metric("ranking", "net@1/score", 0.25)
    for step in (1, 2):
        listener.metric("ranking", "é/score", step / 2, step=step)
    listener.end("ranking", status="done", seconds=1.5)
    listener.artifact("run", tmp_path / "store")
    listener.end("run", status="failed", seconds=2.5, error="disk full")
    scalars, texts = read(folder)
    assert scalars == {
        "ranking/net@1/score": [(0, 0.25)],
        "ranking/é/score": [(1, 0.5), (2, 1.0)],
        "ranking/seconds": [(0, 1.5)],
        "run/seconds": [(0, 2.5)],
    }
    assert texts == {
        "run/zoo": "a, b",
        "run/seed": "0",
        "ranking/score": "unseen",
        "ranking/status": "done",
        "run/store": str(tmp_path / "store"),
        "run/status": "failed",
        "run/error": "disk full",
    }


def test_a_file_that_is_written_after_the_end_is_named_too(tmp_path: Path) -> None:
    listener = TensorBoardListener(tmp_path / "logs")
    listener.start("predictor")
    listener.end("predictor", status="done")
    listener.artifact("predictor", tmp_path / "model")
    assert read(tmp_path / "logs")[1]["predictor/model"] == str(tmp_path / "model")


def test_a_folder_that_cannot_be_written_is_one_line_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "logs"):
        with pytest.raises(InputError, match="cannot write"):
            TensorBoardListener(place)

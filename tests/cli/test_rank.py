"""`oodzoo rank`: tables, JSON and bad input."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import Run
from tests.ranking.data import saved, simulate_models


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return saved(tmp_path, *simulate_models({"a": 0.5, "b": 1.5})).path


def test_json(run: Run, store: Path) -> None:
    document = run("rank", store, "--json").document
    assert document["score"] == "zood"
    assert [row["model"] for row in document["ranking"]] == ["a", "b"]
    first = document["ranking"][0]
    assert {"rank", "model", "score", "discriminability", "stability"} <= set(first)
    assert {"expected_accuracy", "accuracy_interval"} <= set(first)
    assert [fold["domain"] for fold in first["folds"]] == ["d0", "d1", "d2", "d3"]


def test_the_table_explains_its_columns(run: Run, store: Path) -> None:
    shown = run("rank", store).out
    assert [line.split()[2] for line in shown.splitlines()[2:4]] == ["a", "b"]
    assert "Pareto-optimal" in shown
    assert max(map(len, shown.splitlines())) <= 88


def test_another_score_orders_the_rows(run: Run, store: Path) -> None:
    document = run("rank", store, "--score", "logme", "--json").document
    scores = [row["score"] for row in document["ranking"]]
    assert document["score"] == "logme"
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--score", "logm"], "unknown score 'logm'; did you mean logme?"),
        (["--stability", "shaky"], "'shaky'"),
        (["--device", "tpu"], "'tpu'"),
    ],
)
def test_bad_input_is_one_line(run: Run, store: Path, arguments: list[str], words: str) -> None:
    assert words in run("rank", store, *arguments).complaint


def test_no_store(run: Run, tmp_path: Path) -> None:
    assert str(tmp_path / "missing") in run("rank", tmp_path / "missing").complaint

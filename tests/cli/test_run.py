"""`oodzoo run`: what is printed and written, and what is judged once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run

from oodzoo.demo import write_digits
from oodzoo.testbed import TestBed, bed, results, runner


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Handwritten digits of three domains."""
    folder = write_digits(tmp_path_factory.mktemp("digits"))
    for domain in ("tilted", "collage", "marker"):
        shutil.rmtree(folder / domain)
    return folder


def arguments(digits: Path, out: Path) -> tuple[str | Path, ...]:
    options = ("--limit", "90", "--device", "cpu")
    return ("run", digits, "--zoo", "demo", "--out", out, *options)


def test_json_and_messages(run: Run, digits: Path, tmp_path: Path) -> None:
    command = (*arguments(digits, tmp_path / "run"), "--no-baselines", "--json")
    first = run(*command)
    assert first.code == 0, first.err
    document = first.document
    assert document["ranking"]["ranking"][0]["rank"] == 1
    assert document["evaluation"]["selection"]["average"] > 0
    assert Path(document["report"]).is_file()
    assert "Predict with: oodzoo predict" in first.err
    assert "1. Extract features of 19 models" in first.err
    again = run(*command)
    assert again.err.count("reused from an earlier run") == 5
    assert again.document["ranking"] == document["ranking"]


def test_every_stage_is_shown_and_scores_are_judged_once(
    run: Run, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def judge(*arguments: Any, **options: Any) -> TestBed:
        calls.append(arguments)
        return bed.judge(*arguments, **options)

    for module in (runner, results):
        monkeypatch.setattr(module, "judge", judge)
    outcome = run(*arguments(digits, tmp_path / "run"))
    assert outcome.code == 0, outcome.err
    assert len(calls) == 1
    for words in ("90 images, 3 domains", "discr.", "F. Selection", "w. tau"):
        assert words in outcome.out
    assert str(tmp_path / "run" / "model") in outcome.out


def test_a_wrong_number_is_one_line(run: Run, digits: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert "got 'three'" in run(*arguments(digits, out), "--top-k", "three").complaint
    assert not out.exists()

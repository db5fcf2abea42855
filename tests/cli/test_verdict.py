"""The end of a run: a sentence, three numbers, what to do next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.report.example import example_run

from oodzoo.cli.verdict import WIDTH, aligned, next_steps, verdict
from oodzoo.record import PredictorSummary, Run
from oodzoo.zoo import ModelSpec


@pytest.fixture(scope="module")
def run() -> Run:
    return example_run()


def names(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines if line.startswith("  ")]


def test_what_was_measured(run: Run) -> None:
    assert run.evaluation is not None
    lines = verdict(run)
    best = run.evaluation.recommended
    assert lines[0].startswith("Result: ")
    assert max(len(line) for line in lines if not line.startswith("  ")) <= WIDTH
    assert names(lines) == ["accuracy", "cost", "compared"]
    worst = min(best.domains, key=lambda domain: best.domains[domain])
    expect, cost, gain = lines[-3:]
    assert f"  {best.average:.1f} % (90 % interval " in expect
    assert f"hardest domain: {worst}, {best.domains[worst]:.1f} %" in expect
    assert f"{len(best.models)} model" in cost
    assert "points" in gain or "equal to" in gain


def test_a_single_model_is_compared_with_a_pool(run: Run) -> None:
    assert run.evaluation is not None
    best = replace(run.evaluation.recommended, choice="single")
    single = replace(run, evaluation=replace(run.evaluation, recommended=best))
    assert f"a pool of heads ({run.evaluation.pool.average:.1f} %)" in verdict(single)[-1]


def test_without_an_evaluation_it_is_what_the_ranking_expects(run: Run) -> None:
    assert run.ranking is not None
    lines = verdict(replace(run, evaluation=None))
    first = run.ranking.rows[0]
    assert lines[0].startswith(f"Result: {first.model} leads the ranking.")
    assert names(lines) == ["accuracy", "cost", "rank"]
    assert f"{first.expected_accuracy:.1f} % to expect" in lines[-3]


def test_without_a_ranking_there_is_no_verdict(run: Run) -> None:
    assert verdict(replace(run, evaluation=None, ranking=None)) == []


@pytest.mark.parametrize(
    ("source", "texts", "steps"),
    [
        ("onnx/net.onnx", False, ["look", "predict", "test"]),
        ("timm/resnet50", False, ["look", "predict", "test", "fine-tune"]),
        ("hf/a/b", True, ["look", "predict", "test"]),
    ],
)
def test_next_steps(run: Run, source: str, texts: bool, steps: list[str]) -> None:
    made = replace(run, predictor=PredictorSummary("model", ("net",), "", "single"))
    found = next_steps(made, Path("job"), [ModelSpec("net", source)], texts=texts)
    assert [name.split()[0] for name, _ in found] == steps
    assert ("TEXTS.csv" in found[1][1]) == texts
    assert all("job" in command for _, command in found)


def test_nothing_is_predicted_without_a_predictor(run: Run) -> None:
    found = next_steps(replace(run, predictor=None), Path("job"), [], texts=False)
    assert found == [("look at the report", str(Path("job/report.html")))]


def test_no_pairs_are_no_lines() -> None:
    assert aligned([]) == []

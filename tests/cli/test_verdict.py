"""The end of a run: a sentence, three numbers, what to do next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.example import example_run

from oodzoo.cli.terminal import WIDTH
from oodzoo.cli.verdict import aligned, next_steps, verdict
from oodzoo.diagnostics.classes import diagnose_classes
from oodzoo.evaluation.advice import on_budget
from oodzoo.evaluation.result import why_not_the_highest
from oodzoo.record import PredictorSummary, Run
from oodzoo.zoo import ModelSpec


@pytest.fixture(scope="module")
def run() -> Run:
    return example_run()


def names(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]


def text_of(run: Run) -> str:
    """The verdict with two spaces before each name, and otherwise without line breaks."""
    lines = verdict(run, WIDTH)
    return " ".join(line if line[2:3].strip() else line.strip() for line in lines)


def test_what_was_measured(run: Run) -> None:
    assert run.evaluation is not None
    lines = verdict(run, WIDTH)
    best = run.evaluation.recommended
    assert lines[0].startswith("Result: ")
    assert max(len(line) for line in lines if not line.startswith("  ")) <= WIDTH
    lines = [line for line in lines if not line.startswith("  hardest class")]
    assert names(lines)[:3] == ["accuracy", "cost", "compared"]
    worst = min(best.domains, key=lambda domain: best.domains[domain])
    expect, cost, gain = [line for line in lines if line.startswith("  ")][:3]
    assert f"  {best.average:.1f} % (90 % interval " in expect
    assert f"hardest domain: {worst}, {best.domains[worst]:.1f} %" in expect
    assert f"{len(best.models)} model" in cost
    assert "points" in gain or "equal to" in gain


def test_a_single_model_is_compared_with_a_pool(run: Run) -> None:
    assert run.evaluation is not None
    best = replace(run.evaluation.recommended, choice="single")
    single = replace(run, evaluation=replace(run.evaluation, recommended=best))
    assert f"a pool of heads ({run.evaluation.pool.average:.1f} %)" in text_of(single)


def test_a_class_that_fails_is_named(run: Run) -> None:
    assert run.evaluation is not None
    probabilities = np.tile([0.9, 0.1], (4, 1))
    found = diagnose_classes(
        probabilities, np.array([0, 0, 0, 1]), ["plum", "kiwi"], paths=list("abcd"), domains="web"
    )
    failing = replace(run, evaluation=replace(run.evaluation, diagnosis={"web": found}))
    wanted = ["hardest", "class", "kiwi,", "0", "%", "recognised"]
    assert any(line.split() == wanted for line in verdict(failing, WIDTH))
    without = replace(run, evaluation=replace(run.evaluation, diagnosis={}))
    assert "hardest class" not in text_of(without)


def changed(run: Run, **facts: Any) -> Run:
    """The run with another recommendation."""
    assert run.evaluation is not None
    best = replace(run.evaluation.recommended, **facts)
    return replace(run, evaluation=replace(run.evaluation, recommended=best))


def test_a_higher_row_is_explained(run: Run) -> None:
    low = changed(run, choice="single", average=1.0, estimates={})
    assert low.evaluation is not None
    assert why_not_the_highest(low.evaluation) in text_of(low)


def test_the_choice_is_part_of_the_number(run: Run) -> None:
    evaluation = run.evaluation
    assert evaluation is not None
    pool, domains = evaluation.pool.average, evaluation.recommended.domains
    other = dict.fromkeys(domains, "pool") | {next(iter(domains)): "single"}
    said = f"Pool in every domain has {pool:.1f} %."
    assert said in text_of(changed(run, choice="pool", choices=other, average=pool - 1))
    assert said not in text_of(changed(run, choice="pool", choices=other, average=pool))
    everywhere = dict.fromkeys(domains, "pool")
    assert said not in text_of(changed(run, choice="pool", choices=everywhere, average=pool - 1))


def test_what_to_expect_on_the_target(run: Run) -> None:
    assert "  target " not in text_of(run)
    aimed = example_run(target=True)
    assert aimed.ranking is not None
    first = aimed.ranking.rows[0]
    said = f"{first.expected_accuracy:.1f} % to expect of {first.model} alone (90 % interval "
    assert said in text_of(aimed)


def test_a_pool_of_one_is_no_gain_over_itself(run: Run) -> None:
    one = changed(run, choice="pool", models=("model_000_imagenet",))
    assert "the top model alone" not in text_of(one)
    assert "models were chosen" not in text_of(one)
    assert "pool" not in text_of(one).partition("compared")[2]
    many = changed(run, choice="pool", models=tuple(f"model_{at:03d}_imagenet" for at in range(9)))
    assert "were chosen and measured; on all, 9." in text_of(many)


def test_the_same_in_less_time_is_said(run: Run) -> None:
    assert run.evaluation is not None
    free, costly = on_budget(42, "net", 80.0, 80.0, 2.2), on_budget(42, "net", 70.0, 80.0, 2.2)
    for advice, shown in ((free, True), (costly, False)):
        given = replace(run, evaluation=replace(run.evaluation, advice=(advice,)))
        assert ("  faster " in text_of(given)) == shown


def test_the_cost_of_the_predictor_is_not_that_of_the_first_model(run: Run) -> None:
    assert run.ranking is not None
    models = tuple(row.model for row in run.ranking.rows[:2])
    made = replace(run, evaluation=None, predictor=PredictorSummary("model", models, "", "pool"))
    lines = verdict(made, WIDTH)
    assert names(lines)[-4:] == ["accuracy", "cost", "rank", "predictor"]
    assert "  cost       1 model" in text_of(made)
    assert "pool of 2 models" in text_of(made)
    alone = replace(made, predictor=PredictorSummary("model", models[1:], "", "pool"))
    assert "single of 1 model, " in text_of(alone)


def test_without_an_evaluation_it_is_what_the_ranking_expects(run: Run) -> None:
    assert run.ranking is not None
    lines = verdict(replace(run, evaluation=None), WIDTH)
    first = run.ranking.rows[0]
    assert lines[0].startswith(f"Result: {first.model} leads the ranking.")
    assert names(lines) == ["accuracy", "cost", "rank"]
    assert f"{first.expected_accuracy:.1f} % to expect" in text_of(replace(run, evaluation=None))


def test_without_a_ranking_there_is_no_verdict(run: Run) -> None:
    assert verdict(replace(run, evaluation=None, ranking=None), WIDTH) == []


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

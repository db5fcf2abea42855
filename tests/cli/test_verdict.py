"""The end of a run: a sentence, three numbers, what to do next."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.example import example_run

from oodzoo.cli.terminal import WIDTH
from oodzoo.cli.verdict import aligned, next_steps, verdict
from oodzoo.combining.evaluation.advice import on_budget
from oodzoo.combining.evaluation.result import Evaluation
from oodzoo.report.record import PredictorSummary, Run
from oodzoo.tasks.diagnosis.classes import diagnose_classes
from oodzoo.zoo import ModelSpec


def of(run: Run) -> Evaluation:
    assert run.evaluation is not None
    return run.evaluation


def changed(**facts: Any) -> Run:
    """A run with another recommendation."""
    run = example_run()
    return replace(
        run, evaluation=replace(of(run), recommended=replace(of(run).recommended, **facts))
    )


def with_evaluation(**facts: Any) -> Run:
    run = example_run()
    return replace(run, evaluation=replace(of(run), **facts))


def ranked(*models: int) -> Run:
    """A run without an evaluation, with a predictor of these models, if any."""
    run = replace(example_run(), evaluation=None)
    names = tuple(f"model_{at:03d}_imagenet" for at in models)
    made = PredictorSummary("model", names, "", "pool")
    return replace(run, predictor=made) if models else run


def text_of(run: Run) -> str:
    """The verdict with two spaces around each name, and otherwise without line breaks."""
    lines = verdict(run, WIDTH)
    assert all(len(line) <= WIDTH for line in lines)
    text = " ".join(line if line[2:3].strip() else line.strip() for line in lines)
    return re.sub(" {2,}", "  ", text)


BEST, POOL = of(example_run()).recommended, of(example_run()).pool
WORST = min(BEST.domains, key=BEST.domains.__getitem__)
OTHERWISE = dict.fromkeys(BEST.domains, "pool") | {next(iter(BEST.domains)): "single"}
FIRST = "model_000_imagenet"
IN_EVERY = f"Pool in every domain has {POOL.average:.1f} %."


def failing() -> Run:
    y, probabilities = np.array([0, 0, 0, 1]), np.tile([0.9, 0.1], (4, 1))
    found = diagnose_classes(probabilities, y, ["plum", "kiwi"], paths=list("abcd"), domains="web")
    return with_evaluation(diagnosis={"web": found})


def faster(accuracy: float) -> Run:
    return with_evaluation(advice=(on_budget(42, "net", accuracy, 80.0, 2.2),))


CASES: list[tuple[str, Callable[[], Run], str]] = [
    ("says", example_run, f"  accuracy  {BEST.average:.1f} % (90 % interval "),
    ("says", example_run, f"hardest domain: {WORST}, {BEST.domains[WORST]:.1f} %"),
    ("says", example_run, "  cost  4 models, "),
    ("says", example_run, " the top model alone ("),
    ("says", lambda: changed(choice="single"), f"a pool of heads ({POOL.average:.1f} %)"),
    ("says", failing, "  hardest class  kiwi, 0 % recognised"),
    ("not", lambda: with_evaluation(diagnosis={}), "hardest class"),
    ("says", lambda: changed(choice="single", average=1.0, estimates={}), "but it is not clearly"),
    ("says", lambda: changed(choices=OTHERWISE, average=POOL.average - 1), IN_EVERY),
    ("not", lambda: changed(choices=OTHERWISE, average=POOL.average), IN_EVERY),
    ("not", lambda: changed(choices=dict.fromkeys(BEST.domains, "pool")), IN_EVERY),
    ("not", example_run, "  target "),
    ("says", lambda: example_run(target=True), f" % to expect of {FIRST} alone (90 % interval "),
    ("not", lambda: changed(models=(FIRST,)), "the top model alone"),
    ("not", lambda: changed(models=(FIRST,)), "models were chosen"),
    ("says", lambda: changed(models=tuple("abcdefghi")), "were chosen and measured; on all, 9."),
    ("says", lambda: faster(80.0), "  faster "),
    ("not", lambda: faster(70.0), "  faster "),
    ("says", ranked, f"Result: {FIRST} leads the ranking."),
    ("says", ranked, "  accuracy  83.7 % to expect"),
    ("says", lambda: ranked(0, 1), "  cost  1 model"),
    ("says", lambda: ranked(0, 1), "  predictor  pool of 2 models, "),
    ("says", lambda: ranked(1), "  predictor  single of 1 model, "),
    ("not", lambda: ranked(0), "  predictor "),
]  # fmt: skip


@pytest.mark.parametrize(("said", "given", "words"), CASES)
def test_verdict(said: str, given: Callable[[], Run], words: str) -> None:
    assert (words in text_of(given())) == (said == "says")


def test_without_a_ranking_there_is_no_verdict() -> None:
    assert verdict(replace(ranked(), ranking=None), WIDTH) == []


@pytest.mark.parametrize(
    ("source", "texts", "steps"),
    [
        ("onnx/net.onnx", False, ["look", "predict", "test"]),
        ("timm/resnet50", False, ["look", "predict", "test", "fine-tune"]),
        ("hf/a/b", True, ["look", "predict", "test"]),
    ],
)
def test_next_steps(source: str, texts: bool, steps: list[str]) -> None:
    made = replace(example_run(), predictor=PredictorSummary("model", ("net",), "", "single"))
    found = next_steps(made, Path("job"), [ModelSpec("net", source)], texts=texts)
    assert [name.split()[0] for name, _ in found] == steps
    assert ("TEXTS.csv" in found[1][1]) == texts
    assert all("job" in command for _, command in found)


def test_nothing_is_predicted_without_a_predictor() -> None:
    found = next_steps(example_run(), Path("job"), [], texts=False)
    assert found == [("look at the report", str(Path("job/report.html")))]


def test_no_pairs_are_no_lines() -> None:
    assert aligned([]) == []

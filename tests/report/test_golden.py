"""The outline of a page of each kind, compared with the one that was written before.

A page that changes on purpose is written again with `OODZOO_GOLDEN=write pytest tests/report`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.report.assessment_example import example_test
from tests.report.example import consistent_selection, example_run
from tests.report.outline import outline

from oodzoo.combining.evaluation.rows import Gain, TunedFacts, Tuning
from oodzoo.ranking.racing import Dropped
from oodzoo.report import page
from oodzoo.report.assessment_page import assessment_page
from oodzoo.report.record import ExtractionSummary, PredictorSummary, Run
from oodzoo.store.leaks.pairs import NearDuplicates, Pair, Pairs

WRITTEN = Path(__file__).parent / "golden"
DOMAINS = ("art", "photo", "sketch")
LONG_NAMES = ("a domain with a long name", "another domain with a long name", "the third")


def classes() -> Run:
    """Everything that a run can have."""
    run = example_run(5, DOMAINS, ("cat", "dog", "owl"))
    first = Pair(("art/1", "photo/2"), ("art", "photo"), ("cat", "dog"), 0.61, False, 0.99)
    second = Pair(("art/1", "art/3"), ("art", "art"), ("cat", "cat"), 0.75)
    found = NearDuplicates(Pairs.of([first]), Pairs.of([second]), 8, ("a",), "all", 1.0, 0.35)
    dropped = {
        "slow": Dropped(1, 140, 20, (11, 27), 31.25, "clearly worse than 10 models"),
        "late": Dropped(2, 280, 9, None, 61.0, "rank too low for the budget of 30 min"),
    }
    assert run.evaluation is not None
    assert run.testbed is not None
    return replace(
        run,
        leaks=found,
        extraction=ExtractionSummary(("a",), {}, (), 1400, {}, "0" * 64, dropped),
        predictor=PredictorSummary("model", run.evaluation.recommended.models, "digest", "pool"),
        evaluation=replace(run.evaluation, published="PACS"),
        testbed=replace(run.testbed, scores=dict(list(run.testbed.scores.items())[:3])),
    )


def tuned() -> Run:
    """Ranked by zood, selected consistently, fine-tuned; layers of one network; DomainBed."""
    names = ("vit@8", "net", "vit", "other")
    run = example_run(domains=DOMAINS, classes=("cat", "dog"), models=names, score="zood")
    found = run.evaluation
    assert found is not None
    facts = TunedFacts("average 0.5", 3e-5, 50.0, 75.0, "cuda")
    rows = {"single": found.single, "ensemble": found.ensemble, "selection": found.selection}
    evaluation = replace(
        found,
        fine_tuned=found.pool,
        tuning=Tuning(Gain("pool", 3.0, 1.0, 2.0), dict.fromkeys(DOMAINS, facts)),
        rule="training-domain",
        by_rule={"training-domain": rows, "oracle": rows | {"selection": found.pool}},
        diagnosis={},
        learning_curve=None,
        recommended=replace(found.recommended, within={"single": 80.0, "pool": 85.5}),
    )
    selection = consistent_selection(names[:2], ("cat", "dog"))
    return replace(run, evaluation=evaluation, selection=selection, testbed=None)


def ranked() -> Run:
    """Without an evaluation; the predictor is another model."""
    run = example_run(4, DOMAINS[:2], ("cat", "dog"), score="knn")
    made = PredictorSummary("model", ("model_001_imagenet", "model_000_imagenet"), "d", "pool")
    return replace(run, evaluation=None, selection=None, testbed=None, predictor=made)


PAGES: dict[str, Callable[[], Any]] = {
    "classes": lambda: page(classes()),
    "tuned": lambda: page(tuned()),
    "ranked": lambda: page(ranked()),
    "target": lambda: page(replace(example_run(3, DOMAINS, target=True), testbed=None)),
    "numbers": lambda: page(example_run(4, DOMAINS, ("age", "height"), task="regression")),
    "labels": lambda: page(example_run(3, LONG_NAMES, ("cat", "dog"), task="multilabel")),
    "test of classes": lambda: assessment_page(example_test(), "models/best"),
    "test of numbers": lambda: assessment_page(example_test("regression", ["age", "height"])),
    "test of labels": lambda: assessment_page(example_test("multilabel")),
}


@pytest.mark.parametrize("name", PAGES)
def test_outline(name: str) -> None:
    file = WRITTEN / f"{name.replace(' ', '_')}.txt"
    found = outline(PAGES[name]())
    found = re.sub(r' This needs .*?"\.| \(needs .*?"\)', "", found)  # what is not installed here
    if os.environ.get("OODZOO_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(found, encoding="utf-8")
    assert found == file.read_text(encoding="utf-8")

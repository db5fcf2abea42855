"""The outline of a page of each kind, compared with the one that was written before.

Smaller changes of a run or a test are compared by the lines that they change: of the page, and of
what the command line says at the end of the run. What changes on purpose is written again with
`OODZOO_GOLDEN=write pytest tests/report`.
"""

from __future__ import annotations

import difflib
import functools
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.assessment_example import example_test
from tests.report.diagnosis_example import example_diagnoses
from tests.report.example import (
    DOMAINS,
    consistent_selection,
    evaluation_row,
    example_run,
    without,
)
from tests.report.outline import outline

from oodzoo.cli.terminal import WIDTH
from oodzoo.combining.evaluation.rows import Gain, TunedFacts, Tuning
from oodzoo.combining.statements import Advice, on_budget, on_target, on_tuning
from oodzoo.predictor.assessment import TestResult
from oodzoo.ranking.racing import Dropped
from oodzoo.report import page
from oodzoo.report.assessment_page import assessment_page
from oodzoo.report.recommendation import verdict
from oodzoo.report.record import ExtractionSummary, PredictorSummary, Run
from oodzoo.store.leaks.similar import NearDuplicates, Pair, Pairs
from oodzoo.tasks import CLASSIFICATION
from oodzoo.tasks.classification import Bin, Reliability

WRITTEN = Path(__file__).parent / "golden"
THREE = ("art", "photo", "sketch")
LONG_NAMES = ("a domain with a long name", "another domain with a long name", "the third")
ACROSS = Pair(("art/1", "photo/2"), ("art", "photo"), ("cat", "dog"), 0.61, False, 0.99)
WITHIN = Pair(("art/1", "art/3"), ("art", "art"), ("cat", "cat"), 0.75)


def leaks(across: Sequence[Pair], within: Sequence[Pair]) -> NearDuplicates:
    return NearDuplicates(Pairs.of(across), Pairs.of(within), 8, ("a",), "all", 1.0, 0.35)


# --- whole pages ---------------------------------------------------------------------------------


def classes() -> Run:
    """Everything that a run can have."""
    run = example_run(5, THREE, ("cat", "dog", "owl"))
    dropped = {
        "slow": Dropped(1, 140, 20, (11, 27), 31.25, "clearly worse than 10 models"),
        "late": Dropped(2, 280, 9, None, 61.0, "rank too low for the budget of 30 min"),
    }
    assert run.evaluation is not None
    assert run.testbed is not None
    return replace(
        run,
        leaks=leaks([ACROSS], [WITHIN]),
        extraction=ExtractionSummary(("a",), {}, (), 1400, {}, "0" * 64, dropped),
        predictor=PredictorSummary("model", run.evaluation.recommended.models, "digest", "pool"),
        evaluation=replace(run.evaluation, published="PACS"),
        testbed=replace(run.testbed, scores=dict(list(run.testbed.scores.items())[:3])),
    )


def tuned() -> Run:
    """Ranked by zood, selected consistently, fine-tuned; layers of one network; DomainBed."""
    names = ("vit@8", "net", "vit", "other")
    run = example_run(domains=THREE, classes=("cat", "dog"), models=names, score="zood")
    found = run.evaluation
    assert found is not None
    facts = TunedFacts("average 0.5", 3e-5, 50.0, 75.0, "cuda")
    rows = {"single": found.single, "ensemble": found.ensemble, "selection": found.selection}
    evaluation = replace(
        found,
        fine_tuned=found.pool,
        tuning=Tuning(Gain("pool", 3.0, 1.0, 2.0), dict.fromkeys(THREE, facts)),
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
    run = example_run(4, THREE[:2], ("cat", "dog"), score="knn")
    made = PredictorSummary("model", ("model_001_imagenet", "model_000_imagenet"), "d", "pool")
    return replace(run, evaluation=None, selection=None, testbed=None, predictor=made)


PAGES: dict[str, Callable[[], Any]] = {
    "classes": lambda: page(classes()),
    "tuned": lambda: page(tuned()),
    "ranked": lambda: page(ranked()),
    "target": lambda: page(replace(example_run(3, THREE, target=True), testbed=None)),
    "numbers": lambda: page(example_run(4, THREE, ("age", "height"), task="regression")),
    "labels": lambda: page(example_run(3, LONG_NAMES, ("cat", "dog"), task="multilabel")),
    "test of classes": lambda: assessment_page(example_test(), "models/best"),
    "test of numbers": lambda: assessment_page(example_test("regression", ["age", "height"])),
    "test of labels": lambda: assessment_page(example_test("multilabel")),
}


def compare(name: str, found: str) -> None:
    file = WRITTEN / f"{name.replace(' ', '_')}.txt"
    found = re.sub(r' This needs .*?"\.| \(needs .*?"\)', "", found)  # what is not installed here
    if os.environ.get("OODZOO_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(found, encoding="utf-8")
    assert found == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_outline(name: str) -> None:
    compare(name, outline(PAGES[name]()))


# --- what smaller changes change -----------------------------------------------------------------

RUN = example_run(5, classes=("cat", "dog"))
RANKED = without(RUN, "evaluation")
assert RUN.evaluation is not None
assert RUN.ranking is not None
assert RUN.testbed is not None
assert RUN.selection is not None
assert RUN.data is not None
EVALUATION, RANKING, BED, SELECTION = RUN.evaluation, RUN.ranking, RUN.testbed, RUN.selection
DATA = RUN.data
BEST, POOL, ROWS = EVALUATION.recommended, EVALUATION.pool, RANKING.rows
NAMES = [row.model for row in ROWS]
PAIRS = tuple(itertools.combinations(BED.scores, 2))
TEST = example_test()
assert TEST.promise is not None
PROMISE = TEST.promise


def judged(**changes: Any) -> Run:
    return replace(RUN, evaluation=replace(EVALUATION, **changes))


def best(**changes: Any) -> Run:
    return judged(recommended=replace(BEST, **changes))


def everywhere(choice: Any) -> dict[str, Any]:
    return dict.fromkeys(DOMAINS, choice)


def flat(value: float) -> Any:
    return evaluation_row(everywhere(value), ["?"])


def saved(run: Run, choice: str, *models: int, path: str = "model") -> Run:
    made = PredictorSummary(path, tuple(NAMES[at] for at in models), "digest", choice)
    return replace(run, predictor=made)


def pools(*models: tuple[str, ...], **changes: Any) -> Run:
    """Other models in the pool of each domain, and another recommendation."""
    cells = {d: replace(POOL.cells[d], models=m) for d, m in zip(DOMAINS, models, strict=True)}
    return judged(pool=replace(POOL, cells=cells), recommended=replace(BEST, **changes))


def diagnosed(reliability: Reliability | None = None) -> Run:
    """Kiwis are recognised badly."""
    y, predicted = np.repeat([0, 1], 4), np.eye(2)[[0, 0, 0, 0, 0, 0, 0, 1]]
    found = CLASSIFICATION.diagnose(
        predicted, y, ["fig", "kiwi"], paths=["x"] * 8, domains=DOMAINS[0]
    )
    if reliability is not None:
        found = replace(found, reliability=reliability)
    return judged(diagnosis={DOMAINS[0]: found})


def sure(accuracy: float, error: float) -> Run:
    return diagnosed(Reliability((Bin(90.0, 100.0, 50, 96.0, accuracy),), error))


def many_classes() -> Run:
    found = example_diagnoses(
        [f"class {c}" for c in range(345)], {DOMAINS[0]: 90, DOMAINS[1]: 40}, 5
    )
    return judged(diagnosis=found)


def advice(*given: Advice) -> Run:
    return judged(advice=given)


def bed(**changes: Any) -> Run:
    return replace(RUN, testbed=replace(BED, **changes))


def ranking(**changes: Any) -> Run:
    return replace(RANKED, ranking=replace(RANKING, **changes))


def every(**changes: Any) -> Run:
    return ranking(rows=tuple(replace(row, **changes) for row in ROWS))


def first(run: Run, **changes: Any) -> Run:
    rows = (replace(ROWS[0], **changes), *ROWS[1:])
    return replace(run, ranking=replace(RANKING, rows=rows))


def layers(*names: str) -> Run:
    return ranking(rows=tuple(replace(r, model=m) for r, m in zip(ROWS, names, strict=False)))


def unknown_transfer(n_domains: int) -> Run:
    def folds(row: Any) -> tuple[Any, ...]:
        unknown = [replace(fold, transfer=None) for fold in row.folds[:n_domains]]
        return (*unknown, *row.folds[n_domains:])

    return ranking(rows=tuple(replace(row, folds=folds(row)) for row in ROWS))


def promised(**verdicts: Any) -> TestResult:
    return replace(TEST, promise=replace(PROMISE, verdicts=verdicts))


HARD = dict(zip(DOMAINS, (50.0, 90.0, 70.0, 94.0), strict=True))
OTHERWISE = everywhere("pool") | {DOMAINS[0]: "single"}
BOTH = {"single": 80.0, "pool": 85.5, "ensemble": 84.0}
TUNED = on_tuning(Gain("pool", 3.0, 1.0, 2.0), "Pool", recommended=True)
ABC = (("b", "a"), ("a",), ("a", "c"), ("b", "a"))
LEFT_OUT = {"blip": "no logits", "wide": "too slow", "clip": "no logits"}
FEW = BED.scores | {"leep": replace(BED.scores["leep"], weighted_tau=0.99)}
SETTINGS = {"batch_size": None, "baselines": True, "deep": {"top_k": [1, 3], "fast": False}}
SCORES = ("zood", "stability", "transfer", "logme", "balanced_accuracy", "knn")

OF_A_RUN: dict[str, Callable[[], Run]] = {
    "time unknown": lambda: first(RUN, milliseconds=None),
    "size unknown": lambda: first(RUN, parameters=None),
    "another accuracy of the first model": lambda: first(RUN, expected_accuracy=12.3),
    "no interval": lambda: best(interval=None),
    "interval and domains": lambda: best(average=76.0, interval=(48.6, 99.7), domains=HARD),
    "a failing class": diagnosed,
    "confident and right": lambda: sure(95.5, 0.5),
    "confident and right on average": lambda: sure(95.5, 9.0),
    "too sure": lambda: sure(80.0, 16.0),
    "not sure enough": lambda: sure(100.0, 4.0),
    "many classes": many_classes,
    "no diagnosis": lambda: judged(diagnosis={}),
    "no mistakes": lambda: judged(
        diagnosis={d: replace(each, mistakes=()) for d, each in EVALUATION.diagnosis.items()}
    ),
    "one trial": lambda: judged(trials=1),
    "not clearly better": lambda: best(choice="single", average=1.0, estimates={}),
    "single, the first": lambda: best(choice="single", models=(NAMES[0],)),
    "single, another": lambda: best(choice="single", models=(NAMES[1],)),
    "ties": lambda: judged(single=POOL, ensemble=POOL),
    "no ties": lambda: judged(single=flat(1.0), ensemble=flat(1.0), selection=flat(1.0)),
    "worse by other choices": lambda: best(choices=OTHERWISE, average=POOL.average - 1),
    "as good by other choices": lambda: best(choices=OTHERWISE, average=POOL.average),
    "the same choices": lambda: best(choices=everywhere("pool")),
    "one other choice": lambda: best(choices=everywhere("ensemble")),
    "two exceed the limits": lambda: best(estimates={"single": 1.0, "pool": 2.0}),
    "one exceeds the limits": lambda: best(estimates={"single": 1.0, "pool": 2.0, "ensemble": 3.0}),
    "within the domains": lambda: best(within=BOTH),
    "nine models": lambda: best(models=tuple("abcdefghi")),
    "one model": lambda: pools(*[("a",)] * 4, models=("a",), choices=everywhere("pool")),
    "other pools": lambda: pools(*ABC, models=("a", "d")),
    "other pools, ensemble": lambda: pools(*ABC, models=("a", "d"), choice="ensemble"),
    "no baselines": lambda: judged(baselines={}),
    "baselines have one order": lambda: judged(
        baselines={
            name: flat(50.0 + at)
            for at, name in enumerate(["best_by_zzz", "oracle", "best_by_lda", "random_features"])
        }
    ),
    "top 1": lambda: judged(top_k=1),
    "top 2 in all domains": lambda: judged(top_k=everywhere(2)),
    "top 1 to 3": lambda: judged(top_k=dict(zip(DOMAINS, (1, 2, 3, 3), strict=True))),
    "no advice": lambda: advice(),
    "all advice": lambda: advice(
        *(on_target(None, 80.0), on_tuning(None), on_target(85.0, 80.0), TUNED),
        on_budget(42.0, "net", 80.0, 80.0, 2.2),
    ),
    "faster, but worse": lambda: advice(on_budget(42.0, "net", 70.0, 80.0, 2.2)),
    "nearly no loss": lambda: advice(Advice("budget", "As accurate.", -0.01)),
    "no curve": lambda: judged(learning_curve=None),
    "saved": lambda: saved(RUN, "pool", 3, 2, 1, 0),
    "saved, another pool": lambda: saved(RUN, "pool", 0, 1),
    "saved, ensemble": lambda: saved(RUN, "ensemble", 0, 1, 2, 3),
    "saved, single": lambda: saved(RUN, "single", 2),
    "saved, named": lambda: saved(RUN, "named", 1, 2, path="my model"),
    "scores differ": lambda: bed(indistinguishable=()),
    "all scores are tied": lambda: bed(indistinguishable=PAIRS),
    "all are tied with the best": lambda: bed(
        indistinguishable=tuple(pair for pair in PAIRS if "zood" in pair)
    ),
    "the best score is of few models": lambda: bed(scores=FEW),
    "scores that saw the domain": lambda: bed(data=BED.data | {"protocol": "all"}),
    "a selection that did not converge": lambda: replace(
        RUN, selection=replace(SELECTION, converged=False)
    ),
    "consistent features of nine models": lambda: replace(
        RUN, selection=consistent_selection([f"m{at}" for at in range(9)], ["cat", "dog"])
    ),
    "consistent features, numbers": lambda: replace(
        RUN, selection=replace(consistent_selection(["a", "b"], ["age"]), task="regression")
    ),
    "leaks between domains": lambda: replace(RUN, leaks=leaks([ACROSS], [])),
    "leaks within domains": lambda: replace(RUN, leaks=leaks([], [WITHIN])),
    "no leaks": lambda: replace(RUN, leaks=leaks([], [])),
    "proposed domains": lambda: replace(RUN, data=replace(DATA, domains_proposed="make")),
    "settings": lambda: replace(RUN, settings=SETTINGS),
}
OF_A_RANKING: dict[str, Callable[[], Run]] = {
    "nothing": lambda: replace(RANKED, ranking=None),
    "no ties": lambda: first(RANKED, tied=()),
    "clearly ahead": lambda: first(RANKED, rank_interval=(1, 1), tied=()),
    "may be the last": lambda: first(RANKED, rank_interval=(1, 5)),
    "may be the last but one": lambda: first(RANKED, rank_interval=(1, 4)),
    "one model": lambda: ranking(rows=(replace(ROWS[0], tied=()),)),
    "two models, one clearly ahead": lambda: ranking(
        rows=(replace(ROWS[0], rank_interval=(1, 1), tied=()), replace(ROWS[1], tied=()))
    ),
    "left out": lambda: ranking(left_out=LEFT_OUT),
    "no rings": lambda: every(pareto_optimal=False),
    "proposed domains": lambda: ranking(domains_proposed="camera"),
    "transfer unknown into a domain": lambda: unknown_transfer(1),
    "transfer unknown": lambda: unknown_transfer(4),
    "layers": lambda: layers("vit@blocks.8", "net@a<b", "vit", "other", "net2@x"),
    "layers of two networks": lambda: layers("net", "vit@blocks.8", "net@x", "vit@blocks.4-mean"),
    "saved": lambda: saved(RANKED, "single", 0),
    "saved, without a choice": lambda: saved(RANKED, "", 0),
    "saved, a pool": lambda: saved(RANKED, "pool", 1, 0),
    "saved, another": lambda: saved(RANKED, "single", 1),
    **{f"by {score}": functools.partial(ranking, score=score) for score in SCORES},
    "labels by zood": lambda: ranking(score="zood", task="multilabel"),
}
OF_A_TEST: dict[str, Callable[[], TestResult]] = {
    "as promised": lambda: promised(dawn="within", noon="within"),
    "better than promised": lambda: promised(noon="above"),
    "no promise": lambda: replace(TEST, promise=None),
    "known domains": lambda: replace(TEST, promise=None, trained_on=("dawn",)),
    "training data": lambda: replace(TEST, is_training_data=True),
    "one domain": lambda: replace(example_test(domains=["dawn"]), promise=None),
}


def shown(given: Run | TestResult) -> str:
    """The outline of the page, and the last lines of the command."""
    if isinstance(given, TestResult):
        return outline(assessment_page(given))
    return "\n".join([outline(page(given)), *verdict(given, WIDTH)])


@pytest.mark.parametrize(
    ("name", "base", "changed"),
    [
        ("changes of a run", RUN, OF_A_RUN),
        ("changes of a ranking", RANKED, OF_A_RANKING),
        ("changes of a test", TEST, OF_A_TEST),
    ],
)
def test_changes(name: str, base: Any, changed: Mapping[str, Callable[[], Any]]) -> None:
    before, lines = shown(base).splitlines(), []
    for title, make in changed.items():
        found = difflib.unified_diff(before, shown(make()).splitlines(), n=0, lineterm="")
        marks = ("---", "+++", "@@")
        lines += [f"=== {title}", *(line for line in found if not line.startswith(marks)), ""]
    compare(name, "\n".join(lines))


SCREENS: dict[str, Callable[[], Run]] = {
    "classes": lambda: example_run(27),
    "numbers": lambda: example_run(5, task="regression"),
    "one number": lambda: example_run(2, task="regression", classes=["age"]),
    "labels": lambda: example_run(5, task="multilabel"),
    "target": lambda: example_run(5, target=True),
    "adapted": lambda: saved(example_run(5, target=True), "pool", 0, 1, 2, 3),
    "another adapted": lambda: saved(example_run(5, target=True), "pool", 4),
    "one domain": lambda: example_run(5, ["only"]),
    "ranked": lambda: without(example_run(27), "evaluation"),
    "ranked, target": lambda: without(example_run(27, target=True), "evaluation"),
    "ranked, numbers": lambda: without(example_run(5, task="regression"), "evaluation"),
    "ranked, labels, zood": lambda: without(
        example_run(5, task="multilabel", score="zood"), "evaluation"
    ),
    "ranked, one": lambda: without(example_run(1), "evaluation"),
}


def test_first_screens() -> None:
    lines = []
    for title, make in SCREENS.items():
        screen, _, _ = shown(make()).partition("\nsection #")
        lines += [f"=== {title}", screen, *verdict(make(), WIDTH), ""]
    compare("first screens", "\n".join(lines))

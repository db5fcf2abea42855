"""The first screen of the page: the verdict, its number, and what to do now."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import zoo
from tests.report.example import DOMAINS, evaluation_row, example_run, without
from tests.report.reader import Reader

import oodzoo
from oodzoo.cli.evaluate import show_evaluation
from oodzoo.cli.terminal import Terminal
from oodzoo.combining.evaluation.advice import Advice
from oodzoo.combining.evaluation.result import Evaluation
from oodzoo.report import page
from oodzoo.report.blocks import Headline
from oodzoo.report.headline import headline
from oodzoo.report.record import PredictorSummary, Run
from oodzoo.tasks import Kind
from oodzoo.tasks.diagnosis.classes import diagnose_classes

ACCURACY = dict(zip(DOMAINS, (50.0, 90.0, 70.0, 94.0), strict=True))


def with_first(run: Run, **changes: Any) -> Run:
    """The run with other values for its top model."""
    assert run.ranking is not None
    first, *others = run.ranking.rows
    rows = (replace(first, **changes), *others)
    return replace(run, ranking=replace(run.ranking, rows=rows))


def of(run: Run) -> Evaluation:
    assert run.evaluation is not None
    return run.evaluation


def recommending(run: Run, **changes: Any) -> Run:
    """The run with another recommendation."""
    best = replace(of(run).recommended, **changes)
    return replace(run, evaluation=replace(of(run), recommended=best))


def changed(**changes: Any) -> Run:
    """A run with another evaluation."""
    run = example_run(5)
    return replace(run, evaluation=replace(of(run), **changes))


def ranked(n_models: int = 27, **options: Any) -> Run:
    """A run without an evaluation, as with two domains."""
    return without(example_run(n_models, **options), "evaluation")


def made(run: Run, choice: str, *models: str) -> Run:
    return replace(run, predictor=PredictorSummary("model", models, "digest", choice))


def test_one_number_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    """The page, the table, the record and the command line promise the same accuracy."""
    evaluation = oodzoo.evaluate(*zoo())
    run = Run("oodzoo run", evaluation=evaluation)
    document = json.loads(json.dumps(run.to_dict(), sort_keys=True))
    average = document["evaluation"]["recommended"]["average"]
    assert document["recommended"]["average"] == average
    read = Reader(page(Run.from_dict(document)))
    rows = [row for row in read.table("accuracy") if row["method"] == "Recommended"]
    assert [row["domain"] for row in rows] == ["average", *evaluation.domains]
    assert float(rows[0]["accuracy"]) == pytest.approx(average, abs=1e-12)
    for row in rows[1:]:
        assert float(row["accuracy"]) == evaluation.recommended.domains[row["domain"]]
    shown = f"{average:.1f} %"
    assert f"{average:.1f} % accuracy on unseen domains, measured" in read.text
    with Terminal() as terminal:
        show_evaluation(terminal, evaluation)
    words = f"it classifies {shown} of the images of unseen domains correctly"
    assert words in capsys.readouterr().out
    assert words in read.text


def said(shown: Headline) -> list[str]:
    """All texts of the first screen."""
    number = shown.measured
    texts = [] if number is None else [number.value, number.label, number.interval]
    tiles = [f"{tile.value} {tile.label} {tile.note}".strip() for tile in shown.tiles]
    return [shown.subject or "", shown.sentence, *texts, shown.meaning, *shown.remarks, *tiles]


def failing() -> Run:
    y, predicted = np.repeat([0, 1], 4), np.eye(2)[[0, 0, 0, 0, 0, 0, 0, 1]]
    found = diagnose_classes(predicted, y, ["fig", "kiwi"], paths=["x"] * 8, domains="web")
    return changed(diagnosis={"web": found})


def tied() -> Run:
    run = example_run()
    pool = of(run).pool
    return replace(run, evaluation=replace(of(run), single=pool, ensemble=pool))


def untied() -> Run:
    worse = evaluation_row(dict.fromkeys(DOMAINS, 1.0), ["?"])
    return changed(single=worse, ensemble=worse, selection=worse)


def one_number() -> Run:
    return example_run(2, task="regression", classes=["age"])


def measured(task: Kind = "classification", **changes: Any) -> Run:
    return recommending(example_run(5, task=task), average=76.0, **changes)


PERCENT = "90 % interval for a new domain: 49–100 %"
MS = 17.929435617142776 * (1 + 1 / 2 + 1 / 3 + 1 / 4)
SAYS: list[tuple[Callable[[], Run], str]] = [
    (lambda: example_run(5), "a pool of heads of 4 models"),
    (lambda: example_run(5), "4 of 5 models"),
    (lambda: example_run(5), f"{MS:.1f} ms per image 11.9 million parameters"),
    (lambda: example_run(5), "1,400 images 4 domains, 7 classes"),
    (lambda: with_first(example_run(5), milliseconds=None), "11.9 M parameters"),
    (lambda: with_first(example_run(5), parameters=None), f"{MS:.1f} ms per image"),
    (lambda: measured(interval=(48.6, 99.7)), PERCENT),
    (lambda: measured(interval=(48.6, 99.7), domains=ACCURACY),
     ("Of 100 images of a new domain, expect about 76 to be classified correctly: in nine of ten "
     "new domains, between 49 and 100. The hardest of the 4 held-out domains is art_painting, "
     "with 50.0 %; the easiest is sketch, with 94.0 %.")),
    (lambda: measured("regression", interval=(-9.0, 90.0)),
     ("expect about 76 % of the variance of the labels to be predicted: in nine of ten new "
     "domains, between \N{MINUS SIGN}9 and 90 %.")),
    (lambda: measured("regression"), "explained variance on unseen domains, measured"),
    (lambda: measured("regression"), "absolute error 0.0123, mean over outputs"),
    (one_number, "absolute error 0.0123, in the units of the labels"),
    (lambda: measured("multilabel", interval=(-9.0, 90.0)),
     ("expect an average precision of about 76 %: in nine of ten new domains, between "
     "\N{MINUS SIGN}9 and 90 %.")),
    (lambda: measured("multilabel"), "exact match "),
    (failing, " The hardest class is kiwi: 25 % of its images are recognised."),
    (lambda: recommending(example_run(), choice="single", average=1.0),
     "but it is not clearly better on the training domains, which decide."),
    (tied, "the best first: Single and Ensemble."),
    (lambda: example_run(5, target=True), "With unlabelled images of each test domain, the pool"),
    (lambda: example_run(5, target=True), "On the target, expect "),
    (lambda: recommending(example_run(), choice="single", models=("model_000_imagenet",)),
     "With 4 domains, it is statistically tied with"),
    (ranked, "83.7 %"),
    (ranked, "expected accuracy on an unseen domain"),
    (ranked, ("90 % interval for a new domain: 69–98 %; the choice of the model is part of the "
     "estimate")),
    (ranked, "in nine of ten new domains, between 69 and 98."),
    (ranked, ("With 4 domains, it is statistically tied with model_001_imagenet, "
     "model_002_imagenet and model_003_imagenet.")),
    (ranked, "1st of 27 rank 90 % interval of the rank: 1–6"),
    (lambda: with_first(ranked(), tied=()), "90 % interval of its rank: 1–6."),
    (lambda: with_first(ranked(), rank_interval=(1, 1), tied=()),
     "It is clearly ahead of the other 26 models."),
    (lambda: with_first(ranked(2), rank_interval=(1, 1), tied=()),
     "It is clearly ahead of the other model."),
    (lambda: ranked(task="regression"), "expected explained variance on an unseen domain"),
    (lambda: ranked(target=True), "expected accuracy on the target"),
    (lambda: ranked(target=True), "Of 100 images of the target, expect about "),
    (lambda: ranked(target=True), "with 90 % certainty, between"),
    (lambda: ranked(1), "1st of 1 rank"),
    (lambda: replace(ranked(), ranking=None), "This run has no ranking yet."),
]  # fmt: skip


@pytest.mark.parametrize(("given", "words"), SAYS)
def test_what_is_said(given: Callable[[], Run], words: str) -> None:
    assert any(words in text for text in said(headline(given())))


SAYS_NOT: list[tuple[Callable[[], Run], str]] = [
    (lambda: with_first(example_run(5), expected_accuracy=12.3), "12.3"),
    (lambda: with_first(example_run(5), milliseconds=None), "per image"),
    (lambda: measured(interval=None), "90 % interval"),
    (lambda: example_run(5, ["only"]), "The hardest of"),
    (untied, "Within a standard error"),
    (lambda: example_run(5), "unlabelled"),
    (lambda: example_run(5), "On the target"),
    (lambda: changed(diagnosis={}), "hardest class"),
    (lambda: recommending(example_run(), choice="single", models=("model_001_imagenet",)),
     "statistically tied"),
    (lambda: replace(example_run(5, target=True),
                     evaluation=replace(of(example_run(5, target=True)),
                                        advice=(Advice("target_images", "It helps.", 4.0),))),
     "With unlabelled images"),
    (lambda: ranked(score="knn"), "part of the estimate"),
    (lambda: ranked(1), "part of the estimate"),
    (lambda: replace(ranked(), ranking=None), "rank "),
]  # fmt: skip


@pytest.mark.parametrize(("given", "words"), SAYS_NOT)
def test_what_is_not_said(given: Callable[[], Run], words: str) -> None:
    assert not any(words in text for text in said(headline(given())))


def test_a_model_that_may_rank_last_is_no_clear_winner() -> None:
    unsure = with_first(ranked(), rank_interval=(1, 27))
    text = Reader(page(unsure)).text
    assert "No clear winner: model_000_imagenet leads." in text
    assert "Use model" not in text
    assert (
        "Use model_000_imagenet." in Reader(page(with_first(ranked(), rank_interval=(1, 26)))).text
    )
    assert "Use model_000_imagenet." in Reader(page(ranked(1))).text


@pytest.mark.parametrize(
    ("choice", "models", "target", "words"),
    [
        ("pool", (0, 1, 2, 3), False, "It is saved in model/."),
        ("pool", (3, 2, 1, 0), False, "It is saved in model/."),
        ("pool", (0, 1), False, "model/ holds a pool of heads of 2 models: m0 and m1."),
        ("ensemble", (0, 1, 2, 3), False,
         "model/ holds all features of 4 models: m0, m1, m2 and m3."),
        ("single", (2,), False, "model/ holds m2."),
        ("named", (1, 2), False, "model/ holds a predictor of 2 models: m1 and m2."),
        ("pool", (0, 1, 2, 3), True, "model/ holds it, adapted to the images of the target."),
        ("pool", (4,), True, "model/ holds m4, adapted to the images of the target."),
    ],
)  # fmt: skip
def test_what_the_predictor_is(
    choice: str, models: tuple[int, ...], target: bool, words: str
) -> None:
    run = example_run(models=[f"m{at}" for at in range(5)], target=target)
    shown = headline(made(run, choice, *(f"m{at}" for at in models)))
    assert shown.remarks[0] == f"Its models are m0, m1, m2 and m3. {words}"


def test_the_predictor_without_an_evaluation() -> None:
    first, second = "model_000_imagenet", "model_001_imagenet"
    assert headline(made(ranked(), "single", first)).remarks[-1] == "It is saved in model/."
    assert headline(made(ranked(), "pool", second, first)).remarks[-1] == (
        f"model/ holds a pool of heads of 2 models: {second} and {first}. Its accuracy was not "
        "measured, which needs three domains."
    )


def test_the_commands_use_the_model_that_the_page_names() -> None:
    def commands(run: Run) -> list[str]:
        return [step.command for step in headline(run).steps]

    quoted = Run("oodzoo run", predictor=PredictorSummary("my model", ("a",), "digest"))
    assert commands(quoted) == [
        "oodzoo predict 'my model/' IMAGES/ --out predictions.csv",
        "oodzoo test 'my model/' LABELLED/ --out test.html",
        "oodzoo export 'my model/' model.onnx",
    ]
    fit, predict, *_ = commands(made(ranked(), "pool", "a", "b"))
    assert fit == "oodzoo fit store --models model_000_imagenet --out single"
    assert predict.startswith("oodzoo predict single/ ")
    for run in (made(example_run(5), "pool", "a", "b"), made(ranked(), "", "model_000_imagenet")):
        assert commands(run)[0].startswith("oodzoo predict model/ ")
    assert commands(example_run(5)) == []

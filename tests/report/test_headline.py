"""The first screen of the page."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.evaluation.data import zoo
from tests.report.example import DOMAINS, evaluation_row, example_run, without
from tests.report.reader import Reader

import oodzoo
from oodzoo.cli.evaluate import show_evaluation
from oodzoo.cli.terminal import Terminal
from oodzoo.evaluation.advice import Advice
from oodzoo.evaluation.result import Evaluation
from oodzoo.record import PredictorSummary, Run
from oodzoo.report import page
from oodzoo.report.headline import headline


def with_first(run: Run, **changes: Any) -> Run:
    """The run with other values for its top model."""
    assert run.ranking is not None
    first, *others = run.ranking.rows
    rows = (replace(first, **changes), *others)
    return replace(run, ranking=replace(run.ranking, rows=rows))


@pytest.fixture
def ranked(run: Run) -> Run:
    """The run without an evaluation, as with two domains."""
    return replace(run, evaluation=None)


def of(run: Run) -> Evaluation:
    assert run.evaluation is not None
    return run.evaluation


def recommending(run: Run, **changes: Any) -> Run:
    """The run with another recommendation."""
    best = replace(of(run).recommended, **changes)
    return replace(run, evaluation=replace(of(run), recommended=best))


# --- with an evaluation --------------------------------------------------------------------------


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
    number = headline(run).measured
    assert number is not None
    assert number.value == shown
    with Terminal() as terminal:
        show_evaluation(terminal, evaluation)
    words = f"it classifies {shown} of the images of unseen domains correctly"
    assert words in capsys.readouterr().out
    assert words in read.text


def test_the_recommended_choice(run: Run, read: Reader) -> None:
    best = of(run).recommended
    measured = f"{best.average:.1f} % accuracy on unseen domains, measured"
    assert f"Use a pool of heads of 4 models. {measured}" in read.text
    names = "model_000_imagenet, model_001_imagenet, model_002_imagenet and model_003_imagenet"
    assert headline(run).remarks[0] == f"Its models are {names}."


def test_the_expected_accuracy_of_the_top_model_is_not_in_the_headline(run: Run) -> None:
    assert run.ranking is not None
    shown = headline(with_first(run, expected_accuracy=12.3, accuracy_interval=(3.0, 45.6)))
    assert shown.measured is not None
    number = [shown.measured.value, shown.measured.interval, shown.meaning]
    text = " ".join([*number, *shown.remarks, *(t.value + t.note for t in shown.tiles)])
    assert "12" not in text.replace(",", " ").split()
    assert "12.3" not in text
    assert shown.clear


def test_tiles(run: Run) -> None:
    milliseconds = 17.929435617142776 * (1 + 1 / 2 + 1 / 3 + 1 / 4)
    assert [(tile.value, tile.label, tile.note) for tile in headline(run).tiles] == [
        ("4 of 27", "models", ""),
        (f"{milliseconds:.1f} ms", "per image", "11.9 million parameters"),
        ("1,400", "images", "4 domains, 7 classes"),
    ]


def test_cost_that_is_not_known(run: Run) -> None:
    untimed = headline(with_first(run, milliseconds=None))
    assert [tile.label for tile in untimed.tiles][1:] == ["parameters", "images"]
    assert untimed.tiles[1].value == "11.9 M"
    unsized = headline(with_first(run, parameters=None))
    assert unsized.tiles[1].label == "per image"
    assert unsized.tiles[1].note == ""
    for unknown in (
        headline(with_first(run, milliseconds=None, parameters=None)),
        headline(replace(run, ranking=None)),
    ):
        assert [tile.label for tile in unknown.tiles][1:] == ["images"]


def test_the_recommended_accuracy_is_compared(run: Run) -> None:
    evaluation = of(run)
    remark = headline(run).remarks[1]
    for name in ("Single", "Ensemble", "Selection"):
        assert f"{name} {evaluation.rows[name.lower()].average:.1f} %" in remark
    assert f"Pool in every domain has {evaluation.pool.average:.1f} %. For comparison" in remark
    assert evaluation.oracle is not None
    assert f"unknown in advance, {evaluation.oracle.average:.1f} %." in remark
    bare = headline(replace(run, evaluation=replace(evaluation, baselines={})))
    assert "best single model" not in bare.remarks[1]
    assert f"Selection {evaluation.selection.average:.1f} %." in bare.remarks[1]


def test_ways_that_are_tied_are_named_in_order(run: Run) -> None:
    evaluation = of(run)
    pool = evaluation.pool
    tied = headline(replace(run, evaluation=replace(evaluation, single=pool, ensemble=pool)))
    assert "the best first: Single and Ensemble." in tied.remarks[1]
    worse = evaluation_row(dict.fromkeys(DOMAINS, 1.0), ["?"])
    clear = replace(evaluation, single=worse, ensemble=worse, selection=worse)
    shown = headline(replace(run, evaluation=clear))
    assert "tied" not in shown.remarks[1]


def test_what_images_of_the_target_are_worth(run: Run) -> None:
    shown = headline(example_run(5, target=True))
    (remark,) = [remark for remark in shown.remarks if "unlabelled" in remark]
    pool = of(example_run(5, target=True)).with_target["pool"]
    assert remark.endswith(f"the pool reaches {pool.average:.1f} %.")
    assert not any("unlabelled" in remark for remark in headline(run).remarks)


def test_what_is_advised_is_not_remarked(run: Run) -> None:
    evaluation = of(example_run(5, target=True))
    advised = replace(evaluation, advice=(Advice("target_images", "It helps.", 4.0),))
    shown = headline(replace(run, evaluation=advised))
    assert not any("unlabelled" in remark for remark in shown.remarks)


def test_a_single_model_is_recommended(run: Run) -> None:
    shown = headline(recommending(run, choice="single", models=("model_000_imagenet",)))
    assert shown.subject == "model_000_imagenet"
    assert shown.tiles[0].value == "1 of 27"
    assert "Pool" in shown.remarks[0]
    assert shown.remarks[-1].startswith("With 4 domains, it is statistically tied with")
    other = headline(recommending(run, choice="single", models=("model_001_imagenet",)))
    assert not any("it is statistically tied" in remark for remark in other.remarks)


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
        ("pool", (0, 1, 2, 3), True,
         "model/ holds it, adapted to the images of the target."),
        ("pool", (4,), True, "model/ holds m4, adapted to the images of the target."),
    ],
)  # fmt: skip
def test_what_the_predictor_is(
    choice: str, models: tuple[int, ...], target: bool, words: str
) -> None:
    made = PredictorSummary("model", tuple(f"m{at}" for at in models), "digest", choice)
    run = example_run(models=[f"m{at}" for at in range(5)], target=target)
    remark = headline(replace(run, predictor=made)).remarks[0]
    assert remark == f"Its models are m0, m1, m2 and m3. {words}"


# --- without an evaluation -----------------------------------------------------------------------


def test_the_top_model_is_recommended(ranked: Run) -> None:
    assert ranked.ranking is not None
    best = ranked.ranking.rows[0]
    number = f"{best.expected_accuracy:.1f} % expected accuracy on an unseen domain"
    assert f"Use {best.model}. {number}" in Reader(page(ranked)).text


def test_no_model_is_recommended_if_it_may_rank_last(ranked: Run) -> None:
    unsure = with_first(ranked, rank_interval=(1, 27))
    text = Reader(page(unsure)).text
    assert "No clear winner: model_000_imagenet leads." in text
    assert "Use model" not in text
    assert not headline(unsure).clear
    assert headline(with_first(ranked, rank_interval=(1, 26))).clear


def test_the_only_model_is_recommended() -> None:
    text = Reader(page(without(example_run(1), "evaluation"))).text
    assert "Use model_000_imagenet" in text
    assert "1st of 1" in text


def test_without_a_ranking(ranked: Run) -> None:
    shown = headline(replace(ranked, ranking=None))
    assert (shown.sentence, shown.subject) == ("This run has no ranking yet.", None)
    assert [tile.label for tile in shown.tiles] == ["images"]
    assert "Use" not in Reader(page(Run("oodzoo run"))).text


def test_a_clear_winner(ranked: Run) -> None:
    clear = with_first(ranked, rank_interval=(1, 1), tied=())
    assert headline(clear).remarks[0] == "It is clearly ahead of the other 26 models."
    two = with_first(without(example_run(2), "evaluation"), rank_interval=(1, 1), tied=())
    assert headline(two).remarks[0] == "It is clearly ahead of the other model."


def test_ties(ranked: Run) -> None:
    assert headline(ranked).remarks[0] == (
        "With 4 domains, it is statistically tied with model_001_imagenet, model_002_imagenet "
        "and model_003_imagenet."
    )
    untied = with_first(ranked, tied=())
    assert headline(untied).remarks[0] == "90 % interval of its rank: 1–6."


def test_tiles_of_a_ranking(ranked: Run) -> None:
    assert [(tile.value, tile.note) for tile in headline(ranked).tiles] == [
        ("1st of 27", "90 % interval of the rank: 1–6"),
        ("1,400", "4 domains, 7 classes"),
    ]


def test_the_predictor_of_two_domains(ranked: Run) -> None:
    first, second = "model_000_imagenet", "model_001_imagenet"
    alone = PredictorSummary("model", (first,), "digest", "single")
    assert headline(replace(ranked, predictor=alone)).remarks[-1] == "It is saved in model/."
    pool = PredictorSummary("model", (second, first), "digest", "pool")
    assert headline(replace(ranked, predictor=pool)).remarks[-1] == (
        f"model/ holds a pool of heads of 2 models: {second} and {first}. Its accuracy was not "
        "measured, which needs three domains."
    )


def test_the_commands_are_those_of_the_predictor(run: Run) -> None:
    assert not headline(run).steps
    made = PredictorSummary("model", ("model_000_imagenet",), "digest", "single")
    text = Reader(page(replace(run, predictor=made))).text
    assert "What to do now" in text
    assert "oodzoo export model/ model.onnx" in text


def test_a_higher_number_is_explained(run: Run) -> None:
    evaluation = of(run)
    best = replace(evaluation.recommended, choice="single", average=1.0)
    shown = headline(replace(run, evaluation=replace(evaluation, recommended=best)))
    assert "but it is not clearly better on the training domains, which decide." in shown.remarks[1]


def test_what_to_expect_on_the_target() -> None:
    aimed = example_run(target=True)
    assert aimed.ranking is not None
    first = aimed.ranking.rows[0]
    said = f"On the target, expect {first.expected_accuracy:.1f} % of {first.model} alone"
    assert any(remark.startswith(said) for remark in headline(aimed).remarks)
    assert not any("On the target" in remark for remark in headline(example_run()).remarks)

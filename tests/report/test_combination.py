"""The section with the evaluation."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files

import pytest
from tests.report.example import DOMAINS, evaluation_row, example_run
from tests.report.reader import Reader

from oodzoo.combination.verdict import CHOICES
from oodzoo.evaluation.result import Evaluation
from oodzoo.evaluation.rows import Cell, Gain, TunedFacts, Tuning
from oodzoo.evaluation.rows import Row as EvaluationRow
from oodzoo.record import Run
from oodzoo.report import page
from oodzoo.report.blocks import Figure
from oodzoo.report.combination import combination_section, comparison, curves, methods


@pytest.fixture
def evaluation(run: Run) -> Evaluation:
    assert run.evaluation is not None
    return run.evaluation


def test_csv_equals_the_evaluation(evaluation: Evaluation, read: Reader) -> None:
    keys = {
        "Single": "single", "Pool": "pool", "Ensemble": "ensemble", "Selection": "selection",
        "Random features": "random_features", "Paper's selection": "paper_selection",
        "Oracle": "oracle", "Best by logme": "best_by_logme",
    }  # fmt: skip
    rows = [row for row in read.table("accuracy") if row["method"] != "Recommended"]
    assert {row["method"] for row in rows} == {*keys}
    for row in rows:
        given = evaluation.rows[keys[row["method"]]]
        if row["domain"] == "average":
            assert float(row["accuracy"]) == given.average
        else:
            cell = given.cells[row["domain"]]
            assert float(row["accuracy"]) == cell.accuracy
            assert tuple(row["models"].split(";")) == cell.models
            assert int(row["n_features"]) == cell.n_features
            assert float(row["milliseconds"]) == cell.milliseconds == 2.5 * len(cell.models)
            assert float(row["parameters_million"]) == 3 * len(cell.models)
    entries = evaluation.ablation.items()
    for row, (k, each) in zip(read.table("accuracy-over-k"), entries, strict=True):
        assert int(row["top_k"]) == k
        assert float(row["paper_selection"]) == each.selection.average


def test_the_cost_is_averaged_if_it_is_known_everywhere(run: Run, evaluation: Evaluation) -> None:
    first, *_ = evaluation.domains

    def row_of(cell: Cell) -> dict[str, str]:
        pool = EvaluationRow(evaluation.pool.cells | {first: cell})
        text = page(replace(run, evaluation=replace(evaluation, pool=pool)))
        rows = [row for row in Reader(text).table("accuracy") if row["method"] == "Pool"]
        assert rows[0]["domain"] == "average"
        return rows[0]

    known = row_of(replace(evaluation.pool.cells[first], milliseconds=50.0, parameters=0))
    assert float(known["milliseconds"]) == (50 + 3 * 10) / 4
    assert float(known["parameters_million"]) == 3 * 12 / 4
    unknown = row_of(replace(evaluation.pool.cells[first], milliseconds=None))
    assert unknown["milliseconds"] == ""
    assert float(unknown["parameters_million"]) == 12


def test_comparison_has_baselines_on_average_only(evaluation: Evaluation) -> None:
    groups = comparison(evaluation)
    assert list(groups) == ["Average", *DOMAINS]
    assert [lane.method.key for lane in groups["Average"]] == [
        "recommended", *CHOICES, "random_features", "paper_selection", "oracle", "best_by_logme"
    ]  # fmt: skip
    for domain in DOMAINS:
        assert [lane.method.key for lane in groups[domain]] == list(CHOICES)
        assert groups[domain][0].value == evaluation.single.cells[domain].accuracy


def test_marks_say_what_was_chosen_without_the_domain(evaluation: Evaluation) -> None:
    groups = comparison(evaluation)
    titles = [[lane.title for lane in groups[domain]] for domain in DOMAINS]
    assert titles == [
        *([["Single", "Pool (chosen)", "Ensemble", "Selection"]] * 3),
        ["Single", "Pool", "Ensemble", "Selection (chosen)"],
    ]
    assert not any(lane.chosen for lane in groups["Average"])


def test_ways_to_combine_models_have_shapes_and_colours_of_their_own() -> None:
    evaluation = example_run(5, target=True).evaluation
    assert evaluation is not None
    shown = [method for method in methods(evaluation) if method.kind != "baseline"]
    assert len({method.shape for method in shown}) == len(shown) == 6
    style = files("oodzoo.report").joinpath("page.css").read_text(encoding="utf-8")
    marks = {
        method.kind: re.search(rf"\.{method.kind}\b[^{{}}]*{{ --mark: var\((.+?)\)", style)
        for method in shown
    }
    colours = [found[1] for found in marks.values() if found]
    assert len(set(colours)) == len(marks) == 5


def test_rows_with_images_of_the_target(run: Run, evaluation: Evaluation) -> None:
    adapted = evaluation_row(dict.fromkeys(DOMAINS, 90.0), ["m"])
    more = replace(evaluation, with_target={"pool": adapted})
    groups = comparison(more)
    for name in ("Average", *DOMAINS):
        (lane,) = [lane for lane in groups[name] if lane.method.title == "Pool with target"]
        assert lane.value == 90
        assert not lane.chosen
    words = "Pool with target knows the unlabelled images of the test domain."
    assert words in combination_section(more).lead
    rows = Reader(page(replace(run, evaluation=more))).table("accuracy")
    assert [row["accuracy"] for row in rows if row["method"] == "Pool with target"] == ["90.0"] * 5
    assert words not in combination_section(evaluation).lead
    assert "with target" not in page(run)


def test_curves_follow_the_number_of_models(evaluation: Evaluation) -> None:
    ensemble, selection = curves(evaluation)
    assert (ensemble.title, selection.title) == ("Ensemble", "Paper's selection")
    assert ensemble.values == [each.ensemble.average for each in evaluation.ablation.values()]
    assert selection.values == [each.selection.average for each in evaluation.ablation.values()]


def test_baselines_keep_one_order(run: Run, evaluation: Evaluation) -> None:
    names = ["best_by_zzz", "oracle", "best_by_lda", "random_features", "best_by_h_score"]
    for order in (names, names[::-1]):
        baselines = {
            key: evaluation_row(dict.fromkeys(DOMAINS, 50.0 + at), ["m"])
            for at, key in enumerate(order)
        }
        text = page(replace(run, evaluation=replace(evaluation, baselines=baselines)))
        found = list(dict.fromkeys(line["method"] for line in Reader(text).table("accuracy")))
        assert found[5:] == [
            "Random features", "Oracle", "Best by h_score", "Best by lda", "Best by zzz"
        ]  # fmt: skip


def test_the_text_has_all_findings_but_advice(evaluation: Evaluation) -> None:
    figure = combination_section(evaluation).blocks[0]
    assert isinstance(figure, Figure)
    assert len(evaluation.findings()) > 1
    advice = [each.text for each in evaluation.advice]
    assert set(advice) & set(evaluation.findings())
    for finding in evaluation.findings():
        assert (finding in figure.text) == (finding not in advice)


@pytest.mark.parametrize(
    ("top_k", "words"),
    [
        (3, "the top 3 models"),
        (1, "the top model"),
        (dict.fromkeys(DOMAINS, 2), "the top 2 models"),
        (dict(zip(DOMAINS, (1, 2, 3, 3), strict=True)), "the top 1–3 models"),
    ],
)
def test_the_number_of_models_in_words(
    evaluation: Evaluation, top_k: int | dict[str, int], words: str
) -> None:
    lead = combination_section(replace(evaluation, top_k=top_k)).lead
    assert f"the features of {words}," in lead


def test_baselines_are_explained_if_present(evaluation: Evaluation) -> None:
    lead = combination_section(evaluation).lead
    assert "Oracle picks" in lead
    assert "“Best by X”: the top model under score X." in lead
    assert "Paper's selection keeps the informative features of the top 3 models." in lead
    lead = combination_section(replace(evaluation, baselines={})).lead
    assert "Oracle" not in lead
    assert "Paper" not in lead
    assert "Best by" not in lead


def test_the_second_metric_of_numbers_is_in_their_units() -> None:
    read = Reader(page(example_run(classes=["age"], task="regression")))
    row = read.table("explained-variance")[0]
    assert float(row["absolute_error"]) == pytest.approx(0.01234)
    assert "Absolute error<" in page(example_run(classes=["age"], task="regression"))
    assert "Values below \N{MINUS SIGN}100 % are at the edge of the chart." in read.text
    assert "Pool averages the predictions of the heads" in read.text
    assert "averages the log-odds" in Reader(page(example_run(task="multilabel"))).text


def fine_tuned(evaluation: Evaluation, *, recommended: bool) -> Evaluation:
    """The evaluation with a row of fine-tuned models."""
    values = {domain: value + 3 for domain, value in evaluation.single.measure("accuracy").items()}
    row = evaluation_row(values, evaluation.recommended.models[:1])
    facts = TunedFacts("average 0.5", 3e-5, 50.0, 75.0, "cuda")
    tuning = Tuning(Gain("pool", 3.0, 1.0, 2.0), dict.fromkeys(evaluation.domains, facts))
    best = evaluation.recommended
    if recommended:
        best = replace(
            best,
            choice="fine_tuned",
            models=best.models[:1],
            average=row.average,
            domains=values,
            choices=dict.fromkeys(values, "fine_tuned"),
        )
    return replace(evaluation, fine_tuned=row, tuning=tuning, recommended=best)


@pytest.mark.parametrize("recommended", [False, True])
def test_fine_tuned_models(run: Run, evaluation: Evaluation, recommended: bool) -> None:
    changed = fine_tuned(evaluation, recommended=recommended)
    read = Reader(page(replace(run, evaluation=changed)))
    rows = [row for row in read.table("accuracy") if row["method"] == "Fine-tuned"]
    assert [row["domain"] for row in rows] == ["average", *DOMAINS]
    assert changed.fine_tuned is not None
    assert float(rows[0]["accuracy"]) == changed.fine_tuned.average
    assert "1 min 15 s of training for a test domain, on cuda" in read.text
    text = "Fine-tuning the top model is better than that by more than a standard error"
    assert (text in read.text) == recommended
    assert "Fine_tuned" not in read.text
    assert "For the test domains: ." not in read.text
    assert ("Without each test domain, the choice is the same." in read.text) == recommended


def test_domainbed_s_rules_are_shown_side_by_side(run: Run, evaluation: Evaluation) -> None:
    rows = {"single": evaluation.single, "ensemble": evaluation.ensemble}
    by_rule = {
        "training-domain": rows | {"selection": evaluation.selection},
        "oracle": rows | {"selection": evaluation.ensemble},
    }
    searched = replace(evaluation, rule="training-domain", by_rule=by_rule)
    found = Reader(page(replace(run, evaluation=searched))).table("accuracy-by-rule")
    assert [row["rule"] for row in found] == list(by_rule)
    assert float(found[1]["selection"]) == evaluation.ensemble.average
    error = evaluation.single.error
    assert error is not None
    assert float(found[0]["single_error"]) == error["average"]

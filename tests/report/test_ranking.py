"""The section with the ranking."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.report.example import example_run
from tests.report.reader import Reader

from oodzoo.ranking.result import Ranking
from oodzoo.record import Run
from oodzoo.report import page
from oodzoo.report.blocks import Figure
from oodzoo.report.ranking import ranking_section


def ranking(n_models: int = 27, *, score: str = "unseen", target: bool = False) -> Ranking:
    found = example_run(n_models, score=score, target=target).ranking
    assert found is not None
    return found


def figure_of(shown: Ranking) -> Figure:
    (figure,) = ranking_section(shown).blocks
    assert isinstance(figure, Figure)
    return figure


def test_csv_equals_the_ranking(run: Run, read: Reader) -> None:
    assert run.ranking is not None
    for row, given in zip(read.table("ranking"), run.ranking.rows, strict=True):
        assert row["model"] == given.model
        for key in ("rank", "score", "evidence", "transfer", "milliseconds"):
            assert float(row[key]) == getattr(given, key)
        interval = (float(row["accuracy_low"]), float(row["accuracy_high"]))
        assert interval == given.accuracy_interval
        assert tuple(row["tied"].split(";")) == given.tied
        assert row["pareto_optimal"] == str(given.pareto_optimal).lower()
        assert row["licence"] == given.licence


@pytest.mark.parametrize(
    ("score", "target", "expected"),
    [
        ("unseen", False, {"evidence", "transfer"}),
        ("unseen", True, {"evidence", "transfer", "agreement"}),
        ("zood", False, {"discriminability", "stability"}),
        ("knn", False, {"evidence", "transfer"}),
    ],
)
def test_columns_are_the_terms_of_the_score(score: str, target: bool, expected: set[str]) -> None:
    run = example_run(3, score=score, target=target)
    assert run.ranking is not None
    terms = {"evidence", "transfer", "agreement", "discriminability", "stability"}
    for row, given in zip(Reader(page(run)).table("ranking"), run.ranking.rows, strict=True):
        assert terms & row.keys() == expected
        for term in expected:
            assert float(row[term]) == getattr(given, term)


@pytest.mark.parametrize(
    ("score", "bars"),
    [("unseen", ["evidence", "transfer"]), ("knn", ["score", "evidence", "transfer"])],
)
def test_each_term_has_a_bar_for_each_model(score: str, bars: list[str]) -> None:
    figure = figure_of(ranking(3, score=score))
    assert figure.chart is not None
    drawn = [a["class"] or "" for _, a in Reader(str(figure.chart.wide)).tags if "class" in a]
    found = [name.removeprefix("bar ") for name in drawn if name.startswith("bar ")]
    assert found == 3 * bars


def test_the_score_of_zood_is_a_mark_next_to_its_terms() -> None:
    figure = figure_of(ranking(3, score="zood"))
    assert figure.legend[0].text.startswith("score: discriminability + stability")
    assert figure.chart is not None
    assert str(figure.chart.wide).count('class="score"') == 3
    assert 'class="score"' not in str(figure_of(ranking(3)).chart)


def test_the_interval_is_for_a_new_domain() -> None:
    shown = ranking(3)
    low, high = shown.rows[0].accuracy_interval
    figure = figure_of(shown)
    assert f"90 % interval for a new domain: {low:.0f}–{high:.0f} %" in figure.text
    assert figure.legend[0].text == (
        "expected accuracy on an unseen domain, with the 90 % interval for a new domain"
    )


def test_how_the_accuracy_of_the_first_model_was_estimated() -> None:
    words = "estimated with the choice repeated"
    assert words in figure_of(ranking(3)).text
    assert words not in figure_of(ranking(3, score="knn")).text
    assert words not in figure_of(ranking(1)).text


def test_images_of_the_target_are_explained() -> None:
    section = ranking_section(ranking(3, target=True))
    assert "assumed to have the classes of the labelled domains" in section.lead
    figure = figure_of(ranking(3, target=True))
    assert "agreement 95.0 %" in figure.text
    assert "expected accuracy on the target" in figure.legend[0].text
    assert "target" not in ranking_section(ranking(3)).lead


def test_another_score_is_named() -> None:
    figure = figure_of(ranking(3, score="knn"))
    assert figure.title == "Models by knn"
    assert "Models are ordered by the score knn" in figure.text
    assert not any("score:" in key.text for key in figure.legend)
    assert figure_of(ranking(3)).title == "Score breakdown"


def test_models_that_are_not_ranked_are_named_with_the_reason() -> None:
    left_out = {"blip": "no logits", "wide": "too slow", "clip": "no logits"}
    section = ranking_section(replace(ranking(3), left_out=left_out))
    assert section.lead.endswith(" Not ranked: blip and clip (no logits); wide (too slow).")
    assert "Not ranked" not in ranking_section(ranking(3)).lead


def test_the_ring_is_explained_if_there_is_one(run: Run) -> None:
    assert run.ranking is not None
    assert "Pareto-optimal" in figure_of(run.ranking).legend[-1].text
    rows = tuple(replace(row, pareto_optimal=False) for row in run.ranking.rows)
    assert "Pareto-optimal" not in figure_of(replace(run.ranking, rows=rows)).legend[-1].text


def test_a_negative_metric_is_left_of_zero() -> None:
    ranking = example_run(task="regression").ranking
    assert ranking is not None
    assert ranking.rows[-1].expected_accuracy < -100  # outside the chart
    (figure,) = ranking_section(ranking).blocks
    assert isinstance(figure, Figure)
    assert figure.chart is not None
    assert "Values below \N{MINUS SIGN}100 % are at the edge of the chart." in figure.text
    drawn = str(figure.chart.wide)
    places = [
        float(x) for x in re.findall(r'<circle cx="([0-9.]+)"[^>]* class="dot expected', drawn)
    ]
    assert len(places) == len(ranking)
    zero = 760 + (946 - 760) / 2  # of a scale from -100 to 100
    for row, place in zip(ranking.rows, places, strict=True):
        expected = zero + max(row.expected_accuracy, -100) * (946 - 760) / 200
        assert place == pytest.approx(expected, abs=0.06)
    assert ">Explained variance %<" in drawn
    assert ">R² %<" in str(figure.chart.narrow)


def test_the_number_of_outputs_is_in_the_score_of_zood() -> None:
    ranking = example_run(score="zood", task="multilabel").ranking
    assert ranking is not None
    (figure,) = ranking_section(ranking).blocks
    assert isinstance(figure, Figure)
    assert "(3 × number of labels)" in figure.legend[0].text


def test_models_that_are_tied_with_the_first_are_named_in_order(run: Run) -> None:
    assert run.ranking is not None
    text = figure_of(run.ranking).text
    names = "model_001_imagenet, model_002_imagenet and model_003_imagenet"
    assert f"Statistically tied with it, in this order: {names}." in text
    first, *others = run.ranking.rows
    alone = replace(run.ranking, rows=(replace(first, tied=()), *others))
    assert "tied" not in figure_of(alone).text

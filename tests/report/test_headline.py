"""The first screen of the page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.report.example import example_run
from tests.report.reader import Reader

from oodzoo.record import Run
from oodzoo.report import page
from oodzoo.report.headline import headline


def with_first(run: Run, **changes: Any) -> Run:
    """The run with other values for its top model."""
    assert run.ranking is not None
    first, *others = run.ranking.rows
    rows = (replace(first, **changes), *others)
    return replace(run, ranking=replace(run.ranking, rows=rows))


def test_the_top_model_is_recommended(run: Run, read: Reader) -> None:
    assert run.ranking is not None
    best = run.ranking.rows[0]
    low, high = best.accuracy_interval
    interval = f"({low:.0f}–{high:.0f} %)"
    expected = f"expect about {best.expected_accuracy:.0f} % {interval} on an unseen domain."
    assert f"Use {best.model}: {expected}" in read.text


def test_no_model_is_recommended_if_it_may_rank_last(run: Run) -> None:
    changes = {"expected_accuracy": 53.2, "accuracy_interval": (40.0, 66.4)}
    unsure = with_first(run, rank_interval=(1, 27), **changes)
    text = Reader(page(unsure)).text
    expected = "leads with about 53 % (40–66 %) on an unseen domain."
    assert f"No clear winner: model_000_imagenet {expected}" in text
    assert "Use model" not in text
    assert not headline(unsure).clear
    assert headline(with_first(run, rank_interval=(1, 26))).clear


def test_the_only_model_is_recommended() -> None:
    text = Reader(page(example_run(1))).text
    assert "Use model_000_imagenet" in text
    assert "1st of 1" in text


def test_without_a_ranking(run: Run) -> None:
    shown = headline(replace(run, ranking=None))
    assert (shown.sentence, shown.model) == ("This run has no ranking yet.", None)
    assert [tile.label for tile in shown.tiles] == ["images"]
    assert "Use" not in Reader(page(Run("oodzoo run"))).text


def test_a_clear_winner(run: Run) -> None:
    clear = with_first(run, rank_interval=(1, 1), tied=())
    assert headline(clear).remarks[0] == "It is clearly ahead of the other 26 models."
    two = with_first(example_run(2), rank_interval=(1, 1), tied=())
    assert headline(two).remarks[0] == "It is clearly ahead of the other model."


def test_ties(run: Run) -> None:
    assert headline(run).remarks[0] == (
        "With 4 domains, it is statistically tied with model_001_imagenet, model_002_imagenet "
        "and model_003_imagenet."
    )
    untied = with_first(run, tied=())
    assert headline(untied).remarks[0] == "90 % interval of its rank: 1–6."


def test_the_first_finding_of_the_evaluation(run: Run) -> None:
    assert run.evaluation is not None
    assert headline(run).remarks[1] == run.evaluation.findings()[0]
    assert len(headline(replace(run, evaluation=None)).remarks) == 1


def test_with_images_of_the_target_the_accuracy_is_expected_there() -> None:
    shown = headline(example_run(3, target=True))
    assert shown.sentence.endswith("on the target.")
    assert shown.tiles[0].label == "expected accuracy on the target"


def test_the_choice_is_part_of_the_estimate_only_if_it_is_repeated() -> None:
    words = "the choice of the model is part of the estimate"
    assert headline(example_run(3)).tiles[0].note.endswith(words)
    assert words not in headline(example_run(3, score="knn")).tiles[0].note
    assert words not in headline(example_run(1)).tiles[0].note


def test_tiles(run: Run) -> None:
    assert run.evaluation is not None
    interval = "90 % interval for a new domain: 69–98 %"
    assert [(tile.value, tile.note) for tile in headline(run).tiles] == [
        ("83.7 %", f"{interval}; the choice of the model is part of the estimate"),
        ("1st of 27", "90 % interval of the rank: 1–6"),
        (f"{run.evaluation.selection.average:.1f} %", "with 21 % of the features"),
        ("1,400", "4 domains, 7 classes"),
    ]

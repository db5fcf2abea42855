"""The section with the ranking."""

from __future__ import annotations

from dataclasses import replace

from tests.report.reader import Reader

from oodzoo.record import Run
from oodzoo.report.blocks import Figure
from oodzoo.report.ranking import ranking_section


def test_csv_equals_the_ranking(run: Run, read: Reader) -> None:
    assert run.ranking is not None
    for row, given in zip(read.table("ranking"), run.ranking.rows, strict=True):
        assert row["model"] == given.model
        for key in ("rank", "score", "discriminability", "stability", "milliseconds"):
            assert float(row[key]) == getattr(given, key)
        interval = (float(row["accuracy_low"]), float(row["accuracy_high"]))
        assert interval == given.accuracy_interval
        assert tuple(row["tied"].split(";")) == given.tied
        assert row["pareto_optimal"] == str(given.pareto_optimal).lower()


def test_another_score_is_named(run: Run) -> None:
    assert run.ranking is not None
    (figure,) = ranking_section(replace(run.ranking, score="logme")).blocks
    assert isinstance(figure, Figure)
    assert "Models are ordered by the score logme" in figure.text
    assert not any("score:" in key.text for key in figure.legend)


def test_models_without_the_score_are_named(run: Run) -> None:
    assert run.ranking is not None
    section = ranking_section(replace(run.ranking, left_out={"blip": "no logits"}))
    assert section.lead.endswith("because this score is not available: blip: no logits.")


def test_the_ring_is_explained_if_there_is_one(run: Run) -> None:
    assert run.ranking is not None
    (figure,) = ranking_section(run.ranking).blocks
    assert isinstance(figure, Figure)
    assert "Pareto-optimal" in figure.legend[-1].text
    rows = tuple(replace(row, pareto_optimal=False) for row in run.ranking.rows)
    (figure,) = ranking_section(replace(run.ranking, rows=rows)).blocks
    assert isinstance(figure, Figure)
    assert "Pareto-optimal" not in figure.legend[-1].text

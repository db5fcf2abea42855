"""The section with each held-out domain."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.report.example import DOMAINS, example_run
from tests.report.reader import Reader

from oodzoo.record import Run
from oodzoo.report import page
from oodzoo.report.blocks import Figure
from oodzoo.report.domains import domain_accuracies, domains_section, term_by_domain


@pytest.mark.parametrize(
    ("score", "term"),
    [
        ("unseen", "transfer"),
        ("unseen", "accuracy"),
        ("zood", "discriminability"),
        ("zood", "stability"),
    ],
)
def test_csv_of_terms_equals_the_ranking(score: str, term: str) -> None:
    run = example_run(score=score)
    assert run.ranking is not None
    read = Reader(page(run))
    for row, given in zip(read.table(f"{term}-by-domain"), run.ranking.rows, strict=True):
        assert row.pop("model") == given.model
        assert {domain: float(value) for domain, value in row.items()} == {
            fold.domain: getattr(fold, term) for fold in given.folds
        }


def test_csv_of_accuracy(run: Run, read: Reader) -> None:
    assert run.ranking is not None
    rows = read.table("held-out-domains")
    assert {row["domain"] for row in rows} == set(DOMAINS)
    assert sum(float(row["deficit"]) for row in rows) == pytest.approx(0, abs=1e-9)
    for row in rows:
        values = [
            fold.accuracy
            for line in run.ranking.rows
            for fold in line.folds
            if fold.domain == row["domain"]
        ]
        assert float(row["mean_accuracy"]) == pytest.approx(sum(values) / len(values))
        assert float(row["highest"]) == max(values)


def test_the_hardest_domain_comes_first(run: Run) -> None:
    assert run.ranking is not None
    domains = domain_accuracies(run.ranking)
    assert [each.mean for each in domains] == sorted(each.mean for each in domains)
    figure = domains_section(run.ranking).blocks[0]
    assert isinstance(figure, Figure)
    assert figure.text.startswith(
        f"For the {len(run.ranking)} models on average, {domains[0].domain} is the hardest"
    )


def test_terms_keep_the_order_of_the_ranking() -> None:
    ranking = example_run(40).ranking
    assert ranking is not None
    data = term_by_domain(ranking, "stability")
    assert data.models == tuple(row.model for row in ranking.rows)
    assert data.values[7][2] == ranking.rows[7].folds[2].stability
    assert data.term.by_domain == "Stability on each held-out domain"


def test_domains_whose_transfer_is_not_known_have_empty_cells() -> None:
    ranking = example_run(3).ranking
    assert ranking is not None
    rows = []
    for row in ranking.rows:
        first, *others = row.folds
        rows.append(replace(row, folds=(replace(first, transfer=None), *others)))
    shown = replace(ranking, rows=tuple(rows))
    _, figure, _ = domains_section(shown).blocks
    assert isinstance(figure, Figure)
    assert figure.chart is not None
    drawing = Reader(str(figure.chart.wide))
    cells = [a for _, a in drawing.tags if a.get("class") == "heat" and "data-tip" in a]
    assert len(cells) == 3 * 3
    assert drawing.pieces.count("–") == 3
    assert [row[1] for row in figure.table.rows] == [None] * 3


def test_the_results_of_the_chosen_model_are_not_its_expected_accuracy() -> None:
    words = "its expected accuracy, for which the choice is repeated, may differ"
    for score, said in (("unseen", True), ("knn", False)):
        ranking = example_run(3, score=score).ranking
        assert ranking is not None
        figure = domains_section(ranking).blocks[0]
        assert isinstance(figure, Figure)
        assert (words in figure.text) == said


def test_a_heat_map_of_shares_does_not_start_below_zero() -> None:
    ranking = example_run(task="regression").ranking
    assert ranking is not None
    *_, figure = domains_section(ranking).blocks
    assert isinstance(figure, Figure)
    assert figure.chart is not None
    drawn = str(figure.chart.wide)
    assert ">≤ 0.0<" in drawn
    tips = re.findall(r'fill-opacity="([0-9.]+)" data-tip="[^"]*: (.)', drawn)
    assert {opacity for opacity, sign in tips if sign == "\N{MINUS SIGN}"} == {"0.04"}

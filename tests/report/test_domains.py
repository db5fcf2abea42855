"""The section with each held-out domain."""

from __future__ import annotations

import pytest
from tests.report.example import DOMAINS, example_run
from tests.report.reader import Reader

from oodzoo.record import Run
from oodzoo.report.blocks import Figure
from oodzoo.report.domains import domain_accuracies, domains_section, term_by_domain


@pytest.mark.parametrize("term", ["discriminability", "stability"])
def test_csv_of_terms_equals_the_ranking(run: Run, read: Reader, term: str) -> None:
    assert run.ranking is not None
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
    assert figure.text.startswith(f"{domains[0].domain} is the hardest held-out domain")


def test_terms_keep_the_order_of_the_ranking() -> None:
    ranking = example_run(40).ranking
    assert ranking is not None
    data = term_by_domain(ranking, "stability")
    assert data.models == tuple(row.model for row in ranking.rows)
    assert data.values[7][2] == ranking.rows[7].folds[2].stability
    assert data.title == "Stability on each held-out domain"

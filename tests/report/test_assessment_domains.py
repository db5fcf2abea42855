"""The figure of the domains of a test."""

from __future__ import annotations

from dataclasses import replace

from tests.report.assessment_example import example_test

from oodzoo.report.assessment_domains import domains_figure


def test_the_worst_domain_comes_first_and_all_last() -> None:
    result = example_test()
    figure = domains_figure(result)
    values = [row[2] for row in figure.table.rows]
    assert values[:-1] == sorted(values[:-1])
    assert [row[0] for row in figure.table.rows][-1] == "all"
    assert values[-1] == result.value
    assert {row[0]: row[-1] for row in figure.table.rows}["dawn"] == "below"
    assert f"The hardest of 3 domains is {figure.table.rows[0][0]}" in figure.text


def test_without_a_promise_nothing_is_compared() -> None:
    figure = domains_figure(replace(example_test(domains=["dawn"]), promise=None))
    assert [column.key for column in figure.table.columns][-1] == "second"
    assert len(figure.table.rows) == 1
    assert len(figure.legend) == 1
    assert figure.chart is not None
    assert "promised" not in figure.chart.wide


def test_the_chart_shows_the_promise() -> None:
    figure = domains_figure(example_test())
    assert figure.chart is not None
    for drawn in (figure.chart.wide, figure.chart.narrow):
        assert drawn.count("promised for one new domain") == 3


def test_numbers_have_errors_in_their_own_units() -> None:
    result = example_test("regression", ["age"])
    (*_, row) = domains_figure(result).table.rows
    assert row[4] == result.second
    assert "explained variance" in str(domains_figure(result).legend)

"""A ranking as a table in a notebook."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.ranking.data import simulate_models

import oodzoo
from oodzoo.ranking.result import Ranking


@pytest.fixture(scope="module")
def ranking() -> Ranking:
    return oodzoo.rank(*simulate_models({"a": 0.5, "b": 1.5}))


def columns(html: str) -> list[str]:
    head = html[html.index("<thead>") : html.index("</thead>")]
    return re.findall(r"<th [^>]*>(.*?)</th>", head)


def test_columns_are_those_of_which_something_is_known(ranking: Ranking) -> None:
    found = columns(ranking._repr_html_())
    assert found[:4] == ["rank", "rank, 90 %", "model", "unseen"]
    assert {"evidence", "transfer", "accuracy, %", "features"} <= set(found)
    assert not {"parameters", "ms / image", "Pareto", "agreement, %"} & set(found)
    rows = [replace(row, milliseconds=1.5, rank_interval=None) for row in ranking]
    found = columns(replace(ranking, rows=tuple(rows))._repr_html_())
    assert "ms / image" in found
    assert "rank, 90 %" not in found


def test_the_score_and_the_metric_are_named(ranking: Ranking) -> None:
    assert columns(replace(ranking, score="accuracy")._repr_html_()).count("accuracy, %") == 1
    assert "accuracy" not in columns(replace(ranking, score="accuracy")._repr_html_())
    found = columns(replace(ranking, score="model", task="regression")._repr_html_())
    assert found.count("model") == 2  # a score of that name keeps its column
    assert "explained variance, %" in found


def test_odd_names_are_escaped(ranking: Ranking) -> None:
    odd = "<script>alert(1)</script>"
    rows = tuple(replace(row, model=odd) for row in ranking)
    html = replace(ranking, rows=rows, score=odd, left_out={odd: "slow"})._repr_html_()
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 4


def test_long_and_empty_rankings(ranking: Ranking) -> None:
    many = replace(ranking, rows=ranking.rows * 20)._repr_html_()
    assert "… 10 more rows" in many
    assert ranking[:0]._repr_html_().count("<tr>") == 1

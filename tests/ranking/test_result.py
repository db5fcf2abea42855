"""A ranking as text, as JSON, as a table and as a plot."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.ranking.data import simulate_models

import oodzoo
from oodzoo.ranking.result import Ranking


@pytest.fixture(scope="module")
def ranking() -> Ranking:
    return oodzoo.rank(*simulate_models({"a": 0.5, "b": 1.5}))


def test_text_has_one_line_per_model(ranking: Ranking) -> None:
    heading, first, second = str(ranking).splitlines()
    row = ranking.rows[0]
    low, high = row.accuracy_interval
    assert heading.split() == ["rank", "model", "unseen", "accuracy", "%", "90", "%"]
    numbers = [f"{row.score:.3f}", f"{row.expected_accuracy:.1f}", f"{low:.0f}-{high:.0f}"]
    assert first.split() == ["1", "a", *numbers]
    assert second.split()[:2] == ["2", "b"]
    assert (len(ranking), ranking.best) == (2, "a")


@pytest.mark.parametrize("score", ["zood", "logme"])
def test_json_is_restored(score: str) -> None:
    ranking = oodzoo.rank(*simulate_models({"a": 0.5, "b": 1.5}), score=score)
    document = json.loads(json.dumps(ranking.to_dict()))
    assert Ranking.from_dict(document) == ranking
    assert [fold["domain"] for fold in document["ranking"][0]["folds"]] == ["d0", "d1", "d2", "d3"]


def test_damaged_json(ranking: Ranking) -> None:
    document = ranking.to_dict()
    del document["ranking"][1]["score"]
    with pytest.raises(oodzoo.InputError, match=r"the ranking is damaged: .*`score`"):
        Ranking.from_dict(document)


def test_frame(ranking: Ranking) -> None:
    pytest.importorskip("pandas", reason="pandas is an extra")
    frame = ranking.to_frame()
    assert list(frame["model"]) == ["a", "b"]
    assert "accuracy d0" in frame.columns


def test_plot(ranking: Ranking) -> None:
    assert all(f">{row.model}</text>" in ranking.plot().svg for row in ranking)


def test_text_names_another_metric_than_accuracy(ranking: Ranking) -> None:
    numbers = replace(ranking, task="regression")
    assert "explained variance %" in str(numbers).splitlines()[0]
    assert "b/expected_explained_variance" in numbers.metrics


def test_a_ranking_is_a_sequence_of_rows(ranking: Ranking) -> None:
    assert list(ranking) == list(ranking.rows)
    assert [ranking[at] for at in range(len(ranking))] == list(ranking)
    assert ranking[-1] is ranking.rows[-1]
    assert all(ranking[row.model] is row for row in ranking)
    assert "a" in ranking
    assert ranking[0] in ranking
    assert "c" not in ranking
    assert 0 not in ranking


@pytest.mark.parametrize("part", [slice(1), slice(1, None), slice(None, None, -1), slice(0)])
def test_a_slice_is_a_ranking(ranking: Ranking, part: slice) -> None:
    found = ranking[part]
    assert isinstance(found, Ranking)
    assert found.rows == ranking.rows[part]
    assert (found.score, found.task) == (ranking.score, ranking.task)
    assert len(str(found).splitlines()) == 1 + len(found)
    assert len(repr(found)) < 400


def test_what_is_not_in_the_ranking_is_named(ranking: Ranking) -> None:
    with pytest.raises(KeyError, match="the ranking has no model 'c'; it has a, b"):
        ranking["c"]
    with pytest.raises(IndexError, match="no position 2 in a ranking of 2 models"):
        ranking[2]
    slow = replace(ranking, left_out={"c": "it takes 99 ms"})
    with pytest.raises(KeyError, match="model 'c' is not ranked: it takes 99 ms"):
        slow["c"]


def test_repr_is_short_whatever_the_names(ranking: Ranking) -> None:
    best = ranking.rows[0]
    assert repr(ranking).startswith(f"Ranking(2 models by unseen: 1 a {best.expected_accuracy:.1f}")
    rows = tuple(replace(best, model="name\n" * 99) for _ in range(50))
    assert len(repr(replace(ranking, rows=rows, score="score" * 99))) < 400
    assert "\n" not in repr(replace(ranking, rows=rows))

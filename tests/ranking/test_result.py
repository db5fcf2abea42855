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
    first, second = str(ranking).splitlines()
    row = ranking.rows[0]
    assert first.split() == ["1", "a", f"{row.score:.4f}", f"{row.expected_accuracy:.1f}", "%"]
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
    pytest.importorskip("matplotlib", reason="matplotlib is an extra")
    assert len(ranking.plot().axes) >= 3


def test_text_names_another_metric_than_accuracy(ranking: Ranking) -> None:
    numbers = replace(ranking, task="regression")
    row = ranking.rows[0]
    assert (
        str(numbers).splitlines()[0].endswith(f"{row.expected_accuracy:.1f} % explained variance")
    )
    assert "b/expected_explained_variance" in numbers.metrics

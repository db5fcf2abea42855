"""The section with the best layer of each network."""

from __future__ import annotations

from dataclasses import replace

from tests.report.reader import Reader

from oodzoo.record import Run
from oodzoo.report import page


def _page(run: Run, *names: str) -> Reader:
    assert run.ranking is not None
    pairs = zip(run.ranking.rows, names, strict=False)
    rows = tuple(replace(row, model=name, tied=()) for row, name in pairs)
    return Reader(page(Run("oodzoo run", ranking=replace(run.ranking, rows=rows, left_out={}))))


def test_the_best_layer_of_each_network(run: Run) -> None:
    read = _page(run, "vit@blocks.8", "net@a<b", "vit", "other")
    assert run.ranking is not None
    first, _, third, *_ = run.ranking.rows
    (row,) = read.table("layers")
    assert (row["network"], row["layers"], row["best_layer"]) == ("vit", "2", "blocks.8")
    assert (row["rank"], row["own_rank"]) == (str(first.rank), str(third.rank))
    assert float(row["expected_accuracy"]) == first.expected_accuracy
    assert float(row["own_expected_accuracy"]) == third.expected_accuracy
    assert row["all_layers"] == "blocks.8, own features"
    assert "of 1 network; in 1, an inner layer ranks above all others" in read.text


def test_a_network_without_its_own_features(run: Run) -> None:
    read = _page(run, "net", "vit@blocks.8", "net@x", "vit@blocks.4-mean")
    own, inner = read.table("layers")
    assert (own["network"], own["best_layer"], own["own_rank"]) == ("net", "own features", "1")
    assert (inner["best_layer"], inner["own_rank"]) == ("blocks.8", "")
    assert "of 2 networks; in 1," in read.text


def test_without_layers_there_is_no_section(run: Run) -> None:
    assert "Best layer per network" not in _page(run, "a", "b@x", "c").text

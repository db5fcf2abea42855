"""The sections with the ranking, the layers of a network and each held-out domain."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.report.example import DOMAINS, example_run
from tests.report.reader import Reader

import oodzoo
from oodzoo.ranking.result import Ranking
from oodzoo.report import page
from oodzoo.report.ranking import choice_is_repeated, domain_terms, terms_of
from oodzoo.report.record import DataSummary, Run

ZOOD = ["discriminability", "stability"]
DEFAULT = ["evidence", "transfer"]


def ranking(n_models: int = 3, **options: Any) -> Ranking:
    found = example_run(n_models, **options).ranking
    assert found is not None
    return found


def shown(found: Ranking) -> Reader:
    return Reader(page(Run("oodzoo run", ranking=found)))


def chart(read: str, title: str) -> str:
    """The wide drawing whose label begins with a title."""
    found = re.search(rf'<svg [^>]*aria-label="{re.escape(title)}.*?</svg>', read, re.DOTALL)
    assert found is not None
    return found[0]


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
    ("score", "target", "terms", "by_domain"),
    [
        ("unseen", False, DEFAULT, ["transfer", "accuracy"]),
        ("transfer", False, DEFAULT, ["transfer", "accuracy"]),
        ("logme", False, DEFAULT, ["transfer", "accuracy"]),  # it is the evidence
        ("accuracy", False, DEFAULT, ["transfer", "accuracy"]),
        ("zood", False, ZOOD, ZOOD),
        ("discriminability", False, ZOOD, ZOOD),
        ("stability", False, ZOOD, ZOOD),
        ("balanced_accuracy", False, ["score", *DEFAULT], ["transfer", "accuracy"]),
        ("knn", False, ["score", *DEFAULT], ["transfer", "accuracy"]),
        ("unseen", True, [*DEFAULT, "agreement"], ["transfer", "accuracy"]),
    ],
)
def test_terms_of_a_score(score: str, target: bool, terms: list[str], by_domain: list[str]) -> None:
    found = ranking(score=score, target=target)
    assert [term.name for term in terms_of(found)] == terms
    assert [term.name for term in domain_terms(found)] == by_domain
    text = page(Run("oodzoo run", ranking=found))
    bars = re.findall(r'class="bar (\w+)"', chart(text, "Ranking of the models"))
    assert bars == 3 * terms
    read = Reader(text)
    for row, given in zip(read.table("ranking"), found.rows, strict=True):
        for term in terms:
            assert float(row[term]) == getattr(given, term)
    for term in by_domain:
        for row, given in zip(read.table(f"{term}-by-domain"), found.rows, strict=True):
            assert row.pop("model") == given.model
            values = {fold.domain: getattr(fold, term) for fold in given.folds}
            assert {domain: float(value) for domain, value in row.items()} == values


def with_first(found: Ranking, **changes: Any) -> Ranking:
    first, *others = found.rows
    return replace(found, rows=(replace(first, **changes), *others))


def without_rings(found: Ranking) -> Ranking:
    return replace(found, rows=tuple(replace(row, pareto_optimal=False) for row in found.rows))


LEFT_OUT = {"blip": "no logits", "wide": "too slow", "clip": "no logits"}
SENTENCES: list[tuple[str, Callable[[], Ranking], str]] = [
    ("yes", lambda: replace(ranking(), left_out=LEFT_OUT),
     "Not ranked: blip and clip (no logits); wide (too slow)."),
    ("no", ranking, "Not ranked"),
    ("yes", ranking, "estimated with the choice repeated"),
    ("no", lambda: ranking(score="knn"), "estimated with the choice repeated"),
    ("no", lambda: ranking(1), "estimated with the choice repeated"),
    ("yes", ranking, "for which the choice is repeated, may differ"),
    ("no", lambda: ranking(score="knn"), "for which the choice is repeated, may differ"),
    ("yes", lambda: ranking(target=True), "assumed to have the classes of the labelled domains"),
    ("no", ranking, "on the target"),
    ("yes", lambda: ranking(score="knn"), "Models are ordered by the score knn"),
    ("yes", ranking, "ring: Pareto-optimal"),
    ("no", lambda: without_rings(ranking()), "ring: Pareto-optimal"),
    ("yes", ranking,
     "tied with it, in this order: model_001_imagenet and model_002_imagenet."),
    ("no", lambda: with_first(ranking(), tied=()), "tied with it"),
    ("yes", lambda: ranking(score="zood"), "stability / (3 × number of classes)"),
    ("yes", lambda: ranking(score="zood", task="multilabel"), "(3 × number of labels)"),
    ("yes", lambda: replace(ranking(), domains_proposed="camera"), "proposed by camera, not given"),
    ("no", ranking, "not given"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "given", "words"), SENTENCES)
def test_what_is_said(said: str, given: Callable[[], Ranking], words: str) -> None:
    assert (words in shown(given()).text) == (said == "yes")


def test_domains_of_the_data_that_are_proposed(run: Run) -> None:
    data = DataSummary("photos", "f", 1, ("cat",), {"canon": {"cat": 1}}, domains_proposed="make")
    assert "proposed by make, not given" in Reader(page(Run("oodzoo run", data=data))).text


@pytest.mark.parametrize(("score", "repeated"), [("zood", True), ("knn", False)])
def test_the_choice_is_said_to_be_repeated_only_if_it_is(score: str, repeated: bool) -> None:
    """Each of two models is the better one on one domain: without it, the other one is chosen."""
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1], 60), np.repeat(["a", "b", "c"], 40)
    clear = np.stack([y, 1 - y], 1)
    noise = {"x": np.repeat([0.2, 2.0, 0.8], 40), "y": np.repeat([2.0, 0.2, 0.8], 40)}
    features = {
        name: clear + size[:, None] * rng.normal(size=(120, 2)) for name, size in noise.items()
    }
    found = oodzoo.rank(features, y, domains, score=score)
    first = found.rows[0]
    own = np.mean([fold.accuracy for fold in first.folds])
    assert (first.expected_accuracy != pytest.approx(own)) == repeated
    assert choice_is_repeated(found) == repeated


def test_a_negative_metric_is_left_of_zero() -> None:
    found = ranking(27, task="regression")
    assert found.rows[-1].expected_accuracy < -100  # outside the chart
    text = page(Run("oodzoo run", ranking=found))
    assert "are at the edge of the chart." in text
    drawn = chart(text, "Ranking of the models")
    places = [
        float(x) for x in re.findall(r'<circle cx="([0-9.]+)"[^>]* class="dot expected', drawn)
    ]
    assert len(places) == len(found)
    zero = 760 + (946 - 760) / 2  # of a scale from -100 to 100
    for row, place in zip(found.rows, places, strict=True):
        expected = zero + max(row.expected_accuracy, -100) * (946 - 760) / 200
        assert place == pytest.approx(expected, abs=0.06)


# --- layers --------------------------------------------------------------------------------------


def of_layers(*names: str) -> Reader:
    found = ranking(4)
    rows = [replace(row, model=name, tied=()) for row, name in zip(found.rows, names, strict=False)]
    return shown(replace(found, rows=tuple(rows)))


def test_the_best_layer_of_each_network() -> None:
    first, _, third, _ = ranking(4).rows
    (row,) = of_layers("vit@blocks.8", "net@a<b", "vit", "other").table("layers")
    assert (row["network"], row["layers"], row["best_layer"]) == ("vit", "2", "blocks.8")
    assert (row["rank"], row["own_rank"]) == (str(first.rank), str(third.rank))
    assert float(row["expected_accuracy"]) == first.expected_accuracy
    assert float(row["own_expected_accuracy"]) == third.expected_accuracy
    assert row["all_layers"] == "blocks.8, own features"
    read = of_layers("net", "vit@blocks.8", "net@x", "vit@blocks.4-mean")
    own, inner = read.table("layers")
    assert (own["network"], own["best_layer"], own["own_rank"]) == ("net", "own features", "1")
    assert (inner["best_layer"], inner["own_rank"]) == ("blocks.8", "")
    assert "of 2 networks; in 1," in read.text
    assert "Best layer per network" not in of_layers("a", "b@x", "c").text


# --- each domain ---------------------------------------------------------------------------------


def test_csv_of_accuracy(run: Run, read: Reader) -> None:
    assert run.ranking is not None
    rows = read.table("held-out-domains")
    assert {row["domain"] for row in rows} == set(DOMAINS)
    means = [float(row["mean_accuracy"]) for row in rows]
    assert means == sorted(means)  # the hardest first
    assert sum(float(row["deficit"]) for row in rows) == pytest.approx(0, abs=1e-9)
    for row in rows:
        values = [
            fold.accuracy
            for line in run.ranking.rows
            for fold in line.folds
            if fold.domain == row["domain"]
        ]
        assert float(row["mean_accuracy"]) == pytest.approx(sum(values) / len(values))
        assert (float(row["lowest"]), float(row["highest"])) == (min(values), max(values))


@pytest.mark.parametrize(("unknown", "cells"), [(1, 9), (4, None)])
def test_cells_of_unknown_transfer_are_empty(unknown: int, cells: int | None) -> None:
    found = ranking()
    rows = [
        replace(
            row,
            folds=tuple(
                replace(fold, transfer=None) if at < unknown else fold
                for at, fold in enumerate(row.folds)
            ),
        )
        for row in found.rows
    ]
    text = page(Run("oodzoo run", ranking=replace(found, rows=tuple(rows))))
    if cells is None:  # no column is left
        assert "transfer-by-domain" not in text
        return
    drawn = chart(text, "Transfer into each domain")
    assert len(re.findall(r'class="heat"[^>]*data-tip', drawn)) == cells
    assert drawn.count(">–<") == 3
    assert [row["art_painting"] for row in Reader(text).table("transfer-by-domain")] == [""] * 3


def test_a_heat_map_of_shares_does_not_start_below_zero() -> None:
    text = page(Run("oodzoo run", ranking=ranking(27, task="regression")))
    drawn = chart(text, "Explained variance by model and held-out domain")
    assert ">≤ 0.0<" in drawn
    tips = re.findall(r'fill-opacity="([0-9.]+)" data-tip="[^"]*: (.)', drawn)
    assert {opacity for opacity, sign in tips if sign == "\N{MINUS SIGN}"} == {"0.04"}

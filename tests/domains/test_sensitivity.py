"""Comparison of rankings by several proposals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.stats import weightedtau
from tests.domains.conftest import Hidden

import oodzoo
from oodzoo.domains.proposing import compare_rankings, rank_by_each
from oodzoo.domains.result import Sensitivity
from oodzoo.errors import InputError
from oodzoo.ranking.result import Ranking
from oodzoo.store.feature_store import FeatureStore

RNG = np.random.default_rng(0)


def ranking(scores: dict[str, float]) -> Ranking:
    """A ranking of models by given scores."""
    y, domains = np.tile([0, 1], 20), np.repeat(["a", "b"], 20)
    base = oodzoo.rank({m: RNG.normal(size=(40, 2)) for m in scores}, y, domains)
    order = sorted(scores, key=lambda model: -scores[model])
    rows = {row.model: row for row in base.rows}
    made = [
        dataclasses.replace(rows[model], rank=number + 1, score=scores[model])
        for number, model in enumerate(order)
    ]
    return dataclasses.replace(base, rows=tuple(made))


def compared() -> Sensitivity:
    return compare_rankings(
        {
            "camera": ranking({"x": 3, "y": 2, "z": 1}),
            "site": ranking({"x": 3, "y": 1, "z": 2}),
            "clusters:2": ranking({"x": 1, "y": 3, "z": 2}),
            "random:2": ranking({"x": 1, "y": 2, "z": 3}),
        },
        "camera",
        reference="random:2",
    )


def test_agreement_is_the_weighted_tau() -> None:
    found = compared().agreement
    for name, scores in {"site": [3, 1, 2], "clusters:2": [1, 3, 2], "random:2": [1, 2, 3]}.items():
        assert found[name] == pytest.approx(weightedtau([3, 2, 1], scores).statistic)


def test_first_models_and_ranks_leave_the_random_split_out() -> None:
    found = compared()
    assert found.first == {"camera": "x", "site": "x", "clusters:2": "y", "random:2": "z"}
    assert found.firsts == {"x": 2, "y": 1}
    assert found.ranks == {"x": (1, 3), "y": (1, 3), "z": (2, 3)}
    assert found.verdict == "The first model, x, is the same under 2 of 3 proposals."


def test_verdicts_of_one_and_of_equal_proposals() -> None:
    same, random = ranking({"x": 2, "y": 1}), ranking({"x": 1, "y": 2})
    one = compare_rankings({"a": same, "r": random}, "a", reference="r")
    assert one.verdict == "There is one proposal, a: nothing to compare its ranking with."
    two = compare_rankings({"a": same, "b": same, "r": random}, "a", reference="r")
    assert two.verdict == "The first model, x, is the same under all 2 proposals."


def test_a_proposal_that_cannot_be_ranked_by_is_named(hidden: Hidden) -> None:
    store = FeatureStore(hidden.path)
    paths = [path for domain in store.table.labelled for path in domain.paths]
    halves = {path: "ab"[at % 4 // 2] for at, path in enumerate(paths)}
    views = {
        "halves": store.with_table(store.table.regrouped(halves, "halves")),
        "one": store,
    }
    found = rank_by_each(views, "halves", reference="random")
    assert found.failed.keys() == {"one"}
    assert "at least 2 domains" in found.failed["one"]
    with pytest.raises(InputError, match="at least 2 domains"):
        rank_by_each(views, "one", reference="random")

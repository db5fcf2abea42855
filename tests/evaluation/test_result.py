"""Results of an evaluation in words, tables and JSON; constructed, so that each sentence occurs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from oodzoo.combining.evaluation import Evaluation
from oodzoo.combining.evaluation.recommended import (
    Recommended,
    chosen_otherwise,
    compared,
    described,
    limits_as_options,
)
from oodzoo.combining.evaluation.result import rows_as_html, rows_as_text
from oodzoo.combining.evaluation.rows import Aggregation, Cell, Measures, Row
from oodzoo.core.errors import InputError


def row(*accuracies: float) -> Row:
    return Row(
        {
            f"d{at}": Cell((Measures(value, value - 1, 2.0),), ("m",), 4)
            for at, value in enumerate(accuracies)
        }
    )


def recommended(**changes: Any) -> Recommended:
    fixed: dict[str, Any] = {
        "choice": "pool",
        "models": ("m", "n"),
        "average": 88.0,
        "interval": (70.5, 100.0),
        "domains": {"d0": 86.0, "d1": 90.0},
        "choices": {"d0": "pool", "d1": "single"},
        "estimates": {"single": 80.0, "pool": 90.0},
    }
    return Recommended(**fixed | changes)


def evaluation(**changes: Any) -> Evaluation:
    fixed: dict[str, Any] = {
        "protocol": "fast",
        "score": "zood",
        "top_k": 3,
        "trials": 1,
        "domains": ("d0", "d1"),
        "recommended": recommended(),
        "single": row(80.0, 90.0),
        "pool": row(86.0, 91.0),
        "ensemble": row(85.0, 90.0),
        "selection": row(84.0, 90.0),
        "feature_ratio": {"d0": 0.25, "d1": 0.5},
    }
    return Evaluation(**fixed | changes)


# --- rows ----------------------------------------------------------------------------------------


def test_rows_and_aggregations_survive_json() -> None:
    cells = row(80.5, 1 / 3).cells
    cells["d1"] = replace(cells["d1"], milliseconds=2.5, parameters=7)
    one = Row(cells)
    document = json.loads(json.dumps(one.to_dict()))
    assert document["trials"] == {"d0": [[80.5, 79.5, 2.0]], "d1": [[1 / 3, 1 / 3 - 1, 2.0]]}
    assert document["milliseconds"] == {"d0": None, "d1": 2.5}
    assert document["parameters"] == {"d0": None, "d1": 7}
    assert Row.from_dict(document) == one
    both = Aggregation(one, row(3.0, 4.0), {"d0": 0.5, "d1": 1.0})
    assert Aggregation.from_dict(json.loads(json.dumps(both.to_dict()))) == both
    with pytest.raises(InputError, match="the evaluation"):
        Row.from_dict(document | {"trials": {"d0": [["high", 1.0, 2.0]]}})


def test_tables_of_rows() -> None:
    rows = {"pool": row(80.0, 90.0), "best_by_<b>": row(50.0, 51.0)}
    html = rows_as_html(rows, "classification", ["a < b"])
    cells = [re.findall(r"<t[hd] [^>]*>(.*?)</t", line) for line in html.splitlines()]
    assert [each for each in cells if each] == [
        ["", "average", "d0", "d1"],
        ["pool", "85.0", "80.0", "90.0"],
        ["best_by_&lt;b&gt;", "50.5", "50.0", "51.0"],
    ]
    assert "Accuracy %" in html
    assert html.endswith("<p>a &lt; b</p>")
    assert rows_as_text({"pool": rows["pool"]}, "classification", ["A note."]).splitlines() == [
        "accuracy %  average    d0    d1",
        "pool           85.0  80.0  90.0",
        "A note.",
    ]
    many = rows_as_text({"pool": row(*range(80, 92))}, "regression", [])
    assert many.splitlines() == ["explained variance %  average", "pool                     85.5"]


# --- what is recommended -------------------------------------------------------------------------


def test_what_is_recommended_in_words() -> None:
    expected = {
        ("single", ("m",)): "m",
        ("pool", ("m",)): "m",
        ("pool", ("m", "n")): "a pool of heads of 2 models",
        ("ensemble", ("m", "n", "o")): "all features of 3 models",
        ("selection", ("m", "n")): "the features selected from 2 models",
    }
    for (choice, models), words in expected.items():
        assert described(choice, models) == words
        best = recommended(choice=choice, models=models)
        line = evaluation(recommended=best).findings()[0]
        assert line.startswith(f"Recommended: {words}. ")
        assert f"{choice.capitalize()} " not in line  # its own row is not compared with it
        assert line.count(" %") == 4
    assert recommended(models=("a",)).brief.startswith("single a, ")
    assert limits_as_options(recommended()) == ""
    limited = recommended(max_models=3, max_ms=12.5)
    assert limits_as_options(limited) == "--max-models 3, --max-ms 12.5"
    names = [f"d{at}" for at in range(9)]
    choices = dict.fromkeys(names, "single") | {"d0": "pool"}
    best = recommended(domains=dict.fromkeys(names, 88.0), choices=choices)
    assert chosen_otherwise(best, 90.0).startswith("For 8 of 9 domains, another way was chosen")
    assert chosen_otherwise(best, 88.04) == ""  # shown as the same number
    assert compared(80.0, 78.5) == "1.5 points above"
    assert compared(78.5, 80.0) == "1.5 points below"
    assert compared(80.04, 79.96) == "equal to"  # both are shown as 80.0


def test_damaged_recommendations_are_rejected() -> None:
    document = evaluation().to_dict()
    broken = document | {"recommended": document["recommended"] | {"average": "high"}}
    with pytest.raises(InputError, match="the evaluation"):
        Evaluation.from_dict(broken)
    for changes, says in (
        ({"choice": "best"}, r"a choice must be one of single, pool, .* got 'best'"),
        ({"choices": {"d0": "pool", "d1": "none"}}, "got 'none'"),
        ({"choices": {"d0": "pool"}}, "of the same domains"),
    ):
        with pytest.raises(ValueError, match=says):
            recommended(**changes)


# --- findings ------------------------------------------------------------------------------------


def test_findings() -> None:
    baselines = {"random_features": row(82.0, 90.0), "oracle": row(90.0, 91.0)}
    found = evaluation(baselines=baselines, with_target={"pool": row(91.0, 92.0)}).findings()
    assert found == [
        (
            "Recommended: a pool of heads of 2 models. Chosen in the same way without each domain, "
            "it classifies 88.0 % of the images of unseen domains correctly (Single 85.0 %, "
            "Ensemble 87.5 %, Selection 87.0 %)."
        ),
        (
            "That is 2.5 points below the best single model on each test domain (90.5 %), which is "
            "unknown in advance."
        ),
        (
            "For d1, another way was chosen without it, and the choice is part of what is "
            "measured; Pool in every domain has 88.5 %."
        ),
        "With unlabelled images of each test domain, the pool reaches 91.5 %.",
        "Selection keeps 38 % of the features, 1.0 points above as many random ones (86.0 %).",
    ]
    assert evaluation().findings() == [found[0], found[2]]
    same = recommended(choices={"d0": "pool", "d1": "pool"})
    assert evaluation(recommended=same).findings() == [found[0]]
    equal = {"random_features": row(84.04, 90.0), "oracle": row(86.0, 90.0)}
    _, oracle, _, random = evaluation(baselines=equal).findings()
    assert oracle.startswith("That is equal to the best single model")
    assert "of the features, equal to as many random ones (87.0 %)" in random
    assert evaluation(unseen={"d0": ("x",), "d1": ("y", "z")}).findings()[2:] == [
        "The class 'x' occurs only in domain 'd0' and is always misclassified there.",
        "The classes 'y', 'z' occur only in domain 'd1' and are always misclassified there.",
    ]


def test_numbers_that_are_predicted_worse_than_by_their_mean() -> None:
    domains = {"d0": -86.0, "d1": 20.0}
    bad = evaluation(task="regression", recommended=recommended(domains=domains, average=-33.0))
    assert bad.caution.startswith("In the domain 'd0', and on average it is worse than predicting")
    assert bad.caution in bad.findings()
    better = recommended(domains={"d0": -2.0, "d1": 50.0}, average=24.0)
    assert "on average" not in evaluation(task="regression", recommended=better).caution
    assert evaluation(task="regression").caution == ""
    assert evaluation(recommended=recommended(domains=domains)).caution == ""


# --- a mapping, and what notebooks show ----------------------------------------------------------


def test_an_evaluation_is_a_mapping_of_rows() -> None:
    found = evaluation(baselines={"oracle": row(90.0, 95.0)}, with_target={"pool": row(88.0, 92.0)})
    names = ["single", "pool", "ensemble", "selection", "pool_with_target", "oracle"]
    assert (list(found), len(found)) == (names, 6)
    assert {name: found[name] for name in found} == found.rows
    assert found.oracle == row(90.0, 95.0)
    assert evaluation().oracle is None
    assert ("oracle" in found, "recommended" in found) == (True, False)
    with pytest.raises(KeyError, match="the evaluation has no row 'orakel'; did you mean oracle"):
        found["orakel"]
    for name, line in zip(found.rows, str(found).splitlines()[2:], strict=False):
        assert line.split()[:2] == [name, f"{found.rows[name].average:.1f}"]
    drawn = found.plot().svg
    assert all(f">{name}</text>" in drawn for name in ("d0", "d1", "Pool"))


def test_what_notebooks_show_is_short_whatever_the_names() -> None:
    found = row(80.0, 90.0)
    assert repr(found) == "Row(accuracy 85.0 %: d0 80.0, d1 90.0)"
    assert repr(found.cells["d0"]).startswith("Cell(80.0 %: ")
    assert found._repr_html_().count("<tr>") == 3
    long = Row({f"<domain {at}>" * 30: found.cells["d0"] for at in range(40)})
    assert len(repr(long)) < 400
    assert "<domain" not in long._repr_html_()
    assert repr(evaluation()) == (
        "Evaluation(2 test domains: recommended pool of 2 models, 88.0 %; single 85.0, pool 88.5, "
        "ensemble 87.5, selection 87.0 %)"
    )
    assert repr(recommended()) == "Recommended(pool of 2 models, 88.0 %)"
    odd = evaluation(recommended=recommended(choice="single", models=("<b>\n" * 99,)))
    assert len(repr(odd)) < 400
    html = odd._repr_html_()
    assert html.count("<tr>") == 2 + len(odd)
    assert html.count("<p>") == len(odd.findings())
    assert "<b>" not in html

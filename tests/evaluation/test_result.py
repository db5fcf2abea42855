"""Results of an evaluation: JSON, data frame and findings."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import task_zoo, zoo
from tests.evaluation.test_rows import row

import oodzoo
from oodzoo.combining.evaluation import Evaluation
from oodzoo.combining.evaluation.recommended import Recommended, described
from oodzoo.core.errors import InputError
from oodzoo.tasks import Kind, Task


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


@pytest.mark.parametrize(("top_k", "trials"), [(2, 1), ((1, 2), 2), ("auto", 1)])
def test_an_evaluation_survives_json(top_k: Any, trials: int) -> None:
    features, y, domains = zoo(n=21, n_domains=3)
    y[np.flatnonzero(domains == "d0")[:5]] = 7
    result = oodzoo.evaluate(
        features, y, domains, top_k=top_k, trials=trials, baselines=["logme"], with_target=True
    )
    document = json.loads(json.dumps(result.to_dict()))
    assert document["unseen"] == {"d0": ["7"]}
    assert document["recommended"]["average"] == result.recommended.average
    assert document["with_target"]["pool"]["average"] == result.with_target["pool"].average
    assert document["baselines"] == list(result.baselines)
    assert "outputs" not in document["single"]
    again = Evaluation.from_dict(document)
    assert again == result
    assert again.to_dict() == result.to_dict()


def test_a_damaged_recommendation_is_rejected() -> None:
    document = evaluation().to_dict()
    broken = document | {"recommended": document["recommended"] | {"average": "high"}}
    with pytest.raises(InputError, match="the evaluation"):
        Evaluation.from_dict(broken)
    with pytest.raises(ValueError, match=r"a choice must be one of single, pool, .* got 'best'"):
        recommended(choice="best")
    with pytest.raises(ValueError, match="got 'none'"):
        recommended(choices={"d0": "pool", "d1": "none"})
    with pytest.raises(ValueError, match="of the same domains"):
        recommended(choices={"d0": "pool"})


def test_findings_name_the_recommendation_and_compare_it() -> None:
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


@pytest.mark.parametrize(
    ("choice", "models", "words"),
    [
        ("single", ("m",), "m"),
        ("pool", ("m",), "m"),
        ("pool", ("m", "n"), "a pool of heads of 2 models"),
        ("ensemble", ("m", "n", "o"), "all features of 3 models"),
        ("selection", ("m", "n"), "the features selected from 2 models"),
    ],
)
def test_the_recommendation_is_described(choice: str, models: tuple[str, ...], words: str) -> None:
    assert described(choice, models) == words
    line = evaluation(recommended=recommended(choice=choice, models=models)).findings()[0]
    assert line.startswith(f"Recommended: {words}. ")
    assert f"{choice.capitalize()} " not in line  # its own row is not compared with it
    assert line.count(" %") == 4


def test_findings_name_ties_and_classes_of_one_domain() -> None:
    baselines = {"random_features": row(84.04, 90.0), "oracle": row(86.0, 90.0)}
    _, oracle, _, random = evaluation(baselines=baselines).findings()
    assert oracle.startswith("That is equal to the best single model")
    assert "of the features, equal to as many random ones (87.0 %)" in random
    lines = evaluation(unseen={"d0": ("x",), "d1": ("y", "z")}).findings()[2:]
    assert lines == [
        "The class 'x' occurs only in domain 'd0' and is always misclassified there.",
        "The classes 'y', 'z' occur only in domain 'd1' and are always misclassified there.",
    ]


def test_all_rows_by_name() -> None:
    full = evaluation(baselines={"oracle": row(90.0, 91.0)}, with_target={"pool": row(91.0, 92.0)})
    assert list(full.rows) == [
        "single", "pool", "ensemble", "selection", "pool_with_target", "oracle"
    ]  # fmt: skip
    assert full.oracle == row(90.0, 91.0)
    assert evaluation().oracle is None
    for name, line in zip(full.rows, str(full).splitlines()[2:], strict=False):
        assert line.split()[:2] == [name, f"{full.rows[name].average:.1f}"]


def test_frame() -> None:
    pytest.importorskip("pandas", reason="pandas is an extra")
    result = oodzoo.evaluate(*zoo(n=12, n_domains=3), top_k=(1, 2), baselines=False)
    frame = result.to_frame()
    assert len(frame) == 3 * (4 + 2 * 2)
    assert set(frame.row) == {"single", "pool", "ensemble", "selection"}
    line = frame[(frame.row == "single") & (frame.domain == "d2")].iloc[0]
    assert line.accuracy == result.single.measure("accuracy")["d2"]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("regression", "it explains {:.1f} % of the variance in unseen domains"),
        ("multilabel", "it has an average precision of {:.1f} % in unseen domains"),
    ],
)
def test_evaluations_of_other_tasks_survive_json(kind: Kind, words: str) -> None:
    data = task_zoo(kind, n=15, n_domains=3)
    result = oodzoo.evaluate(*data, task=kind, top_k=(1, 2), baselines=["logme"])
    document = json.loads(json.dumps(result.to_dict()))
    assert (document["task"], document["metric"]) == (kind, Task(kind).metric)
    second = Task(kind).second_metric
    for name in ("single", "pool", "ensemble", "selection", "oracle"):
        assert document[name]["average"] == result.rows[name].average
        assert document[name][second]["domains"] == result.rows[name].measure(second)
        assert "calibration_error" not in document[name]
        averages = {
            output: {measure: each["average"] for measure, each in measures.items()}
            for output, measures in document[name]["outputs"].items()
        }
        assert averages == result.rows[name].outputs
        assert len(averages) == 2
    again = Evaluation.from_dict(document)
    assert again == result
    assert again.to_dict() == result.to_dict()
    assert words.format(result.recommended.average) in result.findings()[0]
    assert f"single/{Task(kind).metric}" in result.metrics
    pytest.importorskip("pandas")
    assert {Task(kind).metric, second} <= set(result.to_frame().columns)


def test_documents_without_a_task_are_of_classes() -> None:
    document = evaluation().to_dict()
    assert (document.pop("task"), document.pop("metric")) == ("classification", "accuracy")
    assert Evaluation.from_dict(document) == evaluation()


def test_numbers_that_are_predicted_worse_than_by_their_mean() -> None:
    domains = {"d0": -86.0, "d1": 20.0}
    bad = evaluation(task="regression", recommended=recommended(domains=domains, average=-33.0))
    assert bad.caution.startswith("In the domain 'd0', and on average it is worse than predicting")
    assert bad.caution in bad.findings()
    better = recommended(domains={"d0": -2.0, "d1": 50.0}, average=24.0)
    assert "on average" not in evaluation(task="regression", recommended=better).caution
    assert evaluation(task="regression").caution == ""
    assert evaluation(recommended=recommended(domains=domains)).caution == ""


# --- notebooks -----------------------------------------------------------------------------------


def test_an_evaluation_is_a_mapping_of_rows() -> None:
    found = evaluation(baselines={"oracle": row(90.0, 95.0)}, with_target={"pool": row(88.0, 92.0)})
    assert {name: found[name] for name in found} == found.rows
    assert len(found) == len(found.rows) == 6
    assert "oracle" in found
    assert "recommended" not in found
    with pytest.raises(KeyError, match="the evaluation has no row 'orakel'; did you mean oracle"):
        found["orakel"]


def test_repr_is_short_whatever_the_names() -> None:
    found = evaluation()
    assert repr(found) == (
        "Evaluation(2 test domains: recommended pool of 2 models, 88.0 %; single 85.0, pool 88.5, "
        "ensemble 87.5, selection 87.0 %)"
    )
    long = recommended(choice="single", models=("name\n" * 99,))
    assert len(repr(evaluation(recommended=long))) < 400
    assert repr(recommended()) == "Recommended(pool of 2 models, 88.0 %)"


def test_html_shows_what_is_recommended_all_rows_and_the_findings() -> None:
    found = evaluation(recommended=recommended(models=("<b>",), choice="single"))
    html = found._repr_html_()
    assert html.count("<tr>") == 2 + len(found)
    assert html.count("<p>") == len(found.findings())
    assert "<b>" not in html


def test_plot_has_a_lane_for_each_row_and_domain() -> None:
    drawn = evaluation().plot().svg
    assert all(f">{name}</text>" in drawn for name in ("d0", "d1", "Pool"))

"""Results of an evaluation: JSON, data frame and findings."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import zoo

import oodzoo
from oodzoo.errors import InputError
from oodzoo.evaluation import Aggregation, Cell, Evaluation, Row
from oodzoo.evaluation.metrics import Measures


def row(*accuracies: float) -> Row:
    return Row(
        {
            f"d{at}": Cell((Measures(value, value - 1, 2.0),), ("m",), 4)
            for at, value in enumerate(accuracies)
        }
    )


def evaluation(**changes: Any) -> Evaluation:
    fixed: dict[str, Any] = {
        "protocol": "fast",
        "score": "zood",
        "top_k": 3,
        "trials": 1,
        "domains": ("d0", "d1"),
        "single": row(80.0, 90.0),
        "ensemble": row(85.0, 90.0),
        "selection": row(84.0, 90.0),
        "feature_ratio": {"d0": 0.25, "d1": 0.5},
    }
    return Evaluation(**fixed | changes)


@pytest.mark.parametrize("top_k", [2, (1, 2), "auto"])
@pytest.mark.parametrize("trials", [1, 2])
def test_an_evaluation_survives_json(top_k: Any, trials: int) -> None:
    features, y, domains = zoo()
    y[np.flatnonzero(domains == "d0")[:5]] = 7
    result = oodzoo.evaluate(features, y, domains, top_k=top_k, trials=trials, baselines=["logme"])
    document = json.loads(json.dumps(result.to_dict()))
    assert document["unseen"] == {"d0": ["7"]}
    again = Evaluation.from_dict(document)
    assert again == result
    assert again.to_dict() == result.to_dict()


def test_rows_and_aggregations_survive_json() -> None:
    one = row(80.5, 1 / 3)
    document = json.loads(json.dumps(one.to_dict()))
    assert document["trials"] == {"d0": [[80.5, 79.5, 2.0]], "d1": [[1 / 3, 1 / 3 - 1, 2.0]]}
    assert Row.from_dict(document) == one
    both = Aggregation(one, row(3.0, 4.0), {"d0": 0.5, "d1": 1.0})
    assert Aggregation.from_dict(json.loads(json.dumps(both.to_dict()))) == both


def test_a_damaged_row_is_rejected() -> None:
    document = row(1.0).to_dict() | {"trials": {"d0": [["high", 1.0, 2.0]]}}
    with pytest.raises(InputError, match="the evaluation"):
        Row.from_dict(document)


def test_findings_compare_the_selection() -> None:
    baselines = {"random_features": row(82.0, 90.0), "oracle": row(90.0, 91.0)}
    compared, random, oracle = evaluation(baselines=baselines).findings()
    assert compared == (
        "The features selected from the top 3 models (38 % of their features) reach 87.0 % on "
        "unseen domains, 2.0 points above the top-ranked model alone (Single) and 0.5 points below "
        "all features of these models (Ensemble)."
    )
    assert random == (
        "The same number of random features reaches 86.0 %; selection is 1.0 points better."
    )
    assert oracle == (
        "The best single model on each test domain, which is unknown in advance, reaches 90.5 %."
    )


@pytest.mark.parametrize(
    ("top_k", "models"),
    [(1, "the top model ("), ({"d0": 3, "d1": 3}, "the top 3 models ("),
     ({"d0": 1, "d1": 3}, "the top models (")],
)  # fmt: skip
def test_findings_name_the_number_of_models(top_k: Any, models: str) -> None:
    assert models in evaluation(top_k=top_k).findings()[0]


def test_findings_name_ties_and_classes_of_one_domain() -> None:
    even = evaluation(single=row(84.0, 90.0), ensemble=row(84.0, 90.0))
    equal = "equal to the top-ranked model alone (Single) and equal to all features of these models"
    assert equal in even.findings()[0]
    even = dataclasses.replace(even, baselines={"random_features": row(85.0, 90.0)})
    assert even.findings()[1].endswith("87.5 %; selection is not better.")
    lines = evaluation(unseen={"d0": ("x",), "d1": ("y", "z")}).findings()[1:]
    assert lines == [
        "The class 'x' occurs only in domain 'd0' and is always misclassified there.",
        "The classes 'y', 'z' occur only in domain 'd1' and are always misclassified there.",
    ]


def test_findings_compare_with_random_features() -> None:
    result = oodzoo.evaluate(*zoo(), top_k=2, baselines=[])
    row = result.baselines["random_features"]
    better = any("points better" in line for line in result.findings())
    not_better = any("not better" in line for line in result.findings())
    assert better == (result.selection.average > row.average)
    assert not_better == (not better)


def test_frame() -> None:
    pytest.importorskip("pandas", reason="pandas is an extra")
    result = oodzoo.evaluate(*zoo(), top_k=(1, 2), baselines=False)
    frame = result.to_frame()
    assert len(frame) == 4 * (3 + 2 * 2)
    line = frame[(frame.row == "single") & (frame.domain == "d2")].iloc[0]
    assert line.accuracy == result.single.measure("accuracy")["d2"]

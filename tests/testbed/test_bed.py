"""Test beds: columns, order, JSON."""

from __future__ import annotations

import json

import pytest
from tests.testbed.data import ACCURACY, NEARLY, PERFECT, REVERSED

from oodzoo.errors import InputError
from oodzoo.testbed import Column, TestBed, judge
from oodzoo.testbed.agreement import Values


def test_a_column_is_averaged_over_test_domains() -> None:
    by_domain: dict[str, Values] = {"a": {"x": 1.0, "y": 2.0, "z": 3.0}, "b": {"x": 3.0, "y": None}}
    assert Column.averaged(by_domain).values == {"x": 2.0, "y": None, "z": None}


def test_a_test_bed_survives_json() -> None:
    some = Column({"m1": 1.0, "m2": None, "m5": 3.0}, "Some")
    each = {"a": ACCURACY, "b": {model: value + 2 for model, value in ACCURACY.items()}}
    bed = judge(
        {"name": "toy", "domains": ["a"]},
        {model: value + 1 for model, value in ACCURACY.items()},
        {"some": some, "nearly": NEARLY, "reversed": REVERSED},
        by_domain=each,
        left_out={"some": {"m2": "no classifier head"}},
        resamples=50,
        seed=3,
    )
    document = json.loads(json.dumps(bed.to_dict()))
    again = TestBed.from_dict(document)
    assert again == bed
    assert again.to_dict() == bed.to_dict()
    with pytest.raises(InputError, match="the test bed"):
        TestBed.from_dict(document | {"accuracy": "high"})


def test_a_record_of_the_first_schema_is_restored() -> None:
    bed = judge({"name": "toy"}, ACCURACY, {"nearly": NEARLY, "same": PERFECT}, resamples=50)
    document = json.loads(json.dumps(bed.to_dict()))
    del document["accuracy_by_domain"]
    for score in document["scores"].values():
        for new in ("behind_best", "averaged", "by_domain", "values_by_domain"):
            del score[new]
        score["seconds"] = 1.0
    old = TestBed.from_dict(document)
    assert old.scores["nearly"].weighted_tau == bed.scores["nearly"].weighted_tau
    assert old.resampled("nearly") == pytest.approx(bed.resampled("nearly"), nan_ok=True)


def test_of_equal_scores_the_best_is_the_first_by_name() -> None:
    for names in (("a", "b"), ("b", "a")):
        bed = judge({"name": "toy"}, ACCURACY, dict.fromkeys(names, PERFECT), resamples=20)
        assert bed.best == "a"


def test_a_score_of_few_models_is_not_the_best() -> None:
    few = Column({"m1": 1.0, "m2": 2.0})
    bed = judge({"name": "toy"}, ACCURACY, {"few": few, "nearly": NEARLY}, resamples=20)
    assert bed.order == ["few", "nearly"]
    assert bed.best == "nearly"


def test_scores_without_a_tau_come_last() -> None:
    none = Column(dict.fromkeys(ACCURACY))
    columns = {"none": none, "reversed": REVERSED, "perfect": PERFECT}
    bed = judge({"name": "toy"}, ACCURACY, columns, resamples=20)
    assert bed.order == ["perfect", "reversed", "none"]


def test_a_test_bed_is_a_mapping_of_scores_best_first() -> None:
    scores = {"reversed": REVERSED, "nearly": NEARLY, "perfect": PERFECT}
    bed = judge({"name": "<toy>" * 99}, ACCURACY, scores, resamples=50)
    assert list(bed) == bed.order == ["perfect", "nearly", "reversed"]
    assert {name: bed[name] for name in bed} == bed.scores
    assert len(bed) == 3
    assert "nearly" in bed
    assert "logme" not in bed
    with pytest.raises(KeyError, match="the test bed has no score 'near'; did you mean nearly"):
        bed["near"]
    _, rows = bed.table()
    assert [row[0] for row in rows] == list(bed)
    assert [line.split()[0] for line in str(bed).splitlines()] == ["score", *bed]
    assert bed._repr_html_().count("<tr>") == 1 + len(rows)
    assert "<toy>" not in bed._repr_html_()
    assert len(repr(bed)) < 400
    assert "best perfect (weighted tau 1.00)" in repr(bed)
    assert len(repr(bed["nearly"])) < 200


def test_a_test_bed_without_taus_can_be_shown() -> None:
    bed = judge({"name": "toy"}, dict.fromkeys(ACCURACY, 50.0), {"perfect": PERFECT}, resamples=50)
    assert bed["perfect"].weighted_tau is None
    assert "best perfect (weighted tau –)" in repr(bed)
    assert str(bed).splitlines()[1].split() == ["perfect", "–", "–", "–", "0.0", "12"]

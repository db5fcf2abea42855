"""What would change the result of an evaluation, measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.combination.data import Costly
from tests.evaluation.data import stored, task_zoo, zoo

import oodzoo
from oodzoo.combining.evaluation import Evaluation
from oodzoo.combining.evaluation.advice import KINDS

TIMES = {"poor": 1.0, "best": 1.0, "fair": 1.0, "good": 1.0}


def kinds(result: Evaluation) -> list[str]:
    return [each.kind for each in result.advice]


def test_the_advice_of_a_store(tmp_path: Path) -> None:
    result = oodzoo.evaluate(stored(tmp_path, *zoo(n=21)), top_k=2, baselines=False)
    assert kinds(result) == list(KINDS[:4])  # no time per image is known
    images, domains, target, tuning = result.advice
    assert result.learning_curve is not None
    assert images.gain == result.learning_curve.gain
    assert domains.gain is not None
    assert target.gain is None
    assert tuning.gain is None
    document = json.loads(json.dumps(result.to_dict()))
    assert Evaluation.from_dict(document).advice == result.advice
    best = max((images, domains), key=lambda each: each.gain or 0)
    assert result.findings()[-1] == best.text
    del document["advice"], document["diagnosis"], document["learning_curve"], document["tied"]
    old = Evaluation.from_dict(document)  # of an earlier version
    assert (old.advice, old.diagnosis, old.learning_curve) == ((), {}, None)
    assert old.tied == result.tied


def test_what_was_asked_for_is_measured() -> None:
    source = Costly(*zoo(n=21), TIMES)
    result = oodzoo.evaluate(source, top_k=2, baselines=False, with_target=True)
    target = next(each for each in result.advice if each.kind == "target_images")
    expected = result.with_target["pool"].average - result.recommended.average
    assert target.gain == pytest.approx(expected)
    assert "fine_tuning" not in kinds(result)  # there are no images
    assert len(result.recommended.models) > 1
    budget = next(each for each in result.advice if each.kind == "budget")
    max_ms = float(budget.text.split("--max-ms ")[1].split(")")[0])
    assert max_ms == len(result.recommended.models) / 2
    within = oodzoo.evaluate(source, top_k=2, baselines=False, max_ms=max_ms).recommended
    assert budget.gain == pytest.approx(within.average - result.recommended.average)


def test_heads_of_other_protocols_are_not_trained_again() -> None:
    source = Costly(*zoo(n=18), TIMES)
    result = oodzoo.evaluate(source, top_k=2, baselines=False, trials=2)
    assert "budget" not in kinds(result)
    assert "more_images" in kinds(result)


def test_numbers_have_no_classes_to_adapt() -> None:
    result = oodzoo.evaluate(*task_zoo("regression", n=20), task="regression", baselines=False)
    assert kinds(result) == ["more_images", "more_domains"]
    assert "explained variance" in result.advice[1].text


def test_ways_that_cannot_be_told_apart() -> None:
    result = oodzoo.evaluate(*zoo(n=18), top_k=2, baselines=False)
    best = np.array(list(result.recommended.domains.values()))
    expected = {}
    for name in ("single", "pool", "ensemble", "selection"):
        gains = best - np.array(list(result.rows[name].measure("accuracy").values()))
        error = gains.std(ddof=1) / np.sqrt(len(gains))
        if name != result.recommended.choice and abs(gains.mean()) <= error + 1e-9:
            expected[name] = result.rows[name].average
    assert result.tied == tuple(sorted(expected, key=lambda name: -expected[name]))
    assert result.to_dict()["tied"] == list(result.tied)

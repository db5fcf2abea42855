"""The row of fine-tuned models, and whether it is recommended."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.evaluation.data import zoo

import oodzoo
from oodzoo.combining.evaluation import Evaluation
from oodzoo.combining.evaluation.fine_tuning import TunedFold, with_fine_tuned
from oodzoo.combining.evaluation.rows import TunedFacts
from oodzoo.combining.evaluation.what_if import _of_options
from oodzoo.core.errors import InputError
from oodzoo.extraction.source import ArraySource

FACTS = TunedFacts("average 0.5", 3e-5, 50.0, 30.0, "cuda")


@pytest.fixture(scope="module")
def data() -> tuple[Evaluation, ArraySource]:
    arrays = zoo(n=30, seed=3)
    result = oodzoo.evaluate(*arrays, baselines=False, published="PACS")
    return result, ArraySource(*arrays)


def folds(source: ArraySource, shares: dict[str, float]) -> dict[str, TunedFold]:
    """Predictions of which a share is right in each domain."""
    found = {}
    for domain, share in shares.items():
        labels = source.labels(domain)
        right = np.arange(len(labels)) < round(share * len(labels))
        predicted = np.where(right, labels, (labels + 1) % len(source.classes))
        outputs = np.log(0.9 * np.eye(len(source.classes))[predicted] + 0.1 / len(source.classes))
        found[domain] = TunedFold(outputs, FACTS)
    return found


def test_better_by_more_than_its_error(data: tuple[Evaluation, ArraySource]) -> None:
    before, source = data
    result = with_fine_tuned(before, source, folds(source, dict.fromkeys(before.domains, 1.0)), "x")
    assert result.fine_tuned is not None
    assert result.tuning is not None
    assert result.fine_tuned.average == 100
    best = result.recommended
    assert (best.choice, best.models, best.average) == ("fine_tuned", ("x",), 100)
    assert set(best.choices.values()) == {"fine_tuned"}
    assert best.estimates == before.recommended.estimates
    gains = [100 - value for value in before.recommended.domains.values()]
    gain = result.tuning.gain
    assert gain.over == before.recommended.choice
    assert gain.average == pytest.approx(np.mean(gains))
    assert gain.over_head == 50
    assert gain.error == pytest.approx(np.std(gains, ddof=1) / 2)
    assert "x, fine-tuned" in result.findings()[0]
    assert "oodzoo tune MODEL DATA" in " ".join(result.findings())
    assert result.recommended_row == result.fine_tuned
    assert {each.accuracy for each in result.diagnosis.values()} == {100}


def test_a_gain_that_is_due_to_the_head(data: tuple[Evaluation, ArraySource]) -> None:
    before, source = data
    found = folds(source, dict.fromkeys(before.domains, 1.0))
    same = {
        test: replace(fold, facts=replace(fold.facts, linear_head=100.0))
        for test, fold in found.items()
    }
    result = with_fine_tuned(before, source, same, "x")
    assert result.recommended == before.recommended
    (line,) = [line for line in result.findings() if line.startswith("Fine-tuning gains")]
    assert "; equal to the linear head that it starts from): it is not recommended." in line
    (advice,) = [each for each in _of_options(result, source) if each.kind == "fine_tuning"]
    assert "oodzoo" not in advice.text  # nor is it advised


def test_the_limits_of_the_evaluation_stay(data: tuple[Evaluation, ArraySource]) -> None:
    before, source = data
    limited = replace(before, recommended=replace(before.recommended, max_models=1))
    result = with_fine_tuned(
        limited, source, folds(source, dict.fromkeys(before.domains, 1.0)), "best"
    )
    best = result.recommended
    assert (best.choice, best.max_models) == ("fine_tuned", 1)
    assert best.candidates == before.recommended.candidates
    assert result.beyond_limits == limited.beyond_limits != ()


def test_a_gain_in_one_domain_only_is_not_enough(data: tuple[Evaluation, ArraySource]) -> None:
    before, source = data
    shares = {name: value / 100 for name, value in before.recommended.domains.items()}
    first = min(shares, key=lambda name: shares[name])
    assert shares[first] < 1
    result = with_fine_tuned(before, source, folds(source, shares | {first: 1.0}), "x")
    assert result.recommended == before.recommended
    (line,) = [line for line in result.findings() if line.startswith("Fine-tuning gains")]
    assert line.endswith("it is not recommended.")


def test_a_loss(data: tuple[Evaluation, ArraySource]) -> None:
    before, source = data
    result = with_fine_tuned(before, source, folds(source, dict.fromkeys(before.domains, 0.2)), "x")
    assert result.recommended == before.recommended
    assert any(line.startswith("Fine-tuning loses") for line in result.findings())
    assert "Fine-tuned 20.0 %" in result.findings()[0]


def test_the_row_survives_json(data: tuple[Evaluation, ArraySource]) -> None:
    before, source = data
    result = with_fine_tuned(before, source, folds(source, dict.fromkeys(before.domains, 0.9)), "x")
    document = json.loads(json.dumps(result.to_dict()))
    assert Evaluation.from_dict(document) == result
    row = document["fine_tuned"]
    assert row["average"] == pytest.approx(90)
    assert row["models"] == document["single"]["models"]
    assert row["seconds"]["average"] == 30
    assert row["tuning"]["folds"]["d0"]["choice"] == "average 0.5"
    rows = document["published"]["rows"]
    assert {"method": "Fine-tuned", "source": "yours", "accuracy": row["average"]} in rows
    assert document["published"]["hours"]["fine_tuned"] == pytest.approx(4 * 30 / 3600)


def test_a_fit_cannot_tune(data: tuple[Evaluation, ArraySource]) -> None:
    before, source = data
    result = with_fine_tuned(before, source, folds(source, dict.fromkeys(before.domains, 1.0)), "x")
    with pytest.raises(InputError, match="then run oodzoo tune on the predictor"):
        oodzoo.fit(*zoo(n=30, seed=3), recommended=result.recommended)

"""The row of fine-tuned models, and whether it is recommended; with made-up predictions."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import evaluated, zoo

import oodzoo
from oodzoo.combining.evaluation import Evaluation
from oodzoo.combining.evaluation.fine_tuning import TunedFold, with_fine_tuned
from oodzoo.combining.evaluation.rows import TunedFacts
from oodzoo.combining.evaluation.what_if import _of_options
from oodzoo.core.errors import InputError
from oodzoo.extraction.source import ArraySource

FACTS = TunedFacts("average 0.5", 3e-5, 50.0, 30.0, "cuda")
SOURCE = ArraySource(*zoo(n=18))


def before() -> Evaluation:
    return evaluated(published="PACS", max_models=1)


def tuned(shares: Any = None, linear_head: float = 50.0) -> Evaluation:
    """With fine-tuned models of whose predictions a share is right in each domain."""
    folds = {}
    for domain in SOURCE.domains:
        labels = SOURCE.labels(domain)
        share = shares[domain] if isinstance(shares, dict) else shares
        right = np.arange(len(labels)) < round(share * len(labels))
        predicted = np.where(right, labels, (labels + 1) % 3)
        facts = replace(FACTS, linear_head=linear_head)
        folds[domain] = TunedFold(np.log(0.9 * np.eye(3)[predicted] + 0.1 / 3), facts)
    return with_fine_tuned(before(), SOURCE, folds, "x")


def of_tuning(result: Evaluation) -> str:
    (line,) = (line for line in result.findings() if line.startswith("Fine-tuning "))
    return line


def test_better_by_more_than_its_error() -> None:
    result = tuned(1.0)
    old, best = before().recommended, result.recommended
    assert result.fine_tuned is not None
    assert result.tuning is not None
    assert (best.choice, best.models, best.average) == ("fine_tuned", ("x",), 100)
    assert result.fine_tuned.average == 100
    assert set(best.choices.values()) == {"fine_tuned"}
    assert (best.estimates, best.candidates, best.max_models) == (
        *(old.estimates, old.candidates, 1),
    )
    gains = [100 - value for value in old.domains.values()]
    gain = result.tuning.gain
    assert (gain.over, gain.over_head) == (old.choice, 50)
    assert gain.average == pytest.approx(np.mean(gains))
    assert gain.error == pytest.approx(np.std(gains, ddof=1) / 2)
    assert "x, fine-tuned" in result.findings()[0]
    assert "oodzoo tune MODEL DATA" in " ".join(result.findings())
    assert result.recommended_row == result.fine_tuned
    assert result.beyond_limits == before().beyond_limits != ()
    assert {each.accuracy for each in result.diagnosis.values()} == {100}
    with pytest.raises(InputError, match="then run oodzoo tune on the predictor"):
        oodzoo.fit(*zoo(n=18), recommended=best)


def test_what_is_not_recommended() -> None:
    """A gain that is due to the head, one in a single domain, and a loss."""
    old = before().recommended
    shares = {name: value / 100 for name, value in old.domains.items()}
    first = min(shares, key=lambda name: shares[name])
    assert shares[first] < 1
    due_to_head = tuned(1.0, linear_head=100.0)
    loss = tuned(0.2)
    cases = {
        "; equal to the linear head that it starts from): it is not recommended.": due_to_head,
        "it is not recommended.": tuned(shares | {first: 1.0}),
        "Fine-tuning loses": loss,
    }
    for words, result in cases.items():
        assert result.recommended == old
        assert words in of_tuning(result)
    (advice,) = [each for each in _of_options(due_to_head, SOURCE) if each.kind == "fine_tuning"]
    assert "oodzoo" not in advice.text  # nor is it advised
    assert f"Fine-tuned {loss.fine_tuned.average:.1f} %" in loss.findings()[0]  # type: ignore[union-attr]


def test_the_row_survives_json() -> None:
    result = tuned(0.9)
    document = json.loads(json.dumps(result.to_dict()))
    assert Evaluation.from_dict(document) == result
    row = document["fine_tuned"]
    assert row["average"] == pytest.approx(100 * 16 / 18)
    assert row["models"] == document["single"]["models"]
    assert row["seconds"]["average"] == 30
    assert row["tuning"]["folds"]["d0"]["choice"] == "average 0.5"
    rows = document["published"]["rows"]
    assert {"method": "Fine-tuned", "source": "yours", "accuracy": row["average"]} in rows
    assert document["published"]["hours"]["fine_tuned"] == pytest.approx(4 * 30 / 3600)

"""Why a way with a higher number is not recommended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.report.example import example_run

from oodzoo.combining.evaluation import Evaluation
from oodzoo.combining.evaluation.recommended import TITLES
from oodzoo.combining.evaluation.result import why_not_the_highest


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    found = example_run().evaluation
    assert found is not None
    return found


def why(evaluation: Evaluation, **facts: Any) -> str:
    best = replace(evaluation.recommended, **facts)
    return why_not_the_highest(replace(evaluation, recommended=best))


def test_the_highest_row_is_explained(evaluation: Evaluation) -> None:
    first = max(TITLES.keys() & evaluation.rows.keys(), key=lambda name: evaluation[name].average)
    assert why(evaluation, choice=first, average=100.0) == ""
    other = next(name for name in ("pool", "single") if name != first)
    assert why(evaluation, choice=other, average=1.0) == (
        f"{TITLES[first]} has {evaluation[first].average:.1f} %, but it is not clearly better on "
        "the training domains, which decide."
    )
    same = dict(evaluation[first].measure(evaluation.metric))
    tied = why(evaluation, choice=other, average=1.0, domains=same)
    assert "but the difference is within a standard error" in tied

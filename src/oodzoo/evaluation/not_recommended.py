"""Why a way to combine models with a higher number is not recommended."""

from __future__ import annotations

from oodzoo.evaluation.recommended import TITLES
from oodzoo.evaluation.result import Evaluation


def why_not_the_highest(evaluation: Evaluation) -> str:
    """Say why another way with a higher number is not recommended; empty if there is none."""
    best = evaluation.recommended
    averages = {name: row.average for name, row in evaluation.rows.items() if name in TITLES}
    first = max(averages, key=averages.__getitem__)
    if first == best.choice or round(averages[first], 1) <= round(best.average, 1):
        return ""
    if first in evaluation.beyond_limits:
        reason = "it exceeds the limits"
    elif first in evaluation.tied:
        reason = "the difference is within a standard error between the domains"
    else:
        reason = "it is not clearly better on the training domains, which decide"
    return f"{TITLES[first]} has {averages[first]:.1f} %, but {reason}."

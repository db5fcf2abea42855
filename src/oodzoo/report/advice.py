"""The section "What would change this": what to add, and what it would gain."""

from __future__ import annotations

from oodzoo.evaluation.advice import Advice
from oodzoo.evaluation.result import Evaluation
from oodzoo.report.blocks import Block, Change, Changes, Section
from oodzoo.report.learning_curve import learning_curve_figure
from oodzoo.report.numbers import number
from oodzoo.task.words import WORDS

TITLES = {
    "more_images": "More images of the same domains",
    "more_domains": "More domains",
    "target_images": "Unlabelled images of the new domain",
    "fine_tuning": "Fine-tuning",
    "budget": "Less time per image",
}
"""By the kind of an advice."""

LAST_ONES = {"more_images": "by the last images", "more_domains": "by the last domain"}
"""Kinds of which the gain is that of the last ones added, not of those to come."""


def advice_section(evaluation: Evaluation) -> Section | None:
    """What would change the result, the largest gain first; None if nothing is known."""
    blocks: list[Block] = []
    if evaluation.advice:
        order = sorted(evaluation.advice, key=_order)
        blocks.append(Changes([_change(each) for each in order]))
    if evaluation.learning_curve is not None:
        blocks.append(learning_curve_figure(evaluation.learning_curve))
    if not blocks:
        return None
    metric = WORDS[evaluation.task].metric.name
    lead = f"Points of {metric} that were gained or lost on held-out domains."
    return Section("changes", "What would change this", lead, blocks, short="Changes")


def _order(advice: Advice) -> tuple[bool, float]:
    """By gain; advice without a known gain is last."""
    return advice.gain is None, -(advice.gain or 0.0)


def _change(advice: Advice) -> Change:
    title = TITLES[advice.kind]
    if advice.gain is None:
        return Change(title, advice.text, basis="not measured")
    value = number(abs(advice.gain), 1)
    sign = "" if float(value) == 0 else "+" if advice.gain > 0 else "\N{MINUS SIGN}"
    basis = LAST_ONES.get(advice.kind, "measured")
    return Change(title, advice.text, f"{sign}{value} points", basis)

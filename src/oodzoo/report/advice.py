"""The section "What would change this": what to add, and what it would gain."""

from __future__ import annotations

import re

from oodzoo._packages import install_hint
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


STORE = "store"
"""The store of a run, in the folder of its report."""

_COMMAND = re.compile(r"oodzoo (?:evaluate|fit|tune) .+?(?= measures|, then |\.?$|\. )")
_LIMIT = re.compile(r"--max-ms ([\d.e+]*\d)")
_NEW_FOLDERS = {"target_images": "adapted", "fine_tuning": "single"}
"""Names for MODEL in a command, by the kind of an advice."""


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
    lead = f"Points of {metric} that were gained or lost on held-out domains. "
    lead += "Run the commands in the folder of this report, with your own files for capitals."
    return Section("changes", "What would change this", lead, blocks, short="Changes")


def _order(advice: Advice) -> tuple[bool, float]:
    """By gain; advice without a known gain is last."""
    return advice.gain is None, -(advice.gain or 0.0)


def _commands(advice: Advice) -> tuple[str, tuple[str, ...]]:
    """The text without its commands, and these as they can be run in the folder of the report."""
    if limit := _LIMIT.search(advice.text):
        return advice.text, (f"oodzoo fit {STORE} --max-ms {limit[1]} --out faster",)
    names = {"STORE": STORE, "MODEL": _NEW_FOLDERS.get(advice.kind, "MODEL"), "NEW": "tuned"}
    commands = tuple(
        re.sub(r"\b(STORE|MODEL|NEW)\b", lambda found: names[found[1]], command)
        for command in _COMMAND.findall(advice.text)
    )
    text = _COMMAND.sub("this", advice.text).replace("this, then this", "as follows")
    return text, commands


def _change(advice: Advice) -> Change:
    title = TITLES[advice.kind]
    text, commands = _commands(advice)
    if advice.kind == "fine_tuning" and (hint := install_hint("tune")):
        text += f" This {hint}."
    if advice.gain is None:
        return Change(title, text, basis="not measured", commands=commands)
    value = number(abs(advice.gain), 1)
    sign = "" if float(value) == 0 else "+" if advice.gain > 0 else "\N{MINUS SIGN}"
    basis = LAST_ONES.get(advice.kind, "measured")
    return Change(title, text, f"{sign}{value} points", basis, commands)

"""The recommended way to combine models: its cost, how it was chosen, and what would change it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from oodzoo.combining.evaluation.learning_curve import LearningCurve
from oodzoo.combining.evaluation.result import Evaluation
from oodzoo.combining.statements import CHOICES, FINE_TUNED, TITLES, Advice, titled
from oodzoo.combining.verdict import Recommended
from oodzoo.core.packages import install_hint
from oodzoo.core.tables import Column, Table
from oodzoo.core.text import count, listed, number, span
from oodzoo.report.blocks import Block, Change, Changes, Figure, Key, Section
from oodzoo.report.chart import (
    Chart,
    Drawing,
    Scale,
    Size,
    axis_beside,
    covering,
    in_both_sizes,
    mark,
)
from oodzoo.report.headline import MOST_NAMES
from oodzoo.tasks import task_of
from oodzoo.tasks.task import MEASURES

MOST_MODELS = 12
"""Longer lists of the models of pools start folded."""


def decision_figure(evaluation: Evaluation) -> Figure:
    """Which way was chosen, on all domains and without each of them, and why."""
    best = evaluation.recommended
    columns = [
        Column("Test domain", "domain", text=True),
        Column("Chosen", "choice", text=True),
        Column(task_of(evaluation.task).measure.heading, evaluation.metric, 1),
        Column("Models", "models", 0),
        Column("ms / image", "milliseconds"),
        Column("Params, M", "parameters_million", 2),
    ]
    rows = [
        [
            domain,
            titled(best.choices[domain], cell.models),
            best.domains[domain],
            len(cell.models),
            cell.milliseconds,
            None if cell.parameters is None else cell.parameters / 1e6,
        ]
        for domain, cell in evaluation.recommended_row.cells.items()
    ]
    return Figure(
        title="What is chosen",
        text=" ".join([_rule(evaluation), _choices(evaluation), _promise(evaluation)]),
        table=Table("choices", "What is chosen without each test domain", columns, rows),
        folded=False,
    )


def pools_figure(evaluation: Evaluation) -> Figure:
    """The models of the pools, those of most pools first."""
    pools = {domain: evaluation.pool.cells[domain].models for domain in evaluation.domains}
    times = Counter(model for models in pools.values() for model in models)
    best = evaluation.recommended
    final = best.models if best.choice == "pool" else ()
    columns = [Column("Model", "model", text=True), Column("Pools", "pools", 0)]
    if final:
        columns.append(Column("All domains", "all_domains", 0))
    columns += [Column(f"Without {domain}", domain, 0) for domain in pools]
    rows: list[list[Any]] = [
        [
            model,
            times[model],
            *([_place(model, final)] if final else []),
            *(_place(model, models) for models in pools.values()),
        ]
        for model in sorted({*times, *final}, key=lambda model: (-times[model], model))
    ]
    sizes = [len(models) for models in pools.values()]
    text = (
        f"The pools of the test domains have {_models(min(sizes), max(sizes))} each, chosen "
        "without the test domain. Numbers are places in a pool: 1 has the largest share."
    )
    if max(sizes) == 1:
        text = "Every pool is a single model, chosen without the test domain."
    return Figure(
        title="Models of the pools",
        text=text,
        table=Table("pools", "Place of each model in the pools", columns, rows),
        folded=len(rows) > MOST_MODELS,
    )


def _place(model: str, models: Sequence[str]) -> int | None:
    return models.index(model) + 1 if model in models else None


def _models(low: int, high: int) -> str:
    return count(low, "model") if low == high else f"{span(low, high)} models"


def _rule(evaluation: Evaluation) -> str:
    """How the choice was made; it must say what :mod:`oodzoo.combining.verdict` does."""
    best = evaluation.recommended
    shown = [
        f"{name.capitalize()} {_both(best, name)} %" for name in CHOICES if name in best.estimates
    ]
    missing = [name.capitalize() for name in CHOICES if name not in best.estimates]
    where = "left-out domains and within the domains" if best.within else "left-out domains"
    text = (
        "Each way to combine models is tried on the training domains: leaving each of them out, "
        "and by cross-validation within them, which sees no shift but varies less. A pool is "
        "chosen, unless another way is better on left-out domains by more than these differ and "
        "not worse within; the single model, if the pool is much worse somewhere; a cheaper way, "
        f"if it is not less accurate in any domain. On all domains ({where}): {', '.join(shown)}; "
        f"chosen: {_before(evaluation)}."
    )
    if best.choice == FINE_TUNED:
        text += (
            " Fine-tuning the top model is better than that by more than a standard error between "
            "the test domains, and recommended."
        )
    if best.disagreement:
        text += f" {best.disagreement}"
    if missing:
        verb = "exceeds" if len(missing) == 1 else "exceed"
        text += f" {listed(missing)} {verb} the limits on models or time."
    return text


def _both(best: Recommended, name: str) -> str:
    """The accuracy on left-out domains and within the domains."""
    values = [best.estimates[name], *([best.within[name]] if name in best.within else [])]
    return " and ".join(number(value, 1) for value in values)


def _before(evaluation: Evaluation) -> str:
    """What is recommended without fine-tuning."""
    best, tuning = evaluation.recommended, evaluation.tuning
    return titled(best.choice, best.models) if tuning is None else TITLES[tuning.gain.over]


def _choices(evaluation: Evaluation) -> str:
    """What was chosen without each test domain."""
    choices = evaluation.recommended.choices
    groups = {
        name: [domain for domain in evaluation.domains if choices[domain] == name]
        for name in TITLES
    }
    used = {name: domains for name, domains in groups.items() if domains}
    if len(used) == 1:
        (only,) = used
        what = "the same" if only == evaluation.recommended.choice else TITLES[only]
        return f"Without each test domain, the choice is {what}."
    parts = [f"{TITLES[name]} without {listed(used[name], MOST_NAMES)}" for name in used]
    return f"For the test domains: {'; '.join(parts)}."


def _promise(evaluation: Evaluation) -> str:
    average = number(evaluation.recommended.average, 1)
    expected = f"{task_of(evaluation.task).measure.name} to expect is the measured {average} %."
    return f"Estimates only compare the ways; the {expected}"


# --- the learning curve ---------------------------------------------------------------------------


def learning_curve_figure(curve: LearningCurve) -> Figure:
    """The metric on test domains, of heads that are trained on parts of the images."""
    metric = MEASURES[curve.metric]
    per = "images per class" if curve.metric == "accuracy" else "training images"
    domains = list(dict.fromkeys(name for point in curve.points for name in point.domains))
    columns = [
        Column(per.capitalize(), per.replace(" ", "_"), 1),
        Column(f"Average {metric.name} %", "average", 1),
        *(Column(domain, f"domain_{domain}", 1) for domain in domains),
    ]
    rows = [
        [point.images_per_class, point.average, *(point.domains.get(each) for each in domains)]
        for point in curve.points
    ]
    points = "; ".join(
        f"{_images(point.images_per_class)}: {number(point.average, 1)} %" for point in curve.points
    )
    title = "Would more images help?"
    description = f"{metric.title} on test domains by {per}, {points}."
    return Figure(
        title=title,
        text=f"{curve.text} Measured with heads of {curve.model}, trained on parts of the images "
        "of all training domains together.",
        chart=_curve_chart(curve, per, f"{metric.title} by {per}", description),
        legend=[
            Key("expected", "circle", "average over the test domains"),
            Key("stroke", "level", "one test domain"),
        ],
        table=Table("learning-curve", f"{metric.title} by {per}", columns, rows),
    )


def _images(value: float) -> str:
    """A mean number of images; decimals matter for a few only."""
    return number(value, 0 if value >= 10 or value == round(value) else 1)


def _curve_chart(curve: LearningCurve, per: str, title: str, description: str) -> Chart:
    """The number of images has a logarithmic scale."""
    numbers = [math.log(point.images_per_class) for point in curve.points]
    values = [v for point in curve.points for v in (point.average, *point.domains.values())]

    def draw(size: Size) -> Drawing:
        width = size.width if size.narrow else 620
        left, right, base = 46, width - 26, 226
        drawing = Drawing(width, 280, title, description)
        room = 0.06 * (numbers[-1] - numbers[0]) or 0.5
        across = Scale(numbers[0] - room, numbers[-1] + room, left, right)
        up = covering(values, base, 22, margin=0.08)
        drawing.text(0, 12, "%", "head")
        axis_beside(drawing, up, left, right)
        label = per if per.startswith("training") else f"training {per}"
        drawing.text((left + right) / 2, 270, label, "head", end="middle")
        points = [
            (across(x), up(point.average)) for x, point in zip(numbers, curve.points, strict=True)
        ]
        drawing.curve(points, "expected")
        for point, (x, y) in zip(curve.points, points, strict=True):
            images = _images(point.images_per_class)
            drawing.text(x, base + 22, images, "tick", end="middle")
            for domain, value in point.domains.items():
                tip = f"{domain}\n{images} {per}: {number(value, 1)} %"
                drawing.rect(x - 6, up(value) - 1, 12, 2, "stroke", data_tip=tip)
            tip = f"Average\n{images} {per}: {number(point.average, 1)} %"
            mark(drawing, "circle", x, y, "dot expected", tip)
        return drawing

    return in_both_sizes(draw)


# --- the section "What would change this" ---------------------------------------------------------

ADVICE_TITLES = {
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
    metric = task_of(evaluation.task).measure.name
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
    title = ADVICE_TITLES[advice.kind]
    text, commands = _commands(advice)
    if advice.kind == "fine_tuning" and (hint := install_hint("tune")):
        text += f" This {hint}."
    if advice.gain is None:
        return Change(title, text, basis="not measured", commands=commands)
    value = number(abs(advice.gain), 1)
    sign = "" if float(value) == 0 else "+" if advice.gain > 0 else "\N{MINUS SIGN}"
    basis = LAST_ONES.get(advice.kind, "measured")
    return Change(title, text, f"{sign}{value} points", basis, commands)

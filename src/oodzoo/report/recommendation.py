"""The recommendation: the first screen, what would change it, and the end of the output."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

from oodzoo.combining.evaluation.learning_curve import LearningCurve
from oodzoo.combining.evaluation.result import Evaluation, Recommended
from oodzoo.combining.one_head import SINGLE
from oodzoo.combining.pool import POOL
from oodzoo.combining.statements import (
    Advice,
    caution,
    certainty,
    choice_is_repeated,
    chosen_otherwise,
    compared,
    cost_in_words,
    cost_of_ranked,
    described,
    failing_class,
    has_target,
    interval_text,
    meaning,
    shown_choice,
    titles,
    where,
    why_not_the_highest,
    with_target,
)
from oodzoo.combining.ways import COMBINATIONS
from oodzoo.core.packages import install_hint
from oodzoo.core.tables import Column, Table, aligned
from oodzoo.core.text import count, listed, number, significant, span, typed, wrapped
from oodzoo.ranking.ranking import Ranking
from oodzoo.report.chart import (
    Drawing,
    Line,
    Scale,
    line_chart,
    mark,
    percent,
    whisker,
)
from oodzoo.report.data import dimensions, leaks_remark
from oodzoo.report.page import (
    Block,
    Change,
    Changes,
    Figure,
    Headline,
    Key,
    Measured,
    Section,
    Step,
    Tile,
)
from oodzoo.report.record import PredictorSummary, Run
from oodzoo.tasks import Kind, task_of
from oodzoo.tasks.task import MEASURES

MOST_NAMES = 6
"""Largest number of names in a sentence."""

# --- the first screen -----------------------------------------------------------------------------

_NOTE = "Run these in the folder of this report, with your own files for the names in capitals."

_UNFINISHED = (
    "The run has not finished: this page is written again after each stage. If it was stopped, the "
    "same command resumes it."
)

STORE_FOLDER, SINGLE_FOLDER = "store", "single"
"""Folders in that of the report: the features, and a predictor of the top model."""


def headline(run: Run) -> Headline:
    """The result of a run, as far as it has got."""
    if run.evaluation:
        shown = _of_evaluation(run, run.evaluation)
    elif run.ranking:
        shown = _of_ranking(run, run.ranking)
    else:
        shown = Headline("This run has no ranking yet.")
    remarks, tiles = [*shown.remarks], [*shown.tiles]
    if run.data:
        noun = "images" if run.data.images != 1 else "image"
        tiles.append(Tile(number(run.data.images), noun, dimensions(run.data)))
    if run.leaks:
        remarks.append(leaks_remark(run.leaks))
    if run.ranking and run.predictor is None:
        remarks.append(_UNFINISHED)
    remarks = [*filter(None, remarks)]
    return replace(shown, steps=steps(run), steps_note=_NOTE, remarks=remarks, tiles=tiles)


def steps(run: Run) -> list[Step]:
    """Commands to use, check and deploy the predictor; none if there is no predictor.

    Without an evaluation, the top model is what the page says to use. If the predictor is another
    one, the first command makes a predictor of this model.
    """
    if run.predictor is None:
        return []
    model, first = typed(f"{run.predictor.folder}/"), []
    if run.evaluation is None and run.ranking is not None:
        named = run.ranking.best
        if run.predictor.models != (named,):
            fit = f"oodzoo fit {STORE_FOLDER} --models {typed(named)} --out {SINGLE_FOLDER}"
            model, first = f"{SINGLE_FOLDER}/", [Step(f"Make a predictor of {named}", fit)]
    hint = install_hint("onnx")
    needed = f" ({hint})" if hint else ""
    return [
        *first,
        Step("Predict new images", f"oodzoo predict {model} IMAGES/ --out predictions.csv"),
        Step("Check it on labelled images", f"oodzoo test {model} LABELLED/ --out test.html"),
        Step(f"Deploy it as one ONNX file{needed}", f"oodzoo export {model} model.onnx"),
    ]


def _of_evaluation(run: Run, evaluation: Evaluation) -> Headline:
    """The recommended choice and its measured accuracy."""
    best, words, ranking = evaluation.recommended, task_of(evaluation.task), run.ranking
    notes = []
    if best.interval is not None:
        notes.append(f"90 % interval for a new domain: {span(*best.interval)} %")
    if words.second_measure.means:
        second = task_of(evaluation.task).second_metric
        value = fmean(evaluation.recommended_row.measure(second).values())
        mean = ", mean over outputs" if evaluation.outputs else ", in the units of the labels"
        notes.append(
            f"{words.second_measure.name} {significant(value)}{words.second_measure.unit or mean}"
        )
    remarks = [_what_it_is(run, best)]
    if ranking is not None and has_target(ranking):
        first = ranking.rows[0]
        remarks.append(
            f"On the target, expect {number(first.expected_accuracy, 1)} % of {first.model} alone "
            f"({interval_text(ranking, first)}), estimated without labels."
        )
    remarks += [_compared(evaluation), caution(evaluation)]
    stated = any(advice.kind == "target_images" for advice in evaluation.advice)
    if (adapted := evaluation.with_target.get(POOL.name)) and not stated:
        remarks.append(with_target(adapted.average))
    if ranking and best.choice == SINGLE.name and best.models[0] == ranking.best:
        remarks.append(certainty(ranking))
    n_models, n_all = len(best.models), len(ranking or best.models)
    tiles = [Tile(f"{n_models} of {n_all}", "models" if n_all > 1 else "model")]
    cost = cost_of_ranked(best.models, ranking)
    size = None if cost.parameters is None else significant(cost.parameters / 1e6)
    if cost.milliseconds is not None:
        note = f"{size} million parameters" if size else ""
        tiles.append(Tile(f"{significant(cost.milliseconds)} ms", "per image", note))
    elif size:
        tiles.append(Tile(f"{size} M", "parameters"))
    return Headline(
        subject=described(best.choice, best.models),
        measured=Measured(
            f"{number(best.average, 1)} %",
            f"{words.measure.name} on unseen domains, measured",
            "; ".join(notes),
            _strip(evaluation.task, best.average, best.interval, best.domains),
        ),
        meaning=_meaning(evaluation),
        remarks=remarks,
        tiles=tiles,
    )


def _meaning(evaluation: Evaluation) -> str:
    """What the measured number means for a new domain, and where it is worst."""
    best = evaluation.recommended
    text = meaning(evaluation.task, best.average, best.interval)
    if len(best.domains) > 1:
        order = sorted(best.domains, key=best.domains.__getitem__)
        low, high = (number(best.domains[each], 1) for each in (order[0], order[-1]))
        text += (
            f" The hardest of the {len(order)} held-out domains is {order[0]}, with {low} %; the "
            f"easiest is {order[-1]}, with {high} %."
        )
    if failing := failing_class(evaluation.diagnosis):
        name, recall = failing
        text += f" The hardest class is {name}: {number(recall)} % of its images are recognised."
    return text


def _what_it_is(run: Run, best: Recommended) -> str:
    """Its models, and where it is saved."""
    parts = []
    if len(best.models) > 1:
        parts.append(f"Its models are {listed(best.models, MOST_NAMES)}.")
    if made := run.predictor:
        same = made.choice == best.choice and set(made.models) == set(best.models)
        parts.append(_saved(run, made, same=same))
    return " ".join(parts)


def _saved(run: Run, made: PredictorSummary, *, same: bool) -> str:
    """What the predictor of a run is; `same` if it uses what the headline recommends."""
    adapted = made.choice == POOL.name and run.ranking is not None and has_target(run.ranking)
    if same and not adapted:
        return f"It is saved in {made.folder}/."
    what = f"a predictor of {count(len(made.models), 'model')}"
    if same:
        what = "it"
    elif made.choice in COMBINATIONS:
        what = described(made.choice, made.models)
    if adapted:
        what += ", adapted to the images of the target"
    names = "" if same or len(made.models) == 1 else f": {listed(made.models, MOST_NAMES)}"
    return f"{made.folder}/ holds {what}{names}."


def _compared(evaluation: Evaluation) -> str:
    """How the metric was measured, and that of everything else."""
    best, metric = evaluation.recommended, task_of(evaluation.task).measure.name
    others = [
        f"{title} {number(evaluation.rows[name].average, 1)} %"
        for name, title in titles().items()
        if name in evaluation.rows and name != best.choice
    ]
    text = f"For comparison: {', '.join(others)}"
    if oracle := evaluation.oracle:
        text += (
            f"; the best single model on each held-out domain, which is unknown in advance, "
            f"{number(oracle.average, 1)} %"
        )
    if tied := [titles()[name] for name in evaluation.tied]:
        names = listed(tied, len(tied))
        text += f". Within a standard error of what is recommended, the best first: {names}"
    first = (
        f"The {metric} is measured on each domain in turn, with everything chosen and trained "
        "without it."
    )
    lines = (first, chosen_otherwise(evaluation), f"{text}.", why_not_the_highest(evaluation))
    return " ".join(filter(None, lines))


def _of_ranking(run: Run, ranking: Ranking) -> Headline:
    """The top model, and what to expect of it."""
    first, n_models = ranking.rows[0], len(ranking)
    value, interval = first.expected_accuracy, first.accuracy_interval
    metric, target = task_of(ranking.task).measure.name, has_target(ranking)
    clear = n_models == 1 or not first.rank_interval or first.rank_interval[1] < n_models
    remarks, note = [certainty(ranking)], interval_text(ranking, first)
    if made := run.predictor:
        alone = made.models == (first.model,)
        unmeasured = f" Its {metric} was not measured, which needs three domains."
        remarks.append(_saved(run, made, same=alone) + ("" if alone else unmeasured))
    if choice_is_repeated(ranking):
        note += "; the choice of the model is part of the estimate"
    by_domain = {fold.domain: fold.accuracy for fold in first.folds}
    chart = None if target else _strip(ranking.task, value, interval, by_domain)
    label = f"expected {metric} {where(ranking)}"
    rank = ""
    if first.rank_interval and n_models > 1:
        rank = f"90 % interval of the rank: {span(*first.rank_interval)}"
    return Headline(
        "" if clear else "leads.",
        first.model,
        clear,
        measured=Measured(f"{number(value, 1)} %", label, note, chart),
        meaning=meaning(ranking.task, value, interval, "the target" if target else "a new domain"),
        remarks=remarks,
        tiles=[Tile(f"1st of {n_models}", "rank", rank)],
    )


def _strip(
    task: Kind, value: float, interval: tuple[float, float] | None, domains: Mapping[str, float]
) -> Drawing:
    """The number, its interval, and a stroke for each held-out domain, up to 100 %."""
    metric, width, middle = task_of(task).measure, 340, 16
    ends = [0.0, value, *(interval or ()), *domains.values()]
    scale = Scale(percent(ends, 0, 1, lowest=metric.lowest).low, 100, 2, width - 2)
    listed = ", ".join(f"{domain} {number(each, 1)} %" for domain, each in domains.items())
    ends_text = "" if interval is None else f", 90 % interval {span(*interval)} %"
    description = f"{number(value, 1)} %{ends_text}. Held-out domains: {listed}."
    drawing = Drawing(width, 46, metric.title, description)
    drawing.line(scale.start, middle, scale.end, middle, "zero")
    for end in (scale.low, (scale.low + scale.high) / 2, scale.high):
        drawing.line(scale(end), middle - 3, scale(end), middle + 3, "zero")
        anchor = {scale.low: "start", scale.high: "end"}.get(end, "middle")
        drawing.text(scale(end), middle + 26, f"{number(end)} %", "tick", end=anchor)
    if interval is not None:
        tip = f"90 % interval for a new domain\n{span(*interval)} %"
        whisker(drawing, middle, scale(interval[0]), scale(interval[1]), "expected wide-line", tip)
    for domain, each in domains.items():
        tip = f"{domain}\n{number(each, 1)} %"
        drawing.rect(scale(each) - 1, middle - 10, 2, 20, "stroke", data_tip=tip)
    mark(drawing, "circle", scale(value), middle, "dot expected", f"{number(value, 1)} %")
    return drawing


# --- the learning curve ---------------------------------------------------------------------------


def learning_curve_figure(curve: LearningCurve) -> Figure:
    """The metric on held-out domains, of heads that are trained on parts of the images."""
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
    name = per if per.startswith("training") else f"training {per}"
    # the number of images has a logarithmic scale
    ticks = {
        math.log(point.images_per_class): _images(point.images_per_class) for point in curve.points
    }
    at = dict(zip(ticks, curve.points, strict=True))
    average = Line(
        "expected",
        "circle",
        [
            (x, point.average, f"Average\n{ticks[x]} {per}: {number(point.average, 1)} %")
            for x, point in at.items()
        ],
    )
    strokes = [
        (x, value, f"{domain}\n{ticks[x]} {per}: {number(value, 1)} %")
        for x, point in at.items()
        for domain, value in point.domains.items()
    ]
    description = f"{metric.title} on held-out domains by {per}, {points}."
    return Figure(
        title=title,
        text=f"{curve.text} Measured with heads of {curve.model}, trained on parts of the images "
        "of all training domains together.",
        chart=line_chart(f"{metric.title} by {per}", description, [average], ticks, name, strokes),
        legend=[
            Key("expected", "circle", "average over the held-out domains"),
            Key("stroke", "level", "one held-out domain"),
        ],
        table=Table("learning-curve", f"{metric.title} by {per}", columns, rows),
    )


def _images(value: float) -> str:
    """A mean number of images; decimals matter for a few only."""
    return number(value, 0 if value >= 10 or value == round(value) else 1)


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
        return advice.text, (f"oodzoo fit {STORE_FOLDER} --max-ms {limit[1]} --out faster",)
    names = {"STORE": STORE_FOLDER, "MODEL": _NEW_FOLDERS.get(advice.kind, "MODEL"), "NEW": "tuned"}
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


# --- the end of the output ------------------------------------------------------------------------

Pairs = list[tuple[str, str]]


def verdict(run: Run, width: int) -> list[str]:
    """The result of a run: a sentence, and three numbers with what they mean."""
    if run.evaluation is not None:
        sentence, numbers = _measured(run, run.evaluation)
    elif run.ranking is not None:
        sentence, numbers = _expected(run, run.ranking)
    else:
        return []
    return [*wrapped(f"Result: {sentence}", width), *aligned(numbers, width)]


def _measured(run: Run, evaluation: Evaluation) -> tuple[str, Pairs]:
    best, ranking = evaluation.recommended, run.ranking
    main = (
        f"{described(best.choice, best.models)} {task_of(evaluation.task).achieves(best.average)}, "
        "measured on each domain without using it."
    )
    sizes = {len(cell.models) for cell in evaluation.recommended_row.cells.values()}
    others = ""
    if sizes != {len(best.models)} and len(best.models) > 1:
        low, high = min(sizes), max(sizes)
        models = count(low, "model") if low == high else f"{span(low, high)} models"
        others = (
            f"Without each domain, {models} were chosen and measured; on all, {len(best.models)}."
        )
    sentences = (main, others, chosen_otherwise(evaluation), why_not_the_highest(evaluation))
    expect = f"{best.average:.1f} %"
    if best.interval is not None:
        expect += f" (90 % interval {span(*best.interval)} %)"
    worst = min(best.domains, key=best.domains.__getitem__)
    expect += f"; hardest domain: {worst}, {best.domains[worst]:.1f} %"
    pairs = [(task_of(evaluation.task).measure.name, expect)]
    if failing := failing_class(evaluation.diagnosis):
        pairs.append(("hardest class", f"{failing[0]}, {failing[1]:.0f} % recognised"))
    other, name = evaluation.single, "the top model alone"
    if best.choice == SINGLE.name:
        other, name = evaluation.pool, "a pool of heads"
    elif best.choice == POOL.name and len(best.models) == 1:
        name = "the top-ranked model with a plain head"
    gain = f"{compared(best.average, other.average)} {name} ({other.average:.1f} %)"
    pairs += [("cost", cost_in_words(best.models, ranking)), ("compared", gain)]
    if ranking is not None and has_target(ranking):
        first = ranking.rows[0]
        interval = f"90 % interval {span(*first.accuracy_interval)} %"
        text = f"{first.expected_accuracy:.1f} % to expect of {first.model} alone ({interval})"
        pairs.append(("target", text))
    # less time per image that costs nothing that is shown
    budgets = [each for each in evaluation.advice if each.kind == "budget"]
    free = [each.text for each in budgets if each.gain is not None and each.gain > -0.05]
    return " ".join(filter(None, sentences)), [*pairs, *(("faster", text) for text in free[:1])]


def _expected(run: Run, ranking: Ranking) -> tuple[str, Pairs]:
    first, metric = ranking.rows[0], task_of(ranking.task).measure.name
    sentence = (
        f"{first.model} leads the ranking. Nothing was measured on a domain that the choice did "
        "not use, which needs three domains."
    )
    interval = f"90 % interval {span(*first.accuracy_interval)} %"
    place = f"1 of {count(len(ranking.rows), 'model')}"
    if first.rank_interval is not None:
        place += f"; 90 % interval {span(*first.rank_interval)}"
    pairs = [
        (metric, f"{first.expected_accuracy:.1f} % to expect ({interval})"),
        ("cost", cost_in_words([first.model], ranking)),
        ("rank", place),
    ]
    made = run.predictor
    if made is not None and set(made.models) != {first.model}:
        choice, cost = shown_choice(made.choice, made.models), cost_in_words(made.models, ranking)
        pairs.append(("predictor", f"{choice} of {cost}; its {metric} was not measured"))
    return sentence, pairs

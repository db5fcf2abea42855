"""The number that the page is about: its interval, the domains behind it, and what it means."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from oodzoo.evaluation.diagnosis import failing_class
from oodzoo.evaluation.result import Evaluation
from oodzoo.ranking.result import Ranking
from oodzoo.report.blocks import Measured
from oodzoo.report.chart import Scale, mark, percent, whisker
from oodzoo.report.expected import choice_is_repeated, interval_text, where
from oodzoo.report.numbers import number, significant, span
from oodzoo.report.svg import Drawing
from oodzoo.report.terms import has_target
from oodzoo.task import Kind, Task
from oodzoo.task.words import WORDS

Interval = tuple[float, float] | None


def measured(evaluation: Evaluation) -> Measured:
    """The metric of what is recommended, measured on domains that were left out."""
    best, words = evaluation.recommended, WORDS[evaluation.task]
    notes = []
    if best.interval is not None:
        notes.append(f"90 % interval for a new domain: {span(*best.interval)} %")
    if words.second.means:
        notes.append(_second(evaluation))
    return Measured(
        f"{number(best.average, 1)} %",
        f"{words.metric.name} on unseen domains, measured",
        "; ".join(notes),
        _strip(evaluation.task, best.average, best.interval, best.domains),
    )


def _second(evaluation: Evaluation) -> str:
    """The second metric, averaged over the test domains."""
    second, name = WORDS[evaluation.task].second, Task(evaluation.task).second_metric
    value = fmean(evaluation.recommended_row.measure(name).values())
    mean = ", mean over outputs" if evaluation.outputs else ", in the units of the labels"
    units = second.unit or mean
    return f"{second.name} {significant(value)}{units}"


def expected(ranking: Ranking) -> Measured:
    """The expected metric of the top model, without an evaluation."""
    first = ranking.rows[0]
    note = interval_text(ranking, first)
    if choice_is_repeated(ranking):
        note += "; the choice of the model is part of the estimate"
    by_domain = {fold.domain: fold.accuracy for fold in first.folds}
    chart = _strip(ranking.task, first.expected_accuracy, first.accuracy_interval, by_domain)
    return Measured(
        f"{number(first.expected_accuracy, 1)} %",
        f"expected {WORDS[ranking.task].metric.name} {where(ranking)}",
        note,
        None if has_target(ranking) else chart,
    )


# --- what it means -------------------------------------------------------------------------------


def meaning(evaluation: Evaluation) -> str:
    """What the measured number means for a new domain, and where it is worst."""
    best = evaluation.recommended
    text = _meaning(evaluation.task, best.average, best.interval)
    hardest_class = ""
    if failing := failing_class(evaluation.diagnosis):
        hardest_class = (
            f" The hardest class is {failing[0]}: {number(failing[1])} % of its images are "
            "recognised."
        )
    if len(best.domains) < 2:
        return text + hardest_class
    order = sorted(best.domains, key=best.domains.__getitem__)
    return (
        f"{text} The hardest of the {len(order)} held-out domains is {order[0]}, with "
        f"{number(best.domains[order[0]], 1)} %; the easiest is {order[-1]}, with "
        f"{number(best.domains[order[-1]], 1)} %.{hardest_class}"
    )


def expected_meaning(ranking: Ranking) -> str:
    """What the expected number means."""
    first = ranking.rows[0]
    place = "the target" if has_target(ranking) else "a new domain"
    return _meaning(ranking.task, first.expected_accuracy, first.accuracy_interval, place)


_MEANINGS: dict[Kind, str] = {
    "classification": "Of 100 images of {place}, expect about {value} to be classified correctly",
    "regression": "In {place}, expect about {value} % of the variance of the labels to be "
    "predicted",
    "multilabel": "In {place}, expect an average precision of about {value} %",
}


def _meaning(task: Kind, value: float, interval: Interval, place: str = "a new domain") -> str:
    text = _MEANINGS[task].format(place=place, value=number(value))
    if interval is None:
        return f"{text}."
    how_sure = "in nine of ten new domains" if place == "a new domain" else "with 90 % certainty"
    unit = "" if task == "classification" else " %"
    low, high = (number(end) for end in interval)
    return f"{text}: {how_sure}, between {low} and {high}{unit}."


# --- a small chart -------------------------------------------------------------------------------


def _strip(task: Kind, value: float, interval: Interval, domains: Mapping[str, float]) -> Drawing:
    """The number, its interval, and a stroke for each held-out domain, up to 100 %."""
    metric, width, middle = WORDS[task].metric, 340, 16
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

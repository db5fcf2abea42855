"""The section "Single models and combinations": accuracy, by domain and number of models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from oodzoo.combining.evaluation.result import Evaluation, Recommended
from oodzoo.combining.evaluation.rows import Row
from oodzoo.combining.one_head import ENSEMBLE, SINGLE
from oodzoo.combining.pool import POOL
from oodzoo.combining.selection import SELECTION
from oodzoo.combining.statements import FINE_TUNED, titled, titles
from oodzoo.combining.ways import COMBINATIONS
from oodzoo.core.tables import Column, Table
from oodzoo.core.text import count, duration, listed, number, span
from oodzoo.ranking.testbed.published import YOURS, Published
from oodzoo.report.chart import (
    Chart,
    Drawing,
    Line,
    Scale,
    Size,
    axis_above,
    edge_note,
    in_both_sizes,
    line_chart,
    mark,
    percent,
    shortened,
    whisker,
)
from oodzoo.report.page import Figure, Key, Section
from oodzoo.report.recommendation import MOST_NAMES
from oodzoo.tasks import task_of
from oodzoo.tasks.task import MEASURES, Measure

_SHAPES = ("circle", "triangle", "square", "diamond")


def shape_of(way: str) -> str:
    """The shape of the marks of a combination."""
    return _SHAPES[[*COMBINATIONS].index(way) % len(_SHAPES)]


BASELINES = {
    "random_features": "Random features",
    "paper_selection": "Paper's selection",
    "oracle": "Oracle",
    "zero_shot": "Zero-shot",
}
BEST_BY = "best_by_"

LANE = 19


@dataclass(frozen=True)
class Method:
    """A row of the evaluation; `kind` and `shape` are those of its marks."""

    key: str
    title: str
    kind: str
    shape: str
    row: Row

    @property
    def by_domain(self) -> bool:
        """Whether charts show it on each held-out domain, not only on average."""
        return self.kind in COMBINATIONS


@dataclass(frozen=True)
class Lane:
    """The accuracy of a method, on average or on one domain, with its standard error.

    `chosen` says whether the method was chosen without the domain.
    """

    method: Method
    value: float
    error: float | None
    chosen: bool = False

    @property
    def title(self) -> str:
        return f"{self.method.title} (chosen)" if self.chosen else self.method.title


def methods(evaluation: Evaluation) -> list[Method]:
    """What is recommended, the combinations, then baselines: scores by name."""
    rows = evaluation.rows
    best = Method("recommended", "Recommended", "recommended", "star", evaluation.recommended_row)
    main = [
        Method(name, way.title, name, shape_of(name), rows[name])
        for name, way in COMBINATIONS.items()
        if name in rows
    ]
    if evaluation.fine_tuned is not None:
        row = evaluation.fine_tuned
        main.append(Method(FINE_TUNED, titles()[FINE_TUNED], SINGLE.name, "wedge", row))
    adapted = [
        Method(f"{key}_with_target", f"{COMBINATIONS[key].title} with target", key, "wedge", row)
        for key, row in evaluation.with_target.items()
    ]
    named = [key for key in BASELINES if key in rows]
    others = sorted(evaluation.baselines.keys() - BASELINES)
    names = BASELINES | {key: key.replace(BEST_BY, "Best by ") for key in others}
    baselines = [
        Method(key, names[key], "baseline", "line", rows[key]) for key in [*named, *others]
    ]
    return [best, *main, *adapted, *baselines]


def comparison(evaluation: Evaluation) -> dict[str, list[Lane]]:
    """The accuracy of all methods on average, then of the main ones on each held-out domain."""
    tried = methods(evaluation)
    groups = {"Average": [_lane(method, None) for method in tried]}
    for domain in evaluation.domains:
        choice = evaluation.recommended.choices[domain]
        lanes = [_lane(method, domain) for method in tried if method.by_domain]
        groups[domain] = [replace(lane, chosen=lane.method.key == choice) for lane in lanes]
    return groups


def _lane(method: Method, domain: str | None) -> Lane:
    """The accuracy of a method on a domain; on average if it is None."""
    row = method.row
    error = row.error or {"average": None, "domains": {}}
    if domain is None:
        return Lane(method, row.average, error["average"])
    return Lane(method, row.measure(row.metric)[domain], error["domains"].get(domain))


def combination_section(evaluation: Evaluation) -> Section:
    """Accuracy of single and combined models on held-out domains."""
    top, words = _top(evaluation.top_k), task_of(evaluation.task)
    lead = (
        "Each domain is held out once; linear heads are trained on the other domains. "
        "Single is the top model (ranked without the held-out domain), Pool averages "
        f"{words.pooled_words} of the heads of some models, with weights, Ensemble concatenates "
        f"the features of {top}, and Selection keeps features of all models. One of them is chosen "
        f"without the held-out domain; Recommended is the {words.measure.name} of these choices."
    )
    if evaluation.tuning is not None:
        lead += (
            " Fine-tuned is the top model, all of it trained on the other domains "
            f"({duration(evaluation.tuning.seconds)} of training for a held-out domain, on "
            f"{evaluation.tuning.device})."
        )
    if words.explained:
        lead += f" {words.explained}"
    if evaluation.with_target:
        lead += " Pool with target knows the unlabelled images of the held-out domain."
    if "paper_selection" in evaluation.baselines:
        lead += f" Paper's selection keeps the informative features of {top}."
    if "oracle" in evaluation.baselines:
        lead += " Oracle picks the best model with the labels of the held-out domain."
    if "zero_shot" in evaluation.baselines:
        lead += " Zero-shot compares images with the names of the classes, without training."
    if any(key.startswith(BEST_BY) for key in evaluation.baselines):
        lead += " “Best by X”: the top model under score X."
    blocks = [comparison_figure(evaluation)]
    if evaluation.outputs:
        blocks.append(outputs_figure(evaluation))
    blocks += [decision_figure(evaluation), pools_figure(evaluation)]
    if len(evaluation.ablation) > 1:
        blocks.append(_models_figure(evaluation))
    if evaluation.by_rule:
        blocks.append(_rules_figure(evaluation))
    if (beside := evaluation.beside_published()) is not None:
        blocks.append(published_figure(beside))
    return Section(
        "combination", "Single models and combinations", lead, blocks, short="Combination"
    )


def _top(top_k: int | dict[str, int]) -> str:
    numbers = top_k.values() if isinstance(top_k, dict) else [top_k]
    low, high = min(numbers), max(numbers)
    if low != high:
        return f"the top {span(low, high)} models"
    return "the top model" if low == 1 else f"the top {low} models"


# --- accuracy on each held-out domain -------------------------------------------------------------


def comparison_figure(evaluation: Evaluation, *, baselines: bool = True) -> Figure:
    """Accuracy of all methods on average, and of the main ones on each held-out domain.

    `baselines=False` leaves the baselines out of the chart.
    """
    metric = task_of(evaluation.task).measure
    groups = {
        name: [lane for lane in lanes if baselines or lane.method.kind != "baseline"]
        for name, lanes in comparison(evaluation).items()
    }
    averages = groups["Average"]
    shown = ", ".join(
        f"{lane.method.title} {number(lane.value, 1)} %"
        for lane in averages
        if lane.method.kind != "baseline"
    )
    summary = f"Average over held-out domains: {shown}."
    advice = {each.text for each in evaluation.advice}  # has a section of its own
    text = " ".join(line for line in evaluation.findings() if line not in advice)
    if any(lane.error is not None for lane in averages):
        text += " Horizontal lines are standard errors over trials."
    values = [lane.value for lanes in groups.values() for lane in lanes]
    return Figure(
        title=f"{metric.title} on unseen domains",
        text=text + edge_note(values, metric.lowest),
        chart=_comparison_chart(groups, metric, summary),
        table=_comparison_table(evaluation),
    )


def _comparison_table(evaluation: Evaluation) -> Table:
    main = task_of(evaluation.task).measure
    columns = [
        Column("Method", "method", text=True),
        Column("Held-out domain", "domain", text=True),
        Column(main.heading, evaluation.metric, 1),
        Column("Standard error", "standard_error", 2),
        *(
            Column(_heading(evaluation, key), key, MEASURES[key].digits)
            for key in _others(evaluation)
        ),
        Column("Features", "n_features", 0),
        Column("Kept %", "kept_percent", 1),
        Column("ms / image", "milliseconds"),
        Column("Params, M", "parameters_million", 2),
        Column("Models", "models", text=True),
    ]
    rows = [
        _comparison_row(evaluation, method, domain)
        for method in methods(evaluation)
        for domain in (None, *evaluation.domains)
    ]
    ident = evaluation.metric.replace("_", "-")
    return Table(ident, f"{main.title} of combinations by held-out domain", columns, rows)


def _others(evaluation: Evaluation) -> dict[str, str]:
    """All measures but the main one: their names in tables, and those in the evaluation."""
    return {_KEYS.get(name, name): name for name in evaluation.single.measures[1:]}


_KEYS = {"balanced": "balanced_accuracy"}


def _heading(evaluation: Evaluation, key: str) -> str:
    """Numbers of different units may be averaged."""
    mean = ", mean over outputs" if key == "absolute_error" and evaluation.outputs else ""
    return MEASURES[key].heading + mean


def _comparison_row(evaluation: Evaluation, method: Method, domain: str | None) -> list[Any]:
    lane = _lane(method, domain)
    cells = method.row.cells
    cell = None if domain is None else cells[domain]
    shown = list(cells.values()) if cell is None else [cell]
    return [
        method.title,
        domain or "average",
        lane.value,
        lane.error,
        *(_of(method.row.measure(name), domain) for name in _others(evaluation).values()),
        cell.n_features if cell else None,
        100 * _of(evaluation.feature_ratio, domain) if method.key == SELECTION.name else None,
        _mean([each.milliseconds for each in shown]),
        _mean([None if each.parameters is None else each.parameters / 1e6 for each in shown]),
        cell.models if cell else None,
    ]


def _of(values: dict[str, float], domain: str | None) -> float:
    return fmean(values.values()) if domain is None else values[domain]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def _comparison_chart(groups: dict[str, list[Lane]], metric: Measure, description: str) -> Chart:
    ends = [
        lane.value + sign * (lane.error or 0)
        for lanes in groups.values()
        for lane in lanes
        for sign in (-1, 1)
    ]

    def draw(size: Size) -> Drawing:
        gap, top = (30, 30) if size.narrow else (12, 40)
        left, right = (146, size.width - 46) if size.narrow else (390, size.width - 60)
        heights = [LANE * len(lanes) + gap for lanes in groups.values()]
        bottom = top + sum(heights)
        title = f"{metric.title} of combinations by held-out domain"
        drawing = Drawing(size.width, bottom + 6, title, description)
        scale = percent(ends, left, right, lowest=metric.lowest)
        tops = [top + sum(heights[:at]) for at in range(len(heights))]
        pieces = [(y + 26, y + height) for y, height in zip(tops, heights, strict=True)]
        axis_above(
            drawing,
            scale,
            top - 6,
            bottom,
            most=4 if size.narrow else 6,
            unit=" %",
            pieces=pieces if size.narrow else [],
        )
        for (name, lanes), y in zip(groups.items(), tops, strict=True):
            if size.narrow:
                drawing.name(0, y + 20, name, size.width - 10, kind="head")
            else:
                drawing.name(0, y + 16, name, 164, kind="head")
                drawing.line(0, y - 2, size.width, y - 2, "rule")
            start = y + (26 if size.narrow else 2)
            for at, lane in enumerate(lanes):
                _draw_lane(drawing, lane, name, start + LANE * at, scale, size, left)
        return drawing

    return in_both_sizes(draw)


def _draw_lane(
    drawing: Drawing, lane: Lane, group: str, y: float, scale: Scale, size: Size, left: float
) -> None:
    method = lane.method
    tip = f"{group}\n{method.title}: {number(lane.value, 1)} %"
    middle, x = y + LANE / 2, scale(lane.value)
    if size.narrow:
        short = lane.title.removeprefix("Best by ")
        title, style = shortened(short, left - 10, 11), "font-size:11px"
    else:
        title, style = shortened(lane.title, 205), None
    drawing.text(left - 10, middle + 4, title, "lane", end="end", data_tip=tip, style=style)
    drawing.line(left, middle, x, middle, "stem")
    end = x
    if lane.error is not None:
        tip += f" ± {number(lane.error, 1)}"
        low, end = scale(lane.value - lane.error), scale(lane.value + lane.error)
        whisker(drawing, middle, low, end, method.kind, tip)
    mark(drawing, method.shape, x, middle, f"dot {method.kind}", tip)
    drawing.text(max(x, end) + 10, middle + 4, number(lane.value, 1), "value")


# --- what is chosen -------------------------------------------------------------------------------

MOST_MODELS = 12
"""Longer lists of the models of pools start folded."""


def decision_figure(evaluation: Evaluation) -> Figure:
    """Which combination was chosen, on all domains and without each of them, and why."""
    best = evaluation.recommended
    columns = [
        Column("Held-out domain", "domain", text=True),
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
        table=Table("choices", "What is chosen without each held-out domain", columns, rows),
        folded=False,
    )


def pools_figure(evaluation: Evaluation) -> Figure:
    """The models of the pools, those of most pools first."""
    pools = {domain: evaluation.pool.cells[domain].models for domain in evaluation.domains}
    times = Counter(model for models in pools.values() for model in models)
    best = evaluation.recommended
    final = best.models if best.choice == POOL.name else ()
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
        f"The pools of the held-out domains have {_models(min(sizes), max(sizes))} each, chosen "
        "without the held-out domain. Numbers are places in a pool: 1 has the largest share."
    )
    if max(sizes) == 1:
        text = "Every pool is a single model, chosen without the held-out domain."
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
    ways = COMBINATIONS.items()
    shown = [f"{way.title} {_both(best, n)} %" for n, way in ways if n in best.estimates]
    missing = [way.title for n, way in ways if n not in best.estimates]
    where = "held-out domains and within the domains" if best.within else "held-out domains"
    text = (
        "Each combination is tried on the training domains: holding out each of them, and by "
        "cross-validation within them, which sees no shift but varies less. A pool is chosen, "
        "unless another combination is better on held-out domains by more than these differ and "
        "not worse within; the single model, if the pool is much worse somewhere; a cheaper one, "
        f"if it is not less accurate in any domain. On all domains ({where}): {', '.join(shown)}; "
        f"chosen: {_before(evaluation)}."
    )
    if best.choice == FINE_TUNED:
        text += (
            " Fine-tuning the top model is better than that by more than a standard error between "
            "the held-out domains, and recommended."
        )
    if best.disagreement:
        text += f" {best.disagreement}"
    if missing:
        verb = "exceeds" if len(missing) == 1 else "exceed"
        text += f" {listed(missing)} {verb} the limits on models or time."
    return text


def _both(best: Recommended, name: str) -> str:
    """The accuracy on held-out domains and within the domains."""
    values = [best.estimates[name], *([best.within[name]] if name in best.within else [])]
    return " and ".join(number(value, 1) for value in values)


def _before(evaluation: Evaluation) -> str:
    """What is recommended without fine-tuning."""
    best, tuning = evaluation.recommended, evaluation.tuning
    return titled(best.choice, best.models) if tuning is None else titles()[tuning.gain.over]


def _choices(evaluation: Evaluation) -> str:
    """What was chosen without each held-out domain."""
    choices = evaluation.recommended.choices
    groups = {
        name: [domain for domain in evaluation.domains if choices[domain] == name]
        for name in titles()
    }
    used = {name: domains for name, domains in groups.items() if domains}
    if len(used) == 1:
        (only,) = used
        what = "the same" if only == evaluation.recommended.choice else titles()[only]
        return f"Without each held-out domain, the choice is {what}."
    parts = [f"{titles()[name]} without {listed(used[name], MOST_NAMES)}" for name in used]
    return f"For the held-out domains: {'; '.join(parts)}."


def _promise(evaluation: Evaluation) -> str:
    average = number(evaluation.recommended.average, 1)
    expected = f"{task_of(evaluation.task).measure.name} to expect is the measured {average} %."
    return f"Estimates only compare the combinations; the {expected}"


# --- accuracy by number of models ----------------------------------------------------------------


def _models_figure(evaluation: Evaluation) -> Figure:
    """Averages of the ensemble and the paper's selection for each number of models."""
    entries = evaluation.ablation
    names = {"ensemble": ENSEMBLE.title, "paper_selection": BASELINES["paper_selection"]}
    values = {
        "ensemble": [each.ensemble.average for each in entries.values()],
        "paper_selection": [each.selection.average for each in entries.values()],
    }
    marks = {
        "ensemble": ("ensemble", shape_of(ENSEMBLE.name)),
        "paper_selection": ("baseline", shape_of(SELECTION.name)),
    }
    lines, best = [], []
    for key, title in names.items():
        points = [
            (k, value, f"{title}, {count(k, 'model')}: {number(value, 1)} %")
            for k, value in zip(entries, values[key], strict=True)
        ]
        lines.append(Line(*marks[key], points))
        k, value, _ = max(points, key=lambda point: point[1])
        best.append(f"{title} with {count(k, 'model')} ({number(value, 1)} %)")
    summary = f"Best: {', '.join(best)}; averages over held-out domains."
    columns = [Column("Models", "top_k", 0)]
    columns += [Column(f"{title} %", key, 1) for key, title in names.items()]
    columns.append(Column("Features kept %", "kept_percent", 1))
    kept = [100 * _of(each.feature_ratio, None) for each in entries.values()]
    title = f"{task_of(evaluation.task).measure.title} by number of models"
    ident = f"{evaluation.metric.replace('_', '-')}-over-k"
    return Figure(
        title=title,
        text=summary,
        chart=line_chart(title, summary, lines, {k: str(k) for k in entries}, "models"),
        legend=[Key(*marks[key], names[key]) for key in names],
        table=Table(ident, title, columns, list(zip(entries, *values.values(), kept, strict=True))),
    )


def _rules_figure(evaluation: Evaluation) -> Figure:
    """The averages by each of DomainBed's rules."""
    columns = [Column("Selected by", "rule", text=True)]
    rows: list[list[Any]] = [[rule] for rule in evaluation.by_rule]
    for name in next(iter(evaluation.by_rule.values())):
        columns.append(Column(f"{titles()[name]} %", name, 1))
        columns.append(Column("Standard error", f"{name}_error", 2))
        for line, each in zip(rows, evaluation.by_rule.values(), strict=True):
            error = each[name].error
            line += [each[name].average, None if error is None else error["average"]]
    title = "Accuracy by DomainBed's selection rules"
    return Figure(
        title=title,
        text=f"Elsewhere, {evaluation.rule} selects among draws and steps. The oracle sees labels "
        "of the held-out domain: a new domain has none.",
        table=Table("accuracy-by-rule", title, columns, rows),
        folded=False,
    )


# --- several numbers or labels --------------------------------------------------------------------


def outputs_figure(evaluation: Evaluation) -> Figure:
    """The measures of each output, of what is recommended, the pool and the single model."""
    words, main = task_of(evaluation.task), evaluation.metric
    methods = {
        "Recommended": evaluation.recommended_row.outputs,
        "Pool": evaluation.pool.outputs,
        "Single": evaluation.single.outputs,
    }
    found = methods["Recommended"]
    names = list(found[evaluation.outputs[0]])
    columns = [
        Column(words.output_noun.capitalize(), words.output_noun, text=True),
        Column("Method", "method", text=True),
        *(Column(MEASURES[name].heading, name, MEASURES[name].digits) for name in names),
    ]
    rows: list[list[Any]] = [
        [output, method, *each[output].values()]
        for output in evaluation.outputs
        for method, each in methods.items()
    ]
    order = sorted(found, key=lambda output: found[output][main])
    low, high = (f"{each} ({number(found[each][main], 1)} %)" for each in (order[0], order[-1]))
    text = f"Of what is recommended, {high} is predicted best and {low} worst. Values are averages "
    if not words.has_probabilities:
        text += "over the held-out domains; each absolute error is in the unit of its output."
    else:
        text += "over the held-out domains in which the label occurs."
    title = f"{words.measure.title} of each {words.output_noun}"
    table = Table("outputs", f"{title}, average over held-out domains", columns, rows)
    return Figure(title=title, text=text, table=table, folded=table.long)


# --- published accuracies -------------------------------------------------------------------------


def published_figure(beside: Published) -> Figure:
    """A table of published accuracies with those of this evaluation among them."""
    best = next(each for each in beside.figures if each.source != YOURS)
    mine = next(each for each in beside.figures if each.source == YOURS)
    summary = (
        f"Your best row, {mine.method}: {number(mine.accuracy, 1)} %; the best published one, "
        f"{best.method} of {best.source}: {number(best.accuracy, 1)} %."
    )
    columns = [
        Column("Method", "method", text=True),
        Column("From", "from", text=True),
        Column("Accuracy %", "accuracy", 1),
    ]
    rows = [[each.method, each.source, each.accuracy] for each in beside.figures]
    caption = f"Accuracy on {beside.dataset}, published and yours"
    return Figure(
        title=f"Beside published results on {beside.dataset}",
        text=f"{summary} {beside.caveat} {beside.cost}",
        table=Table("published", caption, columns, list(rows)),
        folded=False,
    )

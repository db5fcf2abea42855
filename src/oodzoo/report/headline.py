"""The first screen of the page: the verdict, its measured number, and what to do now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

from oodzoo.combining.evaluation.result import Evaluation
from oodzoo.combining.statements import (
    CHOICES,
    TITLES,
    caution,
    chosen_otherwise,
    described,
    failing_class,
    why_not_the_highest,
)
from oodzoo.combining.verdict import Recommended
from oodzoo.core.packages import install_hint
from oodzoo.core.text import count, listed, number, significant, span, typed
from oodzoo.ranking.result import Ranking
from oodzoo.report.blocks import Headline, Measured, Step, Tile
from oodzoo.report.chart import Drawing, Scale, mark, percent, whisker
from oodzoo.report.data import dimensions, leaks_remark
from oodzoo.report.ranking import choice_is_repeated, has_target, interval_text, where
from oodzoo.report.recommendation import MOST_NAMES, Cost, cost_of
from oodzoo.report.record import DataSummary, PredictorSummary, Run
from oodzoo.tasks import Kind, Task
from oodzoo.tasks.kinds import WORDS

# --- what to do now -------------------------------------------------------------------------------

NOTE = "Run these in the folder of this report, with your own files for the names in capitals."

STORE_FOLDER, SINGLE_FOLDER = "store", "single"
"""Folders in that of the report: the features, and a predictor of the top model."""


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


# --- the number that the page is about ------------------------------------------------------------

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


# --- the first screen -----------------------------------------------------------------------------

_UNFINISHED = (
    "The run has not finished: this page is written again after each stage. If it was stopped, the "
    "same command resumes it."
)


def headline(run: Run) -> Headline:
    """The result of a run, as far as it has got."""
    if run.evaluation:
        shown = _of_evaluation(run, run.evaluation)
    elif run.ranking:
        shown = _of_ranking(run, run.ranking)
    else:
        shown = Headline("This run has no ranking yet.")
    data_tiles = [_data_tile(run.data)] if run.data else []
    warnings = [warning] if run.leaks and (warning := leaks_remark(run.leaks)) else []
    if run.ranking and run.predictor is None:
        warnings.append(_UNFINISHED)
    return replace(
        shown,
        steps=steps(run),
        steps_note=NOTE,
        remarks=[*shown.remarks, *warnings],
        tiles=[*shown.tiles, *data_tiles],
    )


# --- with an evaluation: the recommended choice and its measured accuracy ------------------------


def _of_evaluation(run: Run, evaluation: Evaluation) -> Headline:
    best = evaluation.recommended
    remarks = [*_what_it_is(run, best), *_on_the_target(run.ranking), _compared(evaluation)]
    remarks += filter(None, [caution(evaluation)])
    stated = any(advice.kind == "target_images" for advice in evaluation.advice)
    if (adapted := evaluation.with_target.get("pool")) and not stated:
        remarks.append(
            "With unlabelled images of each test domain, the pool reaches "
            f"{number(adapted.average, 1)} %."
        )
    if run.ranking and best.choice == "single" and best.models[0] == run.ranking.best:
        remarks += _certainty(run.ranking)
    return Headline(
        subject=described(best.choice, best.models),
        measured=measured(evaluation),
        meaning=meaning(evaluation),
        remarks=remarks,
        tiles=_recommended_tiles(run, evaluation),
    )


def _what_it_is(run: Run, best: Recommended) -> list[str]:
    """Its models, and where it is saved."""
    parts = []
    if len(best.models) > 1:
        parts.append(f"Its models are {listed(best.models, MOST_NAMES)}.")
    if made := run.predictor:
        same = made.choice == best.choice and set(made.models) == set(best.models)
        parts.append(_saved(run, made, same=same))
    return [" ".join(parts)] if parts else []


def _saved(run: Run, made: PredictorSummary, *, same: bool) -> str:
    """What the predictor of a run is; `same` if it uses what the headline recommends."""
    adapted = made.choice == "pool" and run.ranking is not None and has_target(run.ranking)
    if same and not adapted:
        return f"It is saved in {made.folder}/."
    what = f"a predictor of {count(len(made.models), 'model')}"
    if same:
        what = "it"
    elif made.choice in CHOICES:
        what = described(made.choice, made.models)
    if adapted:
        what += ", adapted to the images of the target"
    names = "" if same or len(made.models) == 1 else f": {listed(made.models, MOST_NAMES)}"
    return f"{made.folder}/ holds {what}{names}."


def _compared(evaluation: Evaluation) -> str:
    """How the metric was measured, and that of everything else."""
    best, metric = evaluation.recommended, WORDS[evaluation.task].metric.name
    others = [
        f"{title} {number(evaluation.rows[name].average, 1)} %"
        for name, title in TITLES.items()
        if name in evaluation.rows and name != best.choice
    ]
    otherwise = f"{chosen} " if (chosen := chosen_otherwise(evaluation)) else ""
    text = (
        f"The {metric} is measured on each domain in turn, with everything chosen and trained "
        f"without it. {otherwise}For comparison: {', '.join(others)}"
    )
    if oracle := evaluation.oracle:
        text += (
            f"; the best single model on each test domain, which is unknown in advance, "
            f"{number(oracle.average, 1)} %"
        )
    if tied := [TITLES[name] for name in evaluation.tied]:
        names = listed(tied, len(tied))
        text += f". Within a standard error of what is recommended, the best first: {names}"
    return " ".join(filter(None, (f"{text}.", why_not_the_highest(evaluation))))


def _on_the_target(ranking: Ranking | None) -> list[str]:
    """What to expect on the target, which was not measured; nothing without a target."""
    if ranking is None or not has_target(ranking):
        return []
    first = ranking.rows[0]
    text = f"On the target, expect {number(first.expected_accuracy, 1)} % of {first.model} alone"
    return [f"{text} ({interval_text(ranking, first)}), estimated without labels."]


def _recommended_tiles(run: Run, evaluation: Evaluation) -> list[Tile]:
    best = evaluation.recommended
    n_models, n_all = len(best.models), len(run.ranking or best.models)
    tiles = [Tile(f"{n_models} of {n_all}", "models" if n_all > 1 else "model")]
    return tiles + _cost_tiles(cost_of(best.models, run.ranking))


def _cost_tiles(cost: Cost) -> list[Tile]:
    """The cost of the models together, as far as it is known."""
    size = None if cost.parameters is None else significant(cost.parameters / 1e6)
    if cost.milliseconds is not None:
        note = f"{size} million parameters" if size else ""
        return [Tile(f"{significant(cost.milliseconds)} ms", "per image", note)]
    return [Tile(f"{size} M", "parameters")] if size else []


# --- without one: the ranking --------------------------------------------------------------------


def _of_ranking(run: Run, ranking: Ranking) -> Headline:
    first, n_models = ranking.rows[0], len(ranking)
    clear = n_models == 1 or not first.rank_interval or first.rank_interval[1] < n_models
    remarks = _certainty(ranking)
    if made := run.predictor:
        alone = made.models == (first.model,)
        saved = _saved(run, made, same=alone)
        metric = WORDS[ranking.task].metric.name
        unmeasured = f" Its {metric} was not measured, which needs three domains."
        remarks.append(saved if alone else saved + unmeasured)
    return Headline(
        "" if clear else "leads.",
        first.model,
        clear,
        measured=expected(ranking),
        meaning=expected_meaning(ranking),
        remarks=remarks,
        tiles=_ranking_tiles(ranking),
    )


def _certainty(ranking: Ranking) -> list[str]:
    """How certain it is that the top model is the best; nothing if that is not known."""
    first, others = ranking.rows[0], len(ranking) - 1
    if not first.rank_interval or not others:
        return []
    if first.rank_interval[1] == 1:
        rest = "the other model" if others == 1 else f"the other {others} models"
        return [f"It is clearly ahead of {rest}."]
    if not first.tied:
        return [f"90 % interval of its rank: {span(*first.rank_interval)}."]
    domains = count(len(first.folds), "domain")
    return [f"With {domains}, it is statistically tied with {listed(first.tied, 3)}."]


def _ranking_tiles(ranking: Ranking) -> list[Tile]:
    first = ranking.rows[0]
    note = ""
    if first.rank_interval and len(ranking) > 1:
        note = f"90 % interval of the rank: {span(*first.rank_interval)}"
    return [Tile(f"1st of {len(ranking)}", "rank", note)]


def _data_tile(data: DataSummary) -> Tile:
    return Tile(number(data.images), "images" if data.images != 1 else "image", dimensions(data))

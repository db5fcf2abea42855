"""The first screen of the page: the verdict, its measured number, and what to do now."""

from __future__ import annotations

from dataclasses import replace

from oodzoo._text import count
from oodzoo.combination.verdict import CHOICES
from oodzoo.evaluation.recommended import TITLES, Recommended, described
from oodzoo.evaluation.result import Evaluation, why_not_the_highest
from oodzoo.ranking.result import Ranking
from oodzoo.record import DataSummary, PredictorSummary, Run
from oodzoo.report.blocks import Headline, Tile
from oodzoo.report.data import dimensions
from oodzoo.report.expected import interval_text
from oodzoo.report.leaks import remark
from oodzoo.report.measured import expected, expected_meaning, meaning, measured
from oodzoo.report.numbers import listed, number, significant, span
from oodzoo.report.recommendation import MOST_NAMES, Cost, cost_of
from oodzoo.report.steps import NOTE, steps
from oodzoo.report.terms import has_target
from oodzoo.task.words import WORDS

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
    warnings = [warning] if run.leaks and (warning := remark(run.leaks)) else []
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
    if evaluation.caution:
        remarks.append(evaluation.caution)
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
    otherwise = f"{evaluation.chosen_otherwise} " if evaluation.chosen_otherwise else ""
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

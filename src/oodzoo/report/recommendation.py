"""The recommended way to combine models: what it is, what it costs, and how it was chosen.

The first screen and the section "Single models and combinations" take it from here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from oodzoo._text import count
from oodzoo.combination.verdict import CHOICES
from oodzoo.evaluation.recommended import FINE_TUNED, TITLES, Recommended, titled
from oodzoo.evaluation.result import Evaluation
from oodzoo.features.source import total_cost
from oodzoo.ranking.result import Ranking
from oodzoo.report.blocks import Column, Figure, Table
from oodzoo.report.numbers import listed, number, span
from oodzoo.task.words import WORDS

MOST_NAMES = 6
"""Largest number of names in a sentence."""

MOST_MODELS = 12
"""Longer lists of the models of pools start folded."""


class Cost(NamedTuple):
    """Milliseconds per image and number of parameters; None if not known for all models."""

    milliseconds: float | None
    parameters: float | None


def cost_of(models: Sequence[str], ranking: Ranking | None) -> Cost:
    """Sum the cost of models; layers of one network count once."""
    ranked = {row.model: row for row in ranking.rows} if ranking else {}
    if not ranked.keys() >= set(models):
        return Cost(None, None)
    rows = [ranked[model] for model in models]
    return Cost(
        total_cost({row.model: row.milliseconds for row in rows}),
        total_cost({row.model: row.parameters for row in rows}),
    )


def decision_figure(evaluation: Evaluation) -> Figure:
    """Which way was chosen, on all domains and without each of them, and why."""
    best = evaluation.recommended
    columns = [
        Column("Test domain", "domain", text=True),
        Column("Chosen", "choice", text=True),
        Column(WORDS[evaluation.task].metric.heading, evaluation.metric, 1),
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
    """How the choice was made; it must say what :mod:`oodzoo.combination.verdict` does."""
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
    expected = f"{WORDS[evaluation.task].metric.name} to expect is the measured {average} %."
    return f"Estimates only compare the ways; the {expected}"

"""The end of a run: the verdict in a sentence, three numbers, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oodzoo.core.tables import aligned
from oodzoo.core.text import count, typed, wrapped

if TYPE_CHECKING:
    from oodzoo.combining.evaluation.result import Evaluation
    from oodzoo.combining.statements import Advice
    from oodzoo.ranking.result import Ranking
    from oodzoo.report.record import Run
    from oodzoo.zoo import ModelSpec

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
    from oodzoo.combining.statements import (
        achieves,
        chosen_otherwise,
        compared,
        described,
        failing_class,
        why_not_the_highest,
    )
    from oodzoo.core.text import span
    from oodzoo.tasks.kinds import WORDS

    best, metric = evaluation.recommended, WORDS[evaluation.task].metric.name
    sentence = (
        f"{described(best.choice, best.models)} {achieves(evaluation.task, best.average)}, "
        "measured on each domain without using it."
    )
    more = (_other_sizes(evaluation), chosen_otherwise(evaluation), why_not_the_highest(evaluation))
    sentence = " ".join(filter(None, (sentence, *more)))
    expect = f"{best.average:.1f} %"
    if best.interval is not None:
        expect += f" (90 % interval {span(*best.interval)} %)"
    worst = min(best.domains, key=best.domains.__getitem__)
    expect += f"; hardest domain: {worst}, {best.domains[worst]:.1f} %"
    alone = best.choice == "single"
    other = evaluation.pool if alone else evaluation.single
    name = "a pool of heads" if alone else "the top model alone"
    if best.choice == "pool" and len(best.models) == 1:
        name = "the top-ranked model with a plain head"
    gain = f"{compared(best.average, other.average)} {name} ({other.average:.1f} %)"
    pairs = [(metric, expect)]
    if failing := failing_class(evaluation.diagnosis):
        pairs.append(("hardest class", f"{failing[0]}, {failing[1]:.0f} % recognised"))
    pairs += [("cost", _cost(best.models, run.ranking)), ("compared", gain)]
    pairs += [("target", text) for text in _on_the_target(run.ranking)]
    pairs += [("faster", each.text) for each in evaluation.advice if _is_free(each)][:1]
    return sentence, pairs


def _on_the_target(ranking: Ranking | None) -> list[str]:
    """What to expect of the top model on the target; nothing without a target."""
    from oodzoo.core.text import span
    from oodzoo.report.ranking import has_target

    if ranking is None or not has_target(ranking):
        return []
    first = ranking.rows[0]
    interval = f"90 % interval {span(*first.accuracy_interval)} %"
    return [f"{first.expected_accuracy:.1f} % to expect of {first.model} alone ({interval})"]


def _other_sizes(evaluation: Evaluation) -> str:
    """Say that other numbers of models were measured than that of what is recommended."""
    from oodzoo.core.text import span

    best = evaluation.recommended
    sizes = {len(cell.models) for cell in evaluation.recommended_row.cells.values()}
    if sizes == {len(best.models)} or len(best.models) == 1:
        return ""
    low, high = min(sizes), max(sizes)
    measured = count(low, "model") if low == high else f"{span(low, high)} models"
    return f"Without each domain, {measured} were chosen and measured; on all, {len(best.models)}."


def _is_free(advice: Advice) -> bool:
    """Whether advice on less time per image costs nothing that is shown."""
    return advice.kind == "budget" and advice.gain is not None and advice.gain > -0.05


def _expected(run: Run, ranking: Ranking) -> tuple[str, Pairs]:
    from oodzoo.combining.statements import shown_choice
    from oodzoo.core.text import span
    from oodzoo.tasks.kinds import WORDS

    first, metric = ranking.rows[0], WORDS[ranking.task].metric.name
    sentence = (
        f"{first.model} leads the ranking. Nothing was measured on a domain that the choice did "
        "not use, which needs three domains."
    )
    low, high = first.accuracy_interval
    expect = f"{first.expected_accuracy:.1f} % to expect (90 % interval {span(low, high)} %)"
    place = f"1 of {count(len(ranking.rows), 'model')}"
    if first.rank_interval is not None:
        place += f"; 90 % interval {span(*first.rank_interval)}"
    pairs = [(metric, expect), ("cost", _cost([first.model], ranking)), ("rank", place)]
    made = run.predictor
    if made is not None and set(made.models) != {first.model}:
        choice = shown_choice(made.choice, made.models)
        what = f"{choice} of {_cost(made.models, ranking)}; its {metric} was not measured"
        pairs.append(("predictor", what))
    return sentence, pairs


def _cost(models: Sequence[str], ranking: Ranking | None) -> str:
    """The number of models, and what they cost together, as far as it is known."""
    from oodzoo.report.recommendation import cost_of

    cost = cost_of(models, ranking)
    parts = [count(len(models), "model")]
    if cost.milliseconds is not None:
        parts.append(f"{_rounded(cost.milliseconds)} ms per image")
    if cost.parameters is not None:
        parts.append(f"{_rounded(cost.parameters / 1e6)} million parameters")
    return ", ".join(parts)


def _rounded(value: float) -> str:
    """Two significant figures, and whole numbers from 10 on.

    Examples
    --------
    >>> _rounded(0.699), _rounded(123.4)
    ('0.7', '123')
    """
    return f"{value:.2g}" if value < 9.95 else f"{value:,.0f}"


def next_steps(run: Run, out: Path, zoo: Sequence[ModelSpec], *, texts: bool) -> Pairs:
    """What can be done with the results, and how."""
    model = typed(out / "model")
    steps = [("look at the report", str(out / "report.html"))]
    if run.predictor is not None:
        takes = "TEXTS.csv|.txt" if texts else "IMAGE|FOLDER ..."
        steps += [
            ("predict", f"oodzoo predict {model} {takes}"),
            ("test on labelled data", f"oodzoo test {model} DATA"),
        ]
        tunable = {spec.name for spec in zoo if spec.kind != "onnx"}
        if not texts and tunable.intersection(run.predictor.models):
            tuned = typed(f"{out.resolve().name}-tuned")
            steps.append(("fine-tune", f"oodzoo tune {model} DATA --out {tuned}"))
    return steps

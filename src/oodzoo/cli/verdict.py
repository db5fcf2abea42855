"""The end of a run: the verdict in a sentence, three numbers, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from oodzoo._text import count

if TYPE_CHECKING:
    from oodzoo.evaluation.result import Evaluation
    from oodzoo.ranking.result import Ranking
    from oodzoo.record import Run
    from oodzoo.zoo import ModelSpec

Pairs = list[tuple[str, str]]

WIDTH = 80


def verdict(run: Run) -> list[str]:
    """The result of a run: a sentence, and three numbers with what they mean."""
    if run.evaluation is not None:
        sentence, numbers = _measured(run, run.evaluation)
    elif run.ranking is not None:
        sentence, numbers = _expected(run, run.ranking)
    else:
        return []
    return [*wrap(f"Result: {sentence}", WIDTH, break_long_words=False), *aligned(numbers)]


def _measured(run: Run, evaluation: Evaluation) -> tuple[str, Pairs]:
    from oodzoo.evaluation.result import achieves, compared, described
    from oodzoo.report.numbers import span
    from oodzoo.task.words import WORDS

    best, metric = evaluation.recommended, WORDS[evaluation.task].metric.name
    sentence = (
        f"{described(best.choice, best.models)} {achieves(evaluation.task, best.average)}, "
        "measured on each domain without using it."
    )
    expect = f"{best.average:.1f} %"
    if best.interval is not None:
        expect += f" (90 % interval {span(*best.interval)} %)"
    worst = min(best.domains, key=best.domains.__getitem__)
    expect += f"; hardest domain: {worst}, {best.domains[worst]:.1f} %"
    alone = best.choice == "single"
    other = evaluation.pool if alone else evaluation.single
    name = "a pool of heads" if alone else "the top model alone"
    gain = f"{compared(best.average, other.average)} {name} ({other.average:.1f} %)"
    return sentence, [
        (metric, expect),
        ("cost", _cost(best.models, run.ranking)),
        ("compared", gain),
    ]


def _expected(run: Run, ranking: Ranking) -> tuple[str, Pairs]:
    from oodzoo.report.numbers import span
    from oodzoo.task.words import WORDS

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
    models = [first.model] if run.predictor is None else run.predictor.models
    return sentence, [(metric, expect), ("cost", _cost(models, ranking)), ("rank", place)]


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
    model = out / "model"
    steps = [("look at the report", str(out / "report.html"))]
    if run.predictor is not None:
        takes = "TEXTS.csv|.txt" if texts else "IMAGE|FOLDER ..."
        steps += [
            ("predict", f"oodzoo predict {model} {takes}"),
            ("test on labelled data", f"oodzoo test {model} DATA"),
        ]
        tunable = {spec.name for spec in zoo if spec.kind != "onnx"}
        if not texts and tunable.intersection(run.predictor.models):
            steps.append(("fine-tune", f"oodzoo tune {model} DATA --out {out.name}-tuned"))
    return steps


def aligned(pairs: Pairs) -> list[str]:
    """Pairs as lines of two columns.

    Examples
    --------
    >>> aligned([("a", "1"), ("long", "2")])
    ['  a     1', '  long  2']
    """
    width = max((len(name) for name, _ in pairs), default=0)
    return [f"  {name:<{width}}  {text}" for name, text in pairs]

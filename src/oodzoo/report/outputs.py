"""How well each of several numbers or labels is predicted."""

from __future__ import annotations

from typing import Any

from oodzoo.evaluation.result import Evaluation
from oodzoo.report.blocks import Column, Figure, Table
from oodzoo.report.numbers import number
from oodzoo.task.words import MEASURES, WORDS


def outputs_figure(evaluation: Evaluation) -> Figure:
    """The measures of each output, of what is recommended, the pool and the single model."""
    words, main = WORDS[evaluation.task], evaluation.metric
    methods = {
        "Recommended": evaluation.recommended_row.outputs,
        "Pool": evaluation.pool.outputs,
        "Single": evaluation.single.outputs,
    }
    found = methods["Recommended"]
    names = list(found[evaluation.outputs[0]])
    columns = [
        Column(words.output.capitalize(), words.output, text=True),
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
    if evaluation.task == "regression":
        text += "over the test domains; each absolute error is in the unit of its output."
    else:
        text += "over the test domains in which the label occurs."
    title = f"{words.metric.title} of each {words.output}"
    table = Table("outputs", f"{title}, average over test domains", columns, rows)
    return Figure(title=title, text=text, table=table, folded=table.long)

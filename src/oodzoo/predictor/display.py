"""A predictor as a table in a notebook."""

from __future__ import annotations

from oodzoo._html import html_table
from oodzoo._numbers import number, significant, span
from oodzoo._text import count, some_of
from oodzoo.combination.verdict import shown_choice
from oodzoo.predictor.left_out import caveat
from oodzoo.predictor.parts import PredictorParts
from oodzoo.predictor.prediction_sets import sets_text
from oodzoo.task import Task
from oodzoo.task.words import WORDS


def predictor_as_html(parts: PredictorParts) -> str:
    """Return a table of the models, with what was measured about their combination."""
    facts = parts.to_dict()
    rows = [
        [
            model["name"],
            "" if model["weight"] is None or len(parts.models) == 1 else number(model["weight"], 2),
            f"{model['kept']:,} of {model['features']:,}",
            "" if model["parameters"] is None else number(model["parameters"]),
            "" if model["milliseconds"] is None else significant(model["milliseconds"]),
            model["licence"] or "",
        ]
        for model in facts["models"]
    ]
    columns = ["model", "weight", "features", "parameters", "ms / image", "licence"]
    shown = [at for at, _ in enumerate(columns) if any(row[at] for row in rows)]
    choice = shown_choice(parts.provenance.choice, parts.models)
    outputs = Task(parts.head.kind).count_outputs(len(parts.classes))
    models = count(len(rows), "model")
    return html_table(
        [columns[at] for at in shown],
        [[row[at] for at in shown] for row in rows],
        caption=f"Predictor ({choice}): {outputs} from {models}",
        notes=[*_measured(parts), *_sets(parts), *_trained(parts)],
        left=("licence",),
    )


def _measured(parts: PredictorParts) -> list[str]:
    provenance = parts.provenance
    if provenance.accuracy is None:
        return []
    interval = provenance.accuracy_interval
    between = "" if interval is None else f" (90 % interval for one domain: {span(*interval)})"
    by_domain = [f"{name} {value:.1f}" for name, value in provenance.accuracy_by_domain.items()]
    domains = f": {some_of(by_domain, 10)}" if by_domain else ""
    metric = WORDS[parts.head.kind].metric.title
    value = number(provenance.accuracy, 1)
    return [f"{metric} on left-out domains: {value} %{between}{domains}."]


def _sets(parts: PredictorParts) -> list[str]:
    if parts.left_out is None:
        return []
    provenance = parts.provenance
    but = caveat(provenance.choice, adapted=provenance.adapted is not None)
    return [
        f"Prediction sets (coverage=0.9): {sets_text(each, parts.classes)}{but}."
        for each in parts.left_out.sets
        if each.level == 0.9
    ]


def _trained(parts: PredictorParts) -> list[str]:
    provenance = parts.provenance
    samples = count(provenance.n_images, "sample")
    of = f" of {provenance.name}" if provenance.name else ""
    domains = count(len(provenance.domains), "domain")
    return [f"Trained on {samples}{of}, {domains}: {some_of(provenance.domains, 10)}."]

"""Every score against the accuracy of linear probes."""

from __future__ import annotations

from typing import Any

from oodzoo.report.blocks import Figure, Section
from oodzoo.report.charts.scatter import scatter
from oodzoo.report.numbers import NOTHING, is_number, listed, number, span
from oodzoo.report.table import Column, Table


def testbed_section(testbed: dict[str, Any]) -> Section | None:
    """Which score orders these models best."""
    scores: dict[str, dict[str, Any]] = testbed.get("scores") or {}
    if not scores:
        return None
    order = sorted(scores, key=lambda name: -_tau(scores[name]))
    accuracy = testbed["accuracy"]
    # a score that only some models have is judged on an easier or a harder order
    whole = max(scores[name].get("models") or 0 for name in order)
    best = next(name for name in order if (scores[name].get("models") or 0) == whole)
    pairs = testbed.get("indistinguishable") or []
    alike = _alike(best, order, pairs)
    finding = (
        f"{best} orders these {len(accuracy)} models best: weighted tau "
        f"{number(scores[best].get('weighted_tau'), 2)}{_interval(scores[best])}."
    )
    if alike and len(alike) == len(order) - 1:
        every = all(len(_alike(name, order, pairs)) == len(alike) for name in order)
        finding = (
            f"No score can be told apart from {'another' if every else 'the best'} here. "
            f"The greatest weighted tau is that of {best}: "
            f"{number(scores[best].get('weighted_tau'), 2)}{_interval(scores[best])}."
        )
    elif alike:
        finding += f" It cannot be told apart from {listed(alike)}."
    figures = (
        Figure(
            title="Score against accuracy",
            text=f"{finding} Accuracy in percent upwards, the score to the right, a point for each "
            "model; τ is the weighted rank correlation, with its interval.",
            panels=[_panel(name, scores, accuracy) for name in order],
            dense=True,
            table=_taus(order, scores),
            folded=False,
        ),
        Figure(
            title="Every score of every model",
            table=_values(order, scores, accuracy, testbed.get("models") or list(accuracy)),
        ),
    )
    lead = (
        "A score is good if it puts models in the order of the accuracy they reach. Here each "
        "is held against linear probes, trained and tested leaving one domain out."
    )
    return Section("testbed", "Which score to trust", lead, figures, short="Scores")


def _tau(score: dict[str, Any]) -> float:
    tau = score.get("weighted_tau")
    return float(tau) if is_number(tau) else -2.0


def _interval(score: dict[str, Any]) -> str:
    interval = score.get("interval")
    return f" ({span(*interval, digits=2)})" if interval else ""


def _alike(one: str, order: list[str], pairs: list[list[str]]) -> list[str]:
    """Scores that the test bed cannot tell from this one."""
    return [name for name in order if [one, name] in pairs or [name, one] in pairs]


def _panel(name: str, scores: dict[str, dict[str, Any]], accuracy: dict[str, float]) -> Any:
    score = scores[name]
    tau = number(score.get("weighted_tau"), 2)
    subtitle = f"τ {tau}{_interval(score)}"
    if tau == NOTHING:
        subtitle = "τ is not defined"
    finding = f"Weighted tau {tau}{_interval(score)}."
    if is_number(score.get("regret")):
        finding += f" Its first choice loses {number(score['regret'], 1)} points."
    return scatter(name, subtitle, score["values"], accuracy, finding)


def _taus(order: list[str], scores: dict[str, dict[str, Any]]) -> Table:
    columns = [
        Column("Score", "score", text=True),
        Column("Weighted tau", "weighted_tau", 2),
        Column("Interval", "interval", 2, interval=True),
        Column("Tau", "tau", 2),
        Column("Regret, points", "regret", 1),
        Column("Models", "models", 0),
        Column("Seconds", "seconds", 2),
        Column("What it is", "title", text=True),
    ]
    rows = []
    for name in order:
        score = scores[name]
        rows.append(
            [
                name,
                score.get("weighted_tau"),
                score.get("interval"),
                score.get("tau"),
                score.get("regret"),
                score.get("models"),
                score.get("seconds"),
                score.get("title"),
            ]
        )
    return Table("scores", "How well each score orders the models", columns, rows)


def _values(
    order: list[str],
    scores: dict[str, dict[str, Any]],
    accuracy: dict[str, float],
    models: list[str],
) -> Table:
    # a score may be named accuracy too
    columns = [Column("Model", "model", text=True), Column("Probe %", "probe_accuracy", 1)]
    columns += [Column(name, name) for name in order]
    rows = [
        [model, accuracy.get(model), *(scores[name]["values"].get(model) for name in order)]
        for model in models
    ]
    return Table("score-values", "Every score of every model", columns, rows)

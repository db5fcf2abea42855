"""The part of a model card about prediction sets and confidence on left-out domains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from oodzoo.predictor.left_out import LeftOut

_CONFIDENCES = (0.0, 0.5, 0.7, 0.9)

Table = Callable[[Sequence[str], Iterable[Sequence[str]]], str]


def left_out_text(left_out: LeftOut, noun: str, code: Callable[[str], str], table: Table) -> str:
    """Describe what was measured.

    Parameters
    ----------
    left_out : LeftOut
    noun : str
        What a sample is called.
    code, table : callable
        Write a name and a table as Markdown.
    """
    numbers = not left_out.confidence
    what = "intervals contain the true number" if numbers else "sets contain the right class"
    first = (
        f"`predictor.predict_sets({noun}s, coverage=0.9)`: {what} for this share of the {noun}s, "
        "on average over left-out domains. Each domain was predicted by heads trained without it, "
        "and measured with the threshold of the other domains; a single model, the models of an "
        "ensemble, and features selected by the paper's method were chosen on all domains. On a "
        "domain that differs more, the share can be lower."
    )
    header = ["coverage", "measured, mean", "worst domain", "half-width" if numbers else "classes"]
    rows = []
    for each in left_out.sets:
        domain, worst = each.worst
        widths = ", ".join(f"± {half:.4g}" for half in each.thresholds)
        size = widths if each.size is None else f"{each.size:.1f}"
        mean, lowest = f"{each.average:.1f} %", f"{worst:.1f} % ({code(domain)})"
        rows.append([f"{100 * each.level:g} %", mean, lowest, size])
    text = f"{first}\n\n{table(header, rows)}"
    if numbers:
        return text
    points = [point for point in left_out.confidence if point.confidence in _CONFIDENCES]
    curve = [
        [f"{point.confidence:g}" if point.confidence else "any", f"{point.kept:.0f} %"]
        + ["-" if value is None else f"{value:.1f} %" for value in (point.accuracy, point.worst)]
        for point in points
    ]
    kept = table([f"{noun}s of this confidence", "share", "accuracy", "worst domain"], curve)
    return f"{text}\n\nThe confidence is the probability of the predicted class.\n\n{kept}"

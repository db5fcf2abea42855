"""What would change the result of an evaluation: each piece of advice is measured, or says how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oodzoo.combining.evaluation.learning_curve import NOISE, FewerDomains, LearningCurve, is_enough
from oodzoo.combining.evaluation.rows import Gain

SAME = "the same"
"""A difference that is not shown, in words."""

KINDS = ("more_images", "more_domains", "target_images", "fine_tuning", "budget")
"""What advice is about, in the order in which it is given."""


@dataclass(frozen=True)
class Advice:
    """What would change the result.

    Attributes
    ----------
    kind : {"more_images", "more_domains", "target_images", "fine_tuning", "budget"}
    text : str
        One or two sentences.
    gain : float, optional
        Measured points of the main metric, compared with what is recommended; for "more_images" and
        "more_domains", what the last ones gained. None if it was not measured: the text says how.
    """

    kind: str
    text: str
    gain: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"advice must be one of {', '.join(KINDS)}, got {self.kind!r}")


def on_images(curve: LearningCurve) -> Advice:
    """Say whether more images of the same domains would help."""
    how = " Add them to the data and run the same command again." if curve.helps else ""
    return Advice("more_images", curve.text + how, curve.gain)


def on_domains(found: FewerDomains, metric: str) -> Advice:
    """Say whether images of a further domain would help."""
    what = metric.replace("_", " ")
    moved = "raised" if found.gain >= 0 else "lowered"
    text = (
        f"Training on {found.training} domains instead of {found.training - 1} {moved} the {what} "
        f"of the top model by {abs(found.gain):.1f} points"
    )
    more = "labelled images of a further domain would"
    if found.helps:
        text += f": {more} probably help. Add them to the data and run the same command again."
    elif is_enough(found.gain):
        text += f", {NOISE}: it is unclear whether {more} help."
    else:
        text += f": {more} hardly help, unless it is like those that you will meet."
    return Advice("more_domains", text, found.gain)


def on_target(average: float | None, recommended: float) -> Advice:
    """Say what unlabelled images of the target domain gain; `average` is None if not measured."""
    if average is None:
        return Advice(
            "target_images",
            "Unlabelled images of the domain where you will use it may help: oodzoo evaluate STORE "
            "--with-target measures by how much.",
        )
    gain = average - recommended
    found = f"With unlabelled images of each test domain, the pool reaches {average:.1f} %, "
    found += f"{points(gain)}"
    if gain > 0:
        found += ": if you have some, use oodzoo fit STORE --target FOLDER --out MODEL"
    return Advice("target_images", f"{found}.", gain)


def on_tuning(gain: Gain | None, title: str = "", *, recommended: bool = False) -> Advice:
    """Say what fine-tuning gains; None if that was not measured. `title` names what it is over.

    How to do it is said only if it is `recommended`.
    """
    if gain is None:
        return Advice(
            "fine_tuning",
            "Fine-tuning the top model may help: oodzoo evaluate STORE --tune --data DATA measures "
            "by how much.",
        )
    than = "as" if points(gain.average) == SAME else "than"
    text = f"Fine-tuning the top model gives {points(gain.average)} {than} {title}"
    if recommended:
        text += ": oodzoo fit STORE --choose single --out MODEL, then oodzoo tune MODEL DATA "
        text += "--out NEW"
    return Advice("fine_tuning", f"{text}.", gain.average)


def on_budget(
    max_ms: float,
    name: str,
    average: float,
    recommended: float,
    times: float,
    metric: str = "accuracy",
) -> Advice:
    """Say what is recommended with less time per image.

    Parameters
    ----------
    max_ms : float
        The limit in milliseconds.
    name : str
        What is recommended within it.
    average, recommended : float
        Its main metric in percent, and that of what is recommended without the limit.
    times : float
        How many times as fast it is.
    metric : str
        Name of the main metric.
    """
    gain = average - recommended
    difference = points(gain)
    if difference == SAME:
        difference += f" {metric.replace('_', ' ')}"
    text = (
        f"With at most {max_ms:g} ms per image (--max-ms {max_ms:g}): {name}, {average:.1f} %, "
        f"{difference}, {times:.{0 if times >= 10 else 1}f} times as fast."
    )
    return Advice("budget", text, gain)


def points(gain: float) -> str:
    """A difference in words.

    Examples
    --------
    >>> points(-10.32), points(0.5), points(0.01)
    ('10.3 points less', '0.5 points more', 'the same')
    """
    if abs(gain) < 0.05:
        return SAME
    return f"{abs(gain):.1f} points {'more' if gain > 0 else 'less'}"


def most_useful(advice: Sequence[Advice]) -> list[Advice]:
    """What to try first, of the advice that other findings do not state: data, and less time."""
    data = [each for each in advice if each.kind in ("more_images", "more_domains")]
    budgets = [each for each in advice if each.kind == "budget"]
    best = [max(data, key=lambda each: each.gain or 0)] if data else []
    return [*best, *budgets[:1]]

"""What the recommended choice gets right and wrong, and what would change it: measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.evaluation.learning_curve import NOISE, FewerDomains, LearningCurve, is_enough
from oodzoo.combining.evaluation.rows import Gain
from oodzoo.core.text import count
from oodzoo.extraction.source import FeatureSource, StoreSource
from oodzoo.tasks.diagnosis.classes import ClassDiagnosis, add_up, diagnose_classes

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


_FEW = 3
"""Classes and confusions that a sentence names."""

_GOOD = 99.5
"""Classes with a recall above this, in percent, are not named as the worst ones."""


_FAR_BELOW = 20.0
"""Points of recall below the mean of the other classes from which a class fails."""


def diagnose(
    source: FeatureSource,
    test: str,
    rows: NDArray[np.int64],
    values: NDArray[np.float64],
    labels: NDArray[Any],
) -> ClassDiagnosis | None:
    """Diagnose predictions of some rows of a test domain; None unless they are of classes.

    Parameters
    ----------
    source : FeatureSource
    test : str
        The domain.
    rows : array of int (n,)
        Which of its samples the predictions are for.
    values : array (n, C)
        Probabilities of the classes.
    labels : array (n,)
    """
    if not source.task.is_classification:
        return None
    paths = sample_paths(source, test)
    return diagnose_classes(
        values,
        labels,
        [str(name) for name in source.classes],
        paths=[paths[row] for row in rows.tolist()],
        domains=test,
    )


def sample_paths(source: FeatureSource, domain: str) -> list[str]:
    """The path of the image of each sample; "row 0", … of the domain, if there are only arrays."""
    if isinstance(source, StoreSource):
        return source.store.paths(domain)
    return [f"row {row}" for row in range(len(source.labels(domain)))]


def failing_class(diagnosis: Mapping[str, ClassDiagnosis]) -> tuple[str, float] | None:
    """Return the class that is recognised worst, with its recall in percent.

    None unless its recall, over all domains, is far below the mean of the other classes.

    Examples
    --------
    >>> found = diagnose_classes(
    ...     np.array([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8]]),
    ...     np.array([0, 1, 1]),
    ...     ["cat", "dog"],
    ...     paths=["a.jpg", "b.jpg", "c.jpg"],
    ...     domains="photo",
    ... )
    >>> failing_class({"photo": found})
    ('dog', 50.0)
    """
    if not diagnosis:
        return None
    recalls = {
        name: each.recall
        for name, each in add_up(diagnosis.values()).per_class.items()
        if each.recall is not None
    }
    if len(recalls) < 2:
        return None
    worst = min(recalls, key=recalls.__getitem__)
    rest = (sum(recalls.values()) - recalls[worst]) / (len(recalls) - 1)
    return (worst, recalls[worst]) if rest - recalls[worst] >= _FAR_BELOW else None


def weak_points(diagnosis: Mapping[str, ClassDiagnosis]) -> str:
    """Name the classes that are recognised worst and taken for one another, over all domains.

    Examples
    --------
    >>> found = diagnose_classes(
    ...     np.array([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8]]),
    ...     np.array([0, 1, 1]),
    ...     ["cat", "dog"],
    ...     paths=["a.jpg", "b.jpg", "c.jpg"],
    ...     domains="photo",
    ... )
    >>> weak_points({"photo": found})
    "Recognised worst: 'dog' (50 %). Most often confused: 'dog' taken for 'cat' (1 image)."
    """
    if not diagnosis:
        return ""
    total = add_up(diagnosis.values())
    recalls = {name: each.recall for name, each in total.per_class.items()}
    known = {name: recall for name, recall in recalls.items() if recall is not None}
    worst = [name for name in sorted(known, key=known.__getitem__) if known[name] <= _GOOD][:_FEW]
    if not worst:
        return ""
    classes = ", ".join(f"{name!r} ({known[name]:.0f} %)" for name in worst)
    pairs = ", ".join(
        f"{label!r} taken for {predicted!r} ({count(images, 'image')})"
        for label, predicted, images in total.confusions[:_FEW]
    )
    return f"Recognised worst: {classes}. Most often confused: {pairs}."

"""What the recommended choice gets right and wrong on each test domain, by class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.text import count
from oodzoo.extraction.source import FeatureSource, StoreSource
from oodzoo.tasks.diagnosis.classes import ClassDiagnosis, add_up, diagnose_classes

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

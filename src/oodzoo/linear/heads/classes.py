"""The variation of labels that a head needs, such as two classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.extraction.source import FeatureSource
from oodzoo.tasks import Task
from oodzoo.tasks.arrays import Labels, require_variation


def require_two_classes(labels: NDArray[np.int64], classes: Sequence[Any] | None = None) -> None:
    """Raise an InputError if all labels, positions in `classes`, are the same."""
    if len(labels) and (labels == labels[0]).all():
        only = labels[0].item() if classes is None else classes[labels[0]]
        raise InputError(
            f"all labels are of one class, {only!r} ({count(len(labels), 'sample')}); at least two "
            "classes are needed"
        )


def require_classes_for(task: Task, what: str) -> None:
    """Raise an InputError if what is asked for needs classes, and the task is of another kind."""
    if not task.is_classification:
        raise InputError(f"{what} needs classes, but the task is {task.kind!r}; leave it out")


def require_classes_to_tell_apart(
    source: FeatureSource, domains: Sequence[str] | None = None
) -> None:
    """Raise an InputError if the labels of some domains, or of all, do not vary."""
    labels = [source.labels(domain) for domain in (source.domains if domains is None else domains)]
    if labels:
        require_variation(Labels(source.task, source.classes, np.concatenate(labels)))

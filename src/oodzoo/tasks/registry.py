"""The tasks by name: a new one is a file with a class, and a line here."""

from __future__ import annotations

from collections.abc import Iterable

from oodzoo.tasks.classification import CLASSIFICATION, ClassDiagnosis, Classification
from oodzoo.tasks.multilabel import LabelDiagnosis, Multilabel
from oodzoo.tasks.regression import NumberDiagnosis, Regression
from oodzoo.tasks.task import Kind, Task

TASKS: dict[Kind, type[Task]] = {
    each.kind: each for each in (Classification, Regression, Multilabel)
}

AnyTask = Classification | Regression | Multilabel
"""A task in a document."""


AnyDiagnosis = ClassDiagnosis | NumberDiagnosis | LabelDiagnosis


def task_of(kind: Kind, outputs: Iterable[str] = ()) -> Task:
    """Return the task of a name, with the names of its outputs; classes are not kept.

    Examples
    --------
    >>> task_of("regression", ["age", "height"])
    Regression(outputs=('age', 'height'))
    >>> task_of("classification", ["cat", "dog"])
    Classification(outputs=())
    """
    task = TASKS[kind]
    return CLASSIFICATION if task is Classification else task(tuple(outputs))

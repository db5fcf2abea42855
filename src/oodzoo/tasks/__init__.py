"""What is predicted: classes, numbers, or several labels per sample. A new task is a file here."""

# the order in which they are listed
from oodzoo.tasks import classification, regression, multilabel  # noqa: I001, F401
from oodzoo.tasks.arrays import as_labels
from oodzoo.tasks.classification import CLASSIFICATION
from oodzoo.tasks.task import KINDS, TASKS, Kind, Labels, Task, register, require_kind, task_of

__all__ = [
    "CLASSIFICATION",
    "KINDS",
    "TASKS",
    "Kind",
    "Labels",
    "Task",
    "as_labels",
    "register",
    "require_kind",
    "task_of",
]

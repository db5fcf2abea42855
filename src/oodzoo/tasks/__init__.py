"""What is predicted: classes, numbers, or several labels per sample."""

from oodzoo.tasks.arrays import as_labels
from oodzoo.tasks.classification import CLASSIFICATION
from oodzoo.tasks.registry import TASKS, AnyDiagnosis, AnyTask, task_of
from oodzoo.tasks.task import KINDS, Kind, Labels, Task, require_kind

__all__ = [
    "CLASSIFICATION",
    "KINDS",
    "TASKS",
    "AnyDiagnosis",
    "AnyTask",
    "Kind",
    "Labels",
    "Task",
    "as_labels",
    "require_kind",
    "task_of",
]

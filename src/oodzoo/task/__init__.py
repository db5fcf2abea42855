"""What is predicted: classes, numbers, or several labels per sample."""

from oodzoo.task.arrays import Labels, as_labels
from oodzoo.task.kinds import CLASSIFICATION, KINDS, Kind, Task, require_kind

__all__ = ["CLASSIFICATION", "KINDS", "Kind", "Labels", "Task", "as_labels", "require_kind"]

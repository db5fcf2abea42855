"""What is predicted: classes, numbers, or several labels per sample."""

from oodzoo.tasks.arrays import Labels, as_labels
from oodzoo.tasks.kinds import CLASSIFICATION, KINDS, Kind, Task, require_kind

__all__ = ["CLASSIFICATION", "KINDS", "Kind", "Labels", "Task", "as_labels", "require_kind"]

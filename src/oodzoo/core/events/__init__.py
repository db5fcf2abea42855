"""Events of long work: progress bars, log files, the record of a run, MLflow and TensorBoard."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from oodzoo.core.events.listener import (
    Events,
    Listener,
    Listeners,
    Log,
    NotebookProgress,
    Progress,
    Stage,
    extent,
    or_notebook,
    share_done,
)
from oodzoo.core.events.progress import TimeLeft, Together, advance, part, tracked

if TYPE_CHECKING:
    from oodzoo.core.events.tracking import LogFile, MLflowListener, TensorBoardListener

__all__ = [
    "Events",
    "Listener",
    "Listeners",
    "Log",
    "LogFile",
    "MLflowListener",
    "NotebookProgress",
    "Progress",
    "Stage",
    "TensorBoardListener",
    "TimeLeft",
    "Together",
    "advance",
    "extent",
    "or_notebook",
    "part",
    "share_done",
    "tracked",
]

# Imported when first used: most work has none of them, and `oodzoo --help` stays fast.
_HOME = {
    "LogFile": "oodzoo.core.events.tracking",
    "MLflowListener": "oodzoo.core.events.tracking",
    "TensorBoardListener": "oodzoo.core.events.tracking",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'oodzoo.core.events' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)

"""Events of long work: progress bars, log files, the record of a run, MLflow and TensorBoard."""

from oodzoo.events.listener import Events, Listener, Listeners, Log, Progress
from oodzoo.events.stage import Stage, extent

__all__ = ["Events", "Listener", "Listeners", "Log", "Progress", "Stage", "extent"]

"""Feature selection over the concatenated features of several models."""

from oodzoo.selection.select import Selection, select_features
from oodzoo.selection.selector import SpikeSlabSelector

__all__ = ["Selection", "SpikeSlabSelector", "select_features"]

"""The public names of :mod:`oodzoo.ranking.testbed`."""

from oodzoo.ranking.testbed import *  # noqa: F403  those of the room
from oodzoo.ranking.testbed import __all__ as __all__

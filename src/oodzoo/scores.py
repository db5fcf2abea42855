"""The public names of :mod:`oodzoo.ranking.scores`."""

from oodzoo.ranking.scores import *  # noqa: F403  those of the room
from oodzoo.ranking.scores import __all__ as __all__

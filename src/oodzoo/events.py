"""The public names of :mod:`oodzoo.core.events`."""

from oodzoo.core.events import *  # noqa: F403  those of the room
from oodzoo.core.events import __all__ as __all__

"""Types of the callbacks by which long work reports its progress."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with (done, total)."""

Log = Callable[[str], None]
"""Called with one line about the current step."""

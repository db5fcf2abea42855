"""Budgets of time as users write them."""

from __future__ import annotations

import math
import re

from oodzoo.errors import InputError

_AMOUNT = r"([0-9]+(?:\.[0-9]+)?)"
_PARTS = re.compile(
    rf"(?:{_AMOUNT}\s*h)?\s*(?:{_AMOUNT}\s*m(?:in)?)?\s*(?:{_AMOUNT}\s*s)?", re.IGNORECASE
)


def parse_budget(given: str | float) -> float:
    """Read a duration: text with units, such as 30m or 1h30m, or seconds; return seconds.

    Examples
    --------
    >>> parse_budget("30m"), parse_budget("1h30m"), parse_budget("90s"), parse_budget(12.5)
    (1800.0, 5400.0, 90.0, 12.5)
    """
    if isinstance(given, str):
        if re.fullmatch(_AMOUNT, text := given.strip()):
            raise InputError(
                f"a budget needs a unit: {text}s (seconds), {text}m (minutes) or {text}h (hours), "
                f"got {given!r}"
            )
        seconds = _seconds(text)
    else:
        seconds = math.nan if isinstance(given, bool) else float(given)
    if not 0 < seconds < math.inf:
        raise InputError(
            f"a budget is a duration above 0, such as 30m, 2h, 1h30m or 90s, got {given!r}"
        )
    return seconds


def _seconds(text: str) -> float:
    """Return the seconds of a text; not a number if it is not a duration."""
    found = _PARTS.fullmatch(text)
    if not text or found is None:
        return math.nan
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return 3600 * hours + 60 * minutes + seconds

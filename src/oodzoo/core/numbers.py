"""Numbers as text, for reports and notebooks."""

from __future__ import annotations

import math
from typing import TypeGuard

MISSING = "–"
"""Stands for a number that is missing."""


def number(value: float | None, digits: int = 0) -> str:
    """A number with a fixed count of decimals, a minus sign, and groups of thousands.

    Examples
    --------
    >>> number(0.0712, 3), number(1400), number(None), number(-0.0001, 1)
    ('0.071', '1,400', '–', '0.0')
    """
    if not is_number(value):
        return MISSING
    return f"{value:z,.{digits}f}".replace("-", "\N{MINUS SIGN}")


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def span(low: float | None, high: float | None, *, digits: int = 0) -> str:
    """An interval: with an en dash, or the word "to" next to a minus sign.

    Examples
    --------
    >>> span(1, 3), span(None, 1), span(-0.5, 0.5, digits=1)[1:]
    ('1–3', '–', '0.5 to 0.5')
    """
    if not (is_number(low) and is_number(high)):
        return MISSING
    between = " to " if low < 0 or high < 0 else "–"
    return f"{number(low, digits)}{between}{number(high, digits)}"


def time_per_image(milliseconds: float) -> str:
    """Milliseconds with a decimal; two significant figures below one, where tiny models are.

    Examples
    --------
    >>> time_per_image(15.94), time_per_image(0.03), time_per_image(0.00399)
    ('15.9', '0.030', '0.0040')
    """
    return number(milliseconds, 1) if milliseconds >= 1 else significant(milliseconds, 2)


def significant(value: float | None, figures: int = 3) -> str:
    """A number of unknown magnitude, rounded to a few significant figures.

    Examples
    --------
    >>> significant(1234.5), significant(0.012345), significant(3.2e9)
    ('1,234', '0.0123', '3.2e+09')
    """
    if not is_number(value):
        return MISSING
    if value == 0:
        return "0"
    power = math.floor(math.log10(abs(value)))
    if power < -4 or power > 8:
        return f"{value:.{figures - 1}g}".replace("-", "\N{MINUS SIGN}")
    return number(value, max(0, figures - 1 - power))

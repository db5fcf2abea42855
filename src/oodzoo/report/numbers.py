"""Numbers and names as a person reads them."""

from __future__ import annotations

import math
import unicodedata
from typing import Any, TypeGuard

NOTHING = "–"
"""What stands where a number is missing."""


def number(value: Any, digits: int = 0) -> str:
    """A number with a fixed count of decimals, a real minus sign, and thin groups of thousands.

    Examples
    --------
    >>> number(0.0712, 3), number(1400), number(None), number(-0.0001, 1)
    ('0.071', '1,400', '–', '0.0')
    """
    if not is_number(value):
        return NOTHING
    text = f"{value:,.{digits}f}"
    if not text.strip("-0.,"):
        text = text.lstrip("-")  # minus nothing is nothing
    return text.replace("-", "\N{MINUS SIGN}")


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value of a document is a number that can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def span(low: Any, high: Any, *, digits: int = 0) -> str:
    """An interval: with an en dash, or the word "to" where a sign would be misread."""
    if not (is_number(low) and is_number(high)):
        return NOTHING
    between = " to " if low < 0 or high < 0 else "–"
    return f"{number(low, digits)}{between}{number(high, digits)}"


def significant(value: Any, figures: int = 3) -> str:
    """A number of unknown size with a few significant figures.

    Examples
    --------
    >>> significant(1234.5), significant(0.012345), significant(3.2e9)
    ('1,234', '0.0123', '3.2e+09')
    """
    if not is_number(value):
        return NOTHING
    if value == 0:
        return "0"
    power = math.floor(math.log10(abs(value)))
    if power < -4 or power > 8:
        return f"{value:.{figures - 1}g}".replace("-", "\N{MINUS SIGN}")
    return number(value, max(0, figures - 1 - power))


def duration(seconds: Any) -> str:
    """A time for people.

    Examples
    --------
    >>> duration(0.034), duration(12.31), duration(75), duration(7300)
    ('0.03 s', '12.3 s', '1 min 15 s', '2 h 1 min')
    """
    if not is_number(seconds):
        return NOTHING
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def ems(text: str) -> float:
    """About how wide a text is, in units of its font size; on the safe side for a wide font."""
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)
    return 0.62 * (len(text) - wide) + 1.05 * wide


def shortened(text: str, room: float, size: float = 12) -> str:
    """A name cut in its middle to fit a width: what tells names apart is often at their ends.

    Examples
    --------
    >>> shortened("mobilenet_v2_torchvision_imagenet", 120)
    'mobilen…magenet'
    >>> shortened("resnet50", 120)
    'resnet50'
    """
    text = " ".join(text.split())
    if ems(text) * size <= room:
        return text
    keep = len(text) - 1
    while (
        keep > 2 and (ems(text[: keep - keep // 2]) + ems(text[-(keep // 2) :]) + 1) * size > room
    ):
        keep -= 1
    return f"{text[: keep - keep // 2]}…{text[-(keep // 2) :]}"


def listed(names: list[str], most: int = 3) -> str:
    """Names in a sentence.

    Examples
    --------
    >>> listed(["a"]), listed(["a", "b"]), listed(list("abcde"))
    ('a', 'a and b', 'a, b, c and 2 more')
    """
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))

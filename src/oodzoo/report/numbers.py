"""Numbers and names as text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from oodzoo._numbers import MISSING, is_number, number, significant, span

__all__ = [
    "MISSING",
    "is_number",
    "listed",
    "number",
    "shortened",
    "significant",
    "span",
    "text_width",
]


def text_width(text: str, size: float) -> float:
    """Estimate the width of a text in pixels; an upper bound for common fonts."""
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)
    return (0.62 * (len(text) - wide) + 1.05 * wide) * size


def shortened(text: str, room: float, size: float = 12) -> str:
    """Cut a name in its middle to fit a width: the ends usually distinguish names.

    Examples
    --------
    >>> shortened("mobilenet_v2_torchvision_imagenet", 120)
    'mobilen…magenet'
    >>> shortened("resnet50", 120)
    'resnet50'
    """
    text = " ".join(text.split())
    if text_width(text, size) <= room or len(text) < 3:
        return text
    for keep in range(len(text) - 1, 1, -1):
        start, end = text[: keep - keep // 2], text[-(keep // 2) :]
        if text_width(start + end, size) + size <= room:
            break
    return f"{start}…{end}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """Names in a sentence.

    Examples
    --------
    >>> listed(["a"]), listed(["a", "b"]), listed(list("abcde"))
    ('a', 'a and b', 'a, b, c and 2 more')
    """
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))

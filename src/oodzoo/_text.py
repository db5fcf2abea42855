"""Text helpers for messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def count(n: int, noun: str, plural: str | None = None) -> str:
    """Format a number with a noun in the matching singular or plural form.

    Examples
    --------
    >>> count(1, "model"), count(1400, "image"), count(2, "class", "classes")
    ('1 model', '1,400 images', '2 classes')
    """
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def one_line(error: BaseException, limit: int = 200) -> str:
    """Format an error as one line of limited length: its message, or its class if it has none."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest similar names as a question; an empty string if there are none.

    Examples
    --------
    >>> did_you_mean("logm", ["logme", "lda"])
    'did you mean logme?'
    """
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else ""

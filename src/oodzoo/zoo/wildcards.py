"""Wildcards in names of models: `vit_small*`, `ViT-B-?2/laion*`, `[a-c]*`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from oodzoo.core.errors import InputError
from oodzoo.core.text import did_you_mean

_WILDCARDS = re.compile(r"[*?\[]")


def has_wildcard(text: str) -> bool:
    """Whether a text has one of the characters `*`, `?` and `[`."""
    return _WILDCARDS.search(text) is not None


def matching(pattern: str, names: Iterable[str], subject: str) -> list[str]:
    """Return the names that match a pattern, in order; `subject` begins the error if none does.

    Examples
    --------
    >>> matching("resnet*", ["resnet18", "resnet50", "vit"], "this zoo has no model")
    ['resnet18', 'resnet50']
    """
    known = list(names)
    found = [name for name in known if fnmatchcase(name, pattern)]
    if found:
        return found
    if not has_wildcard(pattern):
        hint = did_you_mean(pattern, known)
        raise InputError(f"{subject} {pattern!r}{hint and f'; {hint}'}")
    near = _near(pattern, known)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise InputError(f"{subject} that matches {pattern!r}{hint}")


def _near(pattern: str, names: list[str]) -> list[str]:
    """Patterns similar to one that matches nothing: with another text before its wildcard."""
    start = _WILDCARDS.split(pattern)[0]
    if start:
        starts = {name[: len(start)] for name in names}
        return [text + pattern[len(start) :] for text in _similar(start, starts, names, pattern)]
    longest = max(re.findall(r"[^*?\[\]]+", pattern), key=len, default="")
    words = {word for name in names for word in re.split(r"[._/-]", name) if word}
    return [pattern.replace(longest, word) for word in _similar(longest, words, names, pattern)]


def _similar(text: str, others: set[str], names: list[str], pattern: str) -> list[str]:
    """Texts similar to a part of a pattern that match something when they replace it."""
    near = difflib.get_close_matches(text, sorted(others), n=3, cutoff=0.6) if text else []
    return [
        other
        for other in near
        if any(fnmatchcase(name, pattern.replace(text, other, 1)) for name in names)
    ]
